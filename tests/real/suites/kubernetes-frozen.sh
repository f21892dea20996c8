#!/usr/bin/env bash
# Recorded frozen configs against a real API server. First each object by itself: it is accepted as it would be applied, each field
# is known, there is nothing to warn of where pods must be restricted, and what is stored is what was sent and not less. Then as
# workspaces that exist: an earlier version has stored them, today's gateway and cluster agent apply them, and from then on no object
# gets another resource version, however often they are applied. No controllers run here: whoever writes is the agent.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"

[ -n "$DIRECT" ] && { echo "kubernetes-frozen: nothing to check without the API server"; finish; }

# lines_of CONFIG [NAMESPACE] : each object on a line of its own, perhaps in another namespace; Secrets with data, as they are sent.
lines_of() {
  python3 - "$@" <<'PY'
import json, sys
for entry in json.load(open(sys.argv[1])):
    if entry["kind"] == "Secret":
        entry["data"] = {"agent-token": "eA=="}
    if sys.argv[2:]:
        entry["metadata"]["namespace"] = sys.argv[2]
    print(json.dumps(entry))
PY
}

# apply : as the cluster agent does, from standard input.
apply() { kc apply --server-side --field-manager workspace-gateway --force-conflicts --validate=strict --warnings-as-errors -f -; }

# keeps CONFIG NAMESPACE : each field that was sent is stored with the value that was sent.
keeps() {
  lines_of "$1" "$2" >"$OUT/sent.json"
  kc get -o json -f - <"$OUT/sent.json" | python3 -c 'import json, sys
def missing(sent, got, at):
    if isinstance(sent, dict) and isinstance(got, dict):
        return [found for key in sent for found in missing(sent[key], got.get(key), f"{at}.{key}")]
    if isinstance(sent, list) and isinstance(got, list) and len(sent) == len(got):
        return [found for index, (one, other) in enumerate(zip(sent, got)) for found in missing(one, other, f"{at}[{index}]")]
    # An empty value of a variable is one that is not there.
    return [] if sent == got or (sent == "" and got is None) else [f"{at}: {sent!r} became {got!r}"]
found = missing([json.loads(line) for line in open(sys.argv[1])], json.load(sys.stdin)["items"], "")
print("\n".join(found))
sys.exit(bool(found))' "$OUT/sent.json"
}

# field FILE NAME : a member of a JSON object; empty if there is none.
field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1])).get(sys.argv[2]) or "")' "$1" "$2"; }

# each_object SET : the objects of all its records, where they are recorded.
each_object() { local name; for name in $NAMES; do lines_of "$1$name.json"; done; }

# versions_of SET : kinds, places, names and resource versions of them; fails while one is not there.
versions_of() {
  each_object "$1" | kc get -f - -o jsonpath='{range .items[*]}{.kind} {.metadata.namespace} {.metadata.name} {.metadata.resourceVersion}{"\n"}{end}'
}

# applied : how often objects of each kind were applied, for `applied_again`.
applied() { kc get --raw /metrics | grep '^apiserver_request_total{.*dry_run="".*verb="APPLY"'; }
# applied_again SET FILE : since FILE was written, as many of each kind were applied as the set has. Claims are applied only if they
# differ; inventories are replaced, never applied.
applied_again() {
  each_object "$1" >"$OUT/set.json"
  applied | python3 -c 'import collections, json, re, sys
def counted(lines):
    counts = collections.Counter()
    for line in lines:
        found = re.search("resource=\"([a-z]+)\".* ([0-9]+)$", line)
        counts[found[1]] += int(found[2])
    return counts
now, before = counted(sys.stdin), counted(open(sys.argv[2]))
sent = [json.loads(line) for line in open(sys.argv[1])]
kinds = collections.Counter(one["kind"].lower() for one in sent if not one["metadata"]["name"].endswith("-inventory"))
del kinds["persistentvolumeclaim"]
resources = {(kind[:-1] + "ies" if kind.endswith("y") else kind + "s"): count for kind, count in kinds.items()}
late = [name for name, count in resources.items() if now[name] - before[name] < count]
print("not applied:", *late)
sys.exit(bool(late))' "$OUT/set.json" "$2"
}

