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

{{/* The Secret with the operator's own key: the operator makes it, so it is in no manifest and no release. */}}
{{- define "heterotp.keySecret" -}}
{{ include "heterotp.name" . }}-operator-key
{{- end -}}

{{/* Who may connect to ranks, beside their gang: a setting of the operator (reconcile/network_peers.py). */}}
{{- define "heterotp.networkPeers" -}}
{{- $namespace := dict "matchLabels" (dict "kubernetes.io/metadata.name" .Release.Namespace) -}}
{{- $operator := dict "namespaceSelector" $namespace "podSelector" (dict "matchLabels" (include "heterotp.selector" . | fromYaml)) -}}
{{- $scrapers := .Values.networkPolicy.scrapers | default list -}}
{{- dict "policies" .Values.networkPolicy.jobs "operator" (list $operator) "scrapers" $scrapers | toJson -}}
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

{{/* Not empty where the release makes ValidatingAdmissionPolicies: kinds of the whole cluster, of Kubernetes 1.30. */}}
{{- define "heterotp.admissionPolicies" -}}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- if not (.Capabilities.APIVersions.Has "v1/Pod") }}{{/* helm template has no list of kinds */}}
{{- $served = semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version -}}
{{- end -}}
{{- if and $served (not .Values.namespaces) -}}
true
{{- end -}}
{{- end -}}

{{/* Rights of the operator in the namespaces that it serves; README.md has the same reasons. */}}
{{- define "heterotp.rules" -}}
# the desired state, by lists and watches alone; a spec is never edited
- apiGroups: [heterotp.io]
  resources: [heterotpjobs, balancingpolicies{{ if .Values.injections.enabled }}, stragglerinjections{{ end }}]
  verbs: [list, watch]
# server-side apply of the status
- apiGroups: [heterotp.io]
  resources: [heterotpjobs/status, balancingpolicies/status{{ if .Values.injections.enabled }}, stragglerinjections/status{{ end }}]
  verbs: [patch]
# ttlSecondsAfterFinished
- apiGroups: [heterotp.io]
  resources: [heterotpjobs]
  verbs: [delete]
# owner references with blockOwnerDeletion, where OwnerReferencesPermissionEnforcement is on
- apiGroups: [heterotp.io]
  resources: [heterotpjobs/finalizers]
  verbs: [update]
# the ranks; get: whose pod it is when a name is taken; patch: an annotation, so that the kubelet refreshes ConfigMaps
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
# the headless Service of a gang; update: it is corrected as a whole; the garbage collector deletes it
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, update]
# the control document; the garbage collector deletes it
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch]
{{- if .Values.networkPolicy.enabled }}
{{- if .Values.networkPolicy.jobs }}
# who may connect to the pods of a gang; get: whose it is when a name is taken; update: it is corrected as a whole
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, update]
{{- else }}
# those of jobs are removed: jobs have none any more
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, watch, delete]
{{- end }}
{{- end }}
# events of jobs, policies and injections; patch: the count of a repeated one
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- if .Values.kueue.enabled }}
# the Workload of a gang, by which Kueue admits it; get: whose it is when a name is taken; patch: of a job that was
# changed while it waits; delete: of a job that is suspended, so that its quota is free
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch, create, patch, delete]
# quota of an evicted gang is given back; ranks that are ready, have succeeded or ended
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
{{- end }}
{{- $groups := dict "volcano" "scheduling.volcano.sh" "coscheduling" "scheduling.x-k8s.io" }}
{{- range .Values.gangProviders }}
# the PodGroup of a gang, for runPolicy.gang.provider {{ . }}
- apiGroups: [{{ get $groups . }}]
  resources: [podgroups]
  verbs: [get, create, patch]
{{- end }}
{{- end -}}
