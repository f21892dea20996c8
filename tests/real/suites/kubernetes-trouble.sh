#!/usr/bin/env bash
# What goes wrong with workspaces on a real Kubernetes cluster, and what people are told of it: pods that cannot run, namespaces of
# others, finalizers, agents that are killed, namespaces deleted by hand, an API server that goes away.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"

[ -n "$DIRECT" ] && { echo "kubernetes-trouble: nothing to check without the gateway"; finish; }

start_cluster
for mode in unique shared; do rights "$mode"; done
for namespace in foreign ws-taken "$SHARED_NAMESPACE"; do
  [ "$namespace" = "$SHARED_NAMESPACE" ] || kc create namespace "$namespace" >/dev/null
  theirs_in "$namespace"
done
theirs >"$OUT/theirs.before"
clusters unique shared
start_gateway
user_token
cluster_agent first unique
cluster_agent agent-shared shared
create unique steady >/dev/null
create shared neighbour >/dev/null
check "a workspace runs, in each mode" state_within 60 steady Running
state_within 60 neighbour Running >/dev/null || fail "the one in the shared namespace does not run"

# --- pods that cannot run ---------------------------------------------------------------------------------------------
# told NAME TEXT DEVFILE REASON : a workspace of this devfile does not run, and the reason that people see has this in it.
told() {
  create shared "$1" "$3" >/dev/null || fail "$1 is not taken"
  check "$2 is told of" why_within 30 "$1" "$4"
  check "and is not called running" sh -c "[ '$(state "$1")' != Running ]"
}
told missing "an image that is not there" "$(devfile example.net/missing:1)" ImagePullBackOff
told crashing "a container that ends again and again" "$(devfile example.net/crashing:1)" CrashLoopBackOff
told huge "a pod that fits on no node" "$(devfile example.net/ready:1 '      memoryRequest: 9000Gi
      memoryLimit: 9000Gi')" 'Unschedulable|insufficient memory'
kc -n "$SHARED_NAMESPACE" create quota small --hard=requests.memory=100Mi >/dev/null
# It holds from when its controller has seen it.
quota_holds() { [ -n "$(kc -n "$SHARED_NAMESPACE" get quota small -o jsonpath='{.status.hard}')" ]; }
until_ok 60 quota_holds || fail "no quota is counted"
told quota "a quota of the namespace" "$(devfile example.net/ready:1 '      memoryRequest: 200Mi
      memoryLimit: 200Mi')" 'exceeded quota|forbidden'
kc -n "$SHARED_NAMESPACE" delete quota small >/dev/null
for name in missing crashing huge quota; do desire "$name" Terminated >/dev/null; done
for name in missing crashing huge quota; do check "$name can be terminated" state_within 60 "$name" Terminated; done
check "its neighbour runs on" is neighbour Running

# --- a namespace of somebody else -------------------------------------------------------------------------------------
create unique taken >/dev/null
check "a namespace of somebody else is not used" why_within 30 taken ws-taken
check "which is an error" state_within 10 taken Error
desire taken Terminated >/dev/null
check "the workspace can be terminated" state_within 60 taken Terminated
check "and the namespace is as it was" untouched

# --- an object of somebody else, in the shared namespace --------------------------------------------------------------
kc -n "$SHARED_NAMESPACE" create secret generic prod-env --from-literal=LEAK=1 >/dev/null
create shared prod >/dev/null || fail "prod is not taken"
check "a workspace is not started beside a Secret of another owner" why_within 30 prod 'Secret prod-env is there already'
check "which is an error" is prod Error
check "there is no Deployment that would use it" without deployment prod "$SHARED_NAMESPACE"
same "and the Secret is as it was" 1 "$(kc -n "$SHARED_NAMESPACE" get secret prod-env -o jsonpath='{.data.LEAK}' | base64 -d)"
kc -n "$SHARED_NAMESPACE" delete secret prod-env >/dev/null
check "without it, the workspace runs" state_within 60 prod Running
desire prod Terminated >/dev/null
check "and terminates" state_within 60 prod Terminated

