# Three replicas on one PostgreSQL behind HAProxy, of the files `$OUT/NAME.toml`. Sourced after common.sh; needs the room for agents
# and users in SESSIONS, or 1000.
command -v jq >/dev/null || give_up "jq is missing: tests/real/install.sh debian"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/postgres.sh"
# The server first: it does not wait then.
trap 'status=$?; stop postgres; rm -rf "$DATA"; (exit "$status"); cleanup' EXIT
create_server

# --- three replicas, each with a certificate of its own ---------------------------------------------------------------
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$OUT/ca.key" -out "$OUT/ca.pem" -days 2 \
  -subj /CN=replicas -addext basicConstraints=critical,CA:true >>"$OUT/openssl.log" 2>&1
# certificate NAME URI
certificate() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$OUT/$1.key" -out "$OUT/$1.csr" -subj "/CN=$1" &&
    openssl x509 -req -in "$OUT/$1.csr" -CA "$OUT/ca.pem" -CAkey "$OUT/ca.key" -CAcreateserial -days 2 -out "$OUT/$1.pem" \
      -extfile <(printf 'subjectAltName=URI:%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$2")
}
NAMES=(one two three)
PUBLIC=$(free_port)
AGENTS=$(free_port)
declare -A PUBLIC_OF AGENTS_OF ADMIN_OF PEERS_OF
cp "$APPS/haproxy-replicas.cfg" "$OUT/haproxy.cfg"
for number in 1 2 3; do
  name=${NAMES[$((number - 1))]}
  certificate "$name" spiffe://localhost/replica >>"$OUT/openssl.log" 2>&1 || give_up "no certificate: $(tail -n 1 "$OUT/openssl.log")"
  PUBLIC_OF[$name]=$(free_port)
  AGENTS_OF[$name]=$(free_port)
  ADMIN_OF[$name]=$(free_port)
  PEERS_OF[$name]=$(free_port)
  sed -i "s|@PUBLIC$number@|${PUBLIC_OF[$name]}|; s|@AGENTS$number@|${AGENTS_OF[$name]}|; s|@ADMIN$number@|${ADMIN_OF[$name]}|" "$OUT/haproxy.cfg"
done
sed -i "s|@USERS@|$PUBLIC|; s|@AGENTS@|$AGENTS|" "$OUT/haproxy.cfg"
for name in "${NAMES[@]}"; do
  cat >"$OUT/$name.toml" <<TOML
zone = "localhost"
public_url = "http://localhost:$PUBLIC"
directory = "store"
[listen]
public = "127.0.0.1:${PUBLIC_OF[$name]}"
agents = "127.0.0.1:${AGENTS_OF[$name]}"
admin = "127.0.0.1:${ADMIN_OF[$name]}"
peers = "127.0.0.1:${PEERS_OF[$name]}"
[peers]
shutdown_delay = "2s"
[tls.peers]
cert = "$name.pem"
key = "$name.key"
ca = "ca.pem"
[store]
url = "postgres://gateway@127.0.0.1:$PG_PORT/gateway"
key_file = "shared.key"
[limits]
connections = ${SESSIONS:-1000}
sessions = ${SESSIONS:-1000}
[timeouts]
drain = "20s"
TOML
done
# The operator's commands.
gateway() { env NO_COLOR=1 "$REAL_GATEWAY" --config "$OUT/one.toml" "$@"; }
# start NAME : a replica, until it is ready.
start() {
  spawn "$1" env NO_COLOR=1 "$REAL_GATEWAY" --config "$OUT/$1.toml" serve
  until_ok 20 curl -sf "http://127.0.0.1:${ADMIN_OF[$1]}/readyz" || give_up "replica $1 does not become ready: $(tail -n 1 "$OUT/$1.log")"
}
replicas() { gateway replicas list -o json 2>>"$OUT/list.log"; }
# id_of NAME : the number of its process start.
id_of() { replicas | jq -r ".[] | select(.peer_url | endswith(\":${PEERS_OF[$1]}\")) | .id" | tail -n 1; }
living() { replicas | jq length; }
live() { [ "$(living)" = "$1" ]; }
[ -x "$REAL_GATEWAY" ] && [ -x "$REAL_AGENT" ] || give_up "build first: cargo build --release ($REAL_GATEWAY or $REAL_AGENT is missing)"

# start_replicas : the three, and HAProxy in front of them.
start_replicas() {
  local name
  for name in "${NAMES[@]}"; do start "$name"; done
  spawn haproxy haproxy -W -f "$OUT/haproxy.cfg"
  wait_port haproxy "$PUBLIC"
}

# at NAME ARGUMENTS… PATH-URL : a visit by way of one replica.
at() { local name=$1; shift; visit --connect-to "::127.0.0.1:${PUBLIC_OF[$name]}" "$@"; }
# other_than NAME : a replica that is not this one.
other_than() { local name; for name in "${NAMES[@]}"; do [ "$name" = "$1" ] || { echo "$name"; return; }; done; }
