#!/usr/bin/env bash
# What GitLab's jobs need in a cluster, made before they run and deleted when their environment is stopped, on a real API server: with
# the agent's own rights and as the job, each under no more than its manifest in deploy/rbac. From the start to a stopped and a started
# environment, over REST, gRPC, the command and the template of deploy/ci/gitlab; and whose things are never touched. On SQLite.
#
#   STORE=postgres tests/real/suites/environments.sh
#   REAL_AGENT_OLD=PROGRAM tests/real/suites/environments.sh      also with an agent from before environments
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/environments.sh"

[ -n "$DIRECT" ] && { echo "environments: nothing to check without the gateway"; finish; }

start_environments
for cluster in as-agent as-job; do kc create namespace "$(home "$cluster")" --save-config >/dev/null; done
kc create namespace "$SHARED_NAMESPACE" --save-config >/dev/null
accepted() { kc apply --dry-run=server --warnings-as-errors -f "$ROOT/deploy/rbac/$1.yaml"; }
kc create namespace workspace-gateway --save-config >/dev/null
for name in environments-agent environments-ci-job; do
  check "the API server takes the manifest $name" accepted "$name"
done
kc delete namespace workspace-gateway --wait=false >/dev/null
agent_rights as-agent environments-agent
agent_rights as-job environments-ci-job
ci_access as-agent agent
ci_access as-job ci_job
[ "${STORE:-sqlite}" = sqlite ] || on_postgres
start_gateway
user_token
for cluster in as-agent as-job; do cluster_agent "agent-$cluster" "$cluster"; done

# --- what the agents may ----------------------------------------------------------------------------------------------
# none CLUSTER RIGHT… : in no namespace of others.
none() {
  local right words
  for right in "${@:2}"; do
    read -ra words <<<"$right"
    [ "$(kc_as "$1" auth can-i -n default "${words[@]}" 2>/dev/null)" = no ] || { echo "it may $right, or nobody knows"; return 1; }
  done
}
for cluster in as-agent as-job; do
  check "$cluster: the agent may do none of what environments do not need" none "$cluster" 'create pods' 'get secrets' 'list secrets' 'create deployments.apps' \
    'create clusterrolebindings.rbac.authorization.k8s.io' 'create clusterroles.rbac.authorization.k8s.io' 'escalate clusterroles.rbac.authorization.k8s.io' \
    'create serviceaccounts --subresource=token' '* *'
done
check "as-job: it may itself make nothing of an environment" none as-job 'create namespaces' 'delete namespaces' 'create serviceaccounts' \
  'create rolebindings.rbac.authorization.k8s.io' 'bind clusterroles.rbac.authorization.k8s.io/cluster-admin'
check "as-agent: it acts for nobody else" none as-agent 'impersonate users' 'impersonate groups'
check "as-agent: it hands out no right beyond admin, edit and view" none as-agent 'bind clusterroles.rbac.authorization.k8s.io/cluster-admin'

# --- things of others -------------------------------------------------------------------------------------------------
for namespace in foreign lodge; do
  kc create namespace "$namespace" >/dev/null
  kc -n "$namespace" create serviceaccount theirs >/dev/null
  kc -n "$namespace" create rolebinding theirs --clusterrole view --serviceaccount "$namespace:theirs" >/dev/null
done
foreign() { kc get namespace/foreign -o jsonpath='{.metadata.uid} {.metadata.resourceVersion} {.metadata.deletionTimestamp}{"\n"}' && versions foreign; }
# What the cluster makes in each namespace by itself comes when it comes.
until_ok 60 kc -n foreign get configmap/kube-root-ca.crt serviceaccount/default >/dev/null || fail "the namespace of others is not complete"
foreign >"$OUT/foreign.before"
grep -q ' ServiceAccount/theirs ' "$OUT/foreign.before" || fail "nothing is known of the things of others"

