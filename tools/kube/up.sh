#!/usr/bin/env bash
# Starts a Kubernetes cluster on this machine: the control plane and so many nodes (kubelet, containerd, kube-proxy),
# each in a network namespace of its own. Needs root.
#
#   up.sh [NODES]     3 unless told otherwise
#
# Run again, it starts what is missing; a larger number adds nodes. Then:
#   . env.sh && kubectl get nodes
#
# APISERVER_ARGS holds more flags for the API server.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

nodes=${1:-3}
((nodes > 0)) || die "nodes: $nodes"
((EUID == 0)) || die "needs root: nodes are network, mount and process namespaces"
for program in nft runc busybox ip nsenter unshare setsid mount openssl pgrep sysctl; do
	command -v "$program" >/dev/null || die "$program is missing: install the packages of tools/packages.txt"
done

# What the nodes run before anything is installed.
base_images() {
	local images=$KUBE_RUN/images
	mkdir -p "$images"
	mkimage -tag localhost/pause:1 -out "$images/pause.tar" /pause="$KUBE_BIN/pause"
	mkimage -tag localhost/coredns:1 -out "$images/coredns.tar" /coredns="$KUBE_BIN/coredns"
	mkimage -tag localhost/local-path-provisioner:1 -out "$images/local-path-provisioner.tar" \
		/local-path-provisioner="$KUBE_BIN/local-path-provisioner"
	mkimage -tag localhost/busybox:1 -out "$images/busybox.tar" -user 0:0 -entrypoint /bin/sh \
		/bin/busybox="$(command -v busybox)" $(for name in $(busybox --list); do
			[[ $name == busybox ]] || echo "/bin/$name->busybox"
		done) /tmp/
}

start_control_plane() {
	local pki=$KUBE_RUN/pki in_cp=(nsenter --net="/run/netns/$NET-cp")
	start etcd "${in_cp[@]}" etcd --data-dir="$KUBE_RUN/etcd" --unsafe-no-fsync --log-level=warn

	start apiserver "${in_cp[@]}" kube-apiserver \
		--etcd-servers=http://127.0.0.1:2379 \
		--bind-address=$CP_ADDR --advertise-address=$CP_ADDR --secure-port=6443 \
		--service-cluster-ip-range="$SERVICE_NET" \
		--tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
		--client-ca-file="$pki/ca.crt" \
		--kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key" \
		--kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP \
		--service-account-issuer=https://kubernetes.default.svc.cluster.local \
		--service-account-key-file="$pki/sa.key" --service-account-signing-key-file="$pki/sa.key" \
		--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
		--allow-privileged --profiling=false ${APISERVER_ARGS:-}
	start forward forward "127.0.0.1:$KUBE_PORT" "/run/netns/$NET-cp" "$CP_ADDR:6443"
	wait_for "API server" kubectl get --raw=/readyz

	start controller-manager "${in_cp[@]}" kube-controller-manager \
		--kubeconfig="$pki/controller-manager.kubeconfig" --bind-address=127.0.0.1 \
		--service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt" \
		--cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
		--use-service-account-credentials --leader-elect=false \
		--node-monitor-period=2s --node-monitor-grace-period=16s
	start scheduler "${in_cp[@]}" kube-scheduler \
		--kubeconfig="$pki/scheduler.kubeconfig" --bind-address=127.0.0.1 --leader-elect=false
	wait_for "default service account" kubectl get serviceaccount default
}

"$kube_dir/build.sh" control node
mkdir -p "$KUBE_RUN"/{pids,logs,pki,etcd}
make_fabric
join_fabric cp $CP_ADDR
make_pki
start_control_plane
kubectl apply -f "$kube_dir/manifests/kubelet-access.yaml" >/dev/null
[[ -e $KUBE_RUN/sysctl ]] || sysctl $SYSCTLS >"$KUBE_RUN/sysctl"
sysctl -qw fs.inotify.max_user_instances=1024 # every node takes some
base_images
for i in $(seq "$nodes"); do
	"$kube_dir/node.sh" start "$i"
done
"$kube_dir/addons.sh"
echo "cluster is up: . $kube_dir/env.sh"
