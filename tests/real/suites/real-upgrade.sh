#!/usr/bin/env bash
# An upgrade under a workspace in a real pod. The version before makes it, with its gateway, its cluster agent and its tools; this version
# takes over, and the pod goes on as it is. Needs what real-pod.sh needs; the programs of the version before are built once.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/versions.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/machine.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/node.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/real-pod.sh"

[ -n "$DIRECT" ] && { echo "real-upgrade: nothing to check without the gateway"; finish; }
programs_of "$(cat "$ROOT/tests/recorded/pods/commit")"
own_machine "$@"
NEW_GATEWAY=$REAL_GATEWAY NEW_AGENT=$REAL_AGENT NEW_SLIM=$REAL_AGENT_SLIM
REAL_GATEWAY=$BEFORE/gateway REAL_AGENT=$BEFORE/workspace-agent REAL_AGENT_SLIM=$BEFORE/workspace-agent-slim
real_cluster unique

# That version has its images pulled at each start, so that they need a registry: for containerd, localhost is one at port 80.
registry() {
  cat >"$MACHINE/registry.yml" <<YAML
version: 0.1
storage: {filesystem: {rootdirectory: $MACHINE/registry}}
http: {addr: "127.0.0.1:80"}
YAML
  spawn registry docker-registry serve "$MACHINE/registry.yml"
  wait_port registry 80
  local image
  for image in "$@"; do ctr -n k8s.io images push --plain-http "$image" "$image" || return; done >>"$OUT/push.log" 2>&1
}
registry localhost/tools:1 localhost/dev:1 || give_up "the images are not taken: $(tail -n 1 "$OUT/push.log")"

# That version takes no projects.
plain() {
  ask POST /workspaces "$(NAME=$1 DEVFILE=$(devfile localhost/dev:1) python3 -c 'import json, os
print(json.dumps({"name": os.environ["NAME"], "executor": "kubernetes", "agent": "unique", "devfile": os.environ["DEVFILE"]}))')"
}
for name in running stopped; do
  plain "$name" >>"$OUT/created.json" || give_up "the workspace is not taken: $(tail -n 1 "$OUT/created.json")"
done
for name in running stopped; do
  check "the version before: workspace $name runs" state_within 120 "$name" Running
  is "$name" Running || give_up "nothing to take over: $(reason "$name")"
  check "its agent is connected" until_ok 60 attached "$name"
  check "and its editor answers" until_ok 60 editor_answers "$name"
  in_pod_sh "$name" 'echo kept >/projects/kept'
done
desire stopped Stopped >/dev/null
check "one of them is stopped" state_within 60 stopped Stopped

# what_runs : the pod, its containers and how often each was started; the objects with their versions.
what_runs() {
  kc -n ws-running get pods -o jsonpath='{range .items[*]}{.metadata.uid} {.status.containerStatuses[*].containerID} {.status.containerStatuses[*].restartCount}{"\n"}{end}'
  settled ws-running running
}
what_runs >"$OUT/before.txt"
check "there is something to compare" test "$(wc -l <"$OUT/before.txt")" -ge 5
in_pod_sh running 'sh -c "while :; do date +%s; sleep 1; done" >/projects/beats 2>/dev/null </dev/null &'

# --- this version takes over -------------------------------------------------------------------------------------------------
stop agent
signal TERM gateway
ends_within 40 gateway || stop gateway
tools_image 2 "$NEW_SLIM" >>"$OUT/import.log" 2>&1 || give_up "the tools image is not taken: $(tail -n 1 "$OUT/import.log")"
sed -i 's|localhost/tools:1|localhost/tools:2|' "$OUT/agents/unique/config.yaml"
REAL_GATEWAY=$NEW_GATEWAY REAL_AGENT=$NEW_AGENT REAL_AGENT_SLIM=$NEW_SLIM
begun=$(now_ms)
start_gateway
check "the agent in the pod is back at this version's gateway" until_ok 60 attached running
note "after $(seconds $(($(now_ms) - begun))) s"
cluster_agent agent unique
check "the editor answers through it" until_ok 30 editor_answers running
check "the cluster's agent of this version reports it as running" state_within 60 running Running
# A full round of the agent, and some time for what it would do wrong.
sleep 20
check "its pod, its containers and its objects are as they were" diff "$OUT/before.txt" <(what_runs)
check "what ran in it has not stopped" in_pod_sh running 'awk "NR > 1 && \$1 - last > 3 { exit 1 } { last = \$1 }" /projects/beats'
check "the stopped one is asked to start" desire stopped Running
check "and runs" state_within 120 stopped Running
check "with its editor" until_ok 60 editor_answers stopped
check "and its files" says stopped kept 'cat /projects/kept'
create unique new "$(devfile localhost/dev:1)" >>"$OUT/created.json" || fail "a new workspace is not taken"
check "a new workspace is one of this version" state_within 120 new Running
check "with the home that this version gives" says new /home/workspace 'echo "$HOME"'
for name in running stopped new; do desire "$name" Terminated >/dev/null; done
for name in running stopped new; do check "workspace $name terminates" state_within 90 "$name" Terminated; done
check "no program panicked" sh -c "! grep -n panicked '$OUT'/*.log"
finish
