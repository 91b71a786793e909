{{/*
What a schema can't say: values that must fit together, and what a cluster that exists already has fixed. Everything
here fails before anything is changed. `lookup` sees nothing in `helm template` and so under Argo CD: there the API server
refuses the same, as the fixed settings stand in a field of the StatefulSet that can't change.
*/}}
{{- define "quorate.check" -}}
{{- include "quorate.checkAlone" . -}}
{{- include "quorate.checkValues" . -}}
{{- include "quorate.checkDurations" . -}}
{{- include "quorate.checkStorage" . -}}
{{- include "quorate.checkGenesis" . -}}
{{- include "quorate.checkName" . -}}
{{- end }}

{{/*
One release of a Kubernetes cluster looks after all its RateLimitPolicies. Helm would refuse the second one too, in words
about metadata.
*/}}
{{- define "quorate.checkAlone" -}}
{{- $mine := printf "release %s in namespace %s" .Release.Name .Release.Namespace -}}
{{- $role := lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" (include "quorate.clusterRole" .) -}}
{{- $owner := include "quorate.owner" $role -}}
{{- if and $role (ne $owner $mine) -}}
{{- fail (printf "there is a Quorate in this Kubernetes cluster already, of %s. Its operator looks after all RateLimitPolicies, and a second one would enforce them elsewhere and write over what the first says of them. Nothing was changed. Let gateways of more namespaces use that one by its value gatewayNamespaces, or uninstall it first" $owner) -}}
{{- end -}}
{{- if .Values.crds.install -}}
{{- $definition := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "ratelimitpolicies.quorate.dev" -}}
{{- $owner = include "quorate.owner" $definition -}}
{{- if and $definition (ne $owner $mine) -}}
{{- fail (printf "the resource definition ratelimitpolicies.quorate.dev is there already, of %s. Nothing was changed. Set crds.install=false to leave it as it is, or have this release keep it up to date: kubectl annotate --overwrite crd ratelimitpolicies.quorate.dev meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s; kubectl label --overwrite crd ratelimitpolicies.quorate.dev app.kubernetes.io/managed-by=Helm" $owner .Release.Name .Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Whose an object is. */}}
{{- define "quorate.owner" -}}
{{- $annotations := (.metadata).annotations | default dict -}}
{{- if hasKey $annotations "meta.helm.sh/release-name" -}}
release {{ get $annotations "meta.helm.sh/release-name" }} in namespace {{ get $annotations "meta.helm.sh/release-namespace" }}
{{- else -}}
no release of helm
{{- end -}}
{{- end }}

{{- define "quorate.checkValues" -}}
{{- $v := .Values -}}
{{- $replicas := int $v.replicas -}}
{{- if or (lt $replicas 3) (eq (mod $replicas 2) 0) -}}
{{- fail (printf "replicas: %d: it takes 3 nodes, or a larger odd number: fewer outlive no loss, and of an even number no more may fail than of one node less" $replicas) -}}
{{- end -}}
{{- if gt (int $v.replication) $replicas -}}
{{- fail (printf "replication: %d replicas don't fit on %d nodes, at most one each" (int $v.replication) $replicas) -}}
{{- end -}}
{{- $least := add (mul (include "quorate.mebibytes" $v.memory | int) 2) 256 -}}
{{- if lt (include "quorate.mebibytes" $v.resources.memory | int64) $least -}}
{{- fail (printf "resources.memory: %s is too little for memory: %s: it takes %dMi, twice that and 256Mi, or the node is killed when it is full" $v.resources.memory $v.memory $least) -}}
{{- end -}}
{{- $kib := mul (include "quorate.mebibytes" $v.memory | int) 1024 -}}
{{- $partitions := $v.partitions | default $replicas | int -}}
{{- if lt $kib 16384 -}}
{{- fail (printf "memory: %s is too little: a node takes 16MiB at least" $v.memory) -}}
{{- end -}}
{{- if lt (div (mul $kib $replicas) (mul $partitions (int $v.replication))) 256 -}}
{{- fail (printf "memory: %s leaves less than 256KiB for each of %d partitions: give more, or have fewer partitions" $v.memory $partitions) -}}
{{- end -}}
{{- if has .Release.Namespace $v.gatewayNamespaces -}}
{{- fail (printf "gatewayNamespaces: leave out %s: the release's own namespace has a certificate for gateways anyway" .Release.Namespace) -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $v.allowedDomains -}}
{{- if hasKey $seen .namespace -}}
{{- fail (printf "allowedDomains: %s comes twice: give it one entry with all its domains" .namespace) -}}
{{- end -}}
{{- $_ := set $seen .namespace true -}}
{{- end -}}
{{- $named := dict -}}
{{- range $v.domains -}}
{{- if hasKey $named .name -}}
{{- fail (printf "domains: %s comes twice" .name) -}}
{{- end -}}
{{- $_ := set $named .name true -}}
{{- end -}}
{{- if and (eq $v.certificates.mode "certManager") (not $v.certificates.issuerRef.name) -}}
{{- fail "certificates.issuerRef.name: is required with certificates.mode: certManager" -}}
{{- end -}}
{{- end }}

{{/* What the operator, or cert-manager, would refuse once it runs. */}}
{{- define "quorate.checkDurations" -}}
{{- $lifetime := include "quorate.seconds" .Values.certificates.lifetime | float64 -}}
{{- $mode := .Values.certificates.mode -}}
{{- if and (eq $mode "operator") (or (lt $lifetime 30.0) (gt $lifetime 31536000.0)) -}}
{{- fail (printf "certificates.lifetime: %s is out of range, 30s to 8760h: shorter ones would end before they are renewed, and a certificate can't be called back" .Values.certificates.lifetime) -}}
{{- end -}}
{{- if and (eq $mode "certManager") (lt $lifetime 3600.0) -}}
{{- fail (printf "certificates.lifetime: %s is out of range: cert-manager issues for 1h at least" .Values.certificates.lifetime) -}}
{{- end -}}
{{- $resync := include "quorate.seconds" .Values.operator.resync | float64 -}}
{{- if or (lt $resync 1.0) (gt $resync 3600.0) -}}
{{- fail (printf "operator.resync: %s is out of range, 1s to 1h" .Values.operator.resync) -}}
{{- end -}}
{{- end }}

{{/* A duration that the schema has seen, in seconds. */}}
{{- define "quorate.seconds" -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+[a-z]+" . -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit .) (get (dict "h" 3600.0 "m" 60.0 "s" 1.0 "ms" 0.001) $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end }}

{{/* What genesis fixes, as JSON: kept beside the volumes that it is true of. */}}
{{- define "quorate.genesis" -}}
{{- dict
  "memory" .Values.memory
  "partitions" (.Values.partitions | default .Values.replicas | int | toString)
  "replicas" (.Values.replicas | int | toString)
  "replication" (.Values.replication | int | toString) | toJson -}}
{{- end }}

{{/* The annotation with it. */}}
{{- define "quorate.genesisAnnotation" -}}quorate.dev/genesis{{- end }}

{{- define "quorate.storage" -}}
{{- dict "size" .Values.storage.size "storageClass" .Values.storage.storageClass | toJson -}}
{{- end }}

{{/* The StatefulSet that is there, as JSON; empty if there is none. */}}
{{- define "quorate.existing" -}}
{{- lookup "apps/v1" "StatefulSet" .Release.Namespace (include "quorate.fullname" .) | toJson -}}
{{- end }}

{{/* A StatefulSet's volumes are never resized by it, and the API server would refuse the change halfway through. */}}
{{- define "quorate.checkStorage" -}}
{{- $there := include "quorate.existing" . | fromJson -}}
{{- with (($there.metadata).annotations) -}}
{{- $was := index . "quorate.dev/storage" | default "{}" | fromJson -}}
{{- range $name, $now := include "quorate.storage" $ | fromJson -}}
{{- $old := get $was $name -}}
{{- if and $was (ne $old $now) -}}
{{- fail (printf "storage.%s: is %q and can't become %q: Kubernetes never changes the volumes of a StatefulSet. Nothing was changed. \"More storage\" in docs/kubernetes.md says how to" $name $old $now) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/*
The nodes would refuse to start with other settings than those of their genesis, one after another. Volumes that were
kept when a release was uninstalled know them too.
*/}}
{{- define "quorate.checkGenesis" -}}
{{- $name := include "quorate.fullname" . -}}
{{- $there := include "quorate.existing" . | fromJson -}}
{{- $kept := dict -}}
{{- if $there.spec -}}
{{- $kept = (index $there.spec.volumeClaimTemplates 0).metadata -}}
{{- else -}}
{{- $kept = (lookup "v1" "PersistentVolumeClaim" .Release.Namespace (printf "data-%s-0" $name)).metadata | default dict -}}
{{- end -}}
{{- $was := get ($kept.annotations | default dict) (include "quorate.genesisAnnotation" .) | default "{}" | fromJson -}}
{{- $wanted := include "quorate.genesis" . | fromJson -}}
{{- /* What others follow from comes first. */ -}}
{{- range $field := list "replicas" "replication" "partitions" "memory" -}}
{{- $now := get $wanted $field -}}
{{- $old := get $was $field -}}
{{- if and $was (ne $old $now) -}}
{{- fail (printf "%s: is %s and can't become %s: it was fixed when the cluster was founded, and its nodes don't start with another. Nothing was changed. Set %s back to %s; a release of another name is another cluster" $field $old $now $field $old) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Under another name it would be a new cluster, which knows nothing of what is used up, in place of the old one. */}}
{{- define "quorate.checkName" -}}
{{- if .Release.IsUpgrade -}}
{{- $name := include "quorate.fullname" . -}}
{{- range (lookup "apps/v1" "StatefulSet" .Release.Namespace "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- $ours := and (eq (get $labels "app.kubernetes.io/name") "quorate") (eq (get $labels "app.kubernetes.io/instance") $.Release.Name) -}}
{{- if and $ours (ne .metadata.name $name) -}}
{{- fail (printf "fullnameOverride: the cluster is called %s and can't be called %s: that would be another, empty one, which knows nothing of what is used up. Nothing was changed" .metadata.name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
