#!/usr/bin/env bash
# An hour of mixed use: three replicas, agents whose links are cut each minute and who come and go, requests, WebSockets, a stream,
# transfers, sign-ins, access that is taken away, and restarts of two replicas. Memory and descriptors of the replica that is not restarted
# and of an agent stay where they were, no request fails, no alert fires. A drawing of it is soak.svg.
#
#   SOAK_SECONDS=3400 tests/real/suites/soak.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "soak: nothing to check without the gateway"; finish; }
command -v prometheus >/dev/null || give_up "prometheus is missing: tests/real/install.sh debian"
SOAK_SECONDS=${SOAK_SECONDS:-600}
AGENT_COUNT=${AGENT_COUNT:-200} SOCKETS=${SOCKETS:-50} RATE=${RATE:-50}
# Alerts are to see certificates as people have them.
CERTIFICATE_DAYS=90
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/fleet.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/three-replicas.sh"

start_replicas
start_echo
start_files
user_token
BALANCED=$AGENTS
AGENTS=$(free_port)
spawn link python3 "$APPS/relay.py" "$AGENTS" "$BALANCED"
wait_port link "$AGENTS"
start_fleet --config "$OUT/one.toml"
HOSTS=$(hosts_of "$ECHO_PORT")
spawn_agent agent "$WORKSPACE"
until_ok 20 attached "$WORKSPACE" || give_up "the agent does not attach: $(tail -n 1 "$OUT/agent.log")"

PROMETHEUS=$(free_port)
{
  printf 'global:\n  scrape_interval: 5s\n  evaluation_interval: 5s\nrule_files: ["%s"]\nscrape_configs:\n  - job_name: gateway\n    static_configs:\n' "$ROOT/deploy/monitoring/rules.yaml"
  for name in "${NAMES[@]}"; do printf '      - targets: ["127.0.0.1:%s"]\n        labels: { replica: "%s" }\n' "${ADMIN_OF[$name]}" "$name"; done
} >"$OUT/prometheus.yaml"
spawn prometheus prometheus --config.file="$OUT/prometheus.yaml" --storage.tsdb.path="$OUT/prometheus" --web.listen-address="127.0.0.1:$PROMETHEUS"
wait_port prometheus "$PROMETHEUS"

