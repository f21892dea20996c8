#!/usr/bin/env bash
# A database that goes away: killed, stopped, cut off, slow, and a SQLite that cannot be written. Who is known goes on and nobody waits,
# links of agents break and are resumed, what is open stays open, what was revoked counts, and a stranger is refused by name.
#
#   OUTAGE_SECONDS=600 RATE=1000 tests/real/suites/outage.sh      one outage of that length, with ten breaks of the agent's link
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "outage: there is nothing to check without the gateway"; finish; }

source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/postgres.sh"
DISK=
trap 'status=$?; resume_server; stop postgres; [ -z "$DISK" ] || { stop small; umount -l "$DISK"; }; rm -rf "$DATA"; (exit "$status"); cleanup' EXIT

# --- a server, which can be stopped and cut off -----------------------------------------------------------------------
# Each of its processes has a session of its own.
server_processes() { echo "${PIDS[postgres]}"; pgrep -P "${PIDS[postgres]}"; }
resume_server() { [ -z "${PIDS[postgres]:-}" ] || server_processes | xargs -r kill -s CONT 2>/dev/null; }

DATABASE=$(free_port) LINK=$(free_port)
create_server
MODE=$OUT/mode
mode() { printf '%s\n' "$1" >"$MODE.new" && mv "$MODE.new" "$MODE"; }
mode pass
spawn database python3 "$APPS/faulty_relay.py" "$DATABASE" "$PG_PORT" "$MODE"
wait_port database "$DATABASE"

# --- who is known, and what is open -----------------------------------------------------------------------------------
choose_ports
SMALL=("${GATEWAY_ENV[@]}")
GATEWAY_ENV+=(
  "GATEWAY_STORE__URL=postgres://gateway@127.0.0.1:$DATABASE/gateway" "GATEWAY_STORE__KEY_FILE=$OUT/gateway.key"
  # All requests come from one address and one user here.
  "GATEWAY_LIMITS__REQUESTS_PER_SECOND_PER_USER=100000" "GATEWAY_LIMITS__REQUESTS_PER_USER=10000"
)
# Commands of the operator reach the server whatever the gateway does not.
operator() { env "${GATEWAY_ENV[@]}" "GATEWAY_STORE__URL=postgres://gateway@127.0.0.1:$PG_PORT/gateway" "$REAL_GATEWAY" --config "$OUT/gateway.toml" "$@"; }
start_echo
start_gateway
spawn link python3 "$APPS/relay.py" "$LINK" "$AGENTS"
wait_port link "$LINK"
AGENT_URL=http://127.0.0.1:$LINK start_agent
HOST=$(host_of "$ECHO_PORT")
new_token() { operator token create --user "$1" 2>>"$OUT/token.log"; }
operator workspace share "$WORKSPACE" "$ECHO_PORT" --with user:bob >"$OUT/share.log" 2>&1 || fail "no share: $(tail -n 1 "$OUT/share.log")"
last_id() { query "SELECT 't-' || max(id) FROM tokens"; }
revoke() { operator token revoke "$1" >"$OUT/revoke.log" 2>&1 || fail "$1 cannot be revoked: $(tail -n 1 "$OUT/revoke.log")"; }
BOB=$(new_token bob)
REVOKED=$(new_token bob) REVOKED_ID=$(last_id)
FUTURE=$(new_token bob) FUTURE_ID=$(last_id)

# as TOKEN : the status and the gateway's word for one request, and how long it took in ms.
as() {
  curl -s -o /dev/null -D "$OUT/head.txt" --max-time 20 -w '%{http_code} %{time_total}' -H "gateway-authorization: Bearer $1" "http://$HOST/" >"$OUT/answer.txt"
  read -r STATUS_CODE seconds <"$OUT/answer.txt"
  WORD=$(tr -d '\r' <"$OUT/head.txt" | sed -n 's/^gateway-error: *//Ip')
  TOOK=$(awk -v seconds="$seconds" 'BEGIN { printf "%d", seconds * 1000 }')
}
gets() { as "$1"; [ "$STATUS_CODE" = 200 ] || { echo "$STATUS_CODE $WORD after $TOOK ms"; return 1; }; }
refused_as() { as "$2"; [ "$WORD" = "$1" ] || { echo "$STATUS_CODE $WORD"; return 1; }; }
# Of a token that was revoked, nothing but that is known, and only for a moment.
is_kept_out() { as "$1"; case "$STATUS_CODE $WORD" in '401 sign_in_required' | '503 overloaded') ;; *) echo "$STATUS_CODE $WORD"; return 1 ;; esac; }
JAR=$OUT/cookies
curl -sL -c "$JAR" -b "$JAR" -o /dev/null "$(sign_in_link)"
browse() { curl -s --max-time 20 -c "$JAR" -b "$JAR" -o /dev/null -w '%{http_code}' "$@" -H 'accept: text/html' -H 'sec-fetch-mode: navigate' -H 'sec-fetch-dest: document' "http://$HOST/"; }
browse -L >/dev/null
same "a browser is signed in" 200 "$(browse)"
# The share was made on the database, which the gateway learns of within seconds.
for token in "$USER_TOKEN" "$BOB" "$REVOKED" "$FUTURE"; do check "a token is known" until_ok 10 gets "$token"; done

