#!/usr/bin/env bash
# Three replicas behind HAProxy, on one PostgreSQL, under steady load: the database is slow, full, or restored from a backup; clocks are an
# hour off; replicas cannot reach each other, both ways and one way; agents come back in a storm; two processes have one token. The table
# of what was lost is in out/replicas-faults/figures.txt.
#   AGENT_COUNT=60 RATE=60 tests/real/suites/replicas-faults.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "replicas-faults: nothing to check without the gateway"; finish; }
AGENT_COUNT=${AGENT_COUNT:-60}
RATE=${RATE:-60}
FAKETIME=$(compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' | head -n 1)
[ -n "$FAKETIME" ] || give_up "libfaketime is missing: tests/real/install.sh debian"
# Certificates are good for a clock that is behind, too.
openssl() { LD_PRELOAD=$FAKETIME FAKETIME=-1d command openssl "$@"; }
# Everything goes to the database, and from replica to replica, by way of a relay that can be made bad.
STORE_PORT=$(free_port)
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/fleet.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/three-replicas.sh"
path() { printf '%s\n' "$2" >"$OUT/$1.mode"; } # path NAME MODE
relay() { path "$1" pass; spawn "relay-$1" python3 "$APPS/faulty_relay.py" "$2" "$3" "$OUT/$1.mode"; wait_port "relay-$1" "$2"; }
relay store "$STORE_PORT" "$PG_PORT"
for name in "${NAMES[@]}"; do
  listen=$(free_port)
  sed -i "s|^peers = .*|peers = \"127.0.0.1:$listen\"|; s|^\[peers\]|[peers]\nurl = \"https://127.0.0.1:${PEERS_OF[$name]}\"|" "$OUT/$name.toml"
  relay "$name" "${PEERS_OF[$name]}" "$listen"
done
start_replicas
start_echo
user_token
start_fleet --config "$OUT/one.toml"
HOSTS=$(hosts_of "$ECHO_PORT")
printf '%-58s %-6s %-30s %s\n' fault "by way" answers "slowest answer" >"$OUT/figures.txt"

# socket NAME : a WebSocket by way of the balancer; `touch NAME.end` ends it.
socket() {
  rm -f "$OUT/$1.end"
  spawn "socket-$1" env REAL_USER_TOKEN="$USER_TOKEN" node "$APPS/ws_client.mjs" --connect "127.0.0.1:${2:-$PUBLIC}" \
    --host "$(host_of "$ECHO_PORT" "${3:-w-1}")" --text "a WebSocket: $1" --until-file "$OUT/$1.end"
}
# begin NAME ARGUMENTS… : load on twenty workspaces by way of each replica, until it has all routes, and a WebSocket by way of BY, or of one.
begin() {
  local name
  for name in "${NAMES[@]}"; do load "$1-$name" "${PUBLIC_OF[$name]}" --host "$HOSTS" "${@:2}"; done
  socket "$1" "${PUBLIC_OF[${BY:-one}]}"
  sleep 4
}
# end_of NAME FAULT REPLICA… : what came of it, as a line of the table. What is asked of other replicas than those is not judged: they were killed.
end_of() {
  local name
  touch "$OUT/$1.end"
  for name in "${NAMES[@]}"; do touch "$OUT/$1-$name.done"; done
  for name in "${@:3}"; do
    loaded "$1-$name"
    printf '%-58s %-6s %-30s %s\n' "$2" "$name" "$(grep -oE '[0-9]+ requests .*' "$OUT/$1-$name.log" | sed 's/.*refused: //; s/: slowest.*//' | head -n 1)" \
      "$(grep -oE '^slowest: .*' "$OUT/$1-$name.log" | cut -d ' ' -f 2-)" >>"$OUT/figures.txt"
  done
  collect "socket-$1" 60
  for name in "${NAMES[@]}"; do stop "$1-$name"; done
}
answers() { at "$1" -f --max-time 5 "http://$(host_of "$ECHO_PORT" "$2")/" -o /dev/null; }
# killed NAME : since BEGAN, nine of ten of its agents have to come back, HAD.
killed() {
  had=$(($(agents_at "$1") * 9 / 10))
  [ "$had" -gt 0 ] || fail "$1 has no agents"
  began=$(now_ms)
  signal KILL "$1"
  ends_within 2 "$1"
}
moved_from() { local now; now=$(holder_of w-1); [ -n "$now" ] && [ "$now" != "$1" ]; }
generation_of() { query "SELECT generation FROM sessions JOIN workspaces ON subject = workspaces.id AND kind = 1 WHERE name = '$1'"; }

# --- the database is slow ---------------------------------------------------------------------------------------------
begin slow
path store slow
sleep 30
path store pass
end_of slow "PostgreSQL answers 5 s late, for 30 s" "${NAMES[@]}"
check "all replicas live after it" until_ok 30 live 3

# --- the database takes no connection, and ends those that it has -----------------------------------------------------
begin full
room=$(query "SELECT setting::int - 5 FROM pg_settings WHERE name = 'max_connections'")
for number in $(seq "$room"); do "$PG/psql" -h "$DATA" -p "$PG_PORT" -U gateway -d postgres -qAtc 'SELECT pg_sleep(25)' >/dev/null 2>&1 & done
sleep 3
query "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'gateway' AND pid <> pg_backend_pid()" postgres >/dev/null 2>&1
sleep 25
wait_free() { query 'SELECT 1' postgres >/dev/null 2>&1; }
check "the database takes connections again" until_ok 30 wait_free
end_of full "PostgreSQL full, after it ended all connections, for 25 s" "${NAMES[@]}"
check "all replicas live after it" until_ok 30 live 3

# --- clocks -----------------------------------------------------------------------------------------------------------
for offset in +1h -1h; do
  kill -TERM "${PIDS[three]}"
  ends_within 60 three
  spawn three env NO_COLOR=1 LD_PRELOAD="$FAKETIME" FAKETIME="$offset" FAKETIME_DONT_FAKE_MONOTONIC=1 "$REAL_GATEWAY" --config "$OUT/three.toml" serve
  until_ok 20 curl -sf "http://127.0.0.1:${ADMIN_OF[three]}/readyz" >/dev/null || fail "a replica whose clock is $offset off does not start: $(tail -n 1 "$OUT/three.log")"
  name=$(fullest one two)
  if [ "$name" = one ]; then BY=two; else BY=one; fi
  begin "clock$offset" --bearable "$((RATE * 5))"
  sleep 4
  hour=$(date -u -d "${offset%h} hour" +%H)
  check "a replica lives whose clock is $offset off" grep -qE "T$hour:[0-9:.]+Z .*gateway is up" "$OUT/three.log"
  # Agents come to it from another one that dies.
  killed "$name"
  check "$offset: all agents are up after the kill of another" until_ok 20 are_back "$began" "$had"
  start "$name"
  check "$offset: it answers" until_ok 10 answers three w-1
  end_of "clock$offset" "clock of three $offset off, $name killed meanwhile" "$BY"
done
kill -TERM "${PIDS[three]}"
ends_within 60 three
start three
sleep 2

# --- replicas cannot reach each other ---------------------------------------------------------------------------------
# The agent dials `one` alone: what users of `two` get of it goes from replica to replica.
AGENT_URL=http://127.0.0.1:${AGENTS_OF[one]} spawn_agent straight straight
# apart NAME MODE TEXT : its replica is apart from the others for eight seconds, while all see the database.
apart() {
  local held=one user=two began took name
  until_ok 20 answers "$user" straight || fail "$3: not reached before"
  socket "$1" "${PUBLIC_OF[$user]}" straight
  until_ok 20 grep -q '^ok ' "$OUT/socket-$1.log" || fail "$3: no WebSocket before: $(tail -n 1 "$OUT/socket-$1.log")"
  for name in "${NAMES[@]}"; do
    if [ "$2" = drop ] || [ "$name" = "$held" ]; then path "$name" "$2"; else path "$name" deaf; fi
  done
  sleep 6
  began=$(now_ms)
  code=$(failure_by "$user")
  took=$(($(now_ms) - began))
  [ "$took" -le 3500 ] && [ "$code" = "agent_absent peer" ] && ok "$3: a new request after $took ms: $code" ||
    fail "$3: a new request: '$code' after $took ms"
  for name in "${NAMES[@]}"; do path "$name" pass; done
  check "$3: and answered when it is over" until_ok 15 answers "$user" straight
  touch "$OUT/$1.end"
  collect "socket-$1" 60
  printf '%-58s %-6s %-30s %s\n' "$3" "$user" "new ones: $code, $took ms" "$(grep -oE 'longest wait [0-9]+ ms' "$OUT/socket-$1.log" | tail -n 1), none lost" >>"$OUT/figures.txt"
}
failure_by() {
  at "$1" --max-time 10 -H 'accept: application/json' "http://$(host_of "$ECHO_PORT" straight)/" | jq -r '"\(.code) \(.reason // "")"' 2>/dev/null
}
apart cut drop "R and E cannot reach each other, for 8 s"
apart mute mute "what R says to E is lost, for 8 s"
stop straight

# --- a storm while the database is late -------------------------------------------------------------------------------
name=$(fullest "${NAMES[@]}")
others=()
for other in "${NAMES[@]}"; do [ "$other" = "$name" ] || others+=("$other"); done
BY=${others[0]}
begin storm --bearable "$((RATE * 3))"
path store late
killed "$name"
check "all agents are back while PostgreSQL answers 100 ms late" until_ok 20 are_back "$began" "$had"
slowest=$(times_since "$began" | tail -n 1)
path store pass
start "$name"
end_of storm "kill -9 of $name, PostgreSQL 100 ms late; back in ${slowest:-?} ms" "${others[@]}"

# --- one token, two processes -----------------------------------------------------------------------------------------
AGENT_URL=http://127.0.0.1:${AGENTS_OF[one]} spawn_agent twin-1 twin
AGENT_URL=http://127.0.0.1:${AGENTS_OF[two]} spawn_agent twin-2 twin
twins() { grep -hc 'session up agent=workspace twin ' "$OUT/one.log" "$OUT/two.log" "$OUT/three.log" | awk '{ sum += $1 } END { print sum }'; }
sleep 10
before=$(twins)
sleep 10
same "two processes with one token do not take turns" "$before" "$(twins)"
# A message to the replica of the older one may be lost: the store is asked within a minute.
one_twin() { [ "$(holder_of twin | wc -l)" = 1 ]; }
check "one of them has the session" until_ok 70 one_twin
for name in "${NAMES[@]}"; do check "by way of $name" until_ok 5 answers "$name" twin; done

# --- a standby that is a moment behind takes the database's place -------------------------------------------------------
# copied NAME : a copy of the database as it is now, while nothing writes to it.
copied() {
  kill_server
  cp -a "$DATA/data" "$DATA/$1"
  start_server
  check "all replicas live again" until_ok 30 live 3
}
put_back() { kill_server; rm -rf "$DATA/data" && mv "$DATA/$1" "$DATA/data"; start_server; }
# move : the replica of w-1 is killed, NAME.
move() {
  name=$(holder_of w-1)
  signal KILL "$name"
  ends_within 2 "$name"
  until_ok 20 moved_from "$name" || fail "the agent of w-1 does not move from $name"
}
copied standby
move
put_back standby
start "$name"
check "all replicas live on a standby that does not know of a session" until_ok 30 live 3
# Each replica compares its sessions with the store within a minute.
for name in "${NAMES[@]}"; do check "and its agent is reached by way of $name" until_ok 70 answers "$name" w-1; done

# --- a backup is restored, older than all leases ------------------------------------------------------------------------
copied backup
# Generations go on after the backup: an agent moves.
for round in 1 2 3; do
  move
  start "$name"
done
sleep 16
newest=$(generation_of w-1)
put_back backup
older=$(generation_of w-1)
[ "${older:-0}" -lt "${newest:-0}" ] && ok "the backup has an older generation of a session ($older, not $newest)" || fail "the backup has generation $older, and the last was $newest"
sleep 20
# A replica that the backup does not know has to start anew, as its supervisor would have it.
for name in "${NAMES[@]}"; do alive "$name" || { wait "${PIDS[$name]}" 2>/dev/null; unset "PIDS[$name]"; start "$name"; }; done
check "three replicas live on the backup" until_ok 30 live 3
check "and all agents are up" until_ok 30 all_up
for name in "${NAMES[@]}"; do check "and reached by way of $name" until_ok 10 answers "$name" w-1; done
grown() { [ "$(generation_of w-1)" -gt "$newest" ]; }
name=$(holder_of w-1 | head -n 1)
signal KILL "$name"
ends_within 2 "$name"
check "the next generation is above all that the agent had" until_ok 20 grown
start "$name"
check "no program panicked" sh -c "! grep -n panicked '$OUT'/*.log"
cat "$OUT/figures.txt"
finish