# --- what goes on all the time ----------------------------------------------------------------------------------------
open_sockets --again 1001
load steady "$PUBLIC" --host "$HOSTS"
# A stream by way of the replica that stays; its agent's link is cut, and the replica that holds it is restarted.
spawn ticks curl -sN --max-time 7200 --connect-to "::127.0.0.1:${PUBLIC_OF[one]}" -H "gateway-authorization: Bearer $USER_TOKEN" "http://$(host_of "$ECHO_PORT")/ticks"
WANTED=$(sha256sum <"$OUT/files/blob.bin")
transfers() {
  until [ -e "$OUT/over" ]; do
    if [ "$(visit "http://$(host_of "$FILES_PORT")/blob.bin" 2>>"$OUT/transfers.err" | sha256sum)" = "$WANTED" ]; then echo whole; else echo broken; fi
    sleep 1
  done >"$OUT/transfers.txt"
}
transfers &

# --- what happens now and then ----------------------------------------------------------------------------------------
mark() { printf '%s %s\n' "$(now_ms)" "$*" >>"$OUT/events.txt"; }
firing() { curl -s --max-time 10 "http://127.0.0.1:$PROMETHEUS/api/v1/alerts" | jq -r '.data.alerts[] | select(.state == "firing") | .labels.alertname' | sort -u; }
resident() { awk '/^VmRSS:/ { print $2 * 1024 }' "/proc/${PIDS[agent]}/status"; }
descriptors() { find "/proc/${PIDS[agent]}/fd" -type l 2>/dev/null | wc -l; }
# A token is used at each replica, taken away, and refused by each of them.
revoke_one() {
  local token id name began user=user-$SECONDS
  USER_TOKEN_KEPT=$USER_TOKEN
  token=$(gateway token create --user "$user" 2>>"$OUT/token.log") id=t-$(query 'SELECT max(id) FROM tokens')
  gateway workspace share "$WORKSPACE" "$ECHO_PORT" --with "user:$user" >>"$OUT/share.log" 2>&1 || echo "no share" >>"$OUT/revoked.txt"
  USER_TOKEN=$token
  for name in "${NAMES[@]}"; do until_ok 10 lets_in "$name" || echo "$name never let it in" >>"$OUT/revoked.txt"; done
  began=$(now_ms)
  gateway token revoke "$id" >>"$OUT/revoke.log" 2>&1 || echo "cannot be revoked" >>"$OUT/revoked.txt"
  for name in "${NAMES[@]}"; do
    if until_ok 10 keeps_out "$name"; then echo "after $(($(now_ms) - began)) ms"; else echo "$name still lets it in"; fi >>"$OUT/revoked.txt"
  done
  USER_TOKEN=$USER_TOKEN_KEPT
}
status_at() { at "$1" -o /dev/null -w '%{http_code}' "http://$(host_of "$ECHO_PORT")/"; }
lets_in() { [ "$(status_at "$1")" = 200 ]; }
keeps_out() { [ "$(status_at "$1")" = 401 ]; }
# A page of the dashboard, as a browser that signed in at the beginning has it.
curl -sL --max-time 20 -c "$OUT/jar" -b "$OUT/jar" -o /dev/null "$(sign_in_link one)"
visit_home() { curl -sL --max-time 20 -c "$OUT/jar" -b "$OUT/jar" -o /dev/null -w '%{http_code} %{num_redirects}\n' "http://localhost:$PUBLIC/" >>"$OUT/pages.txt"; }
# Agents that end as they are asked to, and others in their place.
come_and_go() {
  if [ -n "${PIDS[guests]:-}" ] && alive guests; then signal TERM guests; ends_within 20 guests; fi
  fleet guests --gateway "http://127.0.0.1:$AGENTS"
}
seq -f 'guest-%g' 20 | while read -r guest; do token_of "$guest"; done >"$OUT/guests.tokens"

: >"$OUT/alerts.txt" >"$OUT/agent.csv"
BEGAN=$SECONDS step=0
mark begin
while [ $((SECONDS - BEGAN)) -lt "$SOAK_SECONDS" ]; do
  step=$((step + 1))
  printf '%s %s %s\n' "$(date +%s)" "$(resident)" "$(descriptors)" >>"$OUT/agent.csv"
  firing >>"$OUT/alerts.txt"
  case $((step % 6)) in
    1) mark cut && signal USR1 link ;;
    3) revoke_one ;;
    5) visit_home ;;
  esac
  [ $((step % 30)) != 10 ] || { mark "agents come and go" && come_and_go; }
  case $((step % 60)) in
    20) mark "restart two" && drained two && start two ;;
    50) mark "restart three" && drained three && start three ;;
  esac
  # The next tenth second.
  while [ $((SECONDS - BEGAN)) -lt $((step * 10)) ] && [ $((SECONDS - BEGAN)) -lt "$SOAK_SECONDS" ]; do sleep 0.2; done
done
mark end

# --- what came of it ---------------------------------------------------------------------------------------------------
touch "$OUT/over"
loaded steady
close_sockets
check "the stream never ended, over all cuts and restarts" alive ticks
came=$(grep -c '^data' "$OUT/ticks.log")
stop ticks
echo "stream: $came events"
until_ok 60 test -s "$OUT/transfers.txt"
same "transfers that did not come whole" 0 "$(grep -vc whole "$OUT/transfers.txt")"
echo "transfers: $(grep -c whole "$OUT/transfers.txt") of 20 MB"
same "tokens that were let in too late, or kept out too late" "" "$(grep -v '^after' "$OUT/revoked.txt")"
slowest=$(awk '/^after/ && $2 > most { most = $2 } END { print most }' "$OUT/revoked.txt")
same "pages of the dashboard that did not come at once" 0 "$(grep -vc '^200 0$' "$OUT/pages.txt")"
check "access ends within 5 s of its revocation (slowest $slowest ms)" test "$slowest" -le 5500
same "alerts that fired" "" "$(sort "$OUT/alerts.txt" | uniq -c | paste -sd ';')"
same "cuts of all links" "$(grep -c ' cut$' "$OUT/events.txt")" "$(((step + 5) / 6))"
check "all agents are up" until_ok 60 all_up
check "no program panicked" sh -c "! grep -n panicked '$OUT'/*.log"
helper judged 60 python3 "$APPS/soak_report.py" --prometheus "http://127.0.0.1:$PROMETHEUS" --agent "$OUT/agent.csv" \
  --events "$OUT/events.txt" --drawing "$OUT/soak.svg"
finish
