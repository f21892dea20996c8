#!/usr/bin/env bash
# The charts on a real node: `helm install --wait`, `helm test`, which is the gateway's doctor, and `helm upgrade` under load. First one gateway
# with SQLite on a volume, which keeps what it knows over an upgrade; then two replicas with PostgreSQL, replaced one after the other under
# requests and a WebSocket, which none of them loses; an upgrade with a mistake in its configuration, which stops at its first pod; and
# the cluster agent's chart, whose agent connects. Needs root, and what `install.sh pods helm` makes.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/machine.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/node.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/chart.sh"

[ -n "$DIRECT" ] && { echo "chart-real: nothing to check without the gateway"; finish; }
own_machine "$@"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/postgres.sh"
trap 'status=$?; stop postgres; rm -rf "$DATA"; (exit "$status"); cleanup' EXIT
[ -e "$CACHE/helm/.ready" ] || give_up "helm is missing: tests/real/install.sh helm"

CHART=$ROOT/deploy/chart
VERSION=$(sed -n 's/^appVersion: //p' "$CHART/Chart.yaml")

# image NAME PROGRAM : the program on Debian, as a user without a name.
image() {
  local folder=$MACHINE/image-$1
  mkdir -p "$folder/usr/local/bin" && strip -o "$folder/usr/local/bin/$1" "$2" &&
    tar --owner=0 --group=0 --numeric-owner -C "$folder" -cf "$folder.tar" usr &&
    python3 "$REAL/kubernetes/images.py" "localhost/$1:$VERSION" held="$CACHE/pods/base.tar" layer="$folder.tar" entry="/usr/local/bin/$1" user=65532:65532 |
    ctr -n k8s.io images import - >>"$OUT/import.log" 2>&1
}

on_cluster() { helm --kubeconfig "$KUBECONFIG_ADMIN" -n "$SPACE" "$@"; }
in_gateway() { kc -n "$SPACE" exec "deployment/$RELEASE-workspace-gateway" -c gateway -- /usr/local/bin/gateway "$@"; }
pods() { kc -n "$SPACE" get pods -l app.kubernetes.io/component=gateway -o name | sort; }
# ended POD… : none of them is left.
ended() { [ -z "$(comm -12 <(printf '%s\n' "$@" | sort) <(pods))" ]; }
# told : what became of a release, into the log.
told() {
  kc -n "$SPACE" get pods -o wide
  kc -n "$SPACE" get events --sort-by .lastTimestamp | tail -n 20
  local pod
  for pod in $(kc -n "$SPACE" get pods -o name); do kc -n "$SPACE" logs "$pod" --all-containers --prefix --tail 20; done
} >>"$OUT/told.log" 2>&1
installed() { check "$1" on_cluster upgrade --install "$RELEASE" "$CHART" --wait --timeout 120s "${@:2}" || true; }
# examined WHAT ARGUMENTS… : helm test, whose report is kept.
examined() {
  # The node's rules for a Service follow a moment after its pods are ready.
  until_ok 20 curl -s -o /dev/null --max-time 2 http://10.0.0.80/ >/dev/null && until_ok 20 listening_at 10.0.0.81 80 >/dev/null
  check "$1: helm test is content" on_cluster test "$RELEASE" --timeout 120s
  kc -n "$SPACE" logs "pod/$RELEASE-workspace-gateway-doctor" >"$OUT/doctor-$RELEASE.log" 2>&1
}
listening_at() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; }
said() { grep -qE -- "$2" "$OUT/doctor-$1.log"; }

begun=$(now_ms)
start_node
image gateway "$REAL_GATEWAY" && image workspace-agent "$REAL_AGENT" || give_up "no images: $(tail -n 1 "$OUT/import.log")"
(prepare_server && echo 'host all all 0.0.0.0/0 trust' >>"$DATA/data/pg_hba.conf") >"$OUT/initdb.log" 2>&1 || give_up "initdb: $(tail -n 1 "$OUT/initdb.log")"
spawn postgres "${as_server[@]}" "$PG/postgres" -D "$DATA/data" -c listen_addresses="$NODE_ADDRESS" -c "port=$PG_PORT" -c "unix_socket_directories=$DATA" -c fsync=off
until_ok 30 query 'SELECT 1' postgres >/dev/null || give_up "PostgreSQL does not start: $(tail -n 1 "$OUT/postgres.log")"
query 'CREATE DATABASE gateway' postgres || give_up "no database"
note "node, images and database after $(seconds $(($(now_ms) - begun))) s"

