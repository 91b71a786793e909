#!/usr/bin/env bash
# One node of a cluster that up.sh started. N is its number, from 1.
#
#   node.sh start N         starts node N and joins it (nodeN)
#   node.sh stop N          kills it at once, with all its containers: a power cut
#   node.sh cut N           takes it off the network, still running
#   node.sh heal N          puts it back
#   node.sh run N CMD...    runs CMD on the node: its network, mounts and processes
#   node.sh load N TAR...   loads images into its containerd
#
# A node is a network, mount and process namespace. Killing its first process ends everything in it. Its images and
# volumes survive that.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

action=${1:?} n=${2:?} name=node${2} dir=$KUBE_RUN/nodes/node$2 addr=$NODE_NET.$((10 + $2)) ns=$NET-node$2
shift 2

# cgroup_dirs: the node's cgroup in every hierarchy.
cgroup_dirs() {
	awk -v dir="/$NET/$name" '$3 ~ /^cgroup/ {print $2 dir}' /proc/mounts
}

make_cgroups() {
	local dir parent file
	grep -q ' cgroup ' /proc/mounts || die "only cgroup v1 is supported here, alone or beside v2"
	while read -r dir; do
		mkdir -p "$dir"
		# All pods of the cluster together weigh as much as one session of this machine, unless they are given more: beside a
		# busy compiler they would stand still for seconds, as no machine of a cluster does.
		[[ ! -e $dir/cpu.shares ]] || echo 16384 >"${dir%/*}/cpu.shares"
		[[ -e $dir/cpuset.cpus ]] || continue
		for parent in "${dir%/*}" "$dir"; do # a new cpuset is empty, and then takes no process
			for file in cpuset.cpus cpuset.mems; do
				cat "${parent%/*}/$file" >"$parent/$file"
			done
		done
	done < <(cgroup_dirs)
}

remove_cgroups() {
	local dir
	while read -r dir; do
		[[ ! -d $dir ]] || find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || true
		rmdir "${dir%/*}" 2>/dev/null || true # the last node takes the common parent along
	done < <(cgroup_dirs)
}

