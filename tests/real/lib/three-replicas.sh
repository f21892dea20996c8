# shellcheck shell=bash
# Three replicas behind HAProxy, on a PostgreSQL of the suite's own. Sourced after common.sh:
#
#   source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/three-replicas.sh"
#   start_replicas
#
# The balancer's port for users is PUBLIC, that for agents AGENTS.

command -v jq >/dev/null || give_up "jq is missing: tests/real/install.sh debian"
source "$(dirname -- "${BASH_SOURCE[0]}")/postgres.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/replicas.sh"
# The server first: its end does not wait for connections then.
trap 'status=$?; stop postgres; rm -rf "$DATA"; (exit "$status"); cleanup' EXIT
[ -x "$REAL_GATEWAY" ] && [ -x "$REAL_AGENT" ] || give_up "build first: cargo build --release ($REAL_GATEWAY or $REAL_AGENT is missing)"
create_server
NAMES=(one two three)
PUBLIC=$(free_port)
AGENTS=$(free_port)
create_authority
cp "$APPS/haproxy-replicas.cfg" "$OUT/haproxy.cfg"
for number in 1 2 3; do
  name=${NAMES[$((number - 1))]}
  prepare_replica "$name"
  sed -i "s|@PUBLIC$number@|${PUBLIC_OF[$name]}|; s|@AGENTS$number@|${AGENTS_OF[$name]}|; s|@ADMIN$number@|${ADMIN_OF[$name]}|" "$OUT/haproxy.cfg"
done
sed -i "s|@USERS@|$PUBLIC|; s|@AGENTS@|$AGENTS|" "$OUT/haproxy.cfg"

start_replicas() {
  local name
  for name in "${NAMES[@]}"; do start "$name"; done
  spawn haproxy haproxy -W -f "$OUT/haproxy.cfg"
  wait_port haproxy "$PUBLIC"
}

# The operator's commands.
gateway() { env NO_COLOR=1 "$REAL_GATEWAY" --config "$OUT/one.toml" "$@"; }
replicas() { gateway replicas list -o json 2>>"$OUT/list.log"; }
# id_of NAME : the number of its process start.
id_of() { replicas | jq -r ".[] | select(.peer_url | endswith(\":${PEERS_OF[$1]}\")) | .id" | tail -n 1; }
living() { replicas | jq length; }
live() { [ "$(living)" = "$1" ]; }
# at NAME ARGUMENTS… PATH-URL : a visit by way of one replica.
at() { local name=$1; shift; visit --connect-to "::127.0.0.1:${PUBLIC_OF[$name]}" "$@"; }
# other_than NAME : a replica that is not this one.
other_than() { local name; for name in "${NAMES[@]}"; do [ "$name" = "$1" ] || { echo "$name"; return; }; done; }
# holder_of WORKSPACE : the replica that its agent dialed.
holder_of() {
  local name
  for name in "${NAMES[@]}"; do
    curl -sf --max-time 2 "http://127.0.0.1:${ADMIN_OF[$name]}/debug/sessions" 2>/dev/null |
      jq -e "any(.[]; .workspace == \"$1\" and .way == \"direct\")" >/dev/null && echo "$name"
  done
}