# --- a life -----------------------------------------------------------------------------------------------------------
# job_may YES_OR_NO SLUG NAMESPACE RIGHT : what the cluster says of somebody with the groups of a job of that environment.
job_may() { [ "$(kc auth can-i -n "$3" --as gitlab:ci_job:1 --as-group "gitlab:project_env:$PROJECT_ID:$2" --as-group gitlab:ci_job "${@:4}" 2>/dev/null)" = "$1" ]; }
slug_of() { environment "$1" "$2" slug; }
space_of() { echo "$(slug_of "$1" "$2")-$PROJECT_ID-$(environment "$1" "$2" key | sed 's/.*-//')"; }
# marks_of KIND NAMESPACE NAME : the names of what an environment put on it, without values.
marks_of() {
  kc -n "$2" get "$1" "$3" -o json | python3 -c 'import json, sys
meta = json.load(sys.stdin)["metadata"]
for name, value in sorted(meta["labels"].items()):
    if name.startswith("agent.gitlab.com/"): print("label", name, repr(value))
for name, value in sorted(meta["annotations"].items()):
    if name.startswith("agent.gitlab.com/"): print("annotation", name, *sorted(json.loads(value)))'
}
documented() {
  local id=${1##*-}
  cat <<MARKS
label agent.gitlab.com/env-$1 ''
label agent.gitlab.com/environment_slug-$2 ''
label agent.gitlab.com/id-$id ''
label agent.gitlab.com/project_id-$PROJECT_ID ''
MARKS
}
# with_accounts CLUSTER NAME… : the template `default`, with these service accounts.
with_accounts() {
  {
    accounts '{{ .environment.slug }}-{{ .project.id }}-{{ .agent.id }}' "${@:2}"
    printf 'apply_resources: on_start\ndelete_resources: on_stop\n'
  } | template "$1" default
}

# no_inventory CLUSTER KEY : the agent's namespace has no inventory of that environment.
no_inventory() {
  local said
  said=$(kc -n "$(home "$1")" get configmaps -o name) || return 1
  if grep -F "environment-$2-" <<<"$said"; then return 1; fi
}

life() {
  local cluster=$1 name=review/one space slug key token began before uid
  check "$cluster: the agent is there" until_ok 60 agent_is_here "$cluster"
  token=$(job_token 1001 "$name")
  same "$cluster: a new job's prerequisites are unmet" true "$(unmet "$token" "$cluster")"
  began=$(now_ms)
  check "$cluster: they are completed" complete "$token" "$cluster"
  echo "note  $SUITE: $cluster: from the call to everything there $(($(now_ms) - began)) ms"
  space=$(space_of "$cluster" "$name") slug=$(slug_of "$cluster" "$name") key=$(environment "$cluster" "$name" key)
  same "$cluster: the environment is available" available "$(environment "$cluster" "$name" state)"
  check "$cluster: a namespace and a role binding are in the cluster" made_for_is "$cluster" "$name" "Namespace /$space" "RoleBinding $space/bind-$space"
  same "$cluster: which is for the job's group" "gitlab:project_env:$PROJECT_ID:$slug" \
    "$(kc -n "$space" get rolebinding "bind-$space" -o jsonpath='{.subjects[*].name}')"
  check "$cluster: with the documented labels" diff <(documented "$key" "$slug") <(marks_of namespace '' "$space" | grep '^label')
  check "$cluster: and the documented annotation" grep -qE "^annotation agent.gitlab.com/env-$key agent_id agent_name agent_url environment_id environment_name environment_page_url environment_slug environment_tier( environment_url)? project_id project_path project_slug project_url template_name$" \
    <(marks_of rolebinding "$space" "bind-$space")
  check "$cluster: a job of it may deploy there" job_may yes "$slug" "$space" create deployments.apps
  check "$cluster: and not elsewhere" job_may no "$slug" foreign get configmaps
  check "$cluster: a job of another environment may not" job_may no other "$space" create deployments.apps
  same "$cluster: now they are met" 'false completed' "$(unmet "$token" "$cluster")"

  before=$(versions_for "$cluster" "$name")
  check "$cluster: it is known in which version" grep -q '^Namespace ' <<<"$before"
  mark_audit
  check "$cluster: the same job again is answered" complete "$token" "$cluster"
  check "$cluster: with nothing asked of the API server" nothing_written
  same "$cluster: another job's are unmet" true "$(unmet "$(job_token 1002 "$name")" "$cluster")"
  check "$cluster: and are completed" prepared 1002 "$name" "$cluster"
  same "$cluster: with nothing changed in the cluster" "$before" "$(versions_for "$cluster" "$name")"

  # A template that grows and shrinks.
  with_accounts "$cluster" builder deployer
  check "$cluster: a custom template is applied by the next job" prepared 1003 "$name" "$cluster"
  check "$cluster: what is new is there, what the template no longer has is gone" made_for_is "$cluster" "$name" "Namespace /$space" "RoleBinding $space/of-job" \
    "ServiceAccount $space/builder" "ServiceAccount $space/deployer"
  # What somebody else made looks like ours but for the mark.
  look_alike "$space" builder
  with_accounts "$cluster" deployer
  check "$cluster: a template that shrank is applied" prepared 1004 "$name" "$cluster"
  check "$cluster: what it no longer has is deleted, what only looks like it is not" made_for_is "$cluster" "$name" "Namespace /$space" \
    "RoleBinding $space/of-job" "ServiceAccount $space/deployer" "ServiceAccount $space/look-alike"
  same "$cluster: the namespace is still the first one" "$(grep Namespace <<<"$before" | cut -d ' ' -f 3)" "$(versions_for "$cluster" "$name" | grep Namespace | cut -d ' ' -f 3)"

  # A stop job: first it is going to be stopped, then it is.
  token=$(job_token 1005 "$name" environment_action=stop)
  same "$cluster: a stop job needs nothing" 'false not_a_start' "$(unmet "$token" "$cluster")"
  mark_audit
  check "$cluster: gateway environment stop --begin" job_command "$token" stop --agent "$cluster" --begin
  same "$cluster: the environment is being stopped" stopping "$(environment "$cluster" "$name" state)"
  # Whatever were due would be done by the time that another job of the same agent is prepared.
  check "$cluster: meanwhile another environment's job is prepared" prepared 1006 review/two "$cluster"
  check "$cluster: and nothing of the stopping one was deleted" test "$(count_writes verb=delete)" = 0
  check "$cluster: gateway environment stop ends when all is gone" job_command "$token" stop --agent "$cluster"
  same "$cluster: the environment is stopped, and nothing is due" 'stopped False' "$(environment "$cluster" "$name" state removal_due | paste -sd ' ')"
  check "$cluster: its namespace is gone" without namespace "$space"
  same "$cluster: that of the other environment is not" 1 "$(made_for "$cluster" review/two | grep -c '^Namespace ')"
  check "$cluster: no inventory of it is left" no_inventory "$cluster" "$key"

  # Again, and stopped without a stop job.
  check "$cluster: a job begins it again" prepared 1007 "$name" "$cluster"
  uid=$(kc get namespace "$space" -o jsonpath='{.metadata.uid}')
  check "$cluster: in another namespace of the same name" test -n "$uid" -a "$uid" != "$(grep Namespace <<<"$before" | cut -d ' ' -f 3)"
  same "$cluster: it is available" available "$(environment "$cluster" "$name" state)"
  check "$cluster: an operator says that it is stopped" set_state "$cluster" "$name" stopped
  check "$cluster: what was made for it goes" gone_within 60 "$cluster" "$name"
  check "$cluster: its namespace too" without namespace "$space"
  check "$cluster: the other environment is stopped as well" set_state "$cluster" review/two stopped
  check "$cluster: and goes" gone_within 60 "$cluster" review/two
}
# look_alike NAMESPACE NAME : a copy of that service account, with all labels and annotations but the mark of its owner.
look_alike() {
  kc -n "$1" get serviceaccount "$2" -o json | python3 -c 'import json, sys
top = json.load(sys.stdin)
meta = top["metadata"]
marks = {name: value for name, value in meta["annotations"].items() if name != "config.k8s.io/owning-inventory"}
top["metadata"] = {"name": "look-alike", "namespace": meta["namespace"], "labels": meta["labels"], "annotations": marks}
json.dump(top, sys.stdout)' | kc create -f - >/dev/null || fail "no look-alike: $(tail -n 1 "$OUT/shell.log")"
}
for cluster in as-agent as-job; do life "$cluster"; done
check "things of others are as they were" diff "$OUT/foreign.before" <(foreign)

# --- as whom ----------------------------------------------------------------------------------------------------------
unset AUDIT_FROM
slug=$(slug_of as-job review/one)
same "as-job: every object was written as a job" '' "$(writes | grep "$(home as-job):cluster-agent" | grep -v ' gitlab:ci_job:[0-9]* ' | head -n 1)"
check "as-job: as the job that asked" test "$(count_writes as=gitlab:ci_job:1001)" -ge 2
same "as-job: with its groups, and what says where it comes from" \
  "['gitlab:ci_job', 'gitlab:managed_resources', 'gitlab:project:$PROJECT_ID', 'gitlab:project_env:$PROJECT_ID:$slug', 'gitlab:project_env_tier:$PROJECT_ID:development', 'system:authenticated'] ['1001'] ['$slug']" \
  "$(writes as=gitlab:ci_job:1001 resource=namespaces | head -n 1 | python3 -c 'import json, sys
who = json.loads("{" + sys.stdin.read().split(" {", 1)[1])
extra = who.get("extra", {})
print(sorted(who["groups"]), extra.get("agent.gitlab.com/ci_job_id"), extra.get("agent.gitlab.com/environment_slug"))')"
same "as-job: what is for templates is not for what the job asks by itself" no "$(kc auth can-i create namespaces --as gitlab:ci_job:1001 \
  --as-group gitlab:ci_job --as-group "gitlab:project:$PROJECT_ID" 2>/dev/null)"
same "as-agent: nothing was written as somebody else" '' "$(writes | grep "$(home as-agent):cluster-agent" | grep 'gitlab:ci_job' | head -n 1)"

# --- who may ----------------------------------------------------------------------------------------------------------
mark_audit
refused_as() { check "$1" not_prepared_with "${@:2}"; }
# not_prepared_with CODE CLUSTER TOKEN [TEMPLATE]
not_prepared_with() {
  if complete "$3" "$2" "${4:-}"; then echo "it is not refused"; return 1; fi
  says_code "$1" || { cat "$ANSWER"; return 1; }
}
refused_as "a project that the agent's ci_access does not have is refused" project_not_allowed as-job "$(job_token 2001 review/x project_id=99 project_path=elsewhere/shop)"
refused_as "a project with a name that begins the same is refused" project_not_allowed as-job "$(job_token 2002 review/x project_id=99 project_path=group/shopping)"
refused_as "an environment that the entry does not have is refused" environment_not_allowed as-job "$(job_token 2003 production project_id=50 project_path=group/limited ref_protected=true)"
refused_as "a job of an unprotected ref is refused where it has to be" ref_not_protected as-job "$(job_token 2004 review/x project_id=50 project_path=group/limited)"
check "one of a protected ref is not" complete "$(job_token 2005 review/x project_id=50 project_path=group/limited ref_protected=true)" as-job
check "a project below a group is taken" complete "$(job_token 2006 review/x project_id=51 project_path=team/sub/shop)" as-job
same "a project without resource_management needs nothing" 'false not_enabled' "$(unmet "$(job_token 2007 review/x project_id=52 project_path=group/unmanaged)" as-job)"
same "a job without environment needs nothing" 'false no_environment' "$(unmet "$(job_token 2008 '')" as-job)"
refused_as "an unknown agent is refused like another project's" project_not_allowed nowhere "$(job_token 2009 review/x)"
refused_as "an unknown template is refused" no_such_template as-job "$(job_token 2010 review/x)" nothing-like-it
environment_of() { ask GET "/environments?project_id=$1" | python3 -c 'import json, sys
print(json.load(sys.stdin)["environments"][0]["id"])'; }
for project in 50 51; do ask PATCH "/environments/$(environment_of "$project")" '{"state": "stopped"}' >/dev/null || fail "project $project's environment is not stopped"; done

expired=$(job_token 2011 review/x "exp=$(($(date +%s) - 120))" "iat=$(($(date +%s) - 600))")
refused_as "an expired token is refused" job_refused as-job "$expired"
refused_as "a token for somebody else is refused" job_refused as-job "$(job_token 2012 review/x aud=another)"
refused_as "a token of another issuer is refused" job_refused as-job "$(job_token 2013 review/x iss=http://127.0.0.1:1)"
forged=$(job_token 2014 review/x)
refused_as "a forged token is refused" job_refused as-job "${forged%.*}.AAAA${forged##*.}"
refused_as "a token without a job is refused" job_refused as-job "$(job_token '' review/x job_id=)"
job_says() { as_job "$(job_token 2015 review/x)" POST /environments/complete "$1" >"$OUT/answer.json" && return 1; ANSWER=$OUT/answer.json; says_code "$2" || { cat "$OUT/answer.json"; return 1; }; }
check "a job cannot mean another environment than its own" job_says '{"agent": "as-job", "environment": "production"}' another_environment
check "nor say who it is" job_says '{"agent": "as-job", "job": {"project_id": 42, "project_path": "group/shop", "job_id": 1, "user_id": 1, "username": "root", "environment": "production"}}' facts_in_token
check "a job's token opens nothing else of the API" refused_with sign_in_required as_job "$(job_token 2016 review/x)" GET /workspaces
id_of_other=$(environment as-agent review/one id)
check "a job does not see another environment" refused_with no_such_environment as_job "$(job_token 2017 review/x)" GET "/environments/$id_of_other"
check "nor changes it" refused_with no_such_environment as_job "$(job_token 2017 review/x)" PATCH "/environments/$id_of_other" '{"state": "stopped"}'

# --- what is not ours -------------------------------------------------------------------------------------------------
not_due() { [ "$(environment "$1" "$2" removal_due)" = False ]; }
# The name that the default template would make is somebody else's.
prepared 3000 review/probe as-agent >/dev/null || fail "no environment to learn names from"
agent_id=$(environment as-agent review/probe key | sed 's/.*-//')
taken=taken-$PROJECT_ID-$agent_id
kc create namespace "$taken" >/dev/null
kc label namespace "$taken" "agent.gitlab.com/env-$taken=" "agent.gitlab.com/id-$agent_id=" "agent.gitlab.com/project_id-$PROJECT_ID=" "agent.gitlab.com/environment_slug-taken=" >/dev/null
kc -n "$taken" create serviceaccount theirs >/dev/null
before=$(kc get namespace "$taken" -o jsonpath='{.metadata.uid} {.metadata.resourceVersion}')
[ -n "$before" ] || fail "somebody else's namespace is not there"
mark_audit
check "an object that is there and not ours fails the job, by its name" not_prepared not_owned 3001 taken as-agent
check "and says which" grep -qF "$taken" "$OUT/answer.json"
check "nothing was applied" nothing_written
check "an operator deletes that environment" ask DELETE "/environments/$(environment as-agent taken id)"
check "which ends" until_ok 60 not_due as-agent taken
same "and leaves what was never ours" "$before" "$(kc get namespace "$taken" -o jsonpath='{.metadata.uid} {.metadata.resourceVersion}')"
kc -n "$taken" get serviceaccount theirs >/dev/null || fail "what was in it is gone"

# Objects in a namespace that is not the environment's: those go alone. What was replaced by somebody else's stays.
template as-agent lodger <<'YAML'
objects:
  - {apiVersion: v1, kind: ServiceAccount, metadata: {name: 'first-{{ .environment.slug }}'}}
  - {apiVersion: v1, kind: ServiceAccount, metadata: {name: 'second-{{ .environment.slug }}', namespace: lodge}}
  - {apiVersion: v1, kind: ServiceAccount, metadata: {name: 'third-{{ .environment.slug }}'}}
YAML
lodger() { complete "$(job_token "$1" "$2" project_id=60 project_path=group/lodger)" as-agent lodger; }
check "a template's objects go to the entry's default namespace" lodger 3010 one
check "a second environment's do too" lodger 3011 two
same "and are all there" 6 "$(kc -n lodge get serviceaccounts -o name | grep -cE '(first|second|third)-(one|two)')"
kc -n lodge delete serviceaccount second-one >/dev/null && kc -n lodge create serviceaccount second-one >/dev/null
# The mark of another environment, by hand: it is then not this one's.
mark=$(kc -n lodge get serviceaccount third-two -o jsonpath='{.metadata.annotations.config\.k8s\.io/owning-inventory}')
check "each object has the mark of its environment" test -n "$mark"
kc -n lodge annotate --overwrite serviceaccount third-one "config.k8s.io/owning-inventory=$mark" >/dev/null
lodge() { kc -n lodge get serviceaccounts second-one third-one first-two second-two third-two -o jsonpath='{range .items[*]}{.metadata.name} {.metadata.uid} {.metadata.resourceVersion}{"\n"}{end}'; }
before=$(lodge) || fail "not all of them are there: $before"
check "an environment there is stopped" set_state as-agent one stopped
check "and its removal ends" gone_within 60 as-agent one
check "what was its own is gone" without serviceaccount first-one lodge
same "what others put in the place of its objects, or own now, is as it was, and the neighbour's too" "$before" "$(lodge)"
check "the namespace that it was a guest of is there" kc get namespace lodge
ask PATCH "/environments/$(environment as-agent two id)" '{"state": "stopped"}' >/dev/null
gone_within 60 as-agent two >/dev/null || fail "the second guest does not go"

# --- hostile templates and values -------------------------------------------------------------------------------------
mark_audit
# hostile NAME CODE : a template on the standard input that is to be refused with this code, for a project whose entry has a default namespace.
HOSTILES=()
hostile() {
  cat >"$OUT/agents/as-agent/environment_templates/$1.yaml"
  HOSTILES+=("$1 $2")
}
# The number of the latest of their jobs: each is one of its own.
HOSTILE=3100
one() { printf 'objects:\n  - {apiVersion: v1, kind: Namespace, metadata: {name: mine}}\n  - %s\n' "$1"; }
# As the templates of anybody: nothing of these may be written before they are refused.
hostile cluster-role-binding kind_not_allowed < <(one '{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: a}, subjects: [], roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}')
hostile secret kind_not_allowed < <(one '{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: mine}}')
hostile list-of-objects kind_not_allowed < <(one '{apiVersion: v1, kind: List, metadata: {name: a}, items: []}')
hostile kind-of-another-group api_version_not_allowed < <(one '{apiVersion: example.org/v1, kind: Namespace, metadata: {name: a}}')
hostile namespace-of-the-system namespace_not_allowed < <(one '{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}')
hostile another-namespace namespace_not_allowed < <(one '{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: foreign}}')
hostile subject-elsewhere namespace_reference < <(one '{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a, namespace: mine}, subjects: [{kind: ServiceAccount, name: theirs, namespace: foreign}], roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}}')
hostile source-elsewhere namespace_reference < <(one '{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: a, namespace: mine}, spec: {sourceRef: {kind: GitRepository, name: a, namespace: foreign}}}')
hostile target-elsewhere namespace_reference < <(one '{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: a, namespace: mine}, spec: {targetNamespace: foreign}}')
hostile label-of-ours reserved_key < <(one '{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: mine, labels: {agent.gitlab.com/id-1: ""}}}')
hostile owner-of-ours reserved_key < <(one '{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: mine, annotations: {config.k8s.io/owning-inventory: other}}}')
hostile same-object-twice duplicate_object < <(one '{apiVersion: v1, kind: Namespace, metadata: {name: mine}}')
hostile name-of-a-path name_invalid < <(one '{apiVersion: v1, kind: ServiceAccount, metadata: {name: ../../pods, namespace: mine}}')
hostile generated-name name_invalid < <(one '{apiVersion: v1, kind: ServiceAccount, metadata: {generateName: a-, namespace: mine}}')
for one in "${HOSTILES[@]}"; do
  read -r name code <<<"$one"
  until_ok 15 has_template as-agent "$name" >/dev/null || fail "the gateway does not take the template $name"
  HOSTILE=$((HOSTILE + 1))
  check "$name is refused by name: $code" not_prepared_with "$code" as-agent "$(job_token "$HOSTILE" "hostile-$name" project_id=60 project_path=group/lodger)" "$name"
done
# With values that make names: of the system, and of a path.
template as-agent named-by-value <<'YAML'
objects:
  - {apiVersion: v1, kind: Namespace, metadata: {name: '{{ .environment.name }}'}}
YAML
by_value() {
  HOSTILE=$((HOSTILE + 1))
  check "an environment called ${1@Q} is refused by name: $2" not_prepared_with "$2" as-agent "$(job_token "$HOSTILE" "$1")" named-by-value
}
by_value kube-system namespace_not_allowed
by_value ../../kube-system name_invalid
by_value '{{ .user.username }}' name_invalid
by_value 'a: {b: c}' name_invalid
by_value $'a\nb: c' job_refused
by_value "$(head -c 300 /dev/zero | tr '\0' a)" facts_invalid
check "nothing of all that was applied" nothing_written
# What is another environment's is that one's: an environment is not called like one to get it.
check "an environment whose namespace a value names" prepared 3180 owned as-agent named-by-value
mark_audit
check "cannot be taken by another project's" not_prepared_with not_owned as-agent "$(job_token 3181 owned project_id=61 project_path=team/thief)" named-by-value
check "with nothing applied" nothing_written
check "nor deleted by it" ask DELETE "/environments/$(environment_of 61)"
thief_is_done() { [ "$(ask GET "/environments?project_id=61" | python3 -c 'import json, sys
print(json.load(sys.stdin)["environments"][0]["removal_due"])')" = False ]; }
check "whose own removal ends" until_ok 60 thief_is_done
check "the first one's namespace is there" kc get namespace owned
check "until it is stopped itself" ask PATCH "/environments/$(environment as-agent owned id)" '{"state": "stopped"}'
check "then it goes" until_ok 60 without namespace owned

# --- templates that keep, and what an operator deletes ----------------------------------------------------------------
template as-agent keeps <<'YAML'
objects:
  - {apiVersion: v1, kind: Namespace, metadata: {name: 'kept-{{ .environment.slug }}'}}
delete_resources: never
YAML
check "a template that is to be kept" prepared 3020 keep as-agent keeps
mark_audit
check "its environment is stopped" set_state as-agent keep stopped
same "with nothing due" 'stopped False' "$(environment as-agent keep state removal_due | paste -sd ' ')"
check "and its namespace there" kc get namespace kept-keep
check "another job of it adopts what it has" prepared 3021 keep as-agent keeps
check "an operator deletes it all the same" ask DELETE "/environments/$(environment as-agent keep id)"
check "then it goes" until_ok 60 without namespace kept-keep

# --- an agent that may not do it all ----------------------------------------------------------------------------------
# Flux's kinds are known here, but for one; the right to make service accounts is taken away.
template as-job partly <<'YAML'
objects:
  - {apiVersion: v1, kind: Namespace, metadata: {name: 'partly-{{ .environment.slug }}'}}
  - {apiVersion: v1, kind: ServiceAccount, metadata: {name: builder, namespace: 'partly-{{ .environment.slug }}'}}
  - apiVersion: source.toolkit.fluxcd.io/v1
    kind: GitRepository
    metadata: {name: app, namespace: 'partly-{{ .environment.slug }}'}
    spec: {interval: 1m, url: '{{ .project.url }}', ref: {branch: main}}
  - {apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: app, namespace: 'partly-{{ .environment.slug }}'}, spec: {interval: 1m}}
  - apiVersion: rbac.authorization.k8s.io/v1
    kind: RoleBinding
    metadata: {name: of-job, namespace: 'partly-{{ .environment.slug }}'}
    subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: 'gitlab:project_env:{{ .project.id }}:{{ .environment.slug }}'}]
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
YAML
role=$(kc get clusterroles -o name | grep -i gitlab | grep -i job | head -n 1)
[ -n "$role" ] || role=$(kc get clusterrolebindings -o json | python3 -c 'import json, sys
for one in json.load(sys.stdin)["items"]:
    if any(who["name"] == "gitlab:managed_resources" for who in one.get("subjects", [])): print("clusterrole/" + one["roleRef"]["name"])')
kc get "$role" -o json >"$OUT/role.json"
python3 -c 'import json, sys
role = json.load(open(sys.argv[1]))
for rule in role["rules"]: rule["resources"] = [name for name in rule.get("resources", []) if name != "serviceaccounts"]
role["rules"] = [rule for rule in role["rules"] if rule["resources"]]
json.dump(role, sys.stdout)' "$OUT/role.json" | kc replace -f - >/dev/null || fail "the role cannot be changed"
role_has_changed() { [ "$(kc auth can-i -n default --as gitlab:ci_job:1 --as-group gitlab:managed_resources create serviceaccounts 2>/dev/null)" = no ]; }
until_ok 60 role_has_changed >/dev/null || fail "the role's change does not take effect"
check "a job that may not make one kind fails" not_prepared forbidden 3030 partly as-job partly
check "and with a kind that the cluster does not have" says_code unknown_kind
same "each object has an error of its own" 'HelmRelease ServiceAccount' "$(python3 -c 'import json, sys
top = json.load(open(sys.argv[1]))
print(*sorted(one["object"]["kind"] for one in top["object_errors"]))' "$OUT/answer.json")"
check "the others are there" made_for_is as-job partly 'Namespace /partly-partly' 'RoleBinding partly-partly/of-job' 'GitRepository partly-partly/app'
same "the failed job's prerequisites are not met" true "$(unmet "$(job_token 3030 partly)" as-job)"
manifest_again() { sed "s/: workspace-gateway\$/: $(home as-job)/" "$ROOT/deploy/rbac/environments-ci-job.yaml" | kc apply -f - >>"$OUT/rights.log"; }
check "the right is given back" manifest_again
check "stopped, what there is of it goes" set_state as-job partly stopped
check "all of it" gone_within 60 as-job partly

# --- gRPC -------------------------------------------------------------------------------------------------------------
grpc() { "$GRPCURL" -plaintext -authority "localhost:$PUBLIC" -H "authorization: Bearer ${AS:-$USER_TOKEN}" "$@"; }
call() { grpc -d "$2" "127.0.0.1:$PUBLIC" "environments.v1.$1"; }
check "reflection lists both services" bash -c "'$GRPCURL' -plaintext -authority 'localhost:$PUBLIC' -H 'authorization: Bearer $USER_TOKEN' '127.0.0.1:$PUBLIC' list | tee /dev/stderr | grep -c '^environments.v1.\(Provisioner\|Prerequisites\)$' | grep -qx 2"
call Provisioner/GetDefaultEnvironmentTemplate '{}' >"$OUT/default.json" 2>"$OUT/grpc.log"
check "GetDefaultEnvironmentTemplate gives the built-in one" grep -q 'gitlab:project_env' "$OUT/default.json"
check "GetEnvironmentTemplate gives an agent's own" bash -c "$(declare -f grpc call); GRPCURL='$GRPCURL' PUBLIC=$PUBLIC USER_TOKEN='$USER_TOKEN'; call Provisioner/GetEnvironmentTemplate '{\"agent_name\": \"as-agent\", \"template_name\": \"keeps\"}' | grep -q never"
INFO='{"agent": {"name": "as-agent"}, "environment": {"name": "over/grpc"}, "project": {"id": 42, "path": "group/shop"}, "user": {"id": 12, "username": "ann"}}'
call Provisioner/RenderEnvironmentTemplate "{\"template\": {\"name\": \"default\"}, \"info\": $INFO}" >"$OUT/rendered.json" 2>>"$OUT/grpc.log"
check "RenderEnvironmentTemplate puts the values in" grep -q 'over-grpc' "$OUT/rendered.json"
python3 -c 'import json, sys
print(json.dumps({"template": json.load(open(sys.argv[1]))["template"], "info": json.loads(sys.argv[2])}))' "$OUT/rendered.json" "$INFO" >"$OUT/ensure.json"
call Provisioner/EnsureEnvironment "$(cat "$OUT/ensure.json")" >"$OUT/ensured.log" 2>&1
check "EnsureEnvironment tells what is applied" grep -q '"step": "applied"' "$OUT/ensured.log"
check "and that it is done" grep -q '"outcome": "completed"' "$OUT/ensured.log"
check "with the objects in the cluster" bash -c "[ $(made_for as-agent over/grpc | wc -l) -ge 2 ]"
AS=$(job_token 3040 over/grpc) call Prerequisites/Unmet '{"request": {"agent_name": "as-agent"}}' >"$OUT/unmet.json" 2>>"$OUT/grpc.log"
check "a job asks Unmet with its token" grep -q '"isUnmet": true' "$OUT/unmet.json"
AS=$(job_token 3040 over/grpc) call Prerequisites/Complete '{"request": {"agent_name": "as-agent"}}' >"$OUT/complete.log" 2>&1
check "and Complete" grep -q '"outcome": "completed"' "$OUT/complete.log"
AS=$(job_token 3040 over/grpc) call Provisioner/GetDefaultEnvironmentTemplate '{}' >"$OUT/job-grpc.log" 2>&1
check "and has no part of what operators may" grep -qE 'PermissionDenied|Unauthenticated' "$OUT/job-grpc.log"
call Prerequisites/Complete '{"request": {"agent_name": "nowhere", "job": {"project_id": 42, "project_path": "group/shop", "job_id": 1, "environment": "a", "user_id": 1, "username": "a"}}}' >"$OUT/refused-grpc.log" 2>&1
check "a refusal is a status that names itself" grep -qiE 'NotFound' "$OUT/refused-grpc.log"
call Provisioner/DeleteEnvironment "{\"environment_id\": $(environment as-agent over/grpc id)}" >"$OUT/deleted.log" 2>&1
check "DeleteEnvironment tells what goes" grep -qE '"step": "(gone|deleting)"' "$OUT/deleted.log"
same "and then nothing is left" '' "$(made_for as-agent over/grpc)"

# --- the template for projects ----------------------------------------------------------------------------------------
# gitlab-ci-local reads it as a GitLab reads it, and runs its jobs in a shell. The program is on a server.
mkdir -p "$OUT/programs" "$OUT/ci-project/ci" "$OUT/ci-home"
case $(uname -m) in x86_64) machine=amd64 ;; *) machine=arm64 ;; esac
cp "$REAL_GATEWAY" "$OUT/programs/gateway-linux-$machine"
PROGRAMS=$(free_port)
spawn programs python3 -m http.server --bind 127.0.0.1 --directory "$OUT/programs" "$PROGRAMS"
wait_port programs "$PROGRAMS"
cp "$ROOT/deploy/ci/gitlab/environment.yml" "$OUT/ci-project/ci/"
# pipeline SHA256 : a project's pipeline.
pipeline() {
  cat >"$OUT/ci-project/.gitlab-ci.yml" <<YAML
include:
  - local: /ci/environment.yml
    inputs:
      gateway: http://localhost:$PUBLIC
      agent: as-job
      program: http://127.0.0.1:$PROGRAMS/gateway-linux
      sha256-$machine: "$1"
deploy:
  extends: .environment
  environment: {name: review/ci}
  script: [echo "deployed as $\GATEWAY_URL", echo "the job's own work"]
stop:
  extends: .environment-stop
  environment: {name: review/ci, action: stop}
  when: manual
stop-with-work:
  extends: .environment-stop
  environment: {name: review/ci, action: stop}
  when: manual
  script:
    - echo "taking things down"
    - test -z "\$BREAK_IT"
    - environment_stopped
YAML
  sed -i 's/\$\\GATEWAY_URL/$GATEWAY_URL/' "$OUT/ci-project/.gitlab-ci.yml"
}
LOCAL=$REAL/node_modules/gitlab-ci-local/src/index.js
# ci_run NAME TOKEN JOB ARGUMENTS…
ci_run() {
  timeout 120 env -C "$OUT/ci-project" HOME="$OUT/ci-home" NO_COLOR=1 node "$LOCAL" --shell-isolation=false --variable "GATEWAY_JOB_TOKEN=$2" \
    --variable "CI_ENVIRONMENT_URL=https://ci.example.org" "${@:4}" "$3" >"$OUT/ci-$1.log" 2>&1
}
pipeline "$(sha256sum "$REAL_GATEWAY" | cut -d ' ' -f 1)"
git -C "$OUT/ci-project" init -q
git -C "$OUT/ci-project" add . && git -C "$OUT/ci-project" -c user.name=a -c user.email=a@example.com commit -q -m one
git -C "$OUT/ci-project" remote add origin https://gitlab.example.com/group/shop.git
ci_run deploy "$(job_token 4001 review/ci)" deploy
same "a job with the template passes" 0 $?
check "its log tells what is made" grep -qE 'Namespace' "$OUT/ci-deploy.log"
check "before the job's own work" bash -c "[ \$(grep -n 'Namespace' '$OUT/ci-deploy.log' | head -n 1 | cut -d : -f 1) -lt \$(grep -n \"the job's own work\" '$OUT/ci-deploy.log' | tail -n 1 | cut -d : -f 1) ]"
same "and it is there" available "$(environment as-job review/ci state)"
same "with the job's address" https://ci.example.org "$(environment as-job review/ci url)"
ci_run broken "$(job_token 4002 review/ci environment_action=stop)" stop-with-work --variable BREAK_IT=1
check "a stop job that fails" test $? != 0
same "leaves the environment as it is" stopping "$(environment as-job review/ci state)"
check "with everything there" bash -c "[ $(made_for as-job review/ci | wc -l) -ge 2 ]"
ci_run stop-with-work "$(job_token 4003 review/ci environment_action=stop)" stop-with-work
same "one that does its work passes" 0 $?
check "its log tells what goes" grep -qE 'Namespace|gone' "$OUT/ci-stop-with-work.log"
same "then it is stopped" 'stopped False' "$(environment as-job review/ci state removal_due | paste -sd ' ')"
same "with nothing left" '' "$(made_for as-job review/ci)"
ci_run again "$(job_token 4004 review/ci)" deploy
ci_run stop "$(job_token 4005 review/ci environment_action=stop)" stop
same "a stop job without work of its own does the same" 'stopped False' "$(environment as-job review/ci state removal_due | paste -sd ' ')"
pipeline "$(printf '%064d' 7)"
ci_run other "$(job_token 4006 review/ci)" deploy
check "a program with another checksum is not run, and the job fails" grep -q "what was fetched is not the gateway's program" "$OUT/ci-other.log"
pipeline "$(sha256sum "$REAL_GATEWAY" | cut -d ' ' -f 1)"
ci_run refused "$(job_token 4007 review/ci project_id=99 project_path=elsewhere/shop)" deploy
check "a job that is refused fails" test $? != 0
check "and its log says why" grep -qE 'project_not_allowed|may not|not allowed' "$OUT/ci-refused.log"
check "no token is in a job's log" sh -c "! grep -E 'eyJ[A-Za-z0-9_-]{20}' '$OUT'/ci-*.log"

