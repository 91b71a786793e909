{{/*
A gateway in a pod. A chart that depends on this library writes

    initContainers:
    {{- include "quorate.gatewaySidecar" (dict "namespace" "quorate" "image" "quorate:0.1.0") | nindent 4 }}
    volumes:
    {{- include "quorate.gatewayVolumes" dict | nindent 4 }}

and asks http://127.0.0.1:8080/check from its own container. Both take a dict; a name that they don't know fails.

gatewaySidecar:
  namespace    of the cluster; required
  image        required
  cluster      the full name of the cluster, default quorate
  nodes        how many nodes it has, default 3
  http         where /check is served, default 127.0.0.1:8080; another port where the application has that one
  grpc         where gRPC is served, default 127.0.0.1:8081
  healthPort   of probes and metrics, default 8082
  logLevel     default warn
  pullPolicy   default IfNotPresent
  cpu, memory  what it asks for, default 50m and 128Mi
gatewayVolumes:
  secret       with ca.crt, tls.crt and tls.key, default quorate-gateway
  mode         of the files, default "0444"; "0440" where the pod has an fsGroup, which the gateway then is in
*/}}

{{/* A native sidecar: it starts before the application's containers and ends after them, so that no check is without it. */}}
{{- define "quorate.gatewaySidecar" -}}
{{- include "quorate.gatewayContainer" . }}
  restartPolicy: Always
  # The application's containers start once it answers, whether or not it knows the cluster: a cluster that is away must
  # not keep an application from starting. Until then checks are answered with 503.
  startupProbe:
    httpGet: {path: /livez, port: quorate-health}
    periodSeconds: 1
    failureThreshold: 60
  livenessProbe:
    httpGet: {path: /livez, port: quorate-health}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  # No readiness probe: it would take the whole pod out of its Services while the cluster can't be asked. The
  # application sees 503 and knows best what that means to it.
{{- end }}

{{/* The container as such, without probes. Takes what gatewaySidecar takes. */}}
{{- define "quorate.gatewayContainer" -}}
{{- $known := list "namespace" "image" "cluster" "nodes" "http" "grpc" "healthPort" "logLevel" "pullPolicy" "cpu" "memory" -}}
{{- range $name := keys . | sortAlpha -}}
{{- if not (has $name $known) -}}
{{- fail (printf "quorate.gatewaySidecar: %q is unknown; known are %s" $name (join ", " $known)) -}}
{{- end -}}
{{- end -}}
{{- $namespace := required "quorate.gatewaySidecar: namespace is required: that of the cluster" .namespace -}}
{{- $cluster := .cluster | default "quorate" -}}
{{- $addresses := list -}}
{{- range $i := until (.nodes | default 3 | int) -}}
{{- $addresses = append $addresses (printf "%s-%d.%s-nodes.%s.svc:8081" $cluster $i $cluster $namespace) -}}
{{- end -}}
- name: quorate-gateway
  image: {{ required "quorate.gatewaySidecar: image is required" .image | quote }}
  imagePullPolicy: {{ .pullPolicy | default "IfNotPresent" }}
  command: [/gateway]
  args:
  - --nodes={{ join "," $addresses }}
  - --ca=/etc/quorate/tls/ca.crt
  - --cert=/etc/quorate/tls/tls.crt
  - --key=/etc/quorate/tls/tls.key
  - --http-address={{ .http | default "127.0.0.1:8080" }}
  - --grpc-address={{ .grpc | default "127.0.0.1:8081" }}
  # Probes and Prometheus come from outside of the pod. It shows no key and no policy.
  - --health-address=0.0.0.0:{{ .healthPort | default 8082 }}
  - --log-level={{ .logLevel | default "warn" }}
  ports:
  - {name: quorate-health, containerPort: {{ .healthPort | default 8082 }}}
  env:
  - {name: GOMEMLIMIT, value: {{ include "quorate.goMemoryLimit" (.memory | default "128Mi") }}}
  {{- include "quorate.resources" (dict "cpu" (.cpu | default "50m") "memory" (.memory | default "128Mi")) | nindent 2 }}
  {{- include "quorate.containerSecurity" dict | nindent 2 }}
  volumeMounts:
  - {name: quorate-tls, mountPath: /etc/quorate/tls, readOnly: true}
{{- end }}

{{/* The certificate. The Secret isn't optional: a pod waits for it rather than to run without. */}}
{{- define "quorate.gatewayVolumes" -}}
{{- range $name := keys . | sortAlpha -}}
{{- if not (has $name (list "secret" "mode")) -}}
{{- fail (printf "quorate.gatewayVolumes: %q is unknown; known are secret, mode" $name) -}}
{{- end -}}
{{- end -}}
- name: quorate-tls
  # The files are root's, and of a group of the gateway's only where the pod has an fsGroup. Containers see them only if they
  # mount them.
  secret: {secretName: {{ .secret | default "quorate-gateway" }}, defaultMode: {{ .mode | default "0444" }}}
{{- end }}

{{/* What a container asks for, of a dict with cpu and memory. */}}
{{- define "quorate.resources" -}}
# No CPU limit: a process that is throttled stands still as if it were frozen, and what comes late is unavailable.
resources:
  requests: {cpu: {{ .cpu | quote }}, memory: {{ .memory | quote }}}
  limits: {memory: {{ .memory | quote }}}
{{- end }}

{{/* What pod-security "restricted" asks of a container, whatever the pod itself says. */}}
{{- define "quorate.containerSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Nine tenths of a memory limit, for Go: near it the collector works harder, before the kernel ends the process. */}}
{{- define "quorate.goMemoryLimit" -}}
{{- printf "%dMiB" (div (mul (include "quorate.mebibytes" . | int) 9) 10) -}}
{{- end }}

{{/* A size in Mi, Gi, MiB or GiB as a number of mebibytes. */}}
{{- define "quorate.mebibytes" -}}
{{- if not (regexMatch "^[1-9][0-9]*[MG]iB?$" .) -}}
{{- fail (printf "%q is not a size here; write it as 512Mi or 2Gi" .) -}}
{{- end -}}
{{- $n := regexFind "^[0-9]+" . | int -}}
{{- if contains "G" . }}{{ mul $n 1024 }}{{ else }}{{ $n }}{{ end -}}
{{- end }}