write_config() {
	local pki=$KUBE_RUN/pki
	mkdir -p "$dir"/{kubelet,containerd,log/pods,volumes,cni}
	cert "$name" "/O=system:nodes/CN=system:node:$name" "DNS:$name,IP:$addr"
	kubeconfig "$dir/kubelet.kubeconfig" "$name" "https://$CP_ADDR:6443"
	: >"$dir/resolv.conf"
	cat >"$dir/kubelet.yaml" <<-END
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		address: $addr
		healthzBindAddress: 127.0.0.1
		authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
		authorization: {mode: Webhook}
		tlsCertFile: $pki/$name.crt
		tlsPrivateKeyFile: $pki/$name.key
		containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
		cgroupDriver: cgroupfs
		cgroupRoot: /$NET/$name
		failCgroupV1: false
		failSwapOn: false
		clusterDomain: cluster.local
		clusterDNS: [$DNS_ADDR]
		resolvConf: $dir/resolv.conf
		syncFrequency: 5s # how soon a pod sees a Secret that changed: tests have certificates of a minute
		nodeStatusUpdateFrequency: 4s
		# There is no registry to pull an image from again: never remove one.
		imageGCHighThresholdPercent: 100
		evictionHard: {memory.available: "0%", nodefs.available: "0%", imagefs.available: "0%", nodefs.inodesFree: "0%", imagefs.inodesFree: "0%"}
		maxPods: 100
	END
	cat >"$dir/kube-proxy.yaml" <<-END
		apiVersion: kubeproxy.config.k8s.io/v1alpha1
		kind: KubeProxyConfiguration
		clientConnection: {kubeconfig: $pki/kube-proxy.kubeconfig}
		hostnameOverride: $name
		mode: nftables
		clusterCIDR: $POD_NET.0.0/16
		conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
	END
	cat >"$dir/containerd.toml" <<-END
		version = 3
		root = "$dir/containerd"
		state = "/run/containerd"
		disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs"]
		[plugins."io.containerd.cri.v1.images".pinned_images]
		sandbox = "localhost/pause:1"
		[plugins."io.containerd.cri.v1.runtime"]
		restrict_oom_score_adj = true # not every machine lets root lower it
		[plugins."io.containerd.cri.v1.runtime".cni]
		bin_dirs = ["$KUBE_BIN/cni"]
		conf_dir = "$dir/cni"
		[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
		runtime_type = "io.containerd.runc.v2"
		[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
		SystemdCgroup = false
	END
	cat >"$dir/cni/pods.conflist" <<-END
		{"cniVersion": "1.0.0", "name": "pods", "plugins": [
		 {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
		  "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam",
		           "ranges": [[{"subnet": "$POD_NET.$n.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
	END
}

# The node's network: forwarding, and a route to the pods of every other node.
make_network() {
	local other i
	join_fabric "$name" "$addr"
	ip -n "$ns" route replace "$SERVICE_NET" dev eth0 # kube-proxy turns these addresses into pods'
	nsenter --net="/run/netns/$ns" sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
	for other in /run/netns/"$NET"-node*; do
		i=${other##*-node}
		((i != n)) || continue
		ip -n "$ns" route replace "$POD_NET.$i.0/24" via "$NODE_NET.$((10 + i))"
		ip -n "$NET-node$i" route replace "$POD_NET.$n.0/24" via "$addr"
	done
	ip -n "$NET-cp" route replace "$POD_NET.$n.0/24" via "$addr"
}

# The node's first process is the only child of the one recorded.
first_process() {
	alive "$name" || die "$name does not run"
	pgrep -P "$(<"$KUBE_RUN/pids/$name")"
}

enter() {
	nsenter --target "$(first_process)" --net --mount --pid -- "$@"
}

import() { # on the node
	local name
	export CONTAINERD_NAMESPACE=k8s.io CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=1
	ctr images import --local "$1" >/dev/null
	# A name without a host, such as app:1, is looked for under the one that containerd puts before it.
	for name in $(ctr images list -q 'name~="^[^/]+:"'); do
		[[ $name == sha256:* ]] || ctr images tag --force "$name" "docker.io/library/$name" >/dev/null
	done
}

# Runs as the node's first process.
init() {
	mount --make-rshared /
	mount -t tmpfs -o mode=755 tmpfs /run
	mkdir -p /run/netns
	mount --bind "$dir/log" /var/log
	mount --bind "$dir/volumes" /mnt
	containerd --config "$dir/containerd.toml" >>"$KUBE_RUN/logs/$name-containerd.log" 2>&1 &
	until ctr version >/dev/null 2>&1; do sleep 0.1; done
	shopt -s nullglob
	for tar in "$KUBE_RUN"/images/*.tar; do import "$tar"; done
	kube-proxy --config="$dir/kube-proxy.yaml" >>"$KUBE_RUN/logs/$name-kube-proxy.log" 2>&1 &
	kubelet --config="$dir/kubelet.yaml" --kubeconfig="$dir/kubelet.kubeconfig" --root-dir="$dir/kubelet" \
		--hostname-override="$name" --node-ip="$addr" --node-labels="topology.kubernetes.io/zone=zone-$n" \
		>>"$KUBE_RUN/logs/$name-kubelet.log" 2>&1 &
	wait -n || true # a node that lost one of the three is down
	echo "$name: a daemon ended, see $KUBE_RUN/logs"
}

case $action in
start)
	alive "$name" && exit 0
	make_cgroups
	make_network
	write_config
	start "$name" nsenter --net="/run/netns/$ns" \
		unshare --mount --pid --fork --kill-child --mount-proc "$kube_dir/node.sh" init "$n"
	wait_for "$name" kubectl wait --for=condition=Ready --timeout=1s "node/$name"
	;;
init) init ;;
stop)
	if alive "$name"; then
		kill -KILL "$(first_process)" # the recorded one ends when all in it have
		stop "$name"
	fi
	remove_cgroups
	;;
cut) ip -n "$NET-net" link set "$name" down ;;
heal) ip -n "$NET-net" link set "$name" up ;;
run) enter "$@" ;;
load) for tar; do enter "$kube_dir/node.sh" import "$n" "$tar"; done ;;
import) import "$1" ;;
*) die "no action $action" ;;
esac
