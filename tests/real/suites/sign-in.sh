#!/usr/bin/env bash
# Signing in with a real identity provider and a real browser: the npm package oidc-provider and Chromium. Three workspaces, two
# of one owner and one of another; what each host, each app and each page's scripts can see of the sign-in; signing out here,
# everywhere, and by the provider's word. Twice: over plain HTTP on localhost, and in the shape of production, with TLS, and with
# workspaces on another registrable domain than the gateway.
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

check "half-configured sign-in is refused" sh -c "! env GATEWAY_AUTH__MODE=oidc '$REAL_GATEWAY' config check 2>'$OUT/half.txt'"
check "and told whole" sh -c "grep -q 'auth.oidc.issuer' '$OUT/half.txt' && grep -q 'auth.oidc.client_id' '$OUT/half.txt'"

# start_app NAME : an app that keeps what reaches it.
declare -A APP_PORT=()
start_app() {
  APP_PORT[$1]=$(free_port)
  : >"$OUT/$SHAPE/$1.captured"
  spawn "app-$1" node "$APPS/capture.mjs" "${APP_PORT[$1]}" "$OUT/$SHAPE/$1.captured" "$1"
  wait_port "app-$1" "${APP_PORT[$1]}"
}
# start_workspace NAME OWNER [APP...] : an agent and its app; with further apps it exposes these ports and no others.
start_workspace() {
  local name=$1 owner=$2 app flags=()
  (umask 077 && gateway --config "$OUT/gateway.toml" token create --workspace "$name" --owner "$owner" >"$OUT/$name.token" 2>>"$OUT/token.log") ||
    give_up "no agent token: $(tail -n 1 "$OUT/token.log")"
  start_app "$name"
  for app in "${@:3}"; do
    start_app "$app"
    flags+=(--port "${APP_PORT[$app]}")
  done
  [ ${#flags[@]} = 0 ] || flags+=(--port "${APP_PORT[$name]}")
  spawn_agent "agent-$name" "$name" "${flags[@]}"
}
has_sessions() { [ "$(curl -sf "http://127.0.0.1:$ADMIN/debug/sessions" | grep -o '"workspace"' | wc -l)" -ge 3 ]; }

# run_shape NAME PUBLIC_URL ZONE PREFIX : everything once, with cookies whose names begin with PREFIX.
run_shape() {
  local url=$2 zone=$3 prefix=$4 what name
  SHAPE=$1
  mkdir -p "$OUT/$SHAPE"
  GATEWAY_ENV+=("GATEWAY_STORE__URL=sqlite://$OUT/$SHAPE/gateway.db")
  printf 'zone = "%s"\npublic_url = "%s"\nauth.oidc.client_secret_file = "%s"\n' "$zone" "$url" "$OUT/client.secret" >"$OUT/gateway.toml"
  if [ "$SHAPE" = tls ]; then
    printf '[tls.public]\ncert = "%s"\nkey = "%s"\n' "$OUT/tls.pem" "$OUT/tls.key" >>"$OUT/gateway.toml"
  fi
  leads_to_provider() {
    has_text "^http://127.0.0.1:$IDP/" curl -sk -o /dev/null -w '%{redirect_url}' -H 'accept: text/html' \
      --connect-to "::127.0.0.1:$PUBLIC" "$url/.gateway/sign-in"
  }
  # The provider comes up after the gateway.
  start_gateway
  same "$SHAPE: a provider that cannot be reached is named" provider_unavailable \
    "$(curl -sk -o /dev/null -D - -H 'accept: text/html' --connect-to "::127.0.0.1:$PUBLIC" "$url/.gateway/sign-in" | tr -d '\r' | sed -n 's/^gateway-error: *//Ip')"
  check "$SHAPE: and is in the log" grep -q "cannot be reached" "$OUT/gateway.log"
  spawn provider node "$APPS/provider.mjs" "$IDP" "$url" gateway "$OUT/client.secret"
  wait_port provider "$IDP"
  # The gateway asks an unreachable provider only now and then, and recovers by itself.
  check "$SHAPE: sign-in works once the provider is there" until_ok 30 leads_to_provider
  start_workspace one ann api
  start_workspace two ann
  start_workspace other bob
  until_ok 20 has_sessions >/dev/null || give_up "the agents do not attach: $(tail -n 1 "$OUT/agent-one.log")"
  host() { echo "${APP_PORT[$1]}-$1.$zone:$PUBLIC"; }
  spawn "browser-$SHAPE" node "$REAL/suites/sign-in.mjs" --public "$url" --provider "http://127.0.0.1:$IDP" --out "$OUT/$SHAPE" \
    --one "$(host one)" --two "$(host two)" --other "$(host other)" --api "${APP_PORT[api]}-one.$zone:$PUBLIC"
  # Its last step is the operator's: a user is disabled while they have a stream open.
  while alive "browser-$SHAPE" && [ ! -e "$OUT/$SHAPE/disable" ]; do sleep 0.1; done
  gateway --config "$OUT/gateway.toml" user disable ann 2>>"$OUT/token.log"
  touch "$OUT/$SHAPE/disabled"
  collect "browser-$SHAPE" 150

  # What reached the apps, byte for byte, over everything that the browser did.
  for name in one two; do
    check "$SHAPE: the app in $name was reached" test -s "$OUT/$SHAPE/$name.captured"
  done
  for what in "${prefix}_session" "${prefix}_pre" gateway-authorization '\.gateway' 'iss=http' "127.0.0.1:$IDP" gwu_ gwa_ id_token \
    'eyJ[A-Za-z0-9_-]+\.eyJ'; do
    check "$SHAPE: no app saw $what" sh -c "! grep -aqE -- '$what' '$OUT/$SHAPE'/*.captured"
  done
  # The browser's own: the ids and codes that it held at any time.
  check "$SHAPE: the browser's secrets are known" test -s "$OUT/$SHAPE/secrets.txt"
  check "$SHAPE: no app saw any of them" sh -c "! grep -aqFf '$OUT/$SHAPE/secrets.txt' '$OUT/$SHAPE'/*.captured"
  check "$SHAPE: nor did the log" sh -c "! grep -aqFf '$OUT/$SHAPE/secrets.txt' '$OUT/gateway.log'"
  check "$SHAPE: a form of a neighbour's page reached no app" sh -c "! grep -aqF changed-by-a-neighbour '$OUT/$SHAPE'/*.captured"
  check "$SHAPE: the client's secret is not in the log" sh -c "! grep -aqFf '$OUT/client.secret' '$OUT/gateway.log'"
  check "$SHAPE: the log says who signed in, and from where" grep -qE 'sign_in\{peer=127\.0\.0\.1\}.*signed in.*user=ann' "$OUT/gateway.log"
  check "$SHAPE: the provider's own message arrived" grep -q 'backchannel logout delivered' "$OUT/provider.log"
  gateway --config "$OUT/gateway.toml" user list --output json >"$OUT/$SHAPE/users.json"
  check "$SHAPE: users are listed with their groups" grep -q '"devs"' "$OUT/$SHAPE/users.json"
  check "$SHAPE: and with what became of them" grep -q '"disabled"' "$OUT/$SHAPE/users.json"
  for name in agent-one agent-two agent-other app-one app-api app-two app-other provider gateway; do stop "$name"; done
  for name in gateway provider; do mv "$OUT/$name.log" "$OUT/$SHAPE/"; done
}

run_shape plain "http://localhost:$PUBLIC" localhost gateway
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=gw.example \
  -addext 'subjectAltName=DNS:gw.example,DNS:*.ws.test' -keyout "$OUT/tls.key" -out "$OUT/tls.pem" 2>/dev/null
run_shape tls "https://gw.example:$PUBLIC" ws.test __Host-gateway
finish