websocket steady "$ECHO_PORT" "$WORKSPACE" --text "a WebSocket through all of it" --until-file "$OUT/over"
spawn ticks curl -sN --max-time 3600 -H "gateway-authorization: Bearer $USER_TOKEN" "http://$HOST/ticks"
export REAL_CREDENTIALS="token $USER_TOKEN
token $BOB
cookie $(awk -v host="${HOST%%:*}" '$1 ~ host { printf "%s%s=%s", between, $6, $7; between = "; " }' "$JAR")"
spawn load node "$APPS/steady_load.mjs" --connect "127.0.0.1:$PUBLIC" --host "$HOST" --rate "${RATE:-100}" --until-file "$OUT/over"
came() { grep -c '^data' "$OUT/ticks.log"; }
ready() { curl -s --max-time 5 -w '%{http_code}\n' "http://127.0.0.1:$ADMIN/readyz"; }
says_away() { ready | grep -q '^store: away since 2' && ready | grep -q '^200$'; }
metric() { curl -s --max-time 5 "http://127.0.0.1:$ADMIN/metrics" | sed -n "s/^$1 //p"; }
says_back() { ! ready | grep -q 'store: away' && [ "$(metric gateway_store_away)" = 0 ]; }
# Its link breaks, and what it had goes on over the next one.
break_link() { signal USR1 link; }
resumed() { [ "$(grep -c 'session resumed' "$OUT/gateway.log")" -gt "$1" ]; }

# outage NAME BEGIN END : what holds in each of them.
outage() {
  local name=$1 begin=$2 end=$3 before began slowest later again
  before=$(came) again=$(grep -c 'session resumed' "$OUT/gateway.log")
  STRANGER=$(new_token dev)
  $begin
  # Requests one after the other, from the first that meets it.
  began=$(now_ms) slowest=0
  : >"$OUT/$name.times"
  while [ $(($(now_ms) - began)) -lt 4000 ]; do
    gets "$USER_TOKEN" >/dev/null || fail "$name: refused: $STATUS_CODE $WORD"
    echo "$TOOK" >>"$OUT/$name.times"
  done
  slowest=$(sort -rn "$OUT/$name.times" | sed -n 1p) later=$(sort -rn "$OUT/$name.times" | sed -n 4p)
  check "$name: the first request waits at most 2 s ($slowest ms)" test "$slowest" -le 2000
  check "$name: those after it at most 50 ms (fourth slowest: $later ms)" test "${later:-0}" -le 50
  check "$name: it is ready, and says since when the store is away" until_ok 5 says_away
  same "$name: a metric says so" 1 "$(metric gateway_store_away)"
  same "$name: a browser goes on" 200 "$(browse)"
  check "$name: another user whom a share lets in goes on" gets "$BOB"
  : >"$OUT/$name.refused" >"$OUT/$name.answers"
  for _ in {1..10}; do
    as "$STRANGER"
    echo "$STATUS_CODE $WORD" >>"$OUT/$name.answers"
    echo "$TOOK" >>"$OUT/$name.refused"
  done
  same "$name: a user that was never looked up is refused by name" "503 overloaded" "$(sort -u "$OUT/$name.answers")"
  later=$(sort -rn "$OUT/$name.refused" | sed -n 3p)
  check "$name: and at once (third slowest of ten: $later ms)" test "$later" -le 50
  check "$name: what was revoked before is not let in" is_kept_out "$REVOKED"
  break_link
  check "$name: a session goes on over a new link" until_ok 20 resumed "$again"
  check "$name: requests are answered over that" gets "$USER_TOKEN"
  [ "$name" != cut-off ] || revoke "$FUTURE_ID"
  $end
  began=$(now_ms)
  check "$name: when it is back, this is said" until_ok 15 says_back
  printf '%s: back after %s ms, slowest request %s ms, fourth slowest %s ms\n' "$name" "$(($(now_ms) - began))" "$slowest" "$later" >>"$OUT/times.txt"
  if [ "$name" = cut-off ]; then
    check "$name: what was revoked meanwhile ends" until_ok 5 refused_as sign_in_required "$FUTURE"
    check "$name: within 5 s ($(($(now_ms) - began)) ms)" test $(($(now_ms) - began)) -le 5500
  fi
  check "$name: who was never looked up gets in" until_ok 5 gets "$STRANGER"
  check "$name: a stream went on" test "$(came)" -gt $((before + 30))
}

