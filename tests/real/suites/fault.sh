#!/usr/bin/env bash
# Things that stop without ending: a frozen agent, a frozen app, an app that dies. Each request gets a named failure in bounded time,
# other workspaces notice nothing, and what thaws works again.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "fault: nothing to check without the gateway"; finish; }

start_echo
choose_ports
GATEWAY_ENV+=(
  GATEWAY_TUNNEL__KEEPALIVE_INTERVAL=2s GATEWAY_TUNNEL__KEEPALIVE_TIMEOUT=2s
  GATEWAY_TIMEOUTS__CHANNEL_OPEN=3s GATEWAY_TIMEOUTS__RESPONSE_HEADER=5s
)
# No wait may be longer than the two bounds that a request can meet one after the other, and a second for this machine.
BOUND=$((3 + 5 + 1))

start_gateway
user_token
for workspace in sick well; do
  spawn_agent "agent-$workspace" "$workspace"
  until_ok 20 attached "$workspace" || give_up "no session for $workspace: $(tail -n 1 "$OUT/agent-$workspace.log")"
done
answers() { visit -f --max-time "${2:-5}" "http://$(host_of "$ECHO_PORT" "$1")/" -o /dev/null; }
check "a request to the workspace that will freeze" answers sick
check "a request to its neighbour" answers well

# bounded TEXT CODES PATH : a request to the frozen workspace ends in time, with one of these codes.
bounded() {
  local began took code
  began=$(now_ms)
  code=$(MAX_TIME=40 failure_of "$(host_of "$ECHO_PORT" sick)" "$3")
  took=$(($(now_ms) - began))
  printf '%s: %s after %s ms\n' "$1" "$code" "$took" >>"$OUT/bounds.txt"
  if [[ " $2 " != *" ${code:-none} "* ]]; then
    fail "$1: want one of $2, got '$code' after $took ms"
  elif [ "$took" -gt $((BOUND * 1000)) ]; then
    fail "$1: $code, but only after $took ms (bound $BOUND s)"
  else
    ok "$1 ends with $code in time"
  fi
}
NAMED='open_timeout response_timeout session_lost agent_absent'

# --- a frozen agent ---------------------------------------------------------------------------------------------------
websocket steady "$ECHO_PORT" well --text "a WebSocket of the neighbour" --until-file "$OUT/thawed"
(bounded "a request that was under way when the agent froze" "$NAMED" '/slow?ms=30000' >"$OUT/under-way.txt") &
under_way=$!
sleep 0.7
signal STOP agent-sick
bounded "a request right after the freeze" "$NAMED" /
third=$(slowest 3 20 answers well 30)
check "the neighbour is answered within a second (third slowest of 20: $third ms)" test "$third" -lt 1000
wait "$under_way"
# Its check was made in a process of its own; here it is counted.
count_checks < <(sed -E 's/^ok +[^:]*: /ok /; s/^FAIL +[^:]*: /FAIL /' "$OUT/under-way.txt")
sleep 3
bounded "a request long after the freeze" "agent_absent open_timeout session_lost" /
signal CONT agent-sick
began=$(now_ms)
check "after the thaw requests are answered within 20 s" until_ok 20 answers sick
printf 'after the thaw: answered in %s ms\n' "$(($(now_ms) - began))" >>"$OUT/bounds.txt"
touch "$OUT/thawed"
collect steady 60

# --- a frozen app -----------------------------------------------------------------------------------------------------
signal STOP app
bounded "a request to a frozen app" "response_timeout" /
signal CONT app
check "after the app thaws it is answered" until_ok 5 answers sick

# --- an app that dies -------------------------------------------------------------------------------------------------
visit --max-time 20 -N "http://$(host_of "$ECHO_PORT" sick)/ticks" >"$OUT/ticks.txt" 2>"$OUT/ticks.err" &
ticks=$!
until_ok 5 grep -q 'data: 2' "$OUT/ticks.txt" || fail "streamed events do not arrive"
began=$(now_ms)
signal KILL app
ends_within 2 app
wait "$ticks"
status=$?
took=$(($(now_ms) - began))
# The shortest timeout here is 3 s.
check "a stream whose app dies ends without waiting for a timeout (took $took ms)" test "$took" -lt 3000
check "and is not mistaken for a complete answer (curl status $status)" test "$status" -ne 0
bounded "a request to a dead app" "port_closed" /
spawn app node "$APPS/echo.mjs" "$ECHO_PORT"
wait_port app "$ECHO_PORT"
check "the app started again is answered" until_ok 5 answers sick

# --- an agent that dies -----------------------------------------------------------------------------------------------
signal KILL agent-sick
ends_within 2 agent-sick
bounded "a request after the agent was killed" "agent_absent session_lost open_timeout" /
check "the neighbour is still answered" answers well
check "neither program panicked" sh -c "! grep -n panicked '$OUT'/*.log"
finish
