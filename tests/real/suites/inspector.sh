#!/usr/bin/env bash
# The request inspector in a browser: an app fails, its owner finds the request, edits it and sends it again; WebSockets, an archive that
# Chromium's network panel imports, and a user who is not the owner. People sign in with a real provider (oidc-provider).
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "inspector: the agent has no other way to it"; finish; }
[ -d "$REAL/node_modules/oidc-provider" ] || give_up "oidc-provider is missing: run tests/real/install.sh"

choose_ports
IDP=$(free_port) SHOP=$(free_port)
SITE=http://localhost:$PUBLIC
provider_settings "$SITE"
spawn provider node "$APPS/provider.mjs" "$IDP" "$SITE" gateway "$OUT/client.secret"
spawn shop node "$APPS/shop.mjs" "$SHOP"
wait_port provider "$IDP"
wait_port shop "$SHOP"
start_gateway
owned() { gateway --config "$OUT/gateway.toml" "$@" 2>>"$OUT/token.log"; }
(umask 077 && owned token create --workspace one --owner ann >"$OUT/one.token") || give_up "no agent token: $(tail -n 1 "$OUT/token.log")"
has_session() { has_text '"workspace"' curl -sf "http://127.0.0.1:$ADMIN/debug/sessions"; }
spawn agent env WORKSPACE_AGENT_INSPECT=true "$REAL_AGENT_SLIM" run --gateway "http://127.0.0.1:$AGENTS" --token-file "$OUT/one.token"
until_ok 20 has_session >/dev/null || give_up "the agent does not attach: $(tail -n 1 "$OUT/agent.log")"

resident() { sed -nE 's/^VmRSS:[^0-9]*([0-9]+) kB/\1/p' "/proc/${PIDS[agent]}/status"; }

check "the shop is shared with a user" owned workspace share one "$SHOP" --with user:bob
for audience in user:bob signed-in public; do
  said=$(gateway --config "$OUT/gateway.toml" workspace share one 60003 --with "$audience" 2>&1) && fail "the inspector is shared with $audience"
  case $said in *"port 60003"*"request inspector"*) ok "it is not shared with $audience, and told why" ;; *) fail "sharing with $audience says: $said" ;; esac
done

helper browser 100 node "$REAL/suites/inspector.mjs" --inspector "http://60003-one.localhost:$PUBLIC" --shop "http://$SHOP-one.localhost:$PUBLIC" \
  --site "$SITE" --port "$SHOP" --out "$OUT"
owned token create --user bob >"$OUT/bob.token" || fail "no user token"
owned token create --user ann >"$OUT/ann.token" || fail "no user token"
# asks USER COMMAND… : curl with the token of a user; what it prints is the status.
asks() {
  local user=$1
  shift
  curl -s -o /dev/null -w '%{http_code}\n' -H "gateway-authorization: Bearer $(cat "$OUT/$user.token")" "$@"
}
same "another user sends nothing again with a token" 403 "$(asks bob -d 'method=GET&target=/' "http://60003-one.localhost:$PUBLIC/exchanges/1/replay")"
same "nor reads an archive" 403 "$(asks bob "http://60003-one.localhost:$PUBLIC/har")"
same "the owner does" 200 "$(asks ann "http://60003-one.localhost:$PUBLIC/har")"
check "the log says that a request was sent again" grep -q 'a request was sent again' "$OUT/agent.log"
check "no credential is in a log" sh -c "! grep -q s3cr3t '$OUT'/agent.log '$OUT/gateway.log'"
idle=$(resident)
# One request after another of a large body: more than the bound in all.
head -c 70000 /dev/zero | tr '\0' a >"$OUT/large"
same "large requests pass as they are" "600 404" \
  "$(asks ann --data-binary @"$OUT/large" "http://$SHOP-one.localhost:$PUBLIC/none/[1-600]" | sort | uniq -c | xargs)"
busy=$(resident)
check "600 requests of 70 kB cost the agent less than 48 MB (from $idle to $busy kB)" test "$((busy - idle))" -lt 48000
finish
