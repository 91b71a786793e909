#!/usr/bin/env bash
# Puts cluster DNS and a default storage class (folders of a node, made on demand) into the running cluster. up.sh
# calls it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

kubectl apply -f "$kube_dir/manifests/coredns.yaml" -f "$kube_dir/manifests/local-path.yaml" >/dev/null
kubectl -n kube-system rollout status --timeout=180s deployment/coredns deployment/local-path-provisioner >/dev/null
