#!/usr/bin/env bash
# How long it takes from the moment when access is taken away until what is open is cut: for each kind of stream, and for each way
# to take access away. Many people have many streams open at the same time, and each loses access at a moment of its own. The
# table at the end is also in out/revocation/table.txt.
#
#   TRIES=12 ROUNDS=3 tests/real/suites/revocation.sh      so many people for each way, and three times as many agents, so often (12, once)
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "revocation: there is nothing to take away without the gateway"; finish; }
[ -d "$REAL/node_modules/oidc-provider" ] || give_up "oidc-provider is missing: run tests/real/install.sh"
[ -x "$PYTHON" ] || give_up "grpcio is missing: run tests/real/install.sh"

choose_ports
IDP=$(free_port) APP=$(free_port) TCP=$(free_port) GRPC=$(free_port)
provider_settings "http://localhost:$PUBLIC"
printf '[audit]\npath = "%s"\n' "$OUT/audit.log" >>"$OUT/gateway.toml"
CONFIG=$OUT/gateway.toml
# Everybody is at the same address here.
GATEWAY_ENV+=("GATEWAY_LIMITS__CONNECTIONS=4000" "GATEWAY_LIMITS__CONNECTIONS_PER_ADDRESS=4000" "GATEWAY_LIMITS__REQUESTS_PER_ADDRESS=4000")
spawn provider node "$APPS/provider.mjs" "$IDP" "http://localhost:$PUBLIC" gateway "$OUT/client.secret"
wait_port provider "$IDP"
start_gateway
spawn grpc "$PYTHON" "$APPS/grpc_server.py" "$GRPC" 100
wait_port grpc "$GRPC"

# Three workspaces of one owner, with the same ports: shared over the API, shared on the command line, and open to everybody.
has_sessions() { [ "$(curl -sf "http://127.0.0.1:$ADMIN/debug/sessions" | grep -o '"workspace"' | wc -l)" -ge 3 ]; }
for workspace in by-api by-cli open; do
  (umask 077 && gateway --config "$CONFIG" token create --workspace "$workspace" --owner ann >"$OUT/$workspace.token" 2>>"$OUT/token.log") ||
    give_up "no agent token: $(tail -n 1 "$OUT/token.log")"
  spawn_agent "agent-$workspace" "$workspace" --port "$APP" --port "$TCP" --port "$GRPC:protocol=h2"
done
until_ok 20 has_sessions >/dev/null || give_up "the agents do not attach: $(tail -n 1 "$OUT/agent-open.log")"

helper streams ${LIMIT:-450} env "${GATEWAY_ENV[@]}" node "$REAL/suites/revocation.mjs" --gateway "$REAL_GATEWAY" --agent "$REAL_AGENT" --config "$CONFIG" \
  --out "$OUT" --public "$PUBLIC" --agents "$AGENTS" --app "$APP" --tcp "$TCP" --grpc "$GRPC" --tries "${TRIES:-12}" --rounds "${ROUNDS:-1}"
check "the audit log has the end of each access with its reason" grep -q '"event":"access_ended".*{"cut":{"code":"sign_in_required"}}' "$OUT/audit.log"
check "the gateway did not panic" sh -c "! grep -n panicked '$OUT/gateway.log'"
cat "$OUT/table.txt" 2>/dev/null
finish
