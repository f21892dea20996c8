#!/usr/bin/env bash
# What dashboards cost: the first page of a user with a thousand workspaces, and five hundred open pages over a thousand workspaces, ten of
# which change each second. Figures count with release programs on a machine that does nothing else.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"

[ -n "$DIRECT" ] && { echo "dashboard-load: nothing to check without the gateway"; finish; }

DASHBOARDS=${DASHBOARDS:-500}
clusters unique
GATEWAY_ENV+=(GATEWAY_LIMITS__EXTERNAL_WORKSPACES_PER_USER=2000 GATEWAY_LIMITS__REQUESTS_PER_ADDRESS=100000 GATEWAY_LIMITS__CONNECTIONS_PER_ADDRESS=100000)
start_gateway
user_token
for number in $(seq "$DASHBOARDS"); do
  gateway token create --user "u$number" 2>>"$OUT/token.log" || fail "no token for u$number"
done >"$OUT/users.token"
helper load 900 env "REAL_USER_TOKEN=$USER_TOKEN" node "$REAL/suites/dashboard-load.mjs" --out "$OUT" --site "http://localhost:$PUBLIC" \
  --users "$OUT/users.token" --pid "${PIDS[gateway]}" --link "$(sign_in_link)"
sed -n "s/^note /note  $SUITE: /p" "$OUT/load.log"
finish
