#!/usr/bin/env bash
# Workspaces on a real Kubernetes cluster, in both namespace modes at once, each cluster agent with no more than the rights of its
# manifest in deploy/rbac: made, run, stopped, started, restarted, terminated, with nothing left and nothing of others touched.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"

[ -n "$DIRECT" ] && { echo "kubernetes-life: nothing to check without the gateway"; finish; }

start_cluster

# --- the manifests ----------------------------------------------------------------------------------------------------
# accepted MODE : the API server takes all of it, and has nothing to warn of where pods must be restricted.
accepted() { kc apply --dry-run=server --warnings-as-errors -f "$ROOT/deploy/rbac/$1.yaml" -f "$ROOT/deploy/cluster-agent.yaml"; }
for namespace in workspace-gateway "$SHARED_NAMESPACE"; do kc create namespace "$namespace" --save-config >/dev/null; done
kc label namespace workspace-gateway pod-security.kubernetes.io/enforce=restricted pod-security.kubernetes.io/warn=restricted >/dev/null
for mode in unique shared; do
  check "the API server takes the manifests for $mode namespaces" accepted "$mode"
  rights "$mode"
done
kc delete namespace workspace-gateway --wait=false >/dev/null

# may MODE NAMESPACE VERB RESOURCE… : the agent of that mode has this right.
may() { kc_as "$1" auth can-i -n "$2" -q "${@:3}"; }
# none MODE NAMESPACE RIGHT… : it has none of these, which is an answer and not the lack of one.
none() {
  local right words
  for right in "${@:3}"; do
    read -ra words <<<"$right"
    [ "$(kc_as "$1" auth can-i -n "$2" "${words[@]}" 2>/dev/null)" = no ] || { echo "it may $right in $2, or nobody knows"; return 1; }
  done
}
for mode in unique shared; do
  check "$mode: the agent may neither run something in pods, nor hand out rights, nor use those of others" none "$mode" "$SHARED_NAMESPACE" \
    'create pods' 'create pods --subresource=exec' 'delete pods' 'create roles.rbac.authorization.k8s.io' 'create serviceaccounts --subresource=token' \
    'create rolebindings.rbac.authorization.k8s.io' 'impersonate users' 'get nodes' 'create clusterroles.rbac.authorization.k8s.io' '* *'
done
check "shared: the agent has no right outside the shared namespace" none shared foreign 'get configmaps' 'get secrets' \
  'create deployments.apps' 'delete services' 'list pods' 'get leases.coordination.k8s.io'
check "shared: it may not even see a namespace" none shared "$SHARED_NAMESPACE" 'get namespaces' 'list namespaces' 'create namespaces' 'delete namespaces'

# --- things of others -------------------------------------------------------------------------------------------------
# `ws-taken` has the name that the namespace of a workspace called `taken` would get.
for namespace in foreign ws-taken "$SHARED_NAMESPACE"; do
  [ "$namespace" = "$SHARED_NAMESPACE" ] || kc create namespace "$namespace" >/dev/null
  theirs_in "$namespace"
done
theirs >"$OUT/theirs.before"
check "things of others are there" test "$(wc -l <"$OUT/theirs.before")" -ge 10

# --- a life -----------------------------------------------------------------------------------------------------------
clusters unique shared
start_gateway
user_token
for mode in unique shared; do cluster_agent "agent-$mode" "$mode"; done

