#!/usr/bin/env bash
# VS Code in the browser (code-server) behind the tunnel, driven by a real Chromium: load, edit, save, terminal, reload.
# The same story runs first against code-server itself: what it complains about there is not the gateway's doing, and
# anything else is. Last it runs by path, on the origin of paths_url, where a page must not reach the dashboard.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

ENTRY=$(echo "$CACHE"/code-server-*/node_modules/code-server/out/node/entry.js)
[ -e "$ENTRY" ] || give_up "code-server is missing: run tests/real/install.sh"

# start_editor NAME PORT : code-server with a fresh profile and a folder to work in.
start_editor() {
  local home=$OUT/$1-home
  mkdir -p "$home/data/User" "$home/extensions" "$OUT/$1-folder"
  : >"$home/config.yaml"
  printf 'first line\n' >"$OUT/$1-folder/notes.txt"
  printf '# A heading\n\nSome *text*.\n' >"$OUT/$1-folder/page.md"
  cat >"$home/data/User/settings.json" <<'JSON'
{
  "files.autoSave": "off",
  "workbench.startupEditor": "none",
  "security.workspace.trust.enabled": false,
  "extensions.autoCheckUpdates": false,
  "extensions.ignoreRecommendations": true,
  "terminal.integrated.defaultProfile.linux": "bash",
  "terminal.integrated.enablePersistentSessions": false,
  "telemetry.telemetryLevel": "off",
  "git.openRepositoryInParentFolders": "never",
  "chat.commandCenter.enabled": false
}
JSON
  spawn "$1" env HOME="$home" SHELL=/bin/bash EXTENSIONS_GALLERY='{}' node "$ENTRY" \
    --auth none --bind-addr "127.0.0.1:$2" --config "$home/config.yaml" --user-data-dir "$home/data" \
    --extensions-dir "$home/extensions" --disable-telemetry --disable-update-check --disable-workspace-trust \
    --disable-getting-started-override
  wait_port "$1" "$2" 60
}

direct=$(free_port)
start_editor direct "$direct"
helper browser-direct 200 node "$REAL/suites/code-server.mjs" --label direct --base "http://127.0.0.1:$direct" --folder "$OUT/direct-folder" --out "$OUT"
stop direct

if [ -z "$DIRECT" ]; then
  choose_ports
  GATEWAY_ENV+=("GATEWAY_PATHS_URL=http://127.0.0.1:$PUBLIC")
  start_gateway
  start_agent
  port=$(free_port)
  start_editor tunnel "$port"
  helper browser-tunnel 200 node "$REAL/suites/code-server.mjs" --label tunnel --base "http://$(host_of "$port")" --folder "$OUT/tunnel-folder" \
    --out "$OUT" --link "$(sign_in_link)" --compare "$OUT/direct-errors.json"
  quiet_logs
  stop tunnel
  # A link signs in once; a gateway that starts writes a new one.
  stop gateway
  start_gateway
  until_ok 20 attached "$WORKSPACE" || give_up "the agent does not come back"
  path=$(free_port)
  start_editor path "$path"
  helper browser-path 200 node "$REAL/suites/code-server.mjs" --label path --base "http://127.0.0.1:$PUBLIC/$WORKSPACE/$path" --folder "$OUT/path-folder" \
    --out "$OUT" --link "$(sign_in_link)" --compare "$OUT/direct-errors.json" --site "http://localhost:$PUBLIC"
fi
finish
