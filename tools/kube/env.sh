# Sourced by the other scripts; source it to get PATH and KUBECONFIG. Every setting can be given in the environment.
kube_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# The one place that names the Kubernetes version.
KUBE_VERSION=$(awk '$1 == "k8s.io/kubernetes" {print $2; exit}' "$kube_dir/modules/kubernetes/go.mod")

# Where the built programs go: one folder for all checkouts of a user.
KUBE_BIN=${KUBE_BIN:-${XDG_CACHE_HOME:-$HOME/.cache}/quorate-kube/$KUBE_VERSION/bin}

# State of one running cluster: data, certificates, logs, process ids, kubeconfig.
KUBE_RUN=${KUBE_RUN:-/tmp/quorate-kube}

export KUBECONFIG=$KUBE_RUN/kubeconfig
[[ :$PATH: == *:$KUBE_BIN:* ]] || export PATH=$KUBE_BIN:$PATH
