# shellcheck shell=bash
# Workspaces on a cluster, for a suite: cluster agents under exactly the rights of deploy/rbac, and the gateway's API to ask.
# Sourced after common.sh and kubernetes.sh. A cluster is named by its namespace mode, `unique` or `shared`:
#
#   start_cluster && rights shared && clusters shared && start_gateway && user_token
#   cluster_agent agent shared
#   create shared mine && state_within 30 mine Running

LABEL=workspace-gateway.dev/workspace
SHARED_NAMESPACE=workspaces
# The configuration of each cluster names this image, and this address of the gateway.
TOOLS_IMAGE=example.net/tools:1
AGENTS_ADDRESS=127.0.0.1
# What a container requests if its devfile says nothing.
REQUESTS='{cpu: 0.1, memory: 128Mi}'
# How long a standby waits for the lease of an agent that was killed.
LEASE_SECONDS=20
# What each workspace has as a variable. Each suite has its own, because another one beside it has it among the arguments of programs.
SECRET_VALUE=a-secret-of-$SUITE-that-no-log-has

# home MODE : the namespace of the cluster agent itself. Each mode has its own, so that both can be there at once.
home() { echo "workspace-gateway-$1"; }

# manifest MODE : its rights, in that namespace.
manifest() { sed "s/: workspace-gateway\$/: $(home "$1")/" "$ROOT/deploy/rbac/$1.yaml"; }

# rights MODE : makes the account with exactly the rights of the manifest.
rights() {
  manifest "$1" | kc apply -f - >>"$OUT/rights.log" || give_up "the rights of $1 cannot be applied: $(tail -n 1 "$OUT/shell.log")"
  account_kubeconfig "$1" "$(home "$1")" cluster-agent >/dev/null || give_up "no token for the cluster agent: $(tail -n 1 "$OUT/shell.log")"
}

# clusters MODE… : tells the gateway of them, before it starts.
clusters() {
  local mode
  choose_ports
  GATEWAY_ENV+=("GATEWAY_AGENTS_DIR=$OUT/agents")
  for mode in "$@"; do
    mkdir -p "$OUT/agents/$mode"
    {
      printf 'workspaces:\n  enabled: true\n  tools_image: %s\n  gateway_url: http://%s:%s\n' "$TOOLS_IMAGE" "$AGENTS_ADDRESS" "$AGENTS"
      if [ "$mode" = shared ]; then
        printf '  shared_namespace: %s\n' "$SHARED_NAMESPACE"
      else
        printf '  max_resources_per_workspace: {requests: {cpu: 4, memory: 8Gi}, limits: {cpu: 8, memory: 16Gi}}\n'
        printf '  image_pull_secrets: [{name: registry, namespace: %s}]\n' "$(home unique)"
      fi
      printf '  default_resources_per_container: {requests: %s, limits: {cpu: 1, memory: 1Gi}}\n' "$REQUESTS"
    } >"$OUT/agents/$mode/config.yaml"
  done
}

# cluster_token MODE : makes the token of that cluster's agents, once.
cluster_token() {
  [ ! -e "$OUT/$1.token" ] || return 0
  (umask 077 && gateway token create --cluster "$1" >"$OUT/$1.token" 2>>"$OUT/token.log") || give_up "no cluster token: $(tail -n 1 "$OUT/token.log")"
}

# cluster_agent NAME MODE : one more agent of that cluster, as process NAME.
cluster_agent() {
  cluster_token "$2"
  spawn "$1" env NO_COLOR=1 KUBECONFIG="$KUBE/$2.kubeconfig" POD_NAME="$1" "$REAL_AGENT" cluster \
    --gateway "http://127.0.0.1:$AGENTS" --token-file "$OUT/$2.token"
}

# leader MODE : who holds the lease.
leader() { kc -n "$(home "$1")" get leases -o jsonpath='{range .items[*]}{.spec.holderIdentity}{"\n"}{end}' | head -n 1; }

# namespace_of MODE NAME : where a workspace is.
namespace_of() { if [ "$1" = shared ]; then echo "$SHARED_NAMESPACE"; else echo "ws-$2"; fi; }

# --- the gateway's API ------------------------------------------------------------------------------------------------

