#!/usr/bin/env bash
# Three replicas behind a balancer, on one PostgreSQL: users ask one, the agent dialed another, and replicas are killed, stopped,
# drained and started again under what users have open at the others.
#   KILLS=50 tests/real/suites/replicas.sh           more kills than the five of a usual run
#   BALANCER=nginx tests/real/suites/replicas.sh     behind nginx; HAProxy, if nothing is said
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "replicas: nothing to check without the gateway"; finish; }
KILLS=${KILLS:-5}
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/three-replicas.sh"
# The agent dials the first that is there, also for the lanes that others ask for: the replica that dies carries those of the third.
sed -i '/^listen agents/,$s/balance roundrobin/balance first/' "$OUT/balancer.conf"
far_from() { if [ "$1" = three ]; then echo one; else echo three; fi; }
start_replicas
check "three replicas are listed" live 3
start_echo
start_files
user_token
spawn_agent agent "$WORKSPACE"
until_ok 20 attached "$WORKSPACE" || give_up "the agent does not attach: $(tail -n 1 "$OUT/agent.log")"
SUM=$(sha256sum <"$OUT/files/blob.bin")

# socket_at NAME REPLICA TEXT FILE : a WebSocket by way of a replica until the file exists; to be collected by NAME.
socket_at() {
  rm -f "$4"
  spawn "$1" env REAL_USER_TOKEN="$USER_TOKEN" node "$APPS/ws_client.mjs" --connect "127.0.0.1:${PUBLIC_OF[$2]}" \
    --host "$(host_of "$ECHO_PORT")" --text "$3" --until-file "$4"
}
# socket_open NAME : its first messages came back.
socket_open() { until_ok 20 grep -q '^ok ' "$OUT/$1.log" || fail "the WebSocket $1 does not open: $(tail -n 1 "$OUT/$1.log")"; }
# transfer NAME REPLICA ARGUMENTS… : an upload or a download of two seconds by way of a replica, as process NAME.
transfer() {
  local name=$1 replica=$2
  shift 2
  spawn "$name" curl -sS --max-time 60 --limit-rate 10M -H "gateway-authorization: Bearer $USER_TOKEN" \
    --connect-to "::127.0.0.1:${PUBLIC_OF[$replica]}" "$@"
}
# Requests by way of the balancer.
LOAD=(env REAL_CREDENTIALS="token $USER_TOKEN" node "$APPS/steady_load.mjs" --connect "127.0.0.1:$PUBLIC" --host "$(host_of "$ECHO_PORT")" --rate 100)
# carried NAME BYTES : it has read so much of its file, or written so much to it.
carried() { awk -v want="$2" '/^[rw]char/ { sum += $2 } END { exit !(sum >= want) }' "/proc/${PIDS[$1]}/io"; }

# --- any replica answers ----------------------------------------------------------------------------------------------
answers_at() { at "$1" -f --max-time 5 "http://$(host_of "$ECHO_PORT")/" -o /dev/null; }
# holder : the replica that the agent dialed.
holder() { holder_of "$WORKSPACE"; }
one_holder() { [ "$(holder | wc -l)" = 1 ]; }
for name in "${NAMES[@]}"; do
  # One that was asked before the agent was there knows of its absence for a second.
  check "a request by way of $name" until_ok 2 answers_at "$name"
  same "a file of 20 MB by way of $name is the same bytes" "$SUM" "$(at "$name" "http://$(host_of "$FILES_PORT")/blob.bin" | sha256sum)"
done
check "one replica has the agent" one_holder
lanes() { [ "$(replicas | jq '[.[].lanes_ended] | add')" = "$1" ]; }
check "two have a relay lane, as they report" until_ok 10 lanes 2

# --- who is no replica gets nothing -----------------------------------------------------------------------------------
certificate other URI:spiffe://localhost/agent/x >>"$OUT/openssl.log" 2>&1
peers_answer() { curl -sk --http2 --max-time 3 "$@" "https://127.0.0.1:${PEERS_OF[one]}/peers.v1.Peers/Meet" -o /dev/null; }
if peers_answer; then fail "the port for replicas answers a caller without a certificate"; else ok "the port for replicas answers no caller without a certificate"; fi
if peers_answer --cert "$OUT/other.pem" --key "$OUT/other.key"; then fail "it answers the certificate of an agent"; else ok "nor one with the certificate of another role"; fi
until_ok 5 grep -q 'code="role"' "$OUT/one.log" && ok "which is logged with its code" || fail "no code in the log: $(tail -n 1 "$OUT/one.log")"
sed "s|^zone = .*|zone = \"other.localhost\"|; s|:${PUBLIC_OF[one]}|:$(free_port)|; s|:${AGENTS_OF[one]}|:$(free_port)|; s|:${ADMIN_OF[one]}|:$(free_port)|; s|:${PEERS_OF[one]}|:$(free_port)|; s|one.pem|zone.pem|; s|one.key|zone.key|" "$OUT/one.toml" >"$OUT/zone.toml"
certificate zone URI:spiffe://other.localhost/replica >>"$OUT/openssl.log" 2>&1
spawn zone env NO_COLOR=1 "$REAL_GATEWAY" --config "$OUT/zone.toml" serve
ends_within 20 zone && [ "$STATUS" != 0 ] && grep -q 'another zone' "$OUT/zone.log" && ok "a replica of another zone is refused at its start" ||
  fail "a replica of another zone: $(tail -n 1 "$OUT/zone.log")"

