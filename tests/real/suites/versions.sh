#!/usr/bin/env bash
# Version N, the one before, beside this one: each gateway with the other's agent, this gateway on the database of that one, and two
# replicas of this one before an agent of that one. The programs of N are built once, into .ci/cache.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/versions.sh"

[ -n "$DIRECT" ] && { echo "versions: nothing to check without the gateway"; finish; }

command -v jq >/dev/null || give_up "jq is missing: tests/real/install.sh debian"
programs_of "$(cat "$ROOT/tests/recorded/N/commit")"
NEW_GATEWAY=$REAL_GATEWAY NEW_AGENT=$REAL_AGENT
OLD_GATEWAY=$BEFORE/gateway OLD_AGENT=$BEFORE/workspace-agent

start_echo
start_files
SUM=$(sha256sum <"$OUT/files/blob.bin")
answers() { visit -f --max-time 5 "http://$(host_of "$ECHO_PORT")/" -o /dev/null; }
resumes() { grep -c 'session resumed' "$OUT/gateway.log"; }
resumed() { [ "$(resumes)" -gt "$1" ]; }
# stop_gateway TEXT : as an operator does, with a request under way that is still answered.
stop_gateway() {
  local answer
  visit -o /dev/null -w '%{http_code}' "http://$(host_of "$ECHO_PORT")/slow?ms=2000" >"$OUT/slow.txt" &
  answer=$!
  sleep 0.5
  signal TERM gateway
  ends_within 40 gateway && same "$1 drains and ends with status 0" 0 "$STATUS" || { fail "$1 still runs after 40 s"; stop gateway; }
  wait "$answer"
  same "and the request that it waited for is answered" 200 "$(cat "$OUT/slow.txt")"
}

# carries TEXT : all that users do, and again over links that break.
carries() {
  local text=$1 down up before
  check "$text: a request is answered" until_ok 35 answers
  same "$text: a download of 20 MB is the same bytes" "$SUM" "$(visit "http://$(host_of "$FILES_PORT")/blob.bin" | sha256sum)"
  same "$text: and so is an upload" "$SUM" "$(visit -T "$OUT/files/blob.bin" "http://$(host_of "$ECHO_PORT")/sum")"
  rm -f "$OUT/over"
  websocket "socket-$PAIRS" "$ECHO_PORT" "$WORKSPACE" --text "$text: a WebSocket over two broken links" --until-file "$OUT/over"
  visit --limit-rate 4M "http://$(host_of "$FILES_PORT")/blob.bin" -o "$OUT/down.bin" &
  down=$!
  visit --limit-rate 4M -T "$OUT/files/blob.bin" "http://$(host_of "$ECHO_PORT")/sum" -o "$OUT/up.txt" &
  up=$!
  for _ in 1 2; do
    sleep 1
    before=$(resumes)
    signal USR1 link
    check "$text: the session is resumed after its link broke" until_ok 20 resumed "$before"
  done
  wait "$down" "$up"
  same "$text: a download over them is the same bytes" "$SUM" "$(sha256sum <"$OUT/down.bin")"
  same "$text: and so is an upload" "$SUM" "$(cat "$OUT/up.txt")"
  touch "$OUT/over"
  collect "socket-$PAIRS" 60
  PAIRS=$((PAIRS + 1))
}
PAIRS=1

# --- gateway N: its own agent first, then one of this version ---------------------------------------------------------------
REAL_GATEWAY=$OLD_GATEWAY REAL_AGENT=$OLD_AGENT
choose_ports
RELAY=$(free_port)
spawn link python3 "$APPS/relay.py" "$RELAY" "$AGENTS"
wait_port link "$RELAY"
AGENT_URL=http://127.0.0.1:$RELAY
start_gateway
start_agent
check "gateway N with its own agent" answers
stop agent
REAL_AGENT=$NEW_AGENT
start_agent
carries "gateway N with an agent of this version"
stop_gateway "gateway N"

# --- this gateway on the database of N --------------------------------------------------------------------------------------
REAL_GATEWAY=$NEW_GATEWAY
start_gateway
check "this gateway takes the database of N: the agent is back, and the user's token is good" until_ok 35 answers
check "the workspace is still the user's" has_text "\"$WORKSPACE\"" curl -sf --max-time 5 -H "authorization: Bearer $USER_TOKEN" "http://localhost:$PUBLIC/api/v1/workspaces"
stop agent
REAL_AGENT=$OLD_AGENT
start_agent
carries "this gateway with an agent of N, by the token that N made"
stop_gateway "this gateway with an agent of N"
start_gateway
check "the agent of N is back after the drain" until_ok 35 answers
# The way back is a backup: N says so, and changes nothing.
stop gateway
spawn back env "${GATEWAY_ENV[@]}" "$OLD_GATEWAY" serve --config "$OUT/gateway.toml"
ends_within 20 back && [ "$STATUS" != 0 ] && grep -q 'made by a newer version' "$OUT/back.log" && ok "gateway N refuses the database of this version" ||
  fail "gateway N on the database of this version: $(tail -n 1 "$OUT/back.log")"
start_gateway
check "which is as it was" until_ok 35 answers
stop agent
stop gateway

# --- two replicas of this version, an agent of N ----------------------------------------------------------------------------
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/postgres.sh"
trap 'status=$?; stop postgres; rm -rf "$DATA"; (exit "$status"); cleanup' EXIT
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/replicas.sh"
create_server
create_authority
REAL_GATEWAY=$NEW_GATEWAY
gateway() { env NO_COLOR=1 "$REAL_GATEWAY" --config "$OUT/one.toml" "$@"; }
for name in one two; do
  prepare_replica "$name"
  start "$name"
done
USER_TOKEN=
user_token
WORKSPACE=w-replicas
AGENT_URL=http://127.0.0.1:${AGENTS_OF[one]} spawn_agent agent "$WORKSPACE"
# at NAME ARGUMENTS… PATH-URL : a visit by way of one replica.
at() { local name=$1; shift; visit --connect-to "::127.0.0.1:${PUBLIC_OF[$name]}" "$@"; }
answers_at() { at "$1" -f --max-time 5 "http://$(host_of "$ECHO_PORT")/" -o /dev/null; }
for name in one two; do
  check "an agent of N is reached by way of replica $name" until_ok 20 answers_at "$name"
  same "a download by way of $name is the same bytes" "$SUM" "$(at "$name" "http://$(host_of "$FILES_PORT")/blob.bin" | sha256sum)"
  same "and so is an upload" "$SUM" "$(at "$name" -T "$OUT/files/blob.bin" "http://$(host_of "$ECHO_PORT")/sum")"
done
# The agent adds no lane of its own: that of replica two leads through replica one.
has_lane() { curl -sf --max-time 2 "http://127.0.0.1:${ADMIN_OF[two]}/debug/sessions" | jq -e "any(.[]; .workspace == \"$WORKSPACE\" and .way == \"relay\")"; }
check "replica two has a lane to it" has_lane
check "no program panicked" sh -c "! grep -n panicked '$OUT'/*.log"
finish