# --- projects that are deleted ----------------------------------------------------------------------------------------
doomed() { complete "$(job_token "$1" "$2" project_id=70 project_path=team/doomed)" as-agent "${3:-}"; }
check "three environments of a project" doomed 5001 review/a
doomed 5002 review/b >/dev/null && doomed 5003 keep keeps >/dev/null || fail "they are not prepared"
hook() {
  curl -sS -o "$OUT/hook.json" -w '%{http_code}' --max-time 20 -H "host: localhost:$PUBLIC" -H "x-gitlab-token: $1" -H 'content-type: application/json' \
    -d "$2" "http://127.0.0.1:$PUBLIC/api/v1/environments/hooks/gitlab"
}
EVENT='{"event_name": "project_destroy", "created_at": "2026-11-21T10:00:00Z", "name": "doomed", "path": "doomed", "path_with_namespace": "team/doomed", "project_id": 70, "project_visibility": "private"}'
same "a hook with another secret is refused" 401 "$(hook wrong "$EVENT")"
same "of another event nothing comes" 204 "$(hook "$(cat "$OUT/hook.token")" "${EVENT/project_destroy/project_rename}")"
same "the project's environments are as they were" available "$(environment as-agent review/a state)"
same "the hook of a deleted project is heard" 204 "$(hook "$(cat "$OUT/hook.token")" "$EVENT")"
check "its environments are stopped and go" gone_within 60 as-agent review/a
check "each of them" gone_within 60 as-agent review/b
same "but for what is to be kept" 'stopped False' "$(environment as-agent keep state removal_due | paste -sd ' ')"
check "which is there" kc get namespace kept-keep
check "another project" complete "$(job_token 5010 review/c project_id=71 project_path=team/next)" as-agent
check "is swept by an operator" ask DELETE /projects/71/environments
check "and goes" gone_within 60 as-agent review/c
check "a project that has none is no mistake" ask DELETE /projects/72/environments

