#!/usr/bin/env bash
# Two replicas behind HAProxy, on one PostgreSQL, under steady requests and WebSockets: two more join, agents spread over the four, and
# the two leave again.
#   AGENT_COUNT=1000 RATE=200 tests/real/suites/replicas-resize.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "replicas-resize: nothing to check without the gateway"; finish; }
AGENT_COUNT=${AGENT_COUNT:-400}
RATE=${RATE:-100}
SOCKETS=${SOCKETS:-100}
NAMES=(one two three four)
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/fleet.sh"
SESSIONS=$((AGENT_COUNT * 2 + 1000))
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/three-replicas.sh"
start_replicas one two
start_echo
user_token
start_fleet --config "$OUT/one.toml"
HOSTS=$(hosts_of "$ECHO_PORT")

# even COUNT : so many replicas serve, and none has a fifth more or less agents than the mean.
even() {
  replicas | jq -e --argjson count "$1" '[.[] | select(.state == "serving") | .agents] | (add / length) as $mean
    | length == $count and all(.[]; . >= $mean * 0.8 and . <= $mean * 1.2)'
}
# shares TEXT : how many agents each has, as a line of the figures.
shares() { echo "$1: $(replicas | jq -r '[.[].agents | tostring] | join(", ")') agents" | tee -a "$OUT/figures.txt"; }

check "two replicas have the agents" until_ok 15 even 2
shares "two replicas"
load steady "$PUBLIC" --host "$HOSTS"
open_sockets
resized=$(now_ms)

# --- two more ---------------------------------------------------------------------------------------------------------
for name in three four; do start "$name"; done
joined=$(now_ms)
check "four replicas have the agents, none a fifth more or less than the mean" until_ok 420 even 4
shares "four replicas, $(($(now_ms) - joined)) ms after the last began"
# moves NAME : what it asked of its agents: the time in milliseconds, how many were asked, how many there were.
moves() {
  local at asked agents
  grep 'agents than the others' "$OUT/$1.log" |
    sed -E 's/^([^ ]+) .* asked=([0-9]+) agents=([0-9]+).*/\1 \2 \3/' |
    while read -r at asked agents; do echo "$(date -d "$at" +%s%3N) $asked $agents"; done
}
for name in one two; do
  moves "$name" >"$OUT/moves-$name"
  check "$name asked no agent to move within a minute" awk -v since="$((joined + 59000))" '$1 < since { bad = 1 } END { exit bad || NR == 0 }' "$OUT/moves-$name"
  check "and then at most one in a hundred a second" awk '$2 > 1 && $2 * 100 > $3 || $1 - last < 950 { bad = 1 } { last = $1 } END { exit bad || NR == 0 }' "$OUT/moves-$name"
done
check "all agents are up" until_ok 20 all_up

# --- and two fewer ----------------------------------------------------------------------------------------------------
left=$(now_ms)
for name in three four; do drained "$name"; done
check "two replicas have the agents again" until_ok 15 even 2
check "all agents are up" until_ok 20 all_up
shares "two replicas, $(($(now_ms) - left)) ms after the first was asked to drain"
# The WebSockets were opened at the two that stay.
close_sockets
loaded steady
same "agents without a session for a moment" 0 "$(times_since "$resized" | wc -l)"
echo "requests: $(grep '^slowest' "$OUT/steady.log"); WebSockets: $(grep '^slowest' "$OUT/sockets.log")" | tee -a "$OUT/figures.txt"
check "no program panicked" sh -c "! grep -n panicked '$OUT'/*.log"
finish
