#!/usr/bin/env bash
# Builds Kubernetes and its tools from Go modules, with the plain go command.
#
#   build.sh GROUP...
#
#   control  etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl
#   node     kubelet, kube-proxy, containerd, CNI plugins, CoreDNS, local-path-provisioner
#   helm     helm
#
# Programs land in $KUBE_BIN. One is built again only when the module that it comes from has changed. What it does,
# it says on stderr.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# build FOLDER LDFLAGS NAME=PACKAGE...: from the module in that folder.
build() {
	local dir=$kube_dir/$1 ldflags=$2 spec stamp
	shift 2
	stamp=$(cd "$dir" && find . -name '*.go' -o -name 'go.*' | LC_ALL=C sort | xargs cat | sha256sum)
	for spec; do
		compile "$dir" "$ldflags" "${spec%%=*}" "${spec#*=}" "$stamp"
	done
}

# compile FOLDER LDFLAGS NAME PACKAGE STAMP: unless NAME was built with that stamp.
compile() {
	local name=$3 built=$KUBE_BIN/.built/$3 start=$SECONDS
	[[ ! -x $KUBE_BIN/$name || $(cat "$built" 2>/dev/null) != "$5" ]] || return 0
	mkdir -p "$(dirname "$KUBE_BIN/$name")" "$(dirname "$built")"
	(cd "$1" && CGO_ENABLED=0 GOWORK=off GOFLAGS= go build -mod=readonly -buildvcs=false -trimpath \
		-ldflags "-s -w $2" -o "$built.tmp$$" "$4")
	mv "$built.tmp$$" "$KUBE_BIN/$name"
	echo "$5" >"$built"
	printf '%-24s %4d s %4d MiB\n' "$name" $((SECONDS - start)) $(($(stat -c %s "$KUBE_BIN/$name") >> 20)) >&2
}

# kubernetes NAME...: programs of Kubernetes itself, with the version that they report: clients read it, and a chart's
# kubeVersion is checked against it.
kubernetes() {
	local name pkg flags= minor=${KUBE_VERSION#v1.}
	for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags+=" -X $pkg.gitVersion=$KUBE_VERSION -X $pkg.gitMajor=1 -X $pkg.gitMinor=${minor%%.*} -X $pkg.gitTreeState=clean"
	done
	for name; do
		build modules/kubernetes "$flags" "$name=k8s.io/kubernetes/cmd/$name"
	done
}

control() {
	build modules/kubernetes "" etcd=go.etcd.io/etcd/server/v3
	kubernetes kube-apiserver kube-controller-manager kube-scheduler kubectl
}

node() {
	local name plugins=github.com/containernetworking/plugins/plugins
	kubernetes kubelet kube-proxy
	build modules/kubernetes "" local-path-provisioner=github.com/rancher/local-path-provisioner
	for name in containerd containerd-shim-runc-v2 ctr; do
		build modules/containerd "" "$name=github.com/containerd/containerd/v2/cmd/$name"
	done
	build modules/cni "" cni/bridge=$plugins/main/bridge cni/host-local=$plugins/ipam/host-local \
		cni/loopback=$plugins/main/loopback
	build modules/coredns "" coredns=quorate.test/kube/coredns
	for name in forward mkimage pause; do
		build local "" "$name=quorate.test/kube/local/$name"
	done
}

helm() {
	build modules/helm "" helm=helm.sh/helm/v4/cmd/helm
}

for group; do
	case $group in
	control | node | helm) "$group" ;;
	*) echo "build.sh: no group $group; there are: control node helm" >&2; exit 2 ;;
	esac
done
