#!/usr/bin/env bash
# Makes Quorate's image without a container engine: what the Dockerfile's last stage says, as an OCI layout in a tar
# file. The same programs give the same file, byte for byte.
#
#   image.sh PROGRAMS TAR NAME    PROGRAMS: the folder with quotanode, gateway, operator and quotactl
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=$(realpath "${1:?}") tar=$(realpath -m "${2:?}") name=${3:?}

mkdir -p "$(dirname "$tar")"
cd "$root/tools/kube/local"
GOWORK=off GOFLAGS='-mod=readonly -buildvcs=false' "${GO:-go}" run ./mkimage -tag "$name" -out "$tar" \
	-user 65532:65532 -entrypoint /quotanode \
	/quotanode="$programs/quotanode" /gateway="$programs/gateway" /operator="$programs/operator" \
	/quotactl="$programs/quotactl" /LICENSE="$root/LICENSE" /NOTICE="$root/NOTICE"
