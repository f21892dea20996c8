#!/usr/bin/env bash
# Three people at the dashboard in a real Chromium, each with a browser of their own, and a real provider that says who they are and in
# which groups (oidc-provider): one connects a machine and shares a port of it with another by name, who opens it, and loses it when the
# share is revoked. The third is an operator, by a group.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "dashboard-people: nothing to check without the gateway"; finish; }
[ -d "$REAL/node_modules/oidc-provider" ] || give_up "oidc-provider is missing: run tests/real/install.sh"

choose_ports
IDP=$(free_port)
SITE=http://localhost:$PUBLIC
provider_settings "$SITE" 'admin_group = "operators"'
printf '[audit]\npath = "%s"\n' "$OUT/audit.log" >>"$OUT/gateway.toml"
spawn provider node "$APPS/provider.mjs" "$IDP" "$SITE" gateway "$OUT/client.secret"
wait_port provider "$IDP"
start_gateway
PORT=$(free_port)
spawn app node "$APPS/echo.mjs" "$PORT" people-app
wait_port app "$PORT"
mkdir -p "$OUT/machine"

helper people 120 env "REAL_AGENT=$REAL_AGENT" node "$REAL/suites/dashboard-people.mjs" --out "$OUT" --site "$SITE" --provider "http://127.0.0.1:$IDP" \
  --port "$PORT" --folder "$OUT/machine"
same "the audit log has both changes of the share" 2 "$(grep -c '"event":"shares_changed".*user:bob' "$OUT/audit.log")"
check "no token of the machine is in a log" sh -c "! grep -qFf '$OUT/machine/laptop.token' '$OUT/gateway.log' '$OUT/audit.log'"
finish
