{{/* The full name: of the nodes without their numbers, and the prefix of all else. */}}
{{- define "quorate.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = ternary .Release.Name (printf "%s-quorate" .Release.Name) (contains "quorate" .Release.Name) -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$" $name) -}}
{{- fail (printf "fullnameOverride: %q can't be part of the names of nodes and services: at most 40 of a-z, 0-9 and inner hyphens, a letter first" $name) -}}
{{- end -}}
{{- if regexMatch "^(y|yes|n|no|on|off|true|false|null)$" $name -}}
{{- fail (printf "fullnameOverride: %q is no name to YAML" $name) -}}
{{- end -}}
{{- $name -}}
{{- end }}

{{/* What only one release of a Kubernetes cluster can have. */}}
{{- define "quorate.clusterRole" -}}quorate.dev:operator{{- end }}

{{/* What finds the pods of a part. It stands in fields that can't change: no version of anything may get into it. */}}
{{- define "quorate.selector" -}}
app.kubernetes.io/name: quorate
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The labels of an object, not of pods: a new version of the chart alone must not start them anew. */}}
{{- define "quorate.labels" -}}
{{ include "quorate.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "quorate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The names of the nodes, as JSON. */}}
{{- define "quorate.nodeNames" -}}
{{- $names := list -}}
{{- range $i := until (int .Values.replicas) -}}
{{- $names = append $names (printf "%s-%d" (include "quorate.fullname" $) $i) -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}

{{/*
Where a node is found: by a name that outlives its pod and the pod's address. It ends in .svc, and the search list of a
pod adds the cluster's own domain, whatever that is.
*/}}
{{- define "quorate.nodeHost" -}}
{{ .node }}.{{ include "quorate.fullname" .root }}-nodes.{{ .root.Release.Namespace }}.svc
{{- end }}

{{/* The nodes' gRPC addresses, as JSON. */}}
{{- define "quorate.nodeAddresses" -}}
{{- $addresses := list -}}
{{- range include "quorate.nodeNames" . | fromJsonArray -}}
{{- $addresses = append $addresses (printf "%s:8081" (include "quorate.nodeHost" (dict "root" $ "node" .))) -}}
{{- end -}}
{{- toJson $addresses -}}
{{- end }}

{{/* The domains that a namespace may use: its own, and what allowedDomains adds. As JSON. */}}
{{- define "quorate.domainsOf" -}}
{{- $domains := list .namespace -}}
{{- range .root.Values.allowedDomains -}}
{{- if eq .namespace $.namespace -}}
{{- $domains = concat $domains .domains -}}
{{- end -}}
{{- end -}}
{{- $domains | uniq | sortAlpha | toJson -}}
{{- end }}
