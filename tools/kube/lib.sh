# Shared by the scripts that start and stop things.
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# The API server as this machine reaches it: 127.0.0.1 and this port.
KUBE_PORT=${KUBE_PORT:-16443}

# Everything lives in network namespaces named $NET-*, joined by a bridge in $NET-net. The machine's own namespace has
# no address in it: it reaches the API server through local/forward.
NET=${KUBE_NET:-quorate-kube}
NODE_NET=10.98.0       # control plane .1, node i .(10+i)
CP_ADDR=$NODE_NET.1
POD_NET=10.244         # node i has 10.244.i.0/24
SERVICE_NET=10.96.0.0/16
SERVICE_ADDR=10.96.0.1
DNS_ADDR=10.96.0.10

# Settings of the whole machine that up.sh (the last) and the kubelet change; down.sh puts them back.
SYSCTLS="vm.overcommit_memory kernel.panic kernel.panic_on_oops fs.inotify.max_user_instances"

die() { echo "${0##*/}: $*" >&2; exit 1; }

# wait_for WHAT COMMAND...: until COMMAND succeeds, 120 s at most.
wait_for() {
	local what=$1 end=$((SECONDS + 120))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || die "$what: not ready after 120 s; see $KUBE_RUN/logs"
		sleep 0.3
	done
}

# alive NAME: is the process that start recorded still running? Its environment names this cluster, so a number that
# was given out again is not taken for it.
alive() {
	local pid
	pid=$(cat "$KUBE_RUN/pids/$1" 2>/dev/null) || return 1
	grep -qzxF "QUORATE_KUBE=$KUBE_RUN $1" "/proc/$pid/environ" 2>/dev/null
}

# start NAME COMMAND...: in the background, unless it already runs.
start() {
	local name=$1
	shift
	alive "$name" && return
	QUORATE_KUBE="$KUBE_RUN $name" setsid "$@" </dev/null >>"$KUBE_RUN/logs/$name.log" 2>&1 &
	echo $! >"$KUBE_RUN/pids/$name"
}

# stop NAME [SIGNAL]: and wait until it is gone; after 10 s, kill it.
stop() {
	local name=$1 signal=${2:-TERM} pid end=$((SECONDS + 10))
	if alive "$name"; then
		pid=$(<"$KUBE_RUN/pids/$name")
		kill -"$signal" "$pid"
		while alive "$name"; do
			((SECONDS < end)) || kill -KILL "$pid"
			sleep 0.1
		done
	fi
	rm -f "$KUBE_RUN/pids/$name"
}

# make_fabric, join_fabric NAME ADDR: the bridge, and a namespace on it.
make_fabric() {
	if [[ ! -e /run/netns/$NET-net ]]; then
		ip netns add "$NET-net"
		ip -n "$NET-net" link add br0 type bridge
		ip -n "$NET-net" link set br0 up
	fi
}

join_fabric() {
	local ns=$NET-$1
	[[ ! -e /run/netns/$ns ]] || return 0
	ip netns add "$ns"
	ip -n "$ns" link set lo up
	ip -n "$NET-net" link add "$1" type veth peer name eth0 netns "$ns"
	ip -n "$NET-net" link set "$1" master br0 up
	ip -n "$ns" addr add "$2/24" dev eth0
	ip -n "$ns" link set eth0 up
}

# cert NAME SUBJECT [SAN]: $pki/NAME.crt and .key, signed by the cluster's CA.
cert() {
	local pki=$KUBE_RUN/pki
	[[ ! -e $pki/$1.crt ]] || return 0
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 \
		-CA "$pki/ca.crt" -CAkey "$pki/ca.key" -subj "$2" -keyout "$pki/$1.key" -out "$pki/$1.crt" \
		-addext basicConstraints=critical,CA:FALSE -addext keyUsage=critical,digitalSignature \
		-addext extendedKeyUsage=clientAuth,serverAuth ${3:+-addext "subjectAltName=$3"} 2>/dev/null
}

# kubeconfig FILE CERT SERVER
kubeconfig() {
	local pki=$KUBE_RUN/pki
	cat >"$1" <<-END
		apiVersion: v1
		kind: Config
		current-context: quorate-kube
		contexts: [{name: quorate-kube, context: {cluster: quorate-kube, user: quorate-kube}}]
		clusters:
		- name: quorate-kube
		  cluster: {server: "$3", certificate-authority-data: $(base64 -w0 "$pki/ca.crt")}
		users:
		- name: quorate-kube
		  user: {client-certificate-data: $(base64 -w0 "$pki/$2.crt"), client-key-data: $(base64 -w0 "$pki/$2.key")}
	END
	chmod 600 "$1"
}

make_pki() {
	local pki=$KUBE_RUN/pki server=https://$CP_ADDR:6443
	[[ ! -e $KUBECONFIG ]] || return 0
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 \
		-subj /CN=quorate-kube -keyout "$pki/ca.key" -out "$pki/ca.crt" 2>/dev/null
	openssl genrsa -out "$pki/sa.key" 2048 2>/dev/null
	cert apiserver /CN=kube-apiserver \
		"DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:$SERVICE_ADDR,IP:$CP_ADDR"
	cert kubelet-client /CN=kube-apiserver-kubelet-client
	cert admin /O=system:masters/CN=admin
	cert controller-manager /CN=system:kube-controller-manager
	cert scheduler /CN=system:kube-scheduler
	cert kube-proxy /CN=system:kube-proxy
	kubeconfig "$pki/controller-manager.kubeconfig" controller-manager "$server"
	kubeconfig "$pki/scheduler.kubeconfig" scheduler "$server"
	kubeconfig "$pki/kube-proxy.kubeconfig" kube-proxy "$server"
	kubeconfig "$KUBECONFIG" admin "https://127.0.0.1:$KUBE_PORT"
}