# ask METHOD PATH [JSON] : prints the answer; fails with the problem's text.
ask() { ask_as "$USER_TOKEN" 20 "$@"; }
# ask_as TOKEN SECONDS METHOD PATH [JSON] : the same with another token, for so long.
ask_as() {
  local answer status
  answer=$(curl -sS --max-time "$2" -X "$3" -H "authorization: Bearer $1" -H "host: localhost:$PUBLIC" \
    ${5:+-H 'content-type: application/json' -d "$5"} -w '\n%{http_code}' "http://127.0.0.1:$PUBLIC/api/v1$4") || return 1
  status=${answer##*$'\n'}
  printf '%s\n' "${answer%$'\n'*}"
  case $status in 2??) ;; *) return 1 ;; esac
}

# value NAME… : members of the JSON object that comes in, one per line; empty where there is none.
value() {
  python3 -c 'import json, sys
top = json.load(sys.stdin)
for name in sys.argv[1:]:
    value = top
    for part in name.split("."): value = value.get(part) if isinstance(value, dict) else None
    print("" if value is None else value)' "$@"
}

# devfile [IMAGE] [LINES] : one container, with further lines for it.
devfile() {
  cat <<YAML
schemaVersion: 2.2.0
components:
  - name: main
    attributes: {gateway/inject-editor: true}
    container:
      image: ${1:-example.net/ready:1}
${2:-}
YAML
}

