# shellcheck shell=bash
# Replicas on the server of lib/postgres.sh, each with a certificate of its own. Sourced after common.sh and postgres.sh:
#
#   source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/replicas.sh"
#   PUBLIC=$(free_port) && create_authority
#   prepare_replica one && start one
#
# STORE_PORT is where replicas reach the server, if that is not its own port. PUBLIC is the port of `public_url`, and SESSIONS the room for agents and for users (1000). The ports of a replica are in PUBLIC_OF, AGENTS_OF, ADMIN_OF and PEERS_OF.

declare -A PUBLIC_OF AGENTS_OF ADMIN_OF PEERS_OF

create_authority() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$OUT/ca.key" -out "$OUT/ca.pem" -days 2 \
    -subj /CN=replicas -addext basicConstraints=critical,CA:true >>"$OUT/openssl.log" 2>&1
}

# certificate NAME SUBJECT : for one kind of name and the name, as in `URI:spiffe://localhost/replica`.
certificate() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$OUT/$1.key" -out "$OUT/$1.csr" -subj "/CN=$1" &&
    openssl x509 -req -in "$OUT/$1.csr" -CA "$OUT/ca.pem" -CAkey "$OUT/ca.key" -CAcreateserial -days "${CERTIFICATE_DAYS:-2}" -out "$OUT/$1.pem" \
      -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$2")
}

# prepare_replica NAME : its ports, certificate and configuration.
prepare_replica() {
  local name=$1
  certificate "$name" URI:spiffe://localhost/replica >>"$OUT/openssl.log" 2>&1 || give_up "no certificate: $(tail -n 1 "$OUT/openssl.log")"
  PUBLIC_OF[$name]=$(free_port)
  AGENTS_OF[$name]=$(free_port)
  ADMIN_OF[$name]=$(free_port)
  PEERS_OF[$name]=$(free_port)
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
url = "postgres://gateway@127.0.0.1:${STORE_PORT:-$PG_PORT}/gateway"
key_file = "shared.key"
[limits]
connections = ${SESSIONS:-1000}
sessions = ${SESSIONS:-1000}
[timeouts]
drain = "20s"
TOML
}

# start NAME : a replica, until it is ready.
start() {
  spawn "$1" env NO_COLOR=1 "$REAL_GATEWAY" --config "$OUT/$1.toml" serve
  until_ok 20 curl -sf "http://127.0.0.1:${ADMIN_OF[$1]}/readyz" || give_up "replica $1 does not become ready: $(tail -n 1 "$OUT/$1.log")"
}
