#!/usr/bin/env bash
# Signing in with a real identity provider and a real browser: the npm package oidc-provider and Chromium. Three workspaces, two
# of one owner and one of another; what each host, each app and each page's scripts can see of the sign-in; signing out here,
# everywhere, and by the provider's word.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "sign-in: there is nothing to sign in to without the gateway"; finish; }
[ -d "$REAL/node_modules/oidc-provider" ] || give_up "oidc-provider is missing: run tests/real/install.sh"

choose_ports
IDP=$(free_port)
(umask 077 && head -c 24 /dev/urandom | base64 | tr '+/' '-_' >"$OUT/client.secret")
GATEWAY_ENV+=(
  "GATEWAY_AUTH__MODE=oidc"
  "GATEWAY_AUTH__OIDC__ISSUER=http://127.0.0.1:$IDP"
  "GATEWAY_AUTH__OIDC__CLIENT_ID=gateway"
)
cat >"$OUT/gateway.toml" <<TOML
zone = "localhost"
public_url = "http://localhost:$PUBLIC"
auth.oidc.client_secret_file = "$OUT/client.secret"
TOML

check "half-configured sign-in is refused" sh -c "! env GATEWAY_AUTH__MODE=oidc '$REAL_GATEWAY' config check 2>'$OUT/half.txt'"
check "and told whole" sh -c "grep -q 'auth.oidc.issuer' '$OUT/half.txt' && grep -q 'auth.oidc.client_id' '$OUT/half.txt'"

# The provider comes up after the gateway.
start_gateway
same "a provider that cannot be reached is named" provider_unavailable \
  "$(curl -s -o /dev/null -D - -H 'accept: text/html' "http://localhost:$PUBLIC/.gateway/sign-in" | tr -d '\r' | sed -n 's/^gateway-error: *//Ip')"
check "and is in the log" grep -q "cannot be reached" "$OUT/gateway.log"
spawn provider node "$APPS/provider.mjs" "$IDP" "http://localhost:$PUBLIC" gateway "$OUT/client.secret"
wait_port provider "$IDP"

# start_workspace NAME OWNER : an agent and an app that keeps what reaches it.
declare -A APP_PORT=()
start_workspace() {
  local name=$1 owner=$2
  (umask 077 && gateway token create --workspace "$name" --owner "$owner" >"$OUT/$name.token" 2>>"$OUT/token.log") ||
    give_up "no agent token: $(tail -n 1 "$OUT/token.log")"
  APP_PORT[$name]=$(free_port)
  : >"$OUT/$name.captured"
  spawn "app-$name" node "$APPS/capture.mjs" "${APP_PORT[$name]}" "$OUT/$name.captured" "$name"
  wait_port "app-$name" "${APP_PORT[$name]}"
  spawn_agent "agent-$name" "$name"
}
start_workspace one ann
start_workspace two ann
start_workspace other bob
has_sessions() { [ "$(curl -sf "http://127.0.0.1:$ADMIN/debug/sessions" | grep -o '"workspace"' | wc -l)" -ge 3 ]; }
until_ok 20 has_sessions >/dev/null || give_up "the agents do not attach: $(tail -n 1 "$OUT/agent-one.log")"

helper browser 150 node "$REAL/suites/sign-in.mjs" --public "http://localhost:$PUBLIC" --out "$OUT" --admin "$REAL_GATEWAY" \
  --one "$(host_of "${APP_PORT[one]}" one)" --two "$(host_of "${APP_PORT[two]}" two)" --other "$(host_of "${APP_PORT[other]}" other)"

# What reached the apps, byte for byte, over everything that the browser did.
for name in one two; do
  check "the app in $name was reached" test -s "$OUT/$name.captured"
done
for what in gateway_session gateway_pre gateway-authorization '\.gateway' 'iss=http' "127.0.0.1:$IDP" gwu_ gwa_ id_token eyJ; do
  check "no app saw $what" sh -c "! grep -aqE -- '$what' '$OUT'/*.captured"
done
# The suite's own secrets: the ids and codes that the browser held at any time.
check "the browser's secrets are known" test -s "$OUT/secrets.txt"
check "no app saw any of them" sh -c "! grep -aqFf '$OUT/secrets.txt' '$OUT'/*.captured"
check "nor did the log" sh -c "! grep -aqFf '$OUT/secrets.txt' '$OUT/gateway.log'"
check "the client's secret is not in the log" sh -c "! grep -aqFf '$OUT/client.secret' '$OUT/gateway.log'"
check "the log says who signed in, and from where" grep -qE 'sign_in\{peer=127\.0\.0\.1\}.*signed in.*user=ann' "$OUT/gateway.log"
check "the provider's own message arrived" grep -q 'backchannel logout delivered' "$OUT/provider.log"

# An operator disables a user who is signed in, with a stream open.
check "users are listed with their groups" sh -c "env $(printf '%q ' "${GATEWAY_ENV[@]}") '$REAL_GATEWAY' --config '$OUT/gateway.toml' user list --output json | grep -q '\"devs\"'"
finish
