{{/* What serve, the check before it, and the doctor share: variables, mounts and volumes. */}}

{{- define "gateway.env" -}}
- {name: GATEWAY_CONFIG, value: /etc/gateway/gateway.toml}
- {name: GATEWAY_LISTEN__PUBLIC, value: {{ ternary "[::]:8080" "0.0.0.0:8080" .Values.peers.ipv6 | quote }}}
- {name: GATEWAY_LISTEN__AGENTS, value: {{ ternary "[::]:8081" "0.0.0.0:8081" .Values.peers.ipv6 | quote }}}
- {name: GATEWAY_LISTEN__ADMIN, value: {{ ternary "[::]:8082" "0.0.0.0:8082" .Values.peers.ipv6 | quote }}}
{{- if include "gateway.isPostgres" . }}
- name: GATEWAY_STORE__URL
  valueFrom: {secretKeyRef: {name: {{ .Values.store.postgresql.existingSecret }}, key: {{ .Values.store.postgresql.urlKey }}}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- {name: GATEWAY_LISTEN__PEERS, value: {{ ternary "[::]:8083" "0.0.0.0:8083" .Values.peers.ipv6 | quote }}}
- {name: GATEWAY_PEERS__URL, value: {{ ternary "https://[$(POD_IP)]:8083" "https://$(POD_IP):8083" .Values.peers.ipv6 | quote }}}
{{- else }}
- {name: GATEWAY_STORE__URL, value: "sqlite:///var/lib/gateway/gateway.db"}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "gateway.mounts" -}}
- {name: config, mountPath: /etc/gateway, readOnly: true}
- {name: data, mountPath: /var/lib/gateway}
{{- if .Values.clusters }}
- {name: clusters, mountPath: /etc/gateway-clusters, readOnly: true}
{{- end }}
{{- range $of := list "public" "agents" }}
{{- if include "gateway.servedSecret" (dict "root" $ "of" $of) }}
- {name: tls-{{ $of }}, mountPath: /run/secrets/tls-{{ $of }}, readOnly: true}
{{- end }}
{{- end }}
{{- if .Values.tls.agents.clientCaSecret }}
- {name: agents-ca, mountPath: /run/secrets/agents-ca, readOnly: true}
{{- end }}
{{- if or (include "gateway.isPostgres" .) .Values.sealKey.existingSecret }}
- {name: seal, mountPath: /run/secrets/seal, readOnly: true}
{{- end }}
{{- if include "gateway.isPostgres" . }}
- {name: peers, mountPath: /run/secrets/peers, readOnly: true}
{{- if .Values.store.postgresql.caSecret }}
- {name: postgresql, mountPath: /run/secrets/postgresql, readOnly: true}
{{- end }}
{{- end }}
{{- if .Values.oidc.existingSecret }}
- {name: oidc, mountPath: /run/secrets/oidc, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "gateway.volumes" -}}
- {name: config, configMap: {name: {{ include "gateway.fullname" . }}}}
{{- if include "gateway.isPostgres" . }}
- {name: data, emptyDir: {}}
{{- else }}
- {name: data, persistentVolumeClaim: {claimName: {{ default (include "gateway.fullname" .) .Values.store.sqlite.existingClaim }}}}
{{- end }}
{{- if .Values.clusters }}
- name: clusters
  configMap:
    name: {{ include "gateway.fullname" . }}-clusters
    items:
{{- range $cluster, $files := .Values.clusters }}
      - {key: {{ $cluster }}.config.yaml, path: {{ $cluster }}/config.yaml}
{{- range $template, $_ := $files.workspaceTemplates }}
      - {key: {{ $cluster }}.workspace_templates.{{ $template }}.yaml, path: {{ $cluster }}/workspace_templates/{{ $template }}.yaml}
{{- end }}
{{- range $template, $_ := $files.environmentTemplates }}
      - {key: {{ $cluster }}.environment_templates.{{ $template }}.yaml, path: {{ $cluster }}/environment_templates/{{ $template }}.yaml}
{{- end }}
{{- end }}
{{- end }}
{{- range $of := list "public" "agents" }}
{{- with include "gateway.servedSecret" (dict "root" $ "of" $of) }}
- {name: tls-{{ $of }}, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- end }}
{{- with .Values.tls.agents.clientCaSecret }}
- {name: agents-ca, secret: {secretName: {{ . }}}}
{{- end }}
{{- if or (include "gateway.isPostgres" .) .Values.sealKey.existingSecret }}
- name: seal
  secret:
    secretName: {{ include "gateway.sealSecret" . }}
    defaultMode: 0440
    items: [{key: {{ .Values.sealKey.key }}, path: gateway.key}]
{{- end }}
{{- if include "gateway.isPostgres" . }}
{{- if eq .Values.peers.certificates "chart" }}
- {name: peers-ca, secret: {secretName: {{ include "gateway.peersSecret" . }}, defaultMode: 0440}}
- {name: peers, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
{{- else }}
- {name: peers, secret: {secretName: {{ include "gateway.peersSecret" . }}, defaultMode: 0440}}
{{- end }}
{{- with .Values.store.postgresql.caSecret }}
- {name: postgresql, secret: {secretName: {{ . }}}}
{{- end }}
{{- end }}
{{- with .Values.oidc.existingSecret }}
- name: oidc
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items: [{key: {{ $.Values.oidc.clientSecretKey }}, path: client-secret}]
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "gateway.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "gateway.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Of the authority that the chart made, a certificate for this pod. It needs the zone alone: mistakes in the configuration are told by the
check behind it. */}}
{{- define "gateway.peerCertificate" -}}
{{- if and (include "gateway.isPostgres" .) (eq .Values.peers.certificates "chart") -}}
- name: peer-certificate
  image: {{ include "gateway.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [replicas, certificate, --ca, /run/secrets/peers-ca/ca.crt, --ca-key, /run/secrets/peers-ca/ca.key, --out, /run/secrets/peers]
  env: [{name: GATEWAY_ZONE, value: {{ .Values.zone | quote }}}]
  resources: {{- toYaml .Values.resources | nindent 4 }}
  securityContext: {{- include "gateway.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: peers-ca, mountPath: /run/secrets/peers-ca, readOnly: true}
    - {name: peers, mountPath: /run/secrets/peers}
{{- end }}
{{- end -}}
