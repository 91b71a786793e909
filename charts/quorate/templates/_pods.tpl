{{/* What all pods of the chart have in common. */}}
{{- define "quorate.podBasics" -}}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  # Volumes and certificates are given to this group.
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{/*
Metadata of pods: only what finds them, so that they start anew only where something of theirs changes. `config` is such a
thing; `annotations` are more of them.
*/}}
{{- define "quorate.podMetadata" -}}
labels:
  {{- include "quorate.selector" . | nindent 2 }}
{{- $annotations := merge (dict) (.annotations | default dict) .root.Values.podAnnotations }}
{{- with .config }}
{{- $_ := set $annotations "checksum/config" (sha256sum .) }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The container's image. */}}
{{- define "quorate.imageFields" -}}
image: {{ include "quorate.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/*
A pod that asks the cluster how it is and ends with 0 if all is well. It is let in by the first node's certificate, which
is there whoever makes certificates; a node may see the status.
*/}}
{{- define "quorate.statusPod" -}}
automountServiceAccountToken: false
{{ include "quorate.podBasics" . }}
containers:
- name: status
  {{- include "quorate.imageFields" . | nindent 2 }}
  command: [/quotactl]
  args:
  - status
  - --server={{ include "quorate.nodeAddresses" . | fromJsonArray | join "," }}
  - --ca=/etc/quorate/tls/ca.crt
  - --cert=/etc/quorate/tls/tls.crt
  - --key=/etc/quorate/tls/tls.key
  - --timeout=20s
  {{- include "quorate.resources" (dict "cpu" "10m" "memory" "64Mi") | nindent 2 }}
  {{- include "quorate.containerSecurity" dict | nindent 2 }}
  volumeMounts:
  - {name: tls, mountPath: /etc/quorate/tls, readOnly: true}
volumes:
- name: tls
  secret: {secretName: {{ printf "%s-node-%s-0" (include "quorate.fullname" .) (include "quorate.fullname" .) }}, defaultMode: 0440}
{{- end }}
