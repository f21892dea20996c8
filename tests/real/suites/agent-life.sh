#!/usr/bin/env bash
# The life of one agent: it outlives the gateway's death, ends with a clear cause when it must not go on, and gives way to a newer
# agent with the same token.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "agent-life: nothing to check without the gateway"; finish; }

start_echo
start_gateway
start_agent

answers() { visit -f --max-time 5 "http://$(host_of "$ECHO_PORT")/" -o /dev/null; }
# last_words NAME : what a program said at its end, on one line.
last_words() { tail -n 5 "$OUT/$1.log" | tr '\n' ' '; }
# says NAME PATTERN : its log gives the reason.
says() { grep -qiE -- "$2" "$OUT/$1.log" || { last_words "$1"; return 1; }; }

check "a request is answered" answers

# --- the gateway goes away --------------------------------------------------------------------------------------------
signal KILL gateway
ends_within 5 gateway
sleep 1
check "the agent goes on when the gateway is killed" alive agent
start_gateway
began=$(now_ms)
check "after a killed gateway is back, requests are answered within 15 s" until_ok 15 answers
printf 'after kill -9: %s ms from ready to an answer\n' "$(($(now_ms) - began))" >>"$OUT/recovery.txt"

signal TERM gateway
if ends_within 15 gateway; then
  same "SIGTERM ends the gateway with status 0" 0 "$STATUS"
else
  fail "SIGTERM does not end the gateway within 15 s"
  stop gateway
fi
sleep 1
check "the agent goes on when the gateway is stopped" alive agent
start_gateway
began=$(now_ms)
# The longest that an agent waits before it tries again is 30 s.
check "after a stopped gateway is back, requests are answered within 35 s" until_ok 35 answers
printf 'after SIGTERM: %s ms from ready to an answer\n' "$(($(now_ms) - began))" >>"$OUT/recovery.txt"
check "the agent's log names what happened" says agent '(link|connection|gateway|session).*(lost|broke|closed|refused|gone|ended|drain|unreachable|reset|redial|reconnect)'

# --- tokens that do not work ------------------------------------------------------------------------------------------
# refused NAME TEXT PATTERN FILE STATUS : an agent with this token file ends with this status and says why.
refused() {
  spawn "$1" env NO_COLOR=1 "$REAL_AGENT" run --gateway "http://127.0.0.1:$AGENTS" --token-file "$4"
  if ends_within 10 "$1"; then
    same "$2 ends the agent with status $5" "$5" "$STATUS"
    check "$2 is named as the cause" says "$1" "$3"
  else
    fail "$2 does not end the agent"
    stop "$1"
  fi
}
(umask 077 && printf 'not-a-token-of-this-gateway\n' >"$OUT/wrong.token" && : >"$OUT/empty.token")
refused wrong "a wrong token" '(token|credential).*(refus|reject|not accept|unknown|invalid|wrong|not valid|does not know)|(refus|reject|not accept|unknown|invalid|wrong|not valid|does not know).*(token|credential)' "$OUT/wrong.token" 1
refused empty "an empty token file" 'empty.token' "$OUT/empty.token" 1
refused absent "a missing token file" 'absent.token' "$OUT/absent.token" 64
check "the token itself is in no log" sh -c "! grep -rF -- 'not-a-token-of-this-gateway' '$OUT'/*.log && ! grep -rF -- \"\$(cat '$OUT/$WORKSPACE.token')\" '$OUT'/*.log"
check "the agent with the right token is unharmed" answers

# --- an agent before its gateway --------------------------------------------------------------------------------------
signal TERM agent
if ends_within 5 agent; then same "SIGTERM ends the agent with status 0" 0 "$STATUS"; else fail "SIGTERM does not end the agent within 5 s"; stop agent; fi
is_absent() { [ "$(failure_of "$(host_of "$ECHO_PORT")" /)" = agent_absent ]; }
check "then the gateway says that no agent is there" until_ok 5 is_absent
stop gateway
spawn_agent early "$WORKSPACE"
sleep 2
check "an agent that starts before the gateway keeps trying" alive early
start_gateway
check "and attaches when the gateway is there" until_ok 35 answers

# --- a newer agent with the same token --------------------------------------------------------------------------------
spawn_agent newer "$WORKSPACE"
if ends_within 10 early; then
  same "a newer agent with the same token ends the older one with status 1" 1 "$STATUS"
  check "the older one says why" says early 'displac|replac|newer|another agent|took over|superseded'
else
  fail "a newer agent with the same token does not displace the older one"
  stop early
fi
check "requests are answered by the newer one" until_ok 5 answers
sleep 2
check "the newer one stays" alive newer
signal INT newer
if ends_within 5 newer; then same "SIGINT ends the agent with status 0" 0 "$STATUS"; else fail "SIGINT does not end the agent within 5 s"; stop newer; fi
check "neither program panicked" sh -c "! grep -n panicked '$OUT'/*.log"
finish
