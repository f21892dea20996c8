#!/usr/bin/env bash
# Idle stop and wake with real processes: a workspace as a job on this machine, Chromium with a page that does by itself all that pages do,
# keys in its terminal, a busy command; the warning in terminal and dashboard, the stop with its reason, and the start from the link.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/ci.sh"

[ -n "$DIRECT" ] && { echo "idle: nothing to check without the gateway"; finish; }
ci_gateway none
trap 'end_jobs; cleanup' EXIT
printf '\n[idle]\nrecord_interval = "1s"\n\n[audit]\npath = "%s"\n' "$OUT/audit.log" >>"$OUT/gateway.toml"
APP=$(free_port)
spawn app node "$APPS/idle.mjs" "$APP"
wait_port app "$APP"
start_gateway
user_token
NAME=quiet

body=$(NAME=$NAME PORT=$APP python3 -c 'import json, os
print(json.dumps({"name": os.environ["NAME"], "executor": "ci", "agent": "local", "idle_minutes": 600, "devfile":
  "schemaVersion: 2.2.0\ncomponents:\n  - name: main\n    attributes: {gateway/inject-editor: true}\n    container:\n      image: example.net/tools:1\n"
  "      endpoints: [{name: app, targetPort: %s}]\n" % os.environ["PORT"]}))')
check "a workspace is made with a limit" ask POST /workspaces "$body"
check "its agent connects" state_within 60 "$NAME" Running
is "$NAME" Running || finish

# idle_of PART : what is known of its use.
idle_of() { ask GET "/workspaces/$NAME" | value "idle.$1"; }
same "nothing has counted so far" "" "$(idle_of last_activity.kind)"
same "the limit is in force" 600.0 "$(idle_of minutes)"

helper browser 100 env "REAL_USER_TOKEN=$USER_TOKEN" "REAL_AGENT=$REAL_AGENT" node "$REAL/suites/idle.mjs" --app "http://$(host_of "$APP" "$NAME")" \
  --terminal "http://$(host_of 60002 "$NAME")" --site "http://localhost:$PUBLIC" --name "$NAME" --out "$OUT" --link "$(sign_in_link)"
check "its stop is in the audit log" grep -q '"event":"workspace_idle".*"workspace":"'"$NAME"'"' "$OUT/audit.log"
check "so is who kept it" grep -q '"event":"workspace_kept".*"user":"dev"' "$OUT/audit.log"
finish