# --- agents that are not there ----------------------------------------------------------------------------------------
stop gateway
GATEWAY_ENV+=("GATEWAY_ENVIRONMENTS__COMPLETE_MAX=12s")
ci_access nobody agent
start_gateway
until_ok 60 agent_is_here as-agent >/dev/null || fail "the agents do not come back"
gateway token create --cluster nobody >/dev/null 2>>"$OUT/token.log"
began=$(now_ms)
check "without an agent, a job is refused by name" not_prepared agent_absent 6001 review/away nobody
took=$(($(now_ms) - began))
check "within complete_max and no call's time more ($took ms)" test "$took" -lt 30000
# An agent from before environments, if somebody has one.
if [ -n "${REAL_AGENT_OLD:-}" ]; then
  kc create namespace "$(home nobody)" --save-config >/dev/null
  agent_rights nobody
  REAL_AGENT=$REAL_AGENT_OLD cluster_agent agent-old nobody
  until_ok 60 agent_is_here nobody >/dev/null || fail "the old agent does not come"
  check "an agent that is too old is named" not_prepared agent_too_old 6002 review/old nobody
  stop agent-old
fi
due_because() { [ "$(environment "$1" "$2" removal_due)" = True ] && environment "$1" "$2" failure | grep -qE "$3"; }
prepared 6003 review/later as-agent >/dev/null || fail "no environment for later"
stop agent-as-agent
set_state as-agent review/later stopped >/dev/null || fail "it is not stopped"
check "what is to go without an agent is due, and says why" until_ok 20 due_because as-agent review/later agent_absent
cluster_agent agent-as-agent as-agent
check "and goes when it comes back" gone_within 90 as-agent review/later

# --- the end ----------------------------------------------------------------------------------------------------------
check "things of others are as they were" diff "$OUT/foreign.before" <(foreign)
check "the gateway's audit log has what was done" bash -c "for word in prepared removed swept; do grep -q \"environment.*\$word\|\$word.*environment\" '$OUT/gateway-audit.jsonl' || exit 1; done"
curl -s "http://127.0.0.1:$ADMIN/metrics" | grep -i '^gateway_environment' >"$OUT/metrics.txt"
check "the metrics have it too" test "$(wc -l <"$OUT/metrics.txt")" -ge 3
check "no token or secret is in a log of ours" sh -c "! grep -nE 'eyJ[A-Za-z0-9_-]{30}|a-hook-secret' '$OUT'/gateway*.log '$OUT'/agent-*.log '$OUT'/gateway-audit.jsonl"
check "no program panicked" sh -c "! grep -n 'panicked at' '$OUT'/*.log"
for name in gateway agent-as-agent agent-as-job; do
  same "$name logs no error" '' "$(grep -E '\bERROR\b' "$OUT/$name.log" | head -n 2 | cut -c 1-300)"
done
finish