# create MODE NAME [DEVFILE [PROJECT…]]
create() {
  local body
  body=$(NAME=$2 CLUSTER=$1 SECRET=$SECRET_VALUE DEVFILE=${3:-$(devfile)} PROJECTS=${*:4} python3 -c 'import json, os
projects = [dict(zip(("url", "ref"), text.split("@"))) for text in os.environ["PROJECTS"].split()]
print(json.dumps({"name": os.environ["NAME"], "executor": "kubernetes", "agent": os.environ["CLUSTER"], "devfile": os.environ["DEVFILE"],
  "projects": projects,
  "variables": [{"kind": "env", "name": "GREETING", "value": os.environ["SECRET"]}]}))')
  ask POST /workspaces "$body"
}

# desire NAME STATE
desire() { ask PATCH "/workspaces/$1" "{\"desired_state\": \"$2\"}"; }

# state NAME : its actual state. reason NAME : why it is so.
state() { ask GET "/workspaces/$1" | value state.actual; }
reason() { ask GET "/workspaces/$1" | value state.reason; }
is() { [ "$(state "$1")" = "$2" ]; }

# state_within SECONDS NAME STATE : until it is so.
state_within() { until_ok "$1" is "$2" "$3" || { ask GET "/workspaces/$2"; return 1; }; }

# says_why NAME TEXT : the reason that people are told has it.
says_why() { grep -qiE -- "$2" <<<"$(reason "$1")"; }
why_within() { until_ok "$1" says_why "$2" "$3" || { ask GET "/workspaces/$2"; return 1; }; }

# refused METHOD PATH [JSON] : the gateway does not do this, and says so itself.
refused() {
  local said
  if said=$(ask "$@"); then return 1; fi
  [ -n "$(value code <<<"$said")" ]
}
sh_not() { ! "$@"; }
# shown NAME TEXT : what people are shown of the workspace has it.
shown() {
  local said
  said=$(ask GET "/workspaces/$1") && grep -qF -- "$2" <<<"$said"
}

# --- what is in the cluster -------------------------------------------------------------------------------------------

# of NAME : the objects of a workspace, as KIND NAMESPACE NAME; of every workspace without a name. Not what its controllers made.
of() {
  kc get -A "$(kinds)" -l "$LABEL${1:+=$1}" -o jsonpath='{range .items[*]}{.kind} {.metadata.namespace} {.metadata.name}{"\n"}{end}' |
    grep -vE '^(Pod|ReplicaSet|EndpointSlice|Event|ControllerRevision) ' | sort
}
places_of() { of "$1" | cut -d ' ' -f 2 | sort -u | paste -sd ' '; }
fewer_than() { [ "$(of "$1" | wc -l)" -lt "$2" ]; }
# consists_of NAME KIND… : each of these is among its objects.
consists_of() {
  local kind found
  found=$(of "$1")
  for kind in "${@:2}"; do grep -q "^$kind " <<<"$found" || { echo "no $kind"; return 1; }; done
}
# without KIND NAME [NAMESPACE] : the cluster says that it has no such object.
without() {
  local said
  said=$(kc ${3:+-n "$3"} get "$1" "$2" --ignore-not-found -o name) || return 1
  [ -z "$said" ] || { echo "$said is there"; return 1; }
}
pods_of() { kc -n "$1" get pods -l "$LABEL=$2" -o jsonpath='{.items[*].metadata.uid}'; }
pods_are() { [ "$(pods_of "$1" "$2")" = "$3" ]; }
secrets_of() { kc -n "$1" get secret "$2-env" "$2-file" -o jsonpath='{range .items[*]}{.metadata.uid} {.data}{"\n"}{end}'; }
# restarted NAMESPACE NAME POD : it runs in another pod, and that is what is wanted.
restarted() {
  [ "$(pods_of "$1" "$2")" != "$3" ] && [ "$(ask GET "/workspaces/$2" | value state.actual state.desired | paste -sd ' ')" = 'Running Running' ]
}
# settled NAMESPACE NAME : what the agent wrote of a workspace, with versions; without what controllers write in it.
settled() {
  of "$2" | while read -r kind namespace name; do
    kc -n "$namespace" get "$kind" "$name" -o json --show-managed-fields | python3 -c 'import json, sys
meta = json.load(sys.stdin)["metadata"]
ours = [field for field in meta["managedFields"] if "subresource" not in field and field["manager"] not in ("kube-controller-manager", "kube-scheduler")]
print(sys.argv[1], meta["name"], meta["uid"], meta.get("generation"), json.dumps(ours, sort_keys=True))' "$kind"
  done
}

# theirs_in NAMESPACE : puts things of somebody else there, and waits until they are at rest.
theirs_in() {
  {
    kc -n "$1" create configmap theirs --from-literal=key=value
    kc -n "$1" create secret generic theirs --from-literal=key=value
    kc -n "$1" create service clusterip theirs --tcp 80:80
    kc -n "$1" create deployment theirs --image example.net/ready:1
    kc -n "$1" wait --for condition=Available deployment/theirs --timeout 60s
    # What controllers put into every namespace.
    until_ok 60 kc -n "$1" get configmap kube-root-ca.crt
  } >/dev/null || give_up "no things of others in $1: $(tail -n 1 "$OUT/shell.log")"
}
# theirs : all that must stay as it is, with versions.
theirs() {
  versions foreign ws-taken
  kc -n "$SHARED_NAMESPACE" get configmap/theirs secret/theirs service/theirs deployment/theirs \
    -o jsonpath='{range .items[*]}{.kind} {.metadata.uid} {.metadata.resourceVersion}{"\n"}{end}'
  kc get namespaces foreign ws-taken "$SHARED_NAMESPACE" default kube-system \
    -o jsonpath='{range .items[*]}{.metadata.name} {.metadata.uid} {.metadata.resourceVersion}{"\n"}{end}'
}
untouched() { [ -s "$OUT/theirs.before" ] && theirs | diff "$OUT/theirs.before" -; }

# leads MODE NAME : that agent holds the lease.
leads() { [[ "$(leader "$1")" = *"$2"* ]] || { leader "$1"; return 1; }; }

# no_secret_in NAME… : neither what a user gave a workspace nor a token is in these logs.
no_secret_in() {
  local name tokens found
  tokens=$(cat "$OUT"/*.token)
  for name in "$@"; do
    found=$(grep -nE -m 1 "$SECRET_VALUE|gw[a-z]_[A-Za-z0-9]{20}|$(paste -sd '|' <<<"$tokens")" "$OUT/$name.log")
    [ -z "$found" ] || { cut -c 1-200 <<<"$found"; return 1; }
  done
}

# workspaces_helper NAME SECONDS PROGRAM ARGUMENTS… : a program of apps/ that asks the gateway and the cluster; its checks count.
workspaces_helper() {
  local name=$1 limit=$2
  shift 2
  helper "$name" "$limit" env REAL_CLUSTER_URL="$API_URL" REAL_CLUSTER_CA="$CLUSTER_CA" REAL_CLUSTER_TOKEN="$ADMIN_TOKEN" \
    REAL_PUBLIC_PORT="$PUBLIC" REAL_USER_TOKEN="$USER_TOKEN" PYTHONPATH="$REAL/lib" PYTHONUNBUFFERED=1 python3 "$APPS/$1" "${@:2}"
  grep '^note ' "$OUT/$name.log" | sed "s/^note/note  $SUITE:/"
}
