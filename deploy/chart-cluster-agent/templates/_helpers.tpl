{{- define "agent.fullname" -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- define "agent.selector" -}}
app.kubernetes.io/name: {{ include "agent.fullname" . }}
{{- end -}}

{{- define "agent.labels" -}}
app.kubernetes.io/name: {{ include "agent.fullname" . }}
app.kubernetes.io/part-of: workspace-gateway
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* What does not go together. */}}
{{- define "agent.check" -}}
{{- if not .Values.image.repository }}{{ fail "image.repository is missing: the name of the agent's image in your registry" }}{{ end -}}
{{- if not .Values.gateway.url }}{{ fail "gateway.url is missing: the URL of the gateway for agents, such as https://agents.example.com" }}{{ end -}}
{{- if and (eq .Values.rights.workspaces "shared") (eq .Values.rights.sharedNamespace .Release.Namespace) }}{{ fail "rights.sharedNamespace is the agent's own namespace: workspaces could read its token there" }}{{ end -}}
{{- end -}}
