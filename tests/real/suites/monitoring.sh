#!/usr/bin/env bash
# Prometheus scrapes three replicas under load: its rules are good, every question of the dashboard is answered, and each alert is fired by
# the fault that it is for, and ends when its runbook was followed. A request of Chromium leaves one trace over two replicas and the app.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "monitoring: nothing to check without the gateway"; finish; }
command -v promtool >/dev/null || give_up "promtool is missing: tests/real/install.sh debian"
RULES=$ROOT/deploy/monitoring
# Small enough that two downloads without a reader fill it.
export GATEWAY_TUNNEL__WINDOW_INITIAL=64KiB GATEWAY_TUNNEL__WINDOW_MAX=256KiB GATEWAY_TUNNEL__SESSION_BUDGET=256KiB
export GATEWAY_TUNNEL__REPLICA_BUDGET=256KiB GATEWAY_TUNNEL__OWNER_BUDGET=256KiB GATEWAY_TUNNEL__RESUME_GRACE=2s
export GATEWAY_LIMITS__FAILED_SIGN_INS_PER_MINUTE=20
CERTIFICATE_DAYS=90
OTLP_PORT=$(free_port)
export GATEWAY_TRACES__COLLECTOR=http://127.0.0.1:$OTLP_PORT/v1/traces GATEWAY_TRACES__ONE_IN=0
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/three-replicas.sh"

# --- the rules by themselves ------------------------------------------------------------------------------------------
check "promtool finds the rules in order" promtool check rules "$RULES/rules.yaml"
check "promtool's tests pass: each alert fires with its series, and is silent without" promtool test rules "$RULES/rules_test.yaml"

# --- three replicas, and a fourth gateway whose certificate ends soon ----------------------------------------------------
spawn receiver node "$APPS/otlp_receiver.mjs" "$OTLP_PORT" "$OUT/spans.jsonl"
wait_port receiver "$OTLP_PORT"
start_replicas
start_echo
start_files
user_token
spawn_agent agent "$WORKSPACE"
until_ok 20 attached "$WORKSPACE" || give_up "the agent does not attach: $(tail -n 1 "$OUT/agent.log")"
ENDS_ADMIN=$(free_port)
CERTIFICATE_DAYS=2 certificate ends DNS:localhost >>"$OUT/openssl.log" 2>&1
spawn ends env NO_COLOR=1 GATEWAY_LISTEN__PUBLIC="127.0.0.1:$(free_port)" GATEWAY_LISTEN__AGENTS="127.0.0.1:$(free_port)" \
  GATEWAY_LISTEN__ADMIN="127.0.0.1:$ENDS_ADMIN" GATEWAY_STORE__URL=sqlite::memory: GATEWAY_TLS__PUBLIC__CERT="$OUT/ends.pem" \
  GATEWAY_TLS__PUBLIC__KEY="$OUT/ends.key" "$REAL_GATEWAY" serve
wait_port ends "$ENDS_ADMIN"

# The same rules, with every wait cut to a second, and short windows: an alert is to end while the suite looks on.
sed -E 's/^( +for:) .*/\1 1s/; /expr:/{s/\[(5|10)m\]/[10s]/g; s/\[(30m|1h)\]/[12s]/g}' "$RULES/rules.yaml" >"$OUT/rules.yaml"
PROMETHEUS=$(free_port)
target() { printf '      - targets: ["127.0.0.1:%s"]\n        labels: { replica: "%s" }\n' "$1" "$2"; }
{
  printf 'global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: ["%s"]\nscrape_configs:\n' "$OUT/rules.yaml"
  printf '  - job_name: gateway\n    static_configs:\n'
  for name in "${NAMES[@]}"; do target "${ADMIN_OF[$name]}" "$name"; done
  target "$ENDS_ADMIN" ends
} >"$OUT/prometheus.yaml"
spawn prometheus prometheus --config.file="$OUT/prometheus.yaml" --storage.tsdb.path="$OUT/prometheus" --web.listen-address="127.0.0.1:$PROMETHEUS"
wait_port prometheus "$PROMETHEUS"
# query EXPRESSION : how many series it has, or the error.
query() {
  curl -s --max-time 10 "http://127.0.0.1:$PROMETHEUS/api/v1/query" --data-urlencode "query=$1" |
    jq -r 'if .status == "success" then (.data.result | length) else "\(.errorType): \(.error)" end'
}
scraped() { [ "$(query 'sum(up) == 4')" = 1 ]; }
check "Prometheus scrapes three replicas and the fourth gateway" until_ok 20 scraped
firing() { curl -s --max-time 10 "http://127.0.0.1:$PROMETHEUS/api/v1/alerts" | jq -r '.data.alerts[] | select(.state == "firing") | .labels.alertname' | sort -u; }
fires() { firing | grep -qx "$1"; }
is_silent() { ! fires "$1"; }

