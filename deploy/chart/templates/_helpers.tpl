{{- define "gateway.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 48 characters, so that the endings of this chart's names fit into a label. */}}
{{- define "gateway.fullname" -}}
{{- $name := include "gateway.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 48 | trimSuffix "-" -}}
{{- end -}}

{{- define "gateway.selector" -}}
app.kubernetes.io/name: {{ include "gateway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "gateway.labels" -}}
app.kubernetes.io/name: {{ include "gateway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: workspace-gateway
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "gateway.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}
{{- end -}}
{{- end -}}

{{- define "gateway.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "gateway.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{- define "gateway.isPostgres" -}}
{{- if eq .Values.store.kind "postgresql" }}yes{{ end -}}
{{- end -}}

{{/* Seconds of a duration as the gateway reads it: 500ms, 10s, 5m, 1h, 1d. A part of a second counts as one. */}}
{{- define "gateway.seconds" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- if eq $unit "ms" }}{{ div (add $number 999) 1000 }}
{{- else if eq $unit "s" }}{{ $number }}
{{- else if eq $unit "m" }}{{ mul $number 60 }}
{{- else if eq $unit "h" }}{{ mul $number 3600 }}
{{- else }}{{ mul $number 86400 }}
{{- end -}}
{{- end -}}

{{- define "gateway.drainTimeout" -}}
{{- default (ternary "10m" "30s" (eq .Values.store.kind "postgresql")) .Values.drain.timeout -}}
{{- end -}}

{{/* Time from the stop signal to the end at the latest, without a margin. */}}
{{- define "gateway.drainSeconds" -}}
{{- $delay := ternary .Values.drain.delay "0s" (eq .Values.store.kind "postgresql") -}}
{{- add (include "gateway.seconds" $delay | int64) (include "gateway.seconds" (include "gateway.drainTimeout" .) | int64) -}}
{{- end -}}

{{- define "gateway.grace" -}}
{{- $needed := include "gateway.drainSeconds" . | int64 -}}
{{- $given := .Values.drain.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $given }}{{ add $needed 15 }}
{{- else if lt (int64 $given) $needed }}
{{- fail (printf "drain.terminationGracePeriodSeconds is %d, and a drain takes up to %d s (drain.delay and drain.timeout): the node would kill the pod before. Raise it, leave it out, or lower drain.timeout" (int64 $given) $needed) }}
{{- else }}{{ int64 $given }}
{{- end -}}
{{- end -}}

{{- define "gateway.publicHost" -}}{{ (urlParse .Values.publicUrl).hostname }}{{- end -}}
{{- define "gateway.agentsHost" -}}{{ if .Values.agentsUrl }}{{ (urlParse .Values.agentsUrl).hostname }}{{ end }}{{- end -}}

{{/* Secret with the certificate of `public` or `agents`; empty without one. */}}
{{- define "gateway.certificateSecret" -}}
{{- $tls := index .root.Values.tls .of -}}
{{- if $tls.existingSecret }}{{ $tls.existingSecret }}
{{- else if $tls.certManager.issuerRef }}{{ include "gateway.fullname" .root }}-{{ .of }}-tls
{{- end -}}
{{- end -}}

{{/* That secret, if the gateway itself serves the certificate. */}}
{{- define "gateway.servedSecret" -}}
{{- $values := .root.Values -}}
{{- $isInFront := ternary (or $values.ingress.enabled $values.gatewayApi.enabled) (or $values.ingress.agents.enabled (and $values.gatewayApi.enabled $values.gatewayApi.agents.enabled)) (eq .of "public") -}}
{{- if not $isInFront }}{{ include "gateway.certificateSecret" . }}{{ end -}}
{{- end -}}

{{- define "gateway.sealSecret" -}}
{{- default (printf "%s-seal-key" (include "gateway.fullname" .)) .Values.sealKey.existingSecret -}}
{{- end -}}

{{- define "gateway.peersSecret" -}}
{{- if eq .Values.peers.certificates "secret" }}{{ .Values.peers.existingSecret }}
{{- else if eq .Values.peers.certificates "certManager" }}{{ include "gateway.fullname" . }}-peers-tls
{{- else }}{{ include "gateway.fullname" . }}-peers-ca
{{- end -}}
{{- end -}}

{{/* Chart-made secrets are read from the cluster again. Without a cluster they are new each time. */}}
{{- define "gateway.held" -}}
{{- $held := lookup "v1" "Secret" .root.Release.Namespace .name -}}
{{- toJson (default dict (get (default dict $held) "data")) -}}
{{- end -}}

{{/* One value of gateway.toml. Texts, numbers and lists of these are written alike in JSON. */}}
{{- define "gateway.tomlValue" -}}
{{- if kindIs "map" . -}}
{ {{- range $index, $key := keys . | sortAlpha }}{{ if $index }}, {{ end }}{{ toJson $key }} = {{ include "gateway.tomlValue" (get $ $key) }}{{ end -}} }
{{- else if kindIs "slice" . -}}
[{{- range $index, $one := . }}{{ if $index }}, {{ end }}{{ include "gateway.tomlValue" $one }}{{ end -}}]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{/* Lines of gateway.toml with dotted keys, so that the order of sections does not matter. */}}
{{- define "gateway.tomlLines" -}}
{{- $prefix := .prefix -}}
{{- range $key := keys .map | sortAlpha -}}
{{- $value := get $.map $key -}}
{{- $name := ternary $key (toJson $key) (regexMatch "^[A-Za-z0-9_-]+$" $key) -}}
{{- if and (kindIs "map" $value) $value }}
{{- include "gateway.tomlLines" (dict "map" $value "prefix" (printf "%s%s." $prefix $name)) }}
{{- else if not (kindIs "invalid" $value) }}
{{ $prefix }}{{ $name }} = {{ include "gateway.tomlValue" $value }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Refuses keys of `config` that other values set. */}}
{{- define "gateway.checkConfig" -}}
{{- $owned := dict
  "zone" "zone" "public_url" "publicUrl" "directory" "store.kind" "agents_dir" "clusters"
  "listen.public" "service.public" "listen.agents" "service.agents" "listen.admin" "networkPolicies.admin" "listen.admin_hosts" "monitoring" "listen.peers" "peers"
  "peers.url" "peers.ipv6" "peers.shutdown_delay" "drain.delay" "timeouts.drain" "drain.timeout" "drain.max" "drain.timeout"
  "store.url" "store" "store.password_file" "store.postgresql.existingSecret" "store.key_file" "sealKey.existingSecret"
  "tls.public.cert" "tls.public.existingSecret" "tls.public.key" "tls.public.existingSecret"
  "tls.agents.cert" "tls.agents.existingSecret" "tls.agents.key" "tls.agents.existingSecret" "tls.agents.client_ca" "tls.agents.clientCaSecret"
  "tls.peers.cert" "peers" "tls.peers.key" "peers" "tls.peers.ca" "peers"
  "auth.oidc.client_secret" "oidc.existingSecret" "auth.oidc.client_secret_file" "oidc.existingSecret" -}}
{{- range $key, $value := $owned -}}
{{- $at := $.Values.config -}}
{{- range $part := splitList "." $key -}}
{{- $at = ternary (get (ternary $at dict (kindIs "map" $at)) $part) nil (and (kindIs "map" $at) (hasKey (ternary $at dict (kindIs "map" $at)) $part)) -}}
{{- end -}}
{{- if not (kindIs "invalid" $at) -}}
{{- fail (printf "config.%s is set by this chart: use the value `%s`" $key $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What does not go together. One message for each, and the first one is told. */}}
{{- define "gateway.check" -}}
{{- $v := .Values -}}
{{- if not $v.image.repository }}{{ fail "image.repository is missing: the name of the gateway's image in your registry" }}{{ end -}}
{{- if not $v.zone }}{{ fail "zone is missing: the domain under which workspaces live, such as workspaces.example.com" }}{{ end -}}
{{- if not $v.publicUrl }}{{ fail "publicUrl is missing: the URL of sign-in, dashboard and API, such as https://gateway.example.org" }}{{ end -}}
{{- $most := ternary $v.autoscaling.maxReplicas $v.replicas $v.autoscaling.enabled | int -}}
{{- if eq $v.store.kind "sqlite" -}}
{{- if gt $most 1 }}{{ fail (printf "%d replicas need one database for all of them: set store.kind to postgresql, and store.postgresql.existingSecret to a Secret with its URL" $most) }}{{ end -}}
{{- else if not $v.store.postgresql.existingSecret }}{{ fail "store.postgresql.existingSecret is missing: kubectl create secret generic gateway-database --from-file=url=FILE, where the file has postgres://USER:PASSWORD@HOST/DATABASE" }}
{{- end -}}
{{- if and (eq $v.peers.certificates "secret") (not $v.peers.existingSecret) }}{{ fail "peers.existingSecret is missing: with peers.certificates: secret it has tls.crt, tls.key and ca.crt" }}{{ end -}}
{{- if and $v.peers.existingSecret (ne $v.peers.certificates "secret") }}{{ fail (printf "peers.existingSecret has no effect with peers.certificates: %s; set that to secret" $v.peers.certificates) }}{{ end -}}
{{- if and $v.ingress.enabled $v.gatewayApi.enabled }}{{ fail "ingress.enabled and gatewayApi.enabled are two ways to the same hosts: choose one" }}{{ end -}}
{{- if and $v.gatewayApi.enabled (not $v.gatewayApi.parentRefs) }}{{ fail "gatewayApi.parentRefs is missing: the Gateway that the routes belong to" }}{{ end -}}
{{- $needsHost := or $v.ingress.agents.enabled (and $v.gatewayApi.enabled $v.gatewayApi.agents.enabled) $v.tls.agents.certManager.issuerRef -}}
{{- if and $needsHost (not $v.agentsUrl) }}{{ fail "agentsUrl is missing: a route or a certificate for agents needs its host" }}{{ end -}}
{{- $isHttps := eq (urlParse $v.publicUrl).scheme "https" -}}
{{- if and $isHttps $v.ingress.enabled (not (include "gateway.certificateSecret" (dict "root" . "of" "public"))) }}{{ fail "publicUrl begins with https://, and the Ingress has no certificate: set tls.public.existingSecret or tls.public.certManager.issuerRef" }}{{ end -}}
{{- if and (not $isHttps) (include "gateway.certificateSecret" (dict "root" . "of" "public")) }}{{ fail "tls.public has a certificate, and publicUrl begins with http://" }}{{ end -}}
{{- if and $v.tls.agents.clientCaSecret (not (include "gateway.servedSecret" (dict "root" . "of" "agents"))) }}{{ fail "tls.agents.clientCaSecret needs tls.agents.existingSecret, and agents that reach the gateway's own TLS" }}{{ end -}}
{{- include "gateway.checkConfig" . -}}
{{- end -}}