pull_secret() { kc -n "$1" get secret registry -o jsonpath='{.data}'; }
same_pull_secret() { [ "$(pull_secret "$1")" = "$(pull_secret "$(home unique)")" ]; }
own_namespaces() { kc get namespaces -l "$LABEL" -o name; }
life() {
  local mode=$1 name=life-$1 home pod secrets
  home=$(namespace_of "$mode" "$name")
  check "$mode: a workspace is taken" create "$mode" "$name"
  check "$mode: it runs" state_within 60 "$name" Running
  same "$mode: all its objects are in $home" "$home" "$(places_of "$name")"
  check "$mode: among them what it consists of" consists_of "$name" Deployment Service PersistentVolumeClaim ServiceAccount NetworkPolicy Secret ConfigMap
  if [ "$mode" = unique ]; then
    same "$mode: a namespace was made, and only this one" "namespace/$home" "$(own_namespaces)"
  else
    same "$mode: no namespace was made" '' "$(own_namespaces)"
  fi
  secrets=$(secrets_of "$home" "$name")
  check "$mode: its secrets have their data" grep -q "$(printf %s "$SECRET_VALUE" | base64)" <<<"$secrets"
  pod=$(pods_of "$home" "$name")

  desire "$name" Stopped >/dev/null
  check "$mode: it stops" state_within 30 "$name" Stopped
  same "$mode: which is told when its pod has ended, and not before" '' "$(pods_of "$home" "$name")"
  check "$mode: its volume stays" consists_of "$name" PersistentVolumeClaim
  desire "$name" Running >/dev/null
  check "$mode: it starts again" state_within 30 "$name" Running
  same "$mode: with the same secrets, which partial messages do not carry" "$secrets" "$(secrets_of "$home" "$name")"
  check "$mode: in another pod" test "$pod" != "$(pods_of "$home" "$name")"

  pod=$(pods_of "$home" "$name")
  desire "$name" RestartRequested >/dev/null
  check "$mode: a restart ends with what was before" until_ok 60 restarted "$home" "$name" "$pod"
  same "$mode: with the same secrets still" "$secrets" "$(secrets_of "$home" "$name")"

  # What was frozen stays as it is: a full round of a new agent is a change of nothing.
  settled "$home" "$name" >"$OUT/$mode.versions"
  same "$mode: as many objects as it has were looked at" "$(of "$name" | wc -l)" "$(grep -c workspace-gateway "$OUT/$mode.versions")"
  signal TERM "agent-$mode"
  ends_within 20 "agent-$mode" || fail "$mode: SIGTERM does not end the agent: $(tail -n 1 "$OUT/agent-$mode.log")"
  cluster_agent "agent-$mode" "$mode"
  create "$mode" "after-$mode" >/dev/null
  check "$mode: after its agent was replaced, another workspace runs" state_within 60 "after-$mode" Running
  check "$mode: and nothing of the first one was written" diff "$OUT/$mode.versions" <(settled "$home" "$name")

  desire "$name" Terminated >/dev/null
  check "$mode: it terminates" state_within 60 "$name" Terminated
  same "$mode: with nothing left" '' "$(of "$name")"
  if [ "$mode" = unique ]; then
    check "$mode: its namespace is gone" without namespace "$home"
    check "$mode: that of another workspace is not" kc get namespace "$(namespace_of "$mode" "after-$mode")"
  else
    check "$mode: the shared namespace stays" kc get namespace "$home"
    same "$mode: and what else is in it" "$home" "$(places_of "after-$mode")"
  fi
  check "$mode: what is terminated cannot be wanted again" refused PATCH "/workspaces/$name" '{"desired_state": "Running"}'
  desire "after-$mode" Terminated >/dev/null
  check "$mode: the other one terminates too" state_within 60 "after-$mode" Terminated
}
kc -n "$(home unique)" create secret docker-registry registry --docker-server registry.example.net --docker-username somebody --docker-password before >/dev/null
for mode in unique shared; do life "$mode"; done

check "things of others are as they were" untouched

# --- commands, with their progress ------------------------------------------------------------------------------------
(umask 077 && printf '%s\n' "$USER_TOKEN" >"$OUT/user.token")
devfile >"$OUT/devfile.yaml"
printf 'GREETING=%s\n' "$SECRET_VALUE" >"$OUT/variables.env"
command_says() {
  local text=$1 said
  shift
  said=$("$REAL_GATEWAY" workspace "$@" --timeout 60s --gateway "http://localhost:$PUBLIC" --token-file "$OUT/user.token" 2>&1) || { echo "$said"; return 1; }
  printf '%s\n' "$said"
  grep -q "$text" <<<"$said"
}
check "gateway workspace create makes one and waits until it runs" command_says Running create commanded --agent unique --devfile "$OUT/devfile.yaml" --env-file "$OUT/variables.env" --wait
spawn events curl -sSN --max-time 120 -H "authorization: Bearer $USER_TOKEN" "http://localhost:$PUBLIC/api/v1/workspaces/commanded/events"
check "gateway workspace stop stops it" command_says Stopped stop commanded
check "gateway workspace start starts it" command_says Running start commanded
check "gateway workspace restart does both" command_says Running restart commanded
same "what images are pulled with was copied to it" "$(pull_secret "$(home unique)")" "$(pull_secret ws-commanded)"
kc -n "$(home unique)" create secret docker-registry registry --docker-server registry.example.net --docker-username somebody --docker-password after \
  --dry-run=client -o yaml | kc apply -f - >/dev/null 2>>"$OUT/rights.log"
check "and follows its source" until_ok 15 same_pull_secret ws-commanded
check "gateway workspace terminate ends it" command_says Terminated terminate commanded --yes
for state in Running Stopped Terminating Terminated; do
  check "its events told of $state" until_ok 5 grep -q "\"$state\"" "$OUT/events.log"
done
stop events

