#!/usr/bin/env bash
# A Vite dev server behind the tunnel: the page loads, the hot-reload WebSocket goes through the tunnel, edits reach the page
# without a reload. The server insists on the host `localhost`, so the agent is told `--port N:host=localhost`.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -e "$REAL/node_modules/vite" ] || give_up "vite is missing: run tests/real/install.sh"

# Inside tests/real, so that node finds vite from the configuration file; a copy, because the suite edits the sources.
cp -r "$APPS/vite" "$OUT/app"
port=$(free_port)
start_gateway
start_agent --port "$port:host=localhost"
spawn vite node "$REAL/node_modules/vite/bin/vite.js" "$OUT/app" --port "$port"
wait_port vite "$port" 60

base="http://$(host_of "$port")"
[ -n "$DIRECT" ] && base="http://localhost:$port"
helper browser 120 node "$REAL/suites/vite.mjs" --base "$base" --app "$OUT/app" --out "$OUT" --link "$(sign_in_link)"
quiet_logs
finish