# There is no server of names here: the pod of the test has those that it needs.
COMMON=(--set image.repository=localhost/gateway --set zone=ws.localhost --set publicUrl=http://gateway.localhost --set agentsUrl=http://agents.localhost
  --set "doctor.hostAliases[0].ip=10.0.0.80" --set "doctor.hostAliases[0].hostnames[0]=gateway.localhost"
  --set "doctor.hostAliases[1].ip=10.0.0.81" --set "doctor.hostAliases[1].hostnames[0]=agents.localhost"
  --set resources.requests.cpu=10m --set config.limits.connections=1000 --set config.limits.sessions=1000)
restricted() {
  kc create -f - >/dev/null <<YAML
{apiVersion: v1, kind: Namespace, metadata: {name: $1, labels: {pod-security.kubernetes.io/enforce: restricted}}}
YAML
}

# --- one gateway ------------------------------------------------------------------------------------------------------
SPACE=alone RELEASE=one
restricted alone
begun=$(now_ms)
installed "one gateway with SQLite is installed, in a namespace that takes restricted pods alone" "${COMMON[@]}" \
  --set service.public.clusterIP=10.0.0.80 --set service.agents.clusterIP=10.0.0.81 || told
note "ready $(seconds $(($(now_ms) - begun))) s after helm install"
examined "one gateway" || told
check "which went the way of users" said one '^ok .*public URL: connection'
check "and of agents" said one '^ok .*URL for agents'
check "and found nothing wrong" test "$(grep -cE '^(error|warning)' "$OUT/doctor-one.log")" = 0
check "it makes a token" in_gateway token create --user dev --note kept
installed "an upgrade of it is taken" "${COMMON[@]}" --set service.public.clusterIP=10.0.0.80 --set service.agents.clusterIP=10.0.0.81 --set podAnnotations.again=yes
check "and it still knows its tokens" has_text kept in_gateway token list
check "it is uninstalled" on_cluster uninstall one --wait --timeout 60s
check "and its volume is left" kc -n alone get pvc one-workspace-gateway

