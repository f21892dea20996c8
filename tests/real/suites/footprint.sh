#!/usr/bin/env bash
# How small the agent for workspaces is (workspace-agent-slim): the size of the program, and its memory when it is attached, with
# terminals that nobody opened, and idle. Pods pay for it in each workspace. Limits: 12 MB on disk, 12 MB (12,000 kB) of resident memory.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "footprint: nothing to check without the programs"; finish; }
[ -x "$REAL_AGENT_SLIM" ] || give_up "build first: cargo build --release ($REAL_AGENT_SLIM is missing)"

resident() { sed -nE 's/^VmRSS:[^0-9]*([0-9]+) kB/\1/p' "/proc/${PIDS[$1]}/status"; }

whole=$REAL_AGENT
REAL_AGENT=$REAL_AGENT_SLIM
start_gateway
size=$(stat -c %s "$REAL_AGENT")
check "the agent is smaller than 12 MB ($size bytes)" test "$size" -lt 12000000
check "and it is without the cluster agent" bash -c '! "$1" cluster --help' - "$REAL_AGENT"
start_agent --terminal
sleep 3
agent=$(resident agent)
check "the idle agent has less than 12 MB resident ($agent kB)" test "$agent" -lt 12000
printf 'gateway: %s bytes, %s kB resident with one agent\nthe agent with everything: %s bytes\n' \
  "$(stat -c %s "$REAL_GATEWAY")" "$(resident gateway)" "$(stat -c %s "$whole")" >"$OUT/sizes.txt"
quiet_logs
finish
