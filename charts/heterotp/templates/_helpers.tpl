{{- define "heterotp.name" -}}
{{- printf "%s" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "heterotp.labels" -}}
app.kubernetes.io/name: heterotp
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "heterotp.selector" -}}
app.kubernetes.io/name: heterotp
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "heterotp.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (printf "%s-operator" (include "heterotp.name" .)) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* What the operator may do with the objects of the namespaces that it serves; README.md has the reasons. */}}
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
