#!/usr/bin/env bash
# The dashboard in a real Chromium: a first workspace by the copied command, its ports shared and revoked, a devfile with a mistake,
# every page against axe and html-validate in both schemes and on a narrow screen, all of it by keyboard alone and without JavaScript.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"

[ -n "$DIRECT" ] && { echo "dashboard: nothing to check without the gateway"; finish; }

# A cluster without an agent: what is made there starts, and stays so.
clusters unique
mkdir -p "$OUT/agents/unique/workspace_templates"
cat >"$OUT/agents/unique/workspace_templates/node.yaml" <<'YAML'
title: Node service
description: A container with Node.js.
parameters:
  - {name: version, title: Version of Node.js, options: ["22", "24"], default: "24"}
  - {name: team, title: Team, description: In small letters., pattern: "[a-z]+"}
  - {name: port, title: Port, kind: number, default: 3000}
  - {name: debug, title: With its debugger, kind: boolean}
devfile:
  schemaVersion: 2.2.0
  components:
    - name: main
      attributes: {gateway/inject-editor: true}
      container:
        image: "localhost/node:{{parameters.version}}"
        env:
          - {name: TEAM, value: "team-{{parameters.team}}"}
          - {name: DEBUG, value: "{{parameters.debug}}"}
        endpoints:
          - {name: web, targetPort: "{{parameters.port}}"}
YAML
start_gateway
user_token
PORT=$(free_port)
spawn app node "$APPS/echo.mjs" "$PORT" dashboard-app
wait_port app "$PORT"
mkdir -p "$OUT/machine"
helper dashboard 420 env "REAL_USER_TOKEN=$USER_TOKEN" "REAL_AGENT=$REAL_AGENT" node "$REAL/suites/dashboard.mjs" --out "$OUT" --link "$(sign_in_link)" \
  --site "http://localhost:$PUBLIC" --port "$PORT" --folder "$OUT/machine"
sed -n "s/^note /note  $SUITE: /p" "$OUT/dashboard.log"
# none_in FILE : no text of the token that was copied with the command.
none_in() { ! grep -F -f "$OUT/machine/laptop.token" "$1"; }
check "the token that was shown is in no log" none_in "$OUT/gateway.log"
finish
