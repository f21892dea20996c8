#!/usr/bin/env bash
# The page of a workspace, driven by a real Chromium, with a real cluster agent and a real Kubernetes behind it: a stopped workspace
# offers to be started, the page shows how far that is, and opens what was asked for once it runs; one is made, stopped, started and ended
# there.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"

[ -n "$DIRECT" ] && { echo "kubernetes-page: nothing to check without the gateway"; finish; }

start_cluster
rights unique
clusters unique
start_gateway
user_token
cluster_agent agent unique
PORT=$(free_port)
spawn app node "$APPS/echo.mjs" "$PORT" page-app
wait_port app "$PORT"

# Its pod takes ten seconds to start and three to end: long enough to see it starting and stopping.
create unique page "$(devfile example.net/slow:1 "      endpoints: [{name: app, targetPort: $PORT}]")" >"$OUT/created.json" ||
  fail "the workspace is not taken: $(cat "$OUT/created.json")"
check "a workspace runs" state_within 60 page Running
(umask 077 && kc -n ws-page get secret page-file -o jsonpath='{.data.agent-token}' | base64 -d >"$OUT/page.token")
check "its agent's token is in the cluster" test -s "$OUT/page.token"
desire page Stopped >/dev/null
check "and is stopped" state_within 60 page Stopped
create unique broken "$(devfile example.net/missing:1)" >>"$OUT/created.json" || fail "the workspace is not taken"

helper page 240 node "$REAL/suites/kubernetes-page.mjs" --out "$OUT" --link "$(sign_in_link)" --site "http://localhost:$PUBLIC" \
  --app "http://$(host_of "$PORT" page)" --broken broken --agent "$REAL_AGENT" --gateway "http://127.0.0.1:$AGENTS" --token "$OUT/page.token" \
  --port "$PORT" --reconciler "${PIDS[agent]}" --kubectl "$PARTS/kubectl" --kubeconfig "$KUBECONFIG_ADMIN"
grep '^the page showed' "$OUT/page.log" | sed "s/^/note  $SUITE: /"

# The command line follows the same stream: states between two looks are told too.
echo "$USER_TOKEN" >"$OUT/user.token"
chmod 600 "$OUT/user.token"
gateway workspace stop page --gateway "http://localhost:$PUBLIC" --token-file "$OUT/user.token" --output json >"$OUT/stop.json" 2>>"$OUT/cli.log"
same "the command line stops it" 0 "$?"
check "and tells each state as it comes" grep -q '"actual":"Stopping"' "$OUT/stop.json"
check "to the end" grep -q '"outcome":"reached"' "$OUT/stop.json"
check "no secret is in a log" no_secret_in gateway agent page
finish
