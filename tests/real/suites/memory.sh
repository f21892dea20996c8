#!/usr/bin/env bash
# Memory is what is counted: an agent that speaks the tunnel by hand does its worst, in several shapes, and the gateway's resident memory
# grows by at most twice what its metrics count, and 32 MiB. A gateway by hand does the same to an agent, which has its budget. And memory
# is given back: when the load is gone, gateway and agent come back to what they had before. MEMORY=long does each shape on 1 and 8 lanes,
# with more of everything.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "memory: nothing to check without the gateway"; finish; }
# Just after a burst a process still has the memory that the burst took and freed, until the allocator purges it: less than the 32 MiB as
# long as the burst is small, which tells the more of what a payload keeps.
case ${MEMORY:-short} in
  short)
    shapes=("padded 8" "pings 1" "cut 8" "heads 8")
    worst=("padded 64" "opens 5000" "kept 64")
    STREAMS=32 REQUESTS=3200 READERS=400
    ;;
  long)
    shapes=()
    for shape in padded pings beside gone cut heads; do shapes+=("$shape 1" "$shape 8"); done
    worst=("padded 512" "pings 512" "beside 512" "cut 512" "opens 20000" "kept 512" "queued 20000")
    STREAMS=256 REQUESTS=20000 READERS=2000
    ;;
esac

resident() { awk '/^VmRSS:/ { print $2 }' "/proc/${PIDS[$1]}/status"; }

choose_ports
GATEWAY_ENV+=("GATEWAY_LIMITS__CONNECTIONS=4000" "GATEWAY_LIMITS__CONNECTIONS_PER_ADDRESS=4000" "GATEWAY_LIMITS__REQUESTS_PER_SECOND_PER_ADDRESS=100000")
start_gateway
user_token
WORKSPACE=hostile
token=$(workspace_token "$WORKSPACE") || give_up "no agent token: $(tail -n 1 "$OUT/token.log")"
for each in "${shapes[@]}"; do
  read -r shape lanes <<<"$each"
  # A process of its own for each: what one shape left behind is not to be forgiven the next.
  stop gateway
  start_gateway
  helper "$shape-$lanes" 300 env PUBLIC="$PUBLIC" AGENTS="$AGENTS" ADMIN="$ADMIN" GATEWAY_PID="${PIDS[gateway]}" \
    HOST="$(host_of 8000)" USER_TOKEN="$USER_TOKEN" AGENT_TOKEN_FILE="$token" STREAMS="$STREAMS" REQUESTS="$REQUESTS" \
    python3 "$APPS/hostile_agent.py" "$shape" "$lanes"
done

# --- a gateway against its agent ---------------------------------------------------------------------------------------
printf 'of nobody\n' >"$OUT/any.token"
for each in "${worst[@]}"; do
  read -r shape channels <<<"$each"
  helper "agent-$shape" 120 env AGENT="$REAL_AGENT" AGENT_TOKEN_FILE="$OUT/any.token" BUDGET=16 CHANNELS="$channels" \
    python3 "$APPS/hostile_gateway.py" "$shape"
done

# --- given back -------------------------------------------------------------------------------------------------------
stop gateway
start_gateway
WORKSPACE=stalled
start_agent
sleep 2 # At rest, before the load.
declare -A idle=([gateway]=$(resident gateway) [agent]=$(resident agent)) loaded=()
app=$(free_port)
spawn readers env PUBLIC="$PUBLIC" HOST="$(host_of "$app")" USER_TOKEN="$USER_TOKEN" \
  python3 "$APPS/stalled_readers.py" "$app" "$READERS" 2
until_ok 200 grep -q stalled "$OUT/readers.log" || give_up "the readers do not stall: $(tail -n 1 "$OUT/readers.log")"
for name in gateway agent; do loaded[$name]=$(resident "$name"); done
ends_within 60 readers || stop readers
# 20 % and 8 MiB above what it was.
came_back() { [ "$(resident "$1")" -le $((idle[$1] * 12 / 10 + 8192)) ]; }
for name in gateway agent; do
  check "the $name gives back what $READERS stalled readers took (idle ${idle[$name]} kB, then ${loaded[$name]})" until_ok 60 came_back "$name"
done

finish
