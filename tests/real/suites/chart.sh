#!/usr/bin/env bash
# The Helm charts of deploy/: each set of values in their folders ci/ renders as its golden file, passes `helm lint`, and every object of it
# is accepted by a real API server, with the definitions of cert-manager, Gateway API and the Prometheus operator; the gateway reads each
# configuration that is made; what does not go together is refused in words. Then releases on that server: what the chart made once
# stays over upgrades, an uninstall and a new install.
#
#   UPDATE_CHART=1 tests/real/suites/chart.sh      writes the golden files anew
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/chart.sh"

[ -n "$DIRECT" ] && { echo "chart: nothing to check without the gateway"; finish; }
[ -e "$CACHE/helm/.ready" ] || give_up "helm is missing: tests/real/install.sh helm"

GATEWAY=$ROOT/deploy/chart
AGENT=$ROOT/deploy/chart-cluster-agent

# Rendered first, while the API server starts.
start_cluster identity
# Namespaces that take nothing but what the standard `restricted` allows, and warn of templates of pods too.
for space in gateways workspace-gateway team; do
  kc create -f - >/dev/null <<YAML || give_up "no namespace: $(tail -n 1 "$OUT/shell.log")"
apiVersion: v1
kind: Namespace
metadata:
  name: $space
  labels: {pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/warn: restricted}
YAML
done
# A pod is only taken with its account, which a dry run does not make.
for account in gw gw-workspace-gateway; do kc -n gateways create serviceaccount "$account" >/dev/null; done
kc apply --server-side -f "$CACHE/helm/definitions" >/dev/null || give_up "no definitions: $(tail -n 1 "$OUT/shell.log")"
established() { kc wait --for condition=Established --all crd --timeout 20s; }
established >/dev/null || give_up "the definitions are not taken"

