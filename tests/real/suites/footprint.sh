#!/usr/bin/env bash
# How small the agent is: the size of the program, and its memory when it is attached and idle. Pods pay for it in each workspace.
# Limits: 12 MB on disk, 12 MB (12,000 kB) of resident memory.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "footprint: nothing to check without the programs"; finish; }

resident() { sed -nE 's/^VmRSS:[^0-9]*([0-9]+) kB/\1/p' "/proc/${PIDS[$1]}/status"; }

start_gateway
size=$(stat -c %s "$REAL_AGENT")
check "the agent is smaller than 12 MB ($size bytes)" test "$size" -lt 12000000
start_agent
sleep 3
agent=$(resident agent)
check "the idle agent has less than 12 MB resident ($agent kB)" test "$agent" -lt 12000
printf 'gateway: %s bytes, %s kB resident with one agent\n' "$(stat -c %s "$REAL_GATEWAY")" "$(resident gateway)" >"$OUT/gateway.txt"
quiet_logs
finish
