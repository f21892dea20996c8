#!/usr/bin/env bash
# A thousand agents at three replicas behind HAProxy, on one PostgreSQL: how long each agent is without a session when its replica is
# killed or stands still, what a rolling restart costs, what an idle lane takes, and what requests for absent agents ask of the database.
#   AGENT_COUNT=5000 RATE=200 tests/real/suites/replicas-scale.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "replicas-scale: nothing to check without the gateway"; finish; }
RATE=${RATE:-100}
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/fleet.sh"
SESSIONS=$((AGENT_COUNT * 2 + 1000))
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/three-replicas.sh"
start_replicas
start_echo
user_token

start_fleet --config "$OUT/one.toml"
HOSTS=$(hosts_of "$ECHO_PORT")

# --- idle lanes -------------------------------------------------------------------------------------------------------
# resident NAME : memory of a process, in bytes.
resident() { awk '/^VmRSS:/ { print $2 * 1024 }' "/proc/${PIDS[$1]}/status"; }
# ask_all : one request for each workspace by way of the first replica.
ask_all() {
  seq "$AGENT_COUNT" | xargs -P 4 -I{} curl -s --max-time 20 -o /dev/null -H "gateway-authorization: Bearer $USER_TOKEN" \
    -H "host: $ECHO_PORT-w-{}.localhost:$PUBLIC" "http://127.0.0.1:${PUBLIC_OF[one]}/"
}
declare -A BEFORE GREW
sleep 5
for name in "${NAMES[@]}" fleet; do BEFORE[$name]=$(resident "$name"); done
ask_all
# Connections to the app are over by then, and lanes not yet.
sleep 20
lanes=$(curl -s "http://127.0.0.1:${ADMIN_OF[one]}/debug/sessions" | jq '[.[] | select(.way == "relay")] | length')
[ "$lanes" -gt $((AGENT_COUNT / 3)) ] && ok "$lanes agents have a lane to one replica" || fail "only $lanes agents have a lane to one replica"
for name in "${NAMES[@]}" fleet; do GREW[$name]=$((($(resident "$name") - ${BEFORE[$name]}) / lanes)); done
echo "an idle lane takes ${GREW[one]} bytes where it ends, $((GREW[two] + GREW[three])) where it is carried and ${GREW[fleet]} at its agent" | tee -a "$OUT/figures.txt"

# --- kill -9 ----------------------------------------------------------------------------------------------------------
for name in "${NAMES[@]}"; do
  user=$(other_than "$name")
  load "killed-$name" "${PUBLIC_OF[$user]}" --host "$HOSTS" --bearable "$((RATE * 5))"
  sleep 2
  had=$(agents_at "$name")
  began=$(now_ms)
  signal KILL "$name"
  ends_within 2 "$name"
  # Some may have moved since that was reported.
  read -r median late slowest < <(back_after "$began" "$((had * 9 / 10))")
  loaded "killed-$name"
  echo "kill -9 of $name with $had agents: a session again after $median ms (p50), $late ms (p99), $slowest ms (the last)" | tee -a "$OUT/figures.txt"
  [ "$had" -gt 0 ] && [ "${median:-99999}" -le 1000 ] && ok "half of $had agents are back within a second of a kill" ||
    fail "half of $had agents are back after $median ms"
  [ "${late:-99999}" -le 5000 ] && ok "and 99 of 100 within five" || fail "99 of 100 agents are back after $late ms"
  start "$name"
done

# --- a replica that stands still --------------------------------------------------------------------------------------
sleep 4 # reports come each three seconds
name=$(fullest "${NAMES[@]}")
had=$(agents_at "$name")
began=$(now_ms)
signal STOP "$name"
read -r median late slowest < <(back_after "$began" "$((had * 9 / 10))")
signal CONT "$name"
echo "SIGSTOP of $name with $had agents: a session again after $median ms (p50), $late ms (p99), $slowest ms (the last)" | tee -a "$OUT/figures.txt"
[ "$had" -gt 0 ] && [ "${late:-99999}" -le 15000 ] && ok "agents of a replica that stands still are elsewhere within 15 s" ||
  fail "$had agents of a replica that stands still: 99 of 100 are elsewhere after $late ms"
check "all agents are up" until_ok 30 all_up

# --- rolling restart --------------------------------------------------------------------------------------------------
sleep 5
rolling_restart
echo "rolling restart of three replicas in $TOOK ms: $GAPS of $AGENT_COUNT agents were without a session for a moment" | tee -a "$OUT/figures.txt"

# --- requests for agents that are not there ---------------------------------------------------------------------------
ABSENT=20
for number in $(seq "$ABSENT"); do token_of "absent-$number" >/dev/null; done
# reads SECONDS : how often the table of sessions was read in that time.
scans() { query "SELECT coalesce(seq_scan, 0) + coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relname = 'sessions'"; }
reads() { local before; before=$(scans); sleep "$1"; echo $(($(scans) - before)); }
sleep 2
calm=$(reads 10)
RATE=1000 load absent "${PUBLIC_OF[one]}" --want 503 \
  --host "$(for number in $(seq "$ABSENT"); do host_of "$ECHO_PORT" "absent-$number"; done | paste -sd ,)"
sleep 2
flood=$(reads 10)
loaded absent
each=$(awk -v more="$((flood - calm))" -v absent="$ABSENT" 'BEGIN { printf "%.2f", more / 10 / absent }')
echo "1000 requests a second for $ABSENT absent workspaces: $each reads of the sessions a second for each, beside $calm in 10 s without them" | tee -a "$OUT/figures.txt"
awk -v each="$each" 'BEGIN { exit !(each <= 1.2) }' && ok "an absent workspace costs the database a read a second" ||
  fail "an absent workspace costs the database $each reads a second"
check "no program panicked" sh -c "! grep -n panicked '$OUT'/*.log"
finish
