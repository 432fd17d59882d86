{{/* Warnings of NOTES.txt about valid but unusual values. A YAML list of sentences. */}}
{{- define "heterotp.warnings" -}}
{{- $monitoring := .Values.monitoring -}}
{{- $ranks := $monitoring.podMonitor.enabled -}}
{{- $operator := $monitoring.serviceMonitor.enabled -}}
{{- if and $monitoring.rules.enabled (not $ranks) (not $operator) }}
- >-
  monitoring.rules.enabled without monitoring.podMonitor.enabled and monitoring.serviceMonitor.enabled: no object of
  this chart makes Prometheus scrape, so alerts on absent metrics fire and other alerts never do, unless you scrape by
  other means.
{{- else if and $monitoring.rules.enabled (not $ranks) }}
- >-
  monitoring.rules.enabled without monitoring.podMonitor.enabled: HeteroTPJobMetricsMissing fires for every running job
  and alerts on ranks never do, unless you scrape ranks by other means.
{{- else if and $monitoring.rules.enabled (not $operator) }}
- >-
  monitoring.rules.enabled without monitoring.serviceMonitor.enabled: HeteroTPOperatorAbsent fires, unless you scrape the
  operator by other means as job="{{ $monitoring.rules.operatorJob }}".
{{- end }}
{{- if and $monitoring.dashboards.enabled (not $monitoring.rules.enabled) }}
- >-
  monitoring.dashboards.enabled without monitoring.rules.enabled: panels that show recording rules stay empty (slow-down,
  imbalance, waiting).
{{- end }}
{{- if and $monitoring.rules.enabled (not (hasPrefix "http" $monitoring.rules.runbookUrl)) }}
- >-
  monitoring.rules.runbookUrl is no URL, so links in alerts do not work: serve docs/ (`make docs`) and set it, with
  {alert} for the alert's name.
{{- end }}
{{- range $name := list "podMonitor" "serviceMonitor" }}
{{- with index $monitoring $name }}
{{- $times := and .enabled .interval .scrapeTimeout }}
{{- if and $times (gt (include "heterotp.milliseconds" .scrapeTimeout | int64) (include "heterotp.milliseconds" .interval | int64)) }}
- >-
  monitoring.{{ $name }}.scrapeTimeout is longer than its interval ({{ .scrapeTimeout }}, {{ .interval }}): the
  Prometheus operator leaves such a monitor out.
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.networkPolicy.enabled (or $ranks $operator) (not .Values.networkPolicy.scrapers) }}
- >-
  networkPolicy.enabled with no networkPolicy.scrapers: Prometheus cannot reach the targets of the monitors.
{{- end }}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.jobs) }}
- >-
  networkPolicy.jobs is off: the operator removes the NetworkPolicies of jobs, and every pod may connect to ranks.
{{- end }}
{{- if not .Values.crds.keep }}
- "crds.keep is off: `helm uninstall` deletes the CRDs, and with them every job, policy and injection of the cluster."
{{- end }}
{{- if and .Values.test.enabled (not .Values.rbac.create) (not .Values.test.serviceAccountName) }}
- >-
  `helm test` has nothing to run: with rbac.create off it needs test.serviceAccountName, an account that may create
  heterotpjobs in {{ .Release.Namespace }}.
{{- end }}
{{- if eq (int .Values.replicas) 0 }}
- "replicas is 0: no operator runs."
{{- end }}
{{- end -}}