# --- replicas ---------------------------------------------------------------------------------------------------------
SPACE=several RELEASE=live
restricted several
printf 'postgres://gateway@%s:%s/gateway' "$NODE_ADDRESS" "$PG_PORT" >"$OUT/url"
kc -n several create secret generic database --from-file=url="$OUT/url" >/dev/null
SEVERAL=("${COMMON[@]}" --set replicas=2 --set store.kind=postgresql --set store.postgresql.existingSecret=database
  --set service.public.clusterIP=10.0.0.80 --set service.agents.clusterIP=10.0.0.81 --set drain.delay=3s --set drain.timeout=10m
  --set clusters.here.config.workspaces.enabled=true
  --set clusters.here.config.workspaces.tools_image=localhost/tools:1 --set clusters.here.config.workspaces.gateway_url=http://10.0.0.81)
begun=$(now_ms)
installed "two replicas with PostgreSQL are installed" "${SEVERAL[@]}" || told
note "ready $(seconds $(($(now_ms) - begun))) s after helm install"
examined "two replicas" || told
check "which found nothing wrong" test "$(grep -cE '^(error|warning)' "$OUT/doctor-live.log")" = 0
readyz() { kc get --raw "/api/v1/namespaces/several/$(pods | sed -n "${1}p" | sed 's|pod/|pods/|'):8082/proxy/readyz"; }
lacks_nothing() { readyz "$1" | paste -sd ';' | grep -qE '^ok;store: ok;directory: ok, with 1 other replicas;certificates: ok until 20'; }
check "the configuration of a cluster was read, from its folder in a volume" until_ok 20 \
  has_text 'configuration is in force.*cluster=here' kc -n several logs -l app.kubernetes.io/component=gateway -c gateway --tail=-1
check "a replica says that it lacks nothing" until_ok 20 lacks_nothing 1
check "and so does the other" until_ok 20 lacks_nothing 2

USER_TOKEN=$(in_gateway token create --user dev 2>>"$OUT/token.log") || give_up "no user token: $(tail -n 1 "$OUT/token.log")"
(umask 077 && in_gateway token create --workspace w >"$OUT/w.token" 2>>"$OUT/token.log") || give_up "no agent token: $(tail -n 1 "$OUT/token.log")"
start_echo
spawn agent env NO_COLOR=1 "$REAL_AGENT" run --gateway http://10.0.0.81 --token-file "$OUT/w.token"
HOST=$ECHO_PORT-w.ws.localhost
reached() { has_text '^echo$' visit -f -H "host: $HOST" http://10.0.0.80/; }
# A replica that was asked before knows for a second that there is no agent.
reached_by_both() { for _ in $(seq 12); do reached || return; done; }
check "an agent connects, and its app is reached by both" until_ok 30 reached_by_both

before=$(pods)
REAL_CREDENTIALS="token $USER_TOKEN" spawn load node "$APPS/steady_load.mjs" --connect 10.0.0.80:80 --host "$HOST" --rate 20 --until-file "$OUT/enough"
spawn socket env REAL_USER_TOKEN="$USER_TOKEN" node "$APPS/ws_client.mjs" --connect 10.0.0.80 --host "$HOST" --until-file "$OUT/enough"
until_ok 10 has_text ESTAB ss -tn dst 10.0.0.80 >/dev/null
for pod in $before; do spawn "log-${pod##*-}" "$PARTS/kubectl" --kubeconfig "$KUBECONFIG_ADMIN" -n several logs -f "$pod" -c gateway; done
begun=$(now_ms)
installed "a rolling upgrade is taken under load" "${SEVERAL[@]}" --set podAnnotations.again=yes || told
note "new replicas are ready $(seconds $(($(now_ms) - begun))) s after helm upgrade"
waits() { grep -qh 'the drain waits for streams to end' "$OUT"/log-*.log; }
check "the replica with the WebSocket drains, and waits for it" until_ok 60 waits
settled() { [ "$(comm -12 <(printf '%s\n' "$before") <(pods) | wc -l)" = 1 ]; }
check "and the other one has ended" until_ok 60 settled
touch "$OUT/enough"
collect load 60
collect socket 30
# shellcheck disable=SC2086
check "then it ends as well" until_ok 60 ended $before
check "what the chart made once is as it was: the new replicas know each other" until_ok 20 lacks_nothing 2

# A mistake stops at the first pod.
serving=$(pods)
on_cluster upgrade live "$CHART" "${SEVERAL[@]}" --set config.limits.header_bytes=1 >"$OUT/mistake.log" 2>&1
reason() {
  local pod
  for pod in $(pods); do kc -n several logs "$pod" -c config-check --tail 20; done
  true
}
check "an upgrade with a mistake says what is wrong in its first pod" until_ok 60 has_text 'limits.header_bytes' reason
check "while the replicas serve on" test "$(comm -12 <(printf '%s\n' "$serving") <(pods) | wc -l)" = 2
check "and users are served" reached
check "it is rolled back" on_cluster rollback live --wait --timeout 60s

# --- the cluster agent ------------------------------------------------------------------------------------------------
(umask 077 && in_gateway token create --cluster here >"$OUT/token" 2>>"$OUT/token.log")
restricted workspace-gateway
kc -n workspace-gateway create secret generic cluster-agent --from-file="$OUT/token" >/dev/null
SPACE=workspace-gateway
check "the agent's chart is installed" on_cluster install cluster-agent "$ROOT/deploy/chart-cluster-agent" --wait --timeout 60s \
  --set image.repository=localhost/workspace-agent --set gateway.url=http://10.0.0.81 || told
SPACE=several
clusters() { local pod; for pod in $(pods); do kc get --raw "/api/v1/namespaces/several/pods/${pod#pod/}:8082/proxy/metrics"; done | grep -c '^gateway_cluster_sessions 1$'; }
has_cluster() { [ "$(clusters)" -ge 1 ]; }
check "and its agent connects" until_ok 40 has_cluster
told
SPACE=workspace-gateway told
finish
