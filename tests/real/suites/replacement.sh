#!/usr/bin/env bash
# A gateway with SQLite is replaced on its host, under agents, requests and WebSockets: by a signal, by `serve --replace`, and by
# processes that fail to start.
#   AGENT_COUNT=2000 SOCKETS=1000 RATE=200 tests/real/suites/replacement.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "replacement: nothing to check without the gateway"; finish; }
AGENT_COUNT=${AGENT_COUNT:-500}
SOCKETS=${SOCKETS:-200}
RATE=${RATE:-100}
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/fleet.sh"
choose_ports
GATEWAY_ENV+=(
  "GATEWAY_DIRECTORY=host" "GATEWAY_DRAIN__MAX=10m"
  "GATEWAY_LIMITS__CONNECTIONS=$((SOCKETS * 2 + 1000))" "GATEWAY_LIMITS__SESSIONS=$((AGENT_COUNT * 2 + 1000))"
)
start_gateway
start_echo
user_token
export "${GATEWAY_ENV[@]}"
start_fleet --config "$OUT/gateway.toml"
HOSTS=$(hosts_of "$ECHO_PORT")
load steady "$PUBLIC" --host "$HOSTS"
open_sockets

replicas() { gateway replicas list -o json 2>>"$OUT/list.log"; }
# A process that was killed while it started has a lease for a while, and no agent.
serving() { replicas | jq -r '[.[] | select(.state == "serving" and .agents > 0)] | max_by(.id) | .id'; }
has_all() { [ "$(replicas | jq --argjson id "$1" '.[] | select(.id == $id) | .agents')" = "$AGENT_COUNT" ]; }
is_new() { local now; now=$(serving); [ "$now" != null ] && [ "$now" != "$1" ]; }

# replaced OLD TEXT : waits until another process than OLD serves and has all agents; prints how long that took.
replaced() {
  local began now
  began=$(now_ms)
  check "$2: another process serves" until_ok 20 is_new "$1" || finish
  now=$(serving)
  check "all agents move to it" until_ok 60 has_all "$now"
  echo "$2: $AGENT_COUNT agents were at the new process after $(($(now_ms) - began)) ms, as it reports each three seconds" | tee -a "$OUT/figures.txt"
}

# --- a process that fails to start changes nothing --------------------------------------------------------------------
first=$(serving)
began=$(now_ms)
printf 'zone = "localhost"\npublic_url = "http://localhost:%s"\n[tls.public]\ncert = "missing.pem"\nkey = "missing.key"\n' "$PUBLIC" >"$OUT/broken.toml"
spawn broken "$REAL_GATEWAY" serve --replace --config "$OUT/broken.toml"
ends_within 20 broken && [ "$STATUS" != 0 ] && ok "a process whose configuration is wrong ends" || fail "it goes on: $(tail -n 1 "$OUT/broken.log")"
spawn zone env GATEWAY_ZONE=other.localhost "$REAL_GATEWAY" serve --replace --config "$OUT/gateway.toml"
ends_within 20 zone && [ "$STATUS" != 0 ] && grep -q 'another zone' "$OUT/zone.log" && ok "and one that differs from the one that runs, with the reason" ||
  fail "a process of another zone: $(tail -n 1 "$OUT/zone.log")"
spawn killed "$REAL_GATEWAY" serve --replace --config "$OUT/gateway.toml"
sleep 0.05
signal KILL killed
ends_within 5 killed
spawn plain env "$REAL_GATEWAY" serve --config "$OUT/gateway.toml"
sleep 2
alive plain && grep -q 'another gateway serves' "$OUT/plain.log" && ok "one without --replace waits for the lock" || fail "it does not wait: $(tail -n 1 "$OUT/plain.log")"
stop plain
same "the same process serves" "$first" "$(serving)"

# --- by a signal ------------------------------------------------------------------------------------------------------
old=${PIDS[gateway]}
signal USR2 gateway
replaced "$first" "SIGUSR2"
second=$(serving)
check "the old process still has what users opened there" kill -0 "$old"
child=$(pgrep -P "$old" | head -n 1)
[ -n "$child" ] && PIDS[second]=$child

# --- by hand, while the first is still there --------------------------------------------------------------------------
spawn third "$REAL_GATEWAY" serve --replace --config "$OUT/gateway.toml"
replaced "$second" "serve --replace"
third=$(serving)
sleep 5
close_sockets
loaded steady
gaps=$(times_since "$began" | wc -l)
echo "two replacements: $gaps of $AGENT_COUNT agents were without a session for a moment; requests: $(grep '^slowest' "$OUT/steady.log"); WebSockets: $(grep '^slowest' "$OUT/sockets.log")" | tee -a "$OUT/figures.txt"
same "no agent was without a session" 0 "$gaps"
gone() { ! kill -0 "$1" 2>/dev/null; }
check "the first process ends once nothing is open there" until_ok 30 gone "$old"
check "and the second" until_ok 30 gone "${child:-0}"
same "one process is left, the third" "$third" "$(replicas | jq -r '.[].id')"

# --- the one that is left is a gateway like any other -----------------------------------------------------------------
signal KILL third
ends_within 2 third
spawn fourth "$REAL_GATEWAY" serve --replace --config "$OUT/gateway.toml"
ready() { curl -sf "http://127.0.0.1:$ADMIN/readyz" >/dev/null; }
check "after a kill another one starts at once" until_ok 10 ready
check "and has the agents" until_ok 30 all_up
check "no program panicked" sh -c "! grep -n panicked '$OUT'/*.log"
finish
