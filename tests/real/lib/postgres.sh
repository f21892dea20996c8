# shellcheck shell=bash
# A PostgreSQL of the suite's own, without passwords, which the suite may kill, stop and start again. Sourced after common.sh:
#
#   source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/postgres.sh"
#   trap 'status=$?; stop postgres; rm -rf "$DATA"; (exit "$status"); cleanup' EXIT
#   create_server

PG=$(command -v postgres) || PG=$(compgen -G '/usr/lib/postgresql/*/bin/postgres' | sort -V | tail -n 1)
[ -n "$PG" ] || give_up "PostgreSQL is missing: tests/real/install.sh debian"
PG=$(dirname "$(readlink -f "$PG")")
# Not below OUT: the server's user has to get there.
DATA=$(mktemp -d)
PG_PORT=$(free_port)
# PostgreSQL refuses to run as root.
as_server=()
[ "$(id -u)" = 0 ] && as_server=(setpriv --reuid postgres --regid postgres --init-groups --)

prepare_server() {
  [ ${#as_server[@]} = 0 ] || chown -R postgres: "$DATA"
  cd "$DATA" && "${as_server[@]}" "$PG/initdb" -D "$DATA/data" -U gateway --auth=trust -E UTF8 --locale=C.UTF-8 --no-sync
}

start_server() {
  spawn postgres "${as_server[@]}" "$PG/postgres" -D "$DATA/data" -c listen_addresses=127.0.0.1 -c "port=$PG_PORT" \
    -c "unix_socket_directories=$DATA" -c fsync=off
  until_ok 30 query 'SELECT 1' postgres >/dev/null || give_up "PostgreSQL does not start: $(tail -n 1 "$OUT/postgres.log")"
}

# query STATEMENT [DATABASE] : asks the server as its owner, beside the gateway.
query() { "$PG/psql" -h "$DATA" -p "$PG_PORT" -U gateway -d "${2:-gateway}" -qAt -v ON_ERROR_STOP=1 -c "$1"; }

kill_server() { signal QUIT postgres && ends_within 10 postgres; }

# create_server : makes the server, with the database `gateway`.
create_server() {
  (prepare_server) >"$OUT/initdb.log" 2>&1 || give_up "initdb: $(tail -n 1 "$OUT/initdb.log")"
  start_server
  query 'CREATE DATABASE gateway' postgres || give_up "no database: $(tail -n 1 "$OUT/postgres.log")"
}