# --- requests, refusals, failures: every question is answered -----------------------------------------------------------
spawn load env REAL_CREDENTIALS="token $USER_TOKEN" node "$APPS/steady_load.mjs" --connect "127.0.0.1:$PUBLIC" \
  --host "$(host_of "$ECHO_PORT")" --rate 50 --bearable 1000 --until-file "$OUT/loaded"
for _ in 1 2 3; do visit -o /dev/null "http://$(host_of 1)/"; done
sleep 4
asked=0 answered=0
while IFS= read -r expression; do
  asked=$((asked + 1))
  found=$(query "${expression//\$__rate_interval/1m}")
  case $found in 0 | *[!0-9]*) fail "no answer ($found): $expression" ;; *) answered=$((answered + 1)) ;; esac
done < <(python3 -c 'import sys, tomllib; [print(question["query"]) for question in tomllib.load(open(sys.argv[1], "rb"))["question"]]' "$RULES/questions.toml")
same "questions of an operator that the metrics answer" "$asked" "$answered"
check "which are ten and more" [ "$asked" -ge 10 ]
bad=0
while IFS= read -r expression; do
  found=$(query "${expression//\$__rate_interval/1m}")
  case $found in *[!0-9]*) bad=$((bad + 1)) && echo "$found: $expression" ;; esac
done < <(jq -r '.panels[].targets[]?.expr' "$RULES/dashboard.json"; jq -r '.data.groups[].rules[].query' < <(curl -s "http://127.0.0.1:$PROMETHEUS/api/v1/rules"))
same "expressions of dashboard and rules that Prometheus cannot evaluate" 0 "$bad"
same "alerts that fire before there is a fault, but for the certificate" GatewayCertificateEnds "$(firing | paste -sd ' ')"

# --- one trace, from Chromium over two replicas to the app --------------------------------------------------------------
held=$(holder_of "$WORKSPACE")
far=$(other_than "$held")
helper browser 60 node "$REAL/suites/monitoring.mjs" --url "http://$(host_of "$ECHO_PORT")/" --connect "127.0.0.1:${PUBLIC_OF[$far]}" \
  --public "$PUBLIC" --token "$USER_TOKEN" --spans "$OUT/spans.jsonl" --out "$OUT"

# --- each alert by its fault --------------------------------------------------------------------------------------------
# A flood of credentials that are not good.
spawn flood env REAL_CREDENTIALS="token not-good" node "$APPS/steady_load.mjs" --connect "127.0.0.1:${PUBLIC_OF[one]}" \
  --host "$(host_of "$ECHO_PORT")" --rate 300 --bearable 100000 --until-file "$OUT/flooded"
check "a flood fires GatewayLimitsReached" until_ok 20 fires GatewayLimitsReached
touch "$OUT/flooded"
check "which ends with the flood" until_ok 30 is_silent GatewayLimitsReached
# Downloads without a reader.
for number in $(seq 16); do
  spawn "stalled-$number" curl -s --limit-rate 1 -o /dev/null -H "gateway-authorization: Bearer $USER_TOKEN" \
    --connect-to "::127.0.0.1:${PUBLIC_OF[$held]}" "http://$(host_of "$FILES_PORT")/blob.bin"
done
check "a full budget fires GatewayBudgetFull" until_ok 20 fires GatewayBudgetFull
for number in $(seq 16); do alive "stalled-$number" && signal KILL "stalled-$number"; done
check "which ends when its users are gone" until_ok 30 is_silent GatewayBudgetFull
# Agents that do not come back.
for number in 1 2 3; do spawn_agent "gone-$number" "gone-$number"; done
for number in 1 2 3; do until_ok 20 attached "gone-$number" || fail "the agent $number does not attach"; done
for number in 1 2 3; do signal KILL "gone-$number"; done
check "agents that do not come back fire GatewayAgentsStayAwayFast" until_ok 30 fires GatewayAgentsStayAwayFast
for number in 1 2 3; do spawn_agent "gone-$number" "gone-$number"; done
check "which ends when they are started again" until_ok 30 is_silent GatewayAgentsStayAwayFast
# A certificate that ends soon, and a new one in its place.
certificate new DNS:localhost >>"$OUT/openssl.log" 2>&1
fires GatewayCertificateEnds || fail "GatewayCertificateEnds does not fire"
mv "$OUT/new.key" "$OUT/ends.key" && mv "$OUT/new.pem" "$OUT/ends.pem"
check "a certificate that is replaced ends GatewayCertificateEnds without a restart" until_ok 30 is_silent GatewayCertificateEnds
# A lost replica: its agent's users at another one fail for a moment.
signal KILL "$held"
check "a lost replica fires GatewayReplicaLost" until_ok 20 fires GatewayReplicaLost
start "$held"
check "which ends when it is started again" until_ok 30 is_silent GatewayReplicaLost
# A store that is killed: what happens then is no fault of the apps.
signal KILL postgres
check "a killed store fires GatewayStoreAway" until_ok 20 fires GatewayStoreAway
start_server
check "which ends when it is started again, and no replica is" until_ok 30 is_silent GatewayStoreAway
touch "$OUT/loaded"
firing >"$OUT/firing.txt"
collect load 60
finish