# --- stopped means stopped --------------------------------------------------------------------------------------------
# With pods that take eight seconds to end.
# beside NAMESPACE NAME : keeps in $OUT/NAME.most how many pods of the workspace were there at once.
beside() {
  local most=0 count
  while :; do
    count=$(kc -n "$1" get pods -l "$LABEL=$2" -o name | wc -l)
    [ "$count" -le "$most" ] || { most=$count; echo "$most" >"$OUT/$2.most"; }
  done
}
one_at_a_time() {
  local mode=$1 name=one-$1 home watcher pod killed
  home=$(namespace_of "$mode" "$name")
  create "$mode" "$name" "$(devfile example.net/stubborn:1)" >/dev/null || fail "$name is not taken"
  check "$mode: a workspace whose pod is slow to end runs" state_within 60 "$name" Running
  beside "$home" "$name" &
  watcher=$!
  pod=$(pods_of "$home" "$name")
  desire "$name" Stopped >/dev/null
  check "$mode: it is Stopping" state_within 10 "$name" Stopping
  check "$mode: and says of which pod" why_within 5 "$name" "pod $name-"
  sleep 3
  check "$mode: it is Stopping while its pod is there" is "$name" Stopping
  check "$mode: which it is" pods_are "$home" "$name" "$pod"
  desire "$name" Running >/dev/null
  check "$mode: a start waits for it and says so" why_within 3 "$name" 'starts when the pod of before has ended'
  check "$mode: with the pod of before" pods_are "$home" "$name" "$pod"
  check "$mode: then it starts" state_within 30 "$name" Running
  check "$mode: in another pod" test "$pod" != "$(pods_of "$home" "$name")"
  pod=$(pods_of "$home" "$name")
  if [ "$mode" = unique ]; then
    kc -n "$home" create quota one --hard=pods=1 >/dev/null
    check "$mode: a restart waits too, where there is room for one pod" command_says Running restart "$name"
  else
    desire "$name" RestartRequested >/dev/null
  fi
  check "$mode: a restart ends in another pod" until_ok 60 restarted "$home" "$name" "$pod"
  # Whoever carries the start out, and whoever asks for it, may be killed meanwhile.
  pod=$(pods_of "$home" "$name")
  desire "$name" Stopped >/dev/null
  state_within 10 "$name" Stopping >/dev/null || fail "$name is not Stopping"
  desire "$name" Running >/dev/null
  if [ "$mode" = unique ]; then killed=agent-$mode; else killed=gateway; fi
  signal KILL "$killed"
  ends_within 5 "$killed"
  if [ "$mode" = unique ]; then cluster_agent "$killed" "$mode"; else start_gateway; fi
  check "$mode: after a kill of $killed it starts all the same" until_ok $((LEASE_SECONDS + 30)) restarted "$home" "$name" "$pod"
  kill "$watcher"
  wait "$watcher" 2>/dev/null
  same "$mode: at no time were there two pods" 1 "$(cat "$OUT/$name.most")"
  desire "$name" Terminated >/dev/null
  check "$mode: it terminates" state_within 60 "$name" Terminated
}
for mode in unique shared; do one_at_a_time "$mode"; done

# --- how fast ---------------------------------------------------------------------------------------------------------
for number in 1 2 3 4; do create unique "fast-$number" "$(devfile example.net/quick:1)" >/dev/null; done
for number in 1 2 3 4; do state_within 60 "fast-$number" Running >/dev/null || fail "fast-$number does not run"; done
workspaces_helper latency 120 latency.py --changes 60 fast-1 fast-2 fast-3 fast-4
for number in 1 2 3 4; do desire "fast-$number" Terminated >/dev/null; done
for number in 1 2 3 4; do state_within 60 "fast-$number" Terminated >/dev/null || fail "fast-$number does not terminate"; done

# --- another namespace mode, and back, while the agent works ----------------------------------------------------------
config=$OUT/agents/unique/config.yaml
cp "$config" "$OUT/unique.yaml"
kc -n "$SHARED_NAMESPACE" create rolebinding unique-too --role workspace-gateway-cluster-agent \
  --serviceaccount "$(home unique):cluster-agent" >/dev/null
in_force() { [ "$(grep -c 'configuration is in force.*unique' "$OUT/gateway.log")" -gt "$1" ]; }
# moved FILE NAME NAMESPACE : with that configuration, a workspace lives and ends there, and each state is told.
moved() {
  local before
  before=$(grep -c 'configuration is in force.*unique' "$OUT/gateway.log")
  # In one step, as it may be read at any moment.
  cp "$1" "$config.new"
  mv "$config.new" "$config"
  until_ok 60 in_force "$before" || fail "the configuration does not change"
  create unique "$2" >/dev/null || fail "$2 is not taken"
  check "in a session whose namespace mode has changed, $2 is told to run" state_within 60 "$2" Running
  same "$2 is in $3" "$3" "$(places_of "$2")"
  desire "$2" Terminated >/dev/null
  check "$2 is told to be terminated" state_within 60 "$2" Terminated
}
{
  grep -v 'max_resources_per_workspace\|image_pull_secrets' "$OUT/unique.yaml"
  printf '  shared_namespace: %s\n' "$SHARED_NAMESPACE"
} >"$OUT/moved.yaml"
moved "$OUT/moved.yaml" moved "$SHARED_NAMESPACE"
moved "$OUT/unique.yaml" back ws-back
check "by an agent that was not started anew" alive agent-unique

check "in the end no namespace of ours is left" sh -c "[ -z '$(own_namespaces)' ]"
same "and no object" '' "$(of '')"
check "things of others are as they were" untouched
check "no secret is in a log of ours" no_secret_in gateway agent-unique agent-shared
check "no program panicked" sh -c "! grep -n 'panicked at' '$OUT'/*.log"
for name in agent-unique agent-shared; do
  same "$name logs no error" '' "$(grep -E '\bERROR\b' "$OUT/$name.log" | head -n 2 | cut -c 1-300)"
done
finish
