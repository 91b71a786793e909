#!/usr/bin/env bash
# Loads image tars (OCI layout, such as mkimage writes) into every node that runs, and into those that start later.
#
#   load-image.sh TAR...
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mkdir -p "$KUBE_RUN/images"
for tar; do
	copy=$KUBE_RUN/images/$(basename "$tar")
	[[ $tar -ef $copy ]] || cp "$tar" "$copy"
	for file in "$KUBE_RUN"/pids/node[0-9]*; do
		[[ -e $file ]] || continue
		"$kube_dir/node.sh" load "${file##*/node}" "$copy"
	done
done
