#!/usr/bin/env bash
# Fifty workspaces asked for at once, on one node with kubelet and containerd: each is ready within five minutes, or says why not. Figures:
# how long, memory of gateway, agents and control plane, what the API server was asked. Needs what real-pod.sh needs.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/machine.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/node.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/real-pod.sh"

[ -n "$DIRECT" ] && { echo "real-fifty: nothing to check without the gateway"; finish; }
own_machine "$@"
COUNT=${COUNT:-50}
# So many fit on a node of two processors.
# shellcheck disable=SC2034
VOLUMES=$((COUNT + 2)) REQUESTS='{cpu: 0.02, memory: 64Mi}'
real_cluster unique
# asked : requests that the API server has answered. memory PATTERN : MiB of resident memory of such processes.
asked() { kc get --raw /metrics | awk '/^apiserver_request_total/ { sum += $2 } END { printf "%d\n", sum }'; }
memory() { ps -eo rss=,args= | awk -v pattern="$1" '$0 ~ pattern && !/awk/ { sum += $1 } END { printf "%.0f", sum / 1024 }'; }

asked_before=$(asked)
memory_before=$(memory "$REAL_GATEWAY")
begun=$(now_ms)
for number in $(seq "$COUNT"); do
  create unique "w$number" "$(devfile localhost/dev:1)" >>"$OUT/created.json" || give_up "workspace $number is not taken: $(tail -n 1 "$OUT/created.json")"
done
note "$COUNT asked for within $(seconds $(($(now_ms) - begun))) s"

# states : NAME STATE REASON of all. Each one that runs for the first time is a line of ready.log, with its milliseconds.
states() {
  ask GET /workspaces | jq -r '.workspaces[] | "\(.name) \(.state.actual) \(.state.reason // "")"'
}
: >"$OUT/ready.log"
all_run() {
  local name actual rest runs=0
  while read -r name actual rest; do
    [ "$actual" = Running ] || continue
    runs=$((runs + 1))
    grep -q "^$name " "$OUT/ready.log" || echo "$name $(($(now_ms) - begun))" >>"$OUT/ready.log"
  done < <(states)
  [ "$runs" = "$COUNT" ] || { echo "$runs run"; return 1; }
}
all_attached() { [ "$(ask GET /workspaces | jq '[.workspaces[] | select(.connected)] | length')" = "$COUNT" ]; }
check "$COUNT workspaces on one node run within five minutes, all of them" until_ok 300 all_run
states | awk '$2 != "Running"' | sed "s/^/note  $SUITE: /"
# at PERCENT : after how many milliseconds so many were ready.
at() { cut -d " " -f 2 "$OUT/ready.log" | percentile "$1"; }
note "ready: the first after $(seconds "$(at 1)") s, half after $(seconds "$(at 50)") s, the last after $(seconds "$(at 100)") s"
note "memory, MiB: gateway $memory_before before and $(memory "$REAL_GATEWAY") with all, cluster agent $(memory 'workspace-agent cluster')," \
  "agents of workspaces $(memory '/workspace-agent') in all, API server $(memory 'kube-apiserver')"
note "the API server answered $(($(asked) - asked_before)) requests meanwhile"
check "the agent of each is connected" until_ok 60 all_attached
check "and the editor of the last one answers" until_ok 60 editor_answers "w$COUNT"

begun=$(now_ms)
for number in $(seq "$COUNT"); do desire "w$number" Terminated >/dev/null; done
none_left() { [ "$(kc get namespaces -o name | grep -c '/ws-')" = 0 ]; }
check "and all are gone within five minutes of their end" until_ok 300 none_left
note "gone after $(seconds $(($(now_ms) - begun))) s"
quiet_logs
finish
