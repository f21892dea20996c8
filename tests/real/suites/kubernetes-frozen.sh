#!/usr/bin/env bash
# Every recorded frozen config against a real API server: it accepts each object as it would be applied, knows every field, has nothing
# to warn of where pods must be restricted, and what it stores is what was sent and not less.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"

[ -n "$DIRECT" ] && { echo "kubernetes-frozen: nothing to check without the API server"; finish; }

start_cluster identity

# lines_of CONFIG : each object on a line of its own; Secrets with data, as they are sent.
lines_of() {
  python3 - "$1" <<'PY'
import json, sys
for entry in json.load(open(sys.argv[1])):
    if entry["kind"] == "Secret":
        entry["data"] = {"agent-token": "eA=="}
    print(json.dumps(entry))
PY
}

# apply : as the cluster agent does, from standard input.
apply() { kc apply --server-side --field-manager workspace-gateway --force-conflicts --validate=strict --warnings-as-errors -f -; }

# keeps CONFIG : each field that was sent is stored with the value that was sent.
keeps() {
  lines_of "$1" >"$OUT/sent.json"
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

# versions_of CONFIG : kinds, names and resource versions.
versions_of() { lines_of "$1" | kc get -f - -o jsonpath='{range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}{"\n"}{end}'; }

for set in "$ROOT"/gateway/tests/frozen/v*/; do
  version=$(basename "$set")
  for devfile in "$set"*.devfile.yaml; do
    name=$(basename "$devfile" .devfile.yaml)
    config=$set$name.json
    namespace=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[0]["metadata"]["namespace"])' "$config")
    kc create namespace "$namespace" >/dev/null
    # The one that may escalate privileges does not claim to be restricted.
    level=restricted
    ! grep -q '"allowPrivilegeEscalation":true' "$config" || level=baseline
    kc label namespace "$namespace" "pod-security.kubernetes.io/warn=$level" >/dev/null
    check "$version $name is accepted without a warning" apply < <(lines_of "$config")
    check "$version $name is kept as it is" keeps "$config"
    # A claim that is applied for the second time gets a new version with the same content, once; that is the API server's own way.
    apply < <(lines_of "$config") >>"$OUT/applied.log"
    versions_of "$config" >"$OUT/$name.versions"
    check "$version $name can be applied again" apply < <(lines_of "$config")
    same "$version $name changes nothing then" "$(cat "$OUT/$name.versions")" "$(versions_of "$config")"
    kc delete namespace "$namespace" --wait=false >/dev/null
  done
done
finish
