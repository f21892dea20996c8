# shellcheck shell=bash
# Three replicas behind HAProxy or nginx, on a PostgreSQL of the suite's own. Sourced after common.sh:
#
#   source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/three-replicas.sh"
#   start_replicas
#
# BALANCER is `haproxy`, unless it is set to `nginx`. Its port for users is PUBLIC, that for agents AGENTS. A fourth replica is one of
# NAMES where a suite sets these before.

command -v jq >/dev/null || give_up "jq is missing: tests/real/install.sh debian"
source "$(dirname -- "${BASH_SOURCE[0]}")/postgres.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/replicas.sh"
# The server first: its end does not wait for connections then. Replicas are killed: their drains would come one after another.
kill_replicas() { local name; for name in "${NAMES[@]}"; do [ -z "${PIDS[$name]:-}" ] || signal KILL "$name"; done; }
trap 'status=$?; kill_replicas; stop postgres; rm -rf "$DATA"; (exit "$status"); cleanup' EXIT
[ -x "$REAL_GATEWAY" ] && [ -x "$REAL_AGENT" ] || give_up "build first: cargo build --release ($REAL_GATEWAY or $REAL_AGENT is missing)"
create_server
[ -v NAMES ] || NAMES=(one two three)
PUBLIC=$(free_port)
AGENTS=$(free_port)
create_authority
BALANCER=${BALANCER:-haproxy}
cp "$APPS/$BALANCER-replicas".* "$OUT/balancer.conf" || give_up "no configuration for the balancer $BALANCER"
[ ${#NAMES[@]} = 3 ] || sed -i '/3@/{p; s/three/four/; s/3@/4@/g}' "$OUT/balancer.conf"
for number in $(seq ${#NAMES[@]}); do
  name=${NAMES[$((number - 1))]}
  prepare_replica "$name"
  sed -i "s|@PUBLIC$number@|${PUBLIC_OF[$name]}|; s|@AGENTS$number@|${AGENTS_OF[$name]}|; s|@ADMIN$number@|${ADMIN_OF[$name]}|" "$OUT/balancer.conf"
done
nginx_user
sed -i "s|@USERS@|$PUBLIC|; s|@AGENTS@|$AGENTS|; s|@USER@|$NGINX_USER|; s|@DIR@|$OUT/nginx|" "$OUT/balancer.conf"

start_balancer() {
  case $BALANCER in
    haproxy) spawn balancer haproxy -W -f "$OUT/balancer.conf" ;;
    nginx) mkdir -p "$OUT/nginx" && spawn balancer nginx -p "$OUT/nginx" -e stderr -c "$OUT/balancer.conf" ;;
  esac
  wait_port balancer "$PUBLIC"
}
# start_replicas [NAME…] : these, or all, and the balancer.
start_replicas() {
  local name
  [ $# -gt 0 ] || set -- "${NAMES[@]}"
  for name in "$@"; do start "$name"; done
  start_balancer
}

# The operator's commands.
gateway() { env NO_COLOR=1 "$REAL_GATEWAY" --config "$OUT/one.toml" "$@"; }
replicas() { gateway replicas list -o json 2>>"$OUT/list.log"; }
# id_of NAME : the number of its process start.
id_of() { replicas | jq -r ".[] | select(.peer_url | endswith(\":${PEERS_OF[$1]}\")) | .id" | tail -n 1; }
living() { replicas | jq length; }
live() { [ "$(living)" = "$1" ]; }
# agents_at NAME : how many sessions it reports, each three seconds.
agents_at() { replicas | jq --argjson id "$(id_of "$1")" '.[] | select(.id == $id) | .agents'; }
# fullest NAME… : the one of these with the most.
fullest() {
  local name
  for name in "$@"; do echo "$(agents_at "$name") $name"; done | sort -rn | awk 'NR == 1 { print $2 }'
}
# drained NAME : it is drained by the operator's command, and ends.
drained() {
  check "$1 drains when the operator asks" timeout 90 env NO_COLOR=1 "$REAL_GATEWAY" --config "$OUT/one.toml" replicas drain "$(id_of "$1")" --wait
  ends_within 60 "$1" && same "and ends with status 0" 0 "$STATUS" || fail "$1 still runs after its drain"
}
# restart_all : a rolling restart.
restart_all() { local name; for name in "${NAMES[@]}"; do drained "$name" && start "$name"; done; }
# at NAME ARGUMENTS… PATH-URL : a visit by way of one replica.
at() { local name=$1; shift; visit --connect-to "::127.0.0.1:${PUBLIC_OF[$name]}" "$@"; }
# other_than NAME : a replica that is not this one.
other_than() { local name; for name in "${NAMES[@]}"; do [ "$name" = "$1" ] || { echo "$name"; return; }; done; }
# has_agent NAME WORKSPACE : the workspace's agent dialed this replica.
has_agent() {
  curl -sf --max-time 2 "http://127.0.0.1:${ADMIN_OF[$1]}/debug/sessions" 2>/dev/null |
    jq -e "any(.[]; .workspace == \"$2\" and .way == \"direct\")" >/dev/null
}
# holder_of WORKSPACE : the replica that its agent dialed.
holder_of() {
  local name
  for name in "${NAMES[@]}"; do has_agent "$name" "$1" && echo "$name"; done
}