# stage SET : each record as a workspace that exists. Names and places come from the gateway, which freezes another devfile; what it has
# stored of it is then replaced by what was recorded.
stage() {
  local name facts cluster shared prefix
  rm -rf "$OUT"/gateway.db* "$OUT/agents" "$OUT"/*.token
  unset USER_TOKEN
  for name in $NAMES; do
    cluster=$(field "$1$name.facts.json" cluster)
    shared=$(field "$1$name.cluster.json" shared_namespace)
    prefix=$(field "$1$name.cluster.json" namespace_prefix)
    mkdir -p "$OUT/agents/$cluster"
    {
      printf 'workspaces:\n  enabled: true\n  tools_image: example.net/tools:1\n'
      [ -z "$shared" ] || printf '  shared_namespace: %s\n' "$shared"
      [ -z "$prefix" ] || printf '  namespace_prefix: %s\n' "$prefix"
    } >"$OUT/agents/$cluster/config.yaml"
    [ -z "$shared" ] || kc create namespace "$shared" >/dev/null
  done
  start_gateway
  user_token
  for name in $NAMES; do
    facts=$1$name.facts.json
    until_ok 10 create "$(field "$facts" cluster)" "$(field "$facts" workspace)" >"$OUT/created.log" ||
      give_up "$name is not taken: $(create "$(field "$facts" cluster)" "$(field "$facts" workspace)")"
  done
  stop gateway
  for name in $NAMES; do
    python3 - "$OUT/gateway.db" "$(field "$1$name.facts.json" workspace)" "$1$name.json" <<'PY' || give_up "$name cannot be put in"
import sqlite3, sys
store = sqlite3.connect(sys.argv[1])
done = store.execute("UPDATE kubernetes_frozen SET frozen = ? WHERE workspace_id = (SELECT id FROM workspaces WHERE name = ?)",
                     (open(sys.argv[3]).read().strip(), sys.argv[2]))
store.commit()
sys.exit(done.rowcount != 1)
PY
  done
  start_gateway
}

# agents : one for each cluster that the records name, all on this one.
agents() {
  local cluster
  for cluster in $CLUSTERS; do
    kc create namespace "agents-$cluster" --dry-run=client -o yaml | kc apply -f - >/dev/null
    kubeconfig "$KUBE/$cluster.kubeconfig" "$ADMIN_TOKEN" "agents-$cluster"
    cluster_agent "agent-$cluster" "$cluster"
  done
}
stop_agents() { local cluster; for cluster in $CLUSTERS; do stop "agent-$cluster"; done; }

choose_ports
GATEWAY_ENV+=("GATEWAY_AGENTS_DIR=$OUT/agents")
# This version's records and those of the one before, or with FROZEN=all those of every version. What comes before a version is sorted so.
mapfile -t versions < <(cd "$ROOT/gateway/spec/tests/frozen" && printf '%s\n' v* | tr - '~' | sort -V | tr '~' -)
[ "${FROZEN:-}" = all ] || versions=("${versions[@]: -2}")
for version in "${versions[@]}"; do
  set=$ROOT/gateway/spec/tests/frozen/$version/
  NAMES=$(cd "$set" && printf '%s\n' *.devfile.yaml | sed 's/\.devfile\.yaml$//' | paste -sd ' ')
  CLUSTERS=$(for name in $NAMES; do field "$set$name.facts.json" cluster; done | sort -u | paste -sd ' ')
  rm -rf "$OUT/kube"
  start_cluster identity

  for name in $NAMES; do
    config=$set$name.json
    namespace=one-$name
    kc create namespace "$namespace" >/dev/null
    # The one that may escalate privileges does not claim to be restricted.
    level=restricted
    ! grep -q '"allowPrivilegeEscalation":true' "$config" || level=baseline
    kc label namespace "$namespace" "pod-security.kubernetes.io/warn=$level" >/dev/null
    check "$version $name is accepted without a warning" apply < <(lines_of "$config" "$namespace")
    check "$version $name is kept as it is" keeps "$config" "$namespace"
  done

  stage "$set"
  applied >"$OUT/before"
  agents
  check "$version: today's programs make all of it" until_ok 60 versions_of "$set"
  check "$version: to the last of it" until_ok 60 applied_again "$set" "$OUT/before"
  versions_of "$set" >"$OUT/$version.versions"
  for again in 'an agent that starts again' 'a gateway that starts again'; do
    applied >"$OUT/before"
    if [ "$again" = 'a gateway that starts again' ]; then
      stop gateway
      start_gateway
    else
      stop_agents
      # It gives its lease back: the next one need not wait.
      agents
    fi
    check "$version: $again has all of it applied again" until_ok 60 applied_again "$set" "$OUT/before"
    same "$version: and no object gets another resource version" "$(cat "$OUT/$version.versions")" "$(versions_of "$set")"
  done
  stop_agents
  for name in gateway apiserver etcd; do stop "$name"; done
done
finish
