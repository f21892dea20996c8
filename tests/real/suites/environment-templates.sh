#!/usr/bin/env bash
# Environment templates as people write them, rendered by the gateway and by Go's text/template with the YAML reader of Kubernetes' own
# tools: the same objects, but for the differences that docs/environments.md lists. Values of strangers stay values.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "environment-templates: nothing to check without the gateway"; finish; }
TEMPLATES=$CACHE/templates/templates
[ -x "$TEMPLATES" ] || give_up "Go's reading of templates is missing: tests/real/install.sh templates"

choose_ports
mkdir -p "$OUT/agents/prod-eu"
cat >"$OUT/agents/prod-eu/config.yaml" <<'YAML'
ci_access:
  groups:
    - id: group
      resource_management: {enabled: true}
YAML
GATEWAY_ENV+=("GATEWAY_AGENTS_DIR=$OUT/agents" "GATEWAY_ENVIRONMENTS__OPERATORS=dev")
# The seventh, as the recorded facts have it.
for name in first second third fourth fifth sixth prod-eu; do
  gateway token create --cluster "$name" >/dev/null 2>>"$OUT/token.log" || give_up "no cluster: $(tail -n 1 "$OUT/token.log")"
done
start_gateway
user_token
helper render 120 env REAL_PUBLIC_PORT="$PUBLIC" REAL_USER_TOKEN="$USER_TOKEN" PYTHONPATH="$REAL/lib" PYTHONUNBUFFERED=1 \
  python3 "$APPS/environment_templates.py" --examples "$ROOT/gateway/spec/tests/environments" --go "$TEMPLATES" --out "$OUT" --agent prod-eu

# Files of an agent: what is wrong with one is told before it counts, and changes nothing.
folder=$OUT/agents/prod-eu/environment_templates
mkdir -p "$folder"
# shown NAME MEMBER : that member of what the gateway answers for a template.
shown() {
  curl -sS --max-time 20 -H "authorization: Bearer $USER_TOKEN" -H "host: localhost:$PUBLIC" \
    "http://127.0.0.1:$PUBLIC/api/v1/agents/prod-eu/environment-templates/$1" |
    python3 -c 'import json, sys
print(json.load(sys.stdin).get(sys.argv[1], ""), end="")' "$2"
}
taken() { [ "$(shown "$1" data)" = "$(cat "$2")" ]; }
# put FILE NAME : a file of the agent, which is never there by half: a half of a good one has mistakes.
put() { cp "$1" "$folder/$2.new" && mv "$folder/$2.new" "$folder/$2"; }
# told FROM PATTERN : the gateway's log has it after so many lines.
told() { grep -E "$2" <(tail -n "+$(($1 + 1))" "$OUT/gateway.log"); }
put "$ROOT/gateway/spec/tests/environments/examples/default.yaml" review.yaml
check "a template of an agent is taken while the gateway runs" until_ok 15 taken review "$folder/review.yaml"
cp "$folder/review.yaml" "$OUT/good.yaml"
before=$(wc -l <"$OUT/gateway.log")
put "$ROOT/gateway/spec/tests/environments/refused/unclosed-action.yaml" review.yaml
check "a file with a mistake is told in the log, with its place" until_ok 15 told "$before" 'review\.yaml:[0-9]+:[0-9]+: '
check "and the last good one stays in force" taken review "$OUT/good.yaml"
gateway config check --config "$OUT/gateway.toml" >"$OUT/check.log" 2>&1
same "gateway config check finds it" 64 $?
check "and says where" grep -qE 'review\.yaml:[0-9]+:[0-9]+: ' "$OUT/check.log"
stop gateway
start_gateway
check "also over a restart" taken review "$OUT/good.yaml"
printf 'objects: []\n' >"$folder/review.yaml"
printf 'objects: [%s]\n' "$(head -c 70000 /dev/zero | tr '\0' ' ')" >"$folder/huge.yaml"
cp "$OUT/good.yaml" "$folder/Not A Name.yaml"
gateway config check --config "$OUT/gateway.toml" >"$OUT/check.log" 2>&1
same "gateway config check finds these too" 64 $?
check "a file that is too large" grep -qE 'huge\.yaml' "$OUT/check.log"
check "and one whose name is no template's" grep -qE 'Not A Name\.yaml.* is no template' "$OUT/check.log"
check "and no other" bash -c "! grep -F review.yaml '$OUT/check.log'"
rm -f "$folder"/*.yaml
gone() { [ "$(shown review code)" = no_such_template ]; }
check "a template whose file is deleted is gone" until_ok 15 gone
check "no program panicked" sh -c "! grep -n 'panicked at' '$OUT'/*.log"
finish
