{{- define "heterotp.name" -}}
{{- printf "%s" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "heterotp.commonLabels" -}}
app.kubernetes.io/name: heterotp
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "heterotp.labels" -}}
{{ include "heterotp.commonLabels" . }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* Selector labels of Deployment, Service and policies: never change them, the selector of a Deployment is immutable. */}}
{{- define "heterotp.selector" -}}
app.kubernetes.io/name: heterotp
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* The pod of `helm test`: not an operator's pod, but permitted to read the metrics. */}}
{{- define "heterotp.testSelector" -}}
app.kubernetes.io/name: heterotp
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: test
{{- end -}}

{{/* The pods of ranks, as the operator labels them (api/heterotp_api/names.py). */}}
{{- define "heterotp.rankSelector" -}}
app.kubernetes.io/managed-by: heterotp-operator
{{- end -}}

{{/* labels and annotations of metadata: ours and those of `values`; ours take precedence. */}}
{{- define "heterotp.labelled" -}}
labels: {{- merge (include "heterotp.labels" .root | fromYaml) (.values.labels | default dict) | toYaml | nindent 2 }}
{{- with .values.annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "heterotp.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}
{{- end -}}

{{/* The restricted Pod Security Standard, for a pod and for its container. */}}
{{- define "heterotp.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "heterotp.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The scheme of the operator's port. */}}
{{- define "heterotp.scheme" -}}
{{- .Values.metrics.tlsSecretName | empty | ternary "http" "https" -}}
{{- end -}}

{{/* The DNS name of the operator's Service, as in its certificate. */}}
{{- define "heterotp.host" -}}
{{ include "heterotp.name" . }}-operator.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* Interval and time limit of a monitor's scrapes. */}}
{{- define "heterotp.scrape" -}}
path: /metrics
{{- with .interval }}
interval: {{ . | quote }}
{{- end }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . | quote }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A time such as 1h30m in milliseconds. */}}
{{- define "heterotp.milliseconds" -}}
{{- $text := . -}}
{{- $sum := 0 -}}
{{- range $unit, $of := dict "y" 31536000000 "w" 604800000 "d" 86400000 "h" 3600000 "m" 60000 "s" 1000 "ms" 1 -}}
{{- $sum = regexFind (printf "[0-9]+%s([0-9]|$)" $unit) $text | regexFind "^[0-9]+" | int64 | mul $of | add $sum -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* Limits of a monitor's scrapes; 0: no limit. */}}
{{- define "heterotp.limits" -}}
{{- with .sampleLimit }}
sampleLimit: {{ . }}
{{- end }}
{{- with .labelLimit }}
labelLimit: {{ . }}
{{- end }}
{{- end -}}

{{- define "heterotp.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (printf "%s-operator" (include "heterotp.name" .)) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Rights of the operator in the namespaces that it serves; README.md has the reasons. */}}
{{- define "heterotp.rules" -}}
- apiGroups: [heterotp.io]
  resources: [heterotpjobs, balancingpolicies, stragglerinjections]
  verbs: [get, list, watch]
- apiGroups: [heterotp.io]
  resources: [heterotpjobs/status, balancingpolicies/status, stragglerinjections/status]
  verbs: [patch]
- apiGroups: [heterotp.io]
  resources: [heterotpjobs]
  verbs: [delete] # ttlSecondsAfterFinished
- apiGroups: [heterotp.io]
  resources: [heterotpjobs/finalizers]
  verbs: [update] # owner references with blockOwnerDeletion
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, update]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- $groups := dict "volcano" "scheduling.volcano.sh" "coscheduling" "scheduling.x-k8s.io" }}
{{- range .Values.gangProviders }}
- apiGroups: [{{ get $groups . }}]
  resources: [podgroups]
  verbs: [get, create, patch]
{{- end }}
{{- end -}}
