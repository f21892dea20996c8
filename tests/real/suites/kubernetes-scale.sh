#!/usr/bin/env bash
# Two thousand workspaces on one cluster agent and a real Kubernetes cluster: how long a full round takes, what it weighs, what
# gateway and agent need for it, and what a WebSocket through the same gateway feels. Not one of the suites that run by default.
#
#   COUNT=500 MODE=unique tests/real/suites/kubernetes-scale.sh
#   KEEP=1 tests/real/suites/kubernetes-scale.sh                    without their terminations
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"

[ -n "$DIRECT" ] && { echo "kubernetes-scale: nothing to check without the gateway"; finish; }
MODE=${MODE:-shared}
COUNT=${COUNT:-2000}

start_cluster
rights "$MODE"
clusters "$MODE"
start_gateway
user_token
start_echo
spawn_agent echo-agent "$WORKSPACE"
until_ok 20 attached "$WORKSPACE" || give_up "the agent does not attach: $(tail -n 1 "$OUT/echo-agent.log")"
cluster_agent agent "$MODE"

# step NAME : one step of apps/scale.py, with somebody typing meanwhile.
step() {
  websocket_latency "echo-$1"
  workspaces_helper "$1" 1800 scale.py --step "$1" --count "$COUNT" --cluster "$MODE" --admin "$ADMIN" \
    --gateway-pid "${PIDS[gateway]}" --agent-pid "${PIDS[agent]}" \
    --agent-log "$OUT/agent.log" --versions "$OUT/versions.json"
  : >"$OUT/echo-$1.stop"
  collect "echo-$1" 20
  grep '^note ' "$OUT/echo-$1.log" | sed "s/^note/note  $SUITE: $1,/"
}
websocket_latency() {
  spawn "$1" env REAL_USER_TOKEN="$USER_TOKEN" node "$APPS/ws_latency.mjs" --connect "127.0.0.1:$PUBLIC" \
    --host "$(host_of "$ECHO_PORT")" --until-file "$OUT/$1.stop" --bound-ms "${BOUND_MS:-250}"
}

step make
signal TERM agent
ends_within 20 agent || fail "SIGTERM does not end the agent: $(tail -n 1 "$OUT/agent.log")"
cluster_agent agent "$MODE"
step round
[ -n "${KEEP:-}" ] || step end
finish