# --- something does not go away ---------------------------------------------------------------------------------------
create unique held >/dev/null
state_within 60 held Running >/dev/null || fail "held does not run"
kc -n ws-held patch service held --type merge -p '{"metadata": {"finalizers": ["example.net/hold"]}}' >/dev/null
desire held Terminated >/dev/null
check "what is being terminated is called so" state_within 30 held Terminating
check "and what holds it up is named: the object and its finalizer" until_ok 30 shown held 'example.net/hold'
check "it stays so" is held Terminating
check "others do not wait for it" state_within 5 steady Running
kc -n ws-held patch service held --type merge -p '{"metadata": {"finalizers": null}}' >/dev/null
check "without the finalizer it terminates" state_within 60 held Terminated
check "with its namespace" without namespace ws-held

# --- deleted by hand --------------------------------------------------------------------------------------------------
create unique byhand >/dev/null
state_within 60 byhand Running >/dev/null || fail "byhand does not run"
kc delete namespace ws-byhand --wait=false >/dev/null
desire byhand Terminated >/dev/null
check "a namespace that was deleted by hand counts as terminated" state_within 60 byhand Terminated
create unique byhand2 >/dev/null
state_within 60 byhand2 Running >/dev/null || fail "byhand2 does not run"
kc delete namespace ws-byhand2 >/dev/null
check "a running workspace that lost its namespace is not called running" until_ok 60 sh_not is byhand2 Running
desire byhand2 Terminated >/dev/null
check "and can be terminated" state_within 60 byhand2 Terminated
check "its namespace is gone" until_ok 30 without namespace ws-byhand2

# --- two agents of one identity ---------------------------------------------------------------------------------------
check "the agent that works holds the lease" until_ok 10 leads unique first
cluster_agent second unique
sleep 3
check "a second agent stands by" alive second
check "and does not take over from one that works" leads unique first
desire steady Stopped >/dev/null
check "with two agents, one works" state_within 30 steady Stopped
signal KILL first
ends_within 5 first
began=$(now_ms)
desire steady Running >/dev/null
check "when that one is killed, the other takes over" state_within $((LEASE_SECONDS + 20)) steady Running
printf 'take-over after kill -9: %s ms\n' "$(($(now_ms) - began))" | tee -a "$OUT/numbers.txt"
check "with the lease" leads unique second
cluster_agent first unique
sleep 2
signal TERM second
ends_within 20 second || fail "SIGTERM does not end an agent: $(tail -n 1 "$OUT/second.log")"
began=$(now_ms)
desire steady Stopped >/dev/null
check "one that is told to end hands over" state_within 15 steady Stopped
printf 'take-over after SIGTERM: %s ms\n' "$(($(now_ms) - began))" | tee -a "$OUT/numbers.txt"

# --- the gateway, the agent and the API server go away ----------------------------------------------------------------
desire steady Running >/dev/null
signal KILL gateway
ends_within 5 gateway
start_gateway
check "what a killed gateway had promised is done" state_within 30 steady Running
desire steady Stopped >/dev/null
signal KILL first
ends_within 5 first
cluster_agent first unique
check "what a killed agent had begun is done" state_within $((LEASE_SECONDS + 20)) steady Stopped
desire steady Running >/dev/null
signal KILL apiserver
ends_within 5 apiserver
desire neighbour Stopped >/dev/null
create unique newcomer >/dev/null
sleep 3
check "an API server that is gone ends no agent" alive first
start_apiserver
# The controllers' watches come back in their own time, up to a minute after the server.
check "what was asked for meanwhile is done when it is back: a start" state_within 180 steady Running
check "a stop" state_within 180 neighbour Stopped
check "a creation" state_within 180 newcomer Running
# In the middle of pruning: it goes as soon as the first object has.
desire newcomer Terminated >/dev/null
until_ok 20 fewer_than newcomer 8
signal KILL apiserver
ends_within 5 apiserver
sleep 1
start_apiserver
check "a termination that was cut in the middle comes to its end" state_within 180 newcomer Terminated
check "with nothing left" until_ok 20 without namespace ws-newcomer
# It hangs: connections are open, nothing is answered.
signal STOP apiserver
desire steady Stopped >/dev/null
sleep 5
check "an API server that hangs does not hang the gateway" is steady Running
signal CONT apiserver
check "what was asked for meanwhile is done" state_within 60 steady Stopped

for name in steady neighbour; do desire "$name" Terminated >/dev/null; done
for name in steady neighbour; do check "$name terminates" state_within 60 "$name" Terminated; done
same "nothing of ours is left" '' "$(of '')"
check "things of others are as they were" untouched
check "no secret is in a log of ours" no_secret_in gateway first second agent-shared
check "no program panicked" sh -c "! grep -n 'panicked at' '$OUT'/*.log"
finish
