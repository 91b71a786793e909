#!/usr/bin/env bash
# Stops the cluster of $KUBE_RUN and removes its data.
#
#   down.sh [--keep]    --keep: leave data, certificates and logs for the next up.sh
#
# Ends only processes that up.sh and node.sh recorded and that still carry this cluster's name in their environment.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ -d $KUBE_RUN/pids ]] || exit 0
for file in "$KUBE_RUN"/pids/node[0-9]*; do
	[[ -e $file ]] || continue
	"$kube_dir/node.sh" stop "${file##*/node}"
done
for name in forward scheduler controller-manager apiserver etcd; do
	stop "$name"
done
[[ ! -e $KUBE_RUN/sysctl ]] || sysctl -qp "$KUBE_RUN/sysctl"
for ns in /run/netns/"$NET"-*; do
	[[ ! -e $ns ]] || ip netns del "${ns##*/}"
done
[[ ${1:-} == --keep ]] || rm -rf --one-file-system "$KUBE_RUN"