# --- golden files -----------------------------------------------------------------------------------------------------
sets=0
for values in "$GATEWAY"/ci/values-*.yaml "$AGENT"/ci/values-*.yaml; do
  chart=$(dirname "$(dirname "$values")")
  name=$(basename "$values" .yaml)
  name=${name#values-}
  space=gateways release=gw
  [ "$chart" = "$GATEWAY" ] || { space=workspace-gateway release=cluster-agent; }
  rendered=$OUT/$(basename "$chart")-$name.yaml
  sets=$((sets + 1))
  check "$(basename "$chart") with $name renders" render "$release" "$chart" "$space" "$rendered" -f "$values"
  golden "$rendered" "$chart/golden/$name.yaml"
  check "and passes lint" helm lint --strict --quiet --kube-version "$KUBERNETES" "$chart" -f "$values"
  check "the API server accepts each object, without a warning" accepted "$chart" "$rendered"
done
same "no set of values was left out" 9 "$sets"
MONITORING=(--set monitoring.serviceMonitor.enabled=true --set monitoring.rules.enabled=true --set monitoring.dashboard.enabled=true
  --set monitoring.rules.runbooksUrl=https://git.example.com/runbooks/)
check "rules and dashboard render" render gw "$GATEWAY" gateways "$OUT/monitoring.yaml" -f "$GATEWAY/ci/values-production.yaml" "${MONITORING[@]}"
check "and are accepted" accepted "$GATEWAY" "$OUT/monitoring.yaml"
same "with each alert of deploy/monitoring" "$(grep -c 'alert:' "$ROOT/deploy/monitoring/rules.yaml")" "$(grep -c 'runbook_url: "https://git.example.com/runbooks/' "$OUT/monitoring.yaml")"
same "and the dashboard as it is there" "$(jq -S . "$ROOT/deploy/monitoring/dashboard.json" | sha256sum)" \
  "$(json_of "$OUT/monitoring.yaml" | jq -r '.[] | .data["workspace-gateway.json"]? // empty' | jq -S . | sha256sum)"

# --- what the gateway makes of it -------------------------------------------------------------------------------------
for values in "$GATEWAY"/ci/values-*.yaml; do
  name=$(basename "$values" .yaml)
  name=chart-${name#values-}
  mkdir -p "$OUT/$name"
  config_of "$OUT/$name.yaml" >"$OUT/$name/gateway.toml"
  env_of "$OUT/$name.yaml" >"$OUT/$name/env"
  check "the gateway reads the configuration of ${name#chart-}, with the pod's variables" reads "$OUT/$name"
done
for name in production everything; do
  check "$name has files of clusters" clusters_of "$OUT/chart-$name.yaml" "$OUT/clusters-$name"
  check "in which the gateway finds no mistake" clusters_read "$OUT/clusters-$name"
done
# What the configuration says is what the values say.
same "the longest drain is what the values say" 1h "$(setting chart-production timeouts.drain)"
same "a list of sections arrives whole" 'ws-*' "$(setting chart-production 'auth.agents.kubernetes[0].rules[0].namespace')"
check "a number is a number" grep -qx 'limits.connections = 20000' "$OUT/chart-production/gateway.toml"
same "a certificate that an Ingress serves is not the gateway's" '' "$(setting chart-production tls.public.cert)"
same "one that nothing else serves is" /run/secrets/tls-public/tls.crt "$(setting chart-cert-manager tls.public.cert)"
same "a pod may end as long as it drains: production" 3630 "$(grace chart-production)"
same "with SQLite" 45 "$(grace chart-try-out)"
same "as given" 400 "$(grace chart-given)"

# --- refusals ---------------------------------------------------------------------------------------------------------
BASE=(--set image.repository=r --set zone=ws.example.com --set publicUrl=https://gw.example.org)
POSTGRES=("${BASE[@]}" --set store.kind=postgresql --set store.postgresql.existingSecret=db)
refused "$GATEWAY" 'image.repository is missing' --set zone=z --set publicUrl=http://h
refused "$GATEWAY" 'zone is missing' --set image.repository=r
refused "$GATEWAY" 'publicUrl is missing' --set image.repository=r --set zone=z
refused "$GATEWAY" '3 replicas need one database' "${BASE[@]}" --set replicas=3
refused "$GATEWAY" '5 replicas need one database' "${BASE[@]}" --set autoscaling.enabled=true
refused "$GATEWAY" 'store.postgresql.existingSecret is missing' "${BASE[@]}" --set store.kind=postgresql
refused "$GATEWAY" 'peers.existingSecret is missing' "${POSTGRES[@]}" --set peers.certificates=secret
refused "$GATEWAY" 'peers.existingSecret has no effect' "${POSTGRES[@]}" --set peers.existingSecret=p
refused "$GATEWAY" 'terminationGracePeriodSeconds is 60, and a drain takes up to 615 s' "${POSTGRES[@]}" --set drain.terminationGracePeriodSeconds=60
refused "$GATEWAY" 'choose one' "${POSTGRES[@]}" --set ingress.enabled=true --set gatewayApi.enabled=true
refused "$GATEWAY" 'gatewayApi.parentRefs is missing' "${POSTGRES[@]}" --set gatewayApi.enabled=true
refused "$GATEWAY" 'agentsUrl is missing' "${POSTGRES[@]}" --set ingress.agents.enabled=true
refused "$GATEWAY" 'the Ingress has no certificate' "${BASE[@]}" --set ingress.enabled=true
refused "$GATEWAY" 'publicUrl begins with http://' "${BASE[@]}" --set publicUrl=http://h --set tls.public.existingSecret=s
refused "$GATEWAY" 'tls.agents.clientCaSecret needs' "${BASE[@]}" --set tls.agents.clientCaSecret=ca
refused "$GATEWAY" 'config.timeouts.drain is set by this chart: use the value `drain.timeout`' "${BASE[@]}" --set config.timeouts.drain=1m
refused "$GATEWAY" 'config.auth.oidc.client_secret is set by this chart: use the value `oidc.existingSecret`' "${BASE[@]}" --set config.auth.oidc.client_secret=x
refused "$GATEWAY" 'config.zone is set by this chart' "${BASE[@]}" --set config.zone=z
refused "$GATEWAY" "additional properties 'replicaCount' not allowed" "${BASE[@]}" --set replicaCount=3
refused "$GATEWAY" "at '/store/kind': value must be one of 'sqlite', 'postgresql'" "${BASE[@]}" --set store.kind=mysql
refused "$GATEWAY" "at '/publicUrl':" "${BASE[@]}" --set publicUrl=https://h/path
refused "$GATEWAY" "at '/zone':" "${BASE[@]}" --set zone=Bad_Zone
refused "$GATEWAY" "at '/drain/timeout':" "${BASE[@]}" --set drain.timeout=forever
refused "$GATEWAY" "at '/replicas': minimum" "${BASE[@]}" --set replicas=0
refused "$GATEWAY" "at '/oidc': additional properties 'clientSecret' not allowed" "${BASE[@]}" --set oidc.clientSecret=hunter2
refused "$GATEWAY" "at '/store/postgresql': additional properties 'url' not allowed" "${POSTGRES[@]}" --set store.postgresql.url=postgres://x
refused "$AGENT" 'image.repository is missing' --set gateway.url=https://h
refused "$AGENT" 'gateway.url is missing' --set image.repository=r
refused "$AGENT" "own namespace" --set image.repository=r --set gateway.url=https://h --set rights.workspaces=shared --set rights.sharedNamespace=gateways
refused "$AGENT" "additional properties 'token' not allowed" --set image.repository=r --set gateway.token=t

# --- one truth --------------------------------------------------------------------------------------------------------
cat "$ROOT/deploy/rbac/unique.yaml" <(echo ---) "$ROOT/deploy/cluster-agent.yaml" >"$OUT/manifests.yaml"
objects_of "$OUT/manifests.yaml" >"$OUT/manifests.json"
objects_of "$OUT/chart-cluster-agent-default.yaml" >"$OUT/agent.json"
same "deploy/cluster-agent.yaml and deploy/rbac/unique.yaml have six objects" 6 "$(jq length "$OUT/manifests.json")"
check "which are those of the agent's chart" diff -U 0 "$OUT/manifests.json" "$OUT/agent.json"

# --- releases ---------------------------------------------------------------------------------------------------------
held() { kc -n gateways get secret "$1" -o "jsonpath={.data['$2']}"; }
secrets() { printf '%s\n' "$(held live-workspace-gateway-seal-key 'gateway\.key')" "$(held live-workspace-gateway-peers-ca 'ca\.crt')" "$(held live-workspace-gateway-peers-ca 'ca\.key')" | sha256sum; }
on_cluster() { helm --kubeconfig "$KUBECONFIG_ADMIN" -n gateways "$@"; }
check "a release is installed" on_cluster install live "$GATEWAY" "${POSTGRES[@]}"
made=$(secrets)
same "with a key of 32 bytes for the database's secrets" 32 "$(held live-workspace-gateway-seal-key 'gateway\.key' | base64 -d | base64 -d | wc -c)"
check "an upgrade to three replicas is taken" on_cluster upgrade live "$GATEWAY" "${POSTGRES[@]}" --set replicas=3 --set config.limits.sessions=1
same "and keeps what was made once" "$made" "$(secrets)"
key=$(head -c 32 /dev/urandom | base64 -w 0 | base64 -w 0)
kc -n gateways patch secret live-workspace-gateway-seal-key --type merge -p "{\"data\":{\"gateway.key\":\"$key\"}}" >>"$OUT/exchange.log" 2>&1
check "a key can be exchanged" test "$made" != "$(secrets)"
made=$(secrets)
check "the release goes back to its first revision" on_cluster rollback live 1
same "and the exchanged key stays" "$made" "$(secrets)"
check "NOTES say what to do next" has_text 'helm -n gateways test live --logs' on_cluster get notes live
check "it is uninstalled" on_cluster uninstall live
same "and leaves what was made once" "$made" "$(secrets)"
check "a new install takes it up" on_cluster install live "$GATEWAY" "${POSTGRES[@]}"
same "as it was" "$made" "$(secrets)"

mkdir -p "$OUT/peers"
held live-workspace-gateway-peers-ca 'ca\.crt' | base64 -d >"$OUT/peers/ca.crt"
(umask 077 && held live-workspace-gateway-peers-ca 'ca\.key' | base64 -d >"$OUT/peers/ca.key")
certify() { env GATEWAY_ZONE=ws.example.com GATEWAY_PUBLIC_URL=https://gw.example.org "$REAL_GATEWAY" replicas certificate --ca "$OUT/peers/ca.crt" --ca-key "$OUT/peers/ca.key" --out "$OUT/peers"; }
check "of the authority that the chart made, the gateway makes a certificate" certify
same "which is a replica's" 'URI:spiffe://ws.example.com/replica' \
  "$(openssl x509 -in "$OUT/peers/tls.crt" -noout -ext subjectAltName 2>/dev/null | sed -n 's/^ *\(URI:\)/\1/p')"
check "and signed by that authority" openssl verify -CAfile "$OUT/peers/ca.crt" -purpose sslserver "$OUT/peers/tls.crt"
finish