stop_server() { server_processes | xargs kill -s STOP; }
cut_off() { mode drop; }
slow_down() { mode slow; }
heal() { mode pass; }
# The token that was revoked is revoked a moment before the first outage, by another program, and not used since.
revoke_now() {
  revoke "$REVOKED_ID"
  # It is read every second.
  sleep 2
}

if [ -n "${OUTAGE_SECONDS:-}" ]; then
  kill_server
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    sleep $((OUTAGE_SECONDS / 10))
    links=$(grep -c 'session resumed' "$OUT/gateway.log")
    break_link
    check "a session goes on over a new link" until_ok 20 resumed "$links"
    check "it is ready, and says since when the store is away" says_away
  done
  start_server
  check "when it is back, this is said" until_ok 15 says_back
else
  # Of SQLite, one that has been open for a minute when the last check comes: a second gateway waits for so long.
  SMALL+=("GATEWAY_LISTEN__PUBLIC=127.0.0.1:$(free_port)" "GATEWAY_LISTEN__AGENTS=127.0.0.1:$(free_port)")
  SMALL_PUBLIC=${SMALL[-2]##*:} SMALL_ADMIN=$(free_port)
  SMALL+=("GATEWAY_LISTEN__ADMIN=127.0.0.1:$SMALL_ADMIN" "GATEWAY_STORE__URL=sqlite://$OUT/small/gateway.db")
  mkdir "$OUT/small"
  if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=2m small "$OUT/small"; then DISK=$OUT/small; fi
  spawn small env "${SMALL[@]}" "$REAL_GATEWAY" serve
  wait_port small "$SMALL_PUBLIC"
  second_began=$(now_ms)
  spawn second env "${SMALL[@]}" "$REAL_GATEWAY" serve

  revoke_now
  outage killed kill_server start_server
  outage stopped stop_server resume_server
  outage cut-off cut_off heal
  outage slow slow_down heal

  # --- a disk that is full --------------------------------------------------------------------------------------------
  if [ -n "$DISK" ]; then
    small() { env "${SMALL[@]}" "$REAL_GATEWAY" "$@"; }
    SMALL_TOKEN=$(small token create --user dev 2>>"$OUT/token.log")
    lists() { curl -sf --max-time 10 -o /dev/null -H "authorization: Bearer $SMALL_TOKEN" "http://localhost:$SMALL_PUBLIC/api/v1/workspaces"; }
    check "SQLite: a token is known" lists
    head -c 4000000 /dev/zero >"$DISK/full" 2>/dev/null
    fill() { curl -s --max-time 10 -o /dev/null -w '%{http_code}' -X POST -H "authorization: Bearer $SMALL_TOKEN" -H 'content-type: application/json' -d '{"kind":"user"}' "http://localhost:$SMALL_PUBLIC/api/v1/tokens"; }
    small_says() { curl -s --max-time 5 "http://127.0.0.1:$SMALL_ADMIN/readyz" | grep -q "$1"; }
    full() { fill >/dev/null; small_says 'store: away since'; }
    check "SQLite on a full disk: it is said" until_ok 20 full
    check "and what can be read goes on" lists
    check "and it is ready" curl -sf --max-time 5 -o /dev/null "http://127.0.0.1:$SMALL_ADMIN/readyz"
    rm "$DISK/full"
    gone() { ! small_says 'store: away'; }
    check "and when there is room again, this is said" until_ok 15 gone
  else
    echo "note  outage: no small disk can be made here (mount): SQLite on a full disk is not checked"
  fi

  # --- a second gateway -----------------------------------------------------------------------------------------------
  ends_within 70 second || fail "a second gateway goes on"
  took=$(($(now_ms) - second_began))
  same "a second gateway on one database ends as one that is not configured right" 64 "$STATUS"
  check "it waited for the first to end, and said so" grep -q 'another gateway serves this database.*waiting up to 60 s' "$OUT/second.log"
  check "and then that there is one gateway per database" grep -q 'serves one gateway per database' "$OUT/second.log"
  check "after a minute ($took ms since its start)" test "$took" -ge 60000
  spawn third env "${SMALL[@]}" "$REAL_GATEWAY" serve
  until_ok 10 grep -q 'another gateway serves this database' "$OUT/third.log" || fail "a third one does not wait"
  signal KILL small
  ends_within 5 small
  check "one that waits takes over from one that was killed" until_ok 10 listening "$SMALL_PUBLIC"
  stop third
fi

touch "$OUT/over"
collect steady 60
collect load 60
check "the stream never ended" alive ticks
stop ticks
check "the gateway did not panic" sh -c "! grep -n panicked '$OUT/gateway.log'"
cat "$OUT/times.txt" 2>/dev/null
sed -n 's/^slowest/load: slowest/p' "$OUT/load.log"
finish
