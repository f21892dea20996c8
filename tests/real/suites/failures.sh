#!/usr/bin/env bash
# Every failure code of the public listener, provoked by curl and by Chromium: page, header, problem document, log line, metric and
# `gateway explain` say the same of it. The table of all is failures.md.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"

[ -n "$DIRECT" ] && { echo "failures: nothing to check without the gateway"; finish; }

clusters unique
choose_ports
GATEWAY_ENV+=("GATEWAY_TIMEOUTS__CHANNEL_OPEN=1s" "GATEWAY_TIMEOUTS__RESPONSE_HEADER=5s" "GATEWAY_TUNNEL__RESUME_GRACE=1s"
  "GATEWAY_LIMITS__REQUESTS_PER_WORKSPACE=8" "GATEWAY_TIMEOUTS__DRAIN=60s")
start_gateway
user_token
start_echo
gateway token create --user bob >"$OUT/bob.user" 2>>"$OUT/token.log"
CLOSING=$(free_port) NONSENSE=$(free_port) SILENT=$(free_port) FULL=$(free_port) TLS=$(free_port)
spawn failing python3 "$APPS/failing.py" "$CLOSING" "$NONSENSE" "$SILENT" "$TLS" "$FULL"
for port in "$CLOSING" "$NONSENSE" "$SILENT" "$TLS"; do wait_port failing "$port"; done
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$OUT/app.key" -out "$OUT/app.pem" -days 2 \
  -subj /CN=localhost >>"$OUT/openssl.log" 2>&1
start_agent
spawn_agent narrow narrow --port "$ECHO_PORT"
spawn_agent mistaken mistaken --app "$ECHO_PORT:protocol=https"
for name in narrow mistaken busy lost-1 lost-2; do
  [ "$name" = narrow ] || [ "$name" = mistaken ] || spawn_agent "$name" "$name"
  until_ok 20 attached "$name" || give_up "the agent of $name does not attach: $(tail -n 1 "$OUT/$name.log")"
done
workspace_token away >/dev/null
printf 'schemaVersion: 2.2.0\ncomponents:\n  - name: main\n    attributes: {gateway/inject-editor: true}\n    container: {image: localhost/none}\n' >"$OUT/devfile.yaml"
gateway workspace create stopped --agent unique --devfile "$OUT/devfile.yaml" --owner dev >>"$OUT/create.log" 2>&1 ||
  fail "no workspace is made: $(tail -n 1 "$OUT/create.log")"
# beside NAME VARIABLE… : another gateway, with a database of its own; its token of an operator is in NAME.operator.
beside() {
  local name=$1 public admin
  public=$(free_port) admin=$(free_port)
  local settings=("NO_COLOR=1" "GATEWAY_LISTEN__PUBLIC=127.0.0.1:$public" "GATEWAY_LISTEN__AGENTS=127.0.0.1:$(free_port)" "GATEWAY_LISTEN__ADMIN=127.0.0.1:$admin"
    "GATEWAY_STORE__URL=sqlite://$OUT/$name.db" "GATEWAY_LIMITS__CONNECTIONS=1000" "GATEWAY_LIMITS__SESSIONS=1000" "GATEWAY_ZONE=localhost" "${@:2}")
  spawn "$name" env "${settings[@]}" "GATEWAY_PUBLIC_URL=${SCHEME:-http}://localhost:$public" "$REAL_GATEWAY" serve
  wait_port "$name" "$public"
  env "${settings[@]}" "$REAL_GATEWAY" token create --user "${OPERATOR:-dev}" >"$OUT/$name.operator" 2>>"$OUT/token.log"
  BESIDE+="\"$name\": {\"users\": $public, \"admin\": $admin},"
}
BESIDE=
# One with TLS, for what is said to plain text and to a connection that was made for another host; and one with a provider.
SCHEME=https beside secure "GATEWAY_TLS__PUBLIC__CERT=$OUT/app.pem" "GATEWAY_TLS__PUBLIC__KEY=$OUT/app.key"
IDP=$(free_port)
(umask 077 && head -c 24 /dev/urandom | base64 | tr '+/' '-_' >"$OUT/client.secret")
OPERATOR=olga beside people GATEWAY_AUTH__MODE=oidc "GATEWAY_AUTH__OIDC__ISSUER=http://127.0.0.1:$IDP" GATEWAY_AUTH__OIDC__CLIENT_ID=gateway \
  "GATEWAY_AUTH__OIDC__CLIENT_SECRET_FILE=$OUT/client.secret" GATEWAY_AUTH__OIDC__REQUIRED_GROUP=devs GATEWAY_AUTH__ADMINS=olga
PEOPLE=$(jq -r .people.users <<<"{$BESIDE \"none\": 0}")
spawn provider node "$APPS/provider.mjs" "$IDP" "http://localhost:$PEOPLE" gateway "$OUT/client.secret"
wait_port provider "$IDP"
gateway workspace share "$WORKSPACE" "$ECHO_PORT" --with user:bob >>"$OUT/create.log" 2>&1
# Streams that take all permits of a workspace.
for number in $(seq 8); do
  spawn "stream-$number" curl -sN -o /dev/null -H "gateway-authorization: Bearer $USER_TOKEN" "http://$(host_of "$ECHO_PORT" busy)/ticks"
done
full() { [ "$(failure_of "$(host_of "$ECHO_PORT" busy)" /)" = overloaded ]; }
check "eight streams take all permits of a workspace" until_ok 10 full
pids() { for name in lost-1 lost-2 gateway provider; do printf '"%s": %s,' "$name" "${PIDS[$name]}"; done; }
helper browser 240 env "REAL_USER_TOKEN=$USER_TOKEN" "REAL_PIDS={$(pids) \"none\": 0}" node "$REAL/suites/failures.mjs" --out "$OUT" \
  --link "$(sign_in_link)" --public "$PUBLIC" --agents "$AGENTS" --admin "$ADMIN" --beside "{$BESIDE \"none\": 0}" --echo "$ECHO_PORT" --closing "$CLOSING" \
  --nonsense "$NONSENSE" --silent "$SILENT" --full "$FULL" --tls "$TLS" --workspace "$WORKSPACE"
finish