# --- kill -9 under a WebSocket, an upload and a download of another replica ---------------------------------------------
lost=0
printf 'kill of the replica that has the agent; milliseconds until a request by way of another is answered:\n' >"$OUT/kills.txt"
for round in $(seq "$KILLS"); do
  until_ok 20 one_holder || { fail "round $round: no replica has the agent"; break; }
  held=$(holder)
  user=$(far_from "$held")
  until_ok 10 answers_at "$user" || { fail "round $round: not reached by way of $user"; break; }
  socket_at "socket-$round" "$user" "round $round: a WebSocket at $user while $held is killed" "$OUT/killed"
  socket_open "socket-$round"
  transfer down "$user" "http://$(host_of "$FILES_PORT")/blob.bin" -o "$OUT/down.bin"
  transfer up "$user" -T "$OUT/files/blob.bin" "http://$(host_of "$ECHO_PORT")/sum" -o "$OUT/up.txt"
  for name in down up; do until_ok 10 carried "$name" 2000000 || fail "round $round: the transfer $name does not begin"; done
  alive down && alive up || fail "round $round: a transfer was over before the kill"
  signal KILL "$held"
  ends_within 2 "$held"
  began=$(now_ms)
  until_ok 15 answers_at "$user" || fail "round $round: no answer by way of $user after $held was killed"
  took=$(($(now_ms) - began))
  printf '%s: %s\n' "$held" "$took" >>"$OUT/kills.txt"
  start "$held"
  for name in down up; do ends_within 60 "$name"; done
  [ "$(sha256sum <"$OUT/down.bin")" = "$SUM" ] && [ "$(cat "$OUT/up.txt")" = "$SUM" ] || { lost=$((lost + 1)); }
  rm -f "$OUT/down.bin" "$OUT/up.txt"
  touch "$OUT/killed"
  collect "socket-$round" 60
done
same "uploads and downloads that lost a byte in $KILLS kills" 0 "$lost"

# --- a replica that stands still for longer than its lease ------------------------------------------------------------
held=$(holder)
user=$(far_from "$held")
socket_at still "$user" "a WebSocket at $user while $held stands still" "$OUT/thawed"
socket_open still
signal STOP "$held"
began=$(now_ms)
moved() { local name; for name in "${NAMES[@]}"; do [ "$name" != "$held" ] && has_agent "$name" "$WORKSPACE" && return; done; return 1; }
check "the agent is at another replica" until_ok 60 moved
printf 'stopped: agent elsewhere after %s ms\n' "$(($(now_ms) - began))" >>"$OUT/kills.txt"
check "and is reached there" until_ok 10 answers_at "$user"
check "a replica whose lease is over is not listed" until_ok 20 live 2
signal CONT "$held"
check "when it wakes, it is listed again" until_ok 10 live 3
check "and changes nothing for the agent" answers_at "$user"
check "and answers, by way of the replica where the agent is now" until_ok 10 answers_at "$held"
touch "$OUT/thawed"
collect still 90
check "and still runs" curl -sf "http://127.0.0.1:${ADMIN_OF[$held]}/readyz"

# --- kill -9 of a replica that users are at: what ends there is lost, and the others go on ------------------------------
held=$(holder)
user=$(far_from "$held")
rm -f "$OUT/led" "$OUT/leading"
# Requests that were under way there are answered by nothing; nginx sends them again, HAProxy does not.
if [ "$BALANCER" = nginx ]; then bearable=0; else bearable=20; fi
spawn led "${LOAD[@]}" --bearable "$bearable" --ready-file "$OUT/leading" --until-file "$OUT/led"
until_ok 10 test -e "$OUT/leading"
signal KILL "$user"
ends_within 2 "$user"
check "users of the others notice nothing when a replica without the agent dies" answers_at "$held"
start "$user"
sleep 1
touch "$OUT/led"
collect led 60

# --- drain ------------------------------------------------------------------------------------------------------------
rm -f "$OUT/drained"
spawn load "${LOAD[@]}" --until-file "$OUT/drained"
restart_all
touch "$OUT/drained"
collect load 60
check "a drain of a number that no replica has is refused" sh -c "! env NO_COLOR=1 '$REAL_GATEWAY' --config '$OUT/one.toml' replicas drain 999999 2>/dev/null"

# --- the database is gone ---------------------------------------------------------------------------------------------
held=$(holder)
user=$(far_from "$held")
socket_at away "$user" "a WebSocket at $user while the database is gone" "$OUT/back"
socket_open away
kill_server
sleep 17 # longer than the lease, 15 s, which only the database judges
for name in "$held" "$user"; do check "while the database is gone, requests by way of $name are answered" answers_at "$name"; done
start_server
check "all replicas live when it is back" until_ok 30 live 3
for name in "${NAMES[@]}"; do check "and answer: $name" until_ok 10 answers_at "$name"; done
touch "$OUT/back"
collect away 60
check "no program panicked" sh -c "! grep -n panicked '$OUT'/*.log"
finish
