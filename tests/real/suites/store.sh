#!/usr/bin/env bash
# The gateway on a real PostgreSQL: the store's own tests, with a schema of their own each, and then the program. TLS with an
# authority of our own, a password in a file, a server that goes away and comes back, keys and schemas that do not fit.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "store: there is nothing to check without the gateway"; finish; }

PG=$(command -v postgres) || PG=$(compgen -G '/usr/lib/postgresql/*/bin/postgres' | sort -V | tail -n 1)
[ -n "$PG" ] || give_up "PostgreSQL is missing: tests/real/install.sh debian"
PG=$(dirname "$(readlink -f "$PG")")
PASSWORD=hunter2-$(openssl rand -hex 8)
# Not below OUT: the server's user has to get there.
DATA=$(mktemp -d)
# The server first: it waits for nobody then.
trap 'status=$?; stop postgres; rm -rf "$DATA"; (exit "$status"); cleanup' EXIT

# --- a server ---------------------------------------------------------------------------------------------------------
# PostgreSQL refuses to run as root.
as_server=()
if [ "$(id -u)" = 0 ]; then
  as_server=(setpriv --reuid postgres --regid postgres --init-groups --)
fi

prepare_server() {
  (umask 077 && printf '%s\n' "$PASSWORD" | tee "$OUT/password" >"$DATA/password")
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj '/CN=authority' -keyout "$OUT/ca.key" -out "$OUT/ca.pem" \
    -addext 'basicConstraints=critical,CA:TRUE'
  openssl req -newkey rsa:2048 -nodes -subj '/CN=localhost' -keyout "$DATA/server.key" -out "$OUT/server.csr"
  openssl x509 -req -in "$OUT/server.csr" -CA "$OUT/ca.pem" -CAkey "$OUT/ca.key" -days 2 -out "$DATA/server.pem" \
    -extfile <(printf 'subjectAltName=DNS:localhost\n')
  chmod 600 "$DATA/server.key"
  [ ${#as_server[@]} = 0 ] || chown -R postgres: "$DATA"
  cd "$DATA" && "${as_server[@]}" "$PG/initdb" -D "$DATA/data" -U gateway --pwfile="$DATA/password" --auth=scram-sha-256 \
    -E UTF8 --locale=C.UTF-8 --no-sync
}

start_server() {
  spawn postgres "${as_server[@]}" "$PG/postgres" -D "$DATA/data" -c listen_addresses=localhost -c "port=$PG_PORT" \
    -c "unix_socket_directories=$DATA" -c fsync=off -c max_connections=300 -c log_connections=on \
    -c ssl=on -c "ssl_cert_file=$DATA/server.pem" -c "ssl_key_file=$DATA/server.key"
  until_ok 30 query 'SELECT 1' postgres >/dev/null || give_up "PostgreSQL does not start: $(tail -n 1 "$OUT/postgres.log")"
}

# query STATEMENT [DATABASE] : asks the server as its owner, beside the gateway.
query() { PGPASSWORD=$PASSWORD "$PG/psql" -h "$DATA" -p "$PG_PORT" -U gateway -d "${2:-gateway}" -qAt -v ON_ERROR_STOP=1 -c "$1"; }

(prepare_server) >"$OUT/initdb.log" 2>&1 || give_up "initdb: $(tail -n 1 "$OUT/initdb.log")"
PG_PORT=$(free_port)
start_server
query 'CREATE DATABASE gateway' postgres && query 'CREATE DATABASE tests' postgres || give_up "no database: $(tail -n 1 "$OUT/postgres.log")"

TRUST="sslmode=verify-full&sslrootcert=$OUT/ca.pem"

# --- the store's own tests --------------------------------------------------------------------------------------------
log=$OUT/tests.log
# The whole workspace, of which only this is run: a package alone has other features, and everything would be compiled again.
(cd "$ROOT" && cargo test --locked --workspace --lib --no-run >"$OUT/build.log" 2>&1) ||
  give_up "the store's tests cannot be compiled: $(tail -n 1 "$OUT/build.log")"
# Relative to the folder of the sources, unless the target folder is elsewhere.
TESTS=$(sed -n 's/.*(\(.*\/gateway_store-[0-9a-f]*\))$/\1/p' "$OUT/build.log")
[[ $TESTS == /* ]] || TESTS=$ROOT/$TESTS
[ -x "$TESTS" ] || give_up "the store's tests are missing among what was compiled"
# Eight at a time, however many cores there are: a test opens up to a dozen connections, each with TLS and a slow hash of the password, and
# waits five seconds for one.
(cd "$ROOT/gateway/store" && TEST_POSTGRES_URL="postgres://gateway:$PASSWORD@localhost:$PG_PORT/tests?$TRUST" \
  "$TESTS" --test-threads=8 >"$log" 2>&1)
while read -r name; do fail "$name"; done < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log")
good=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$log")
check "the store's ${good:-0} tests pass" test "${good:-0}" -ge 60
ran=$(grep -oE 'application_name=test_[0-9]+_[0-9]+' "$OUT/postgres.log" | sort -u | wc -l)
check "$ran of them had a schema on the server" test "$ran" -ge 30
same "and left none behind" 0 "$(query "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'test\_%'" tests)"

# --- the program ------------------------------------------------------------------------------------------------------
choose_ports
GATEWAY_ENV+=(
  "GATEWAY_STORE__URL=postgres://gateway@localhost:$PG_PORT/gateway?$TRUST"
  "GATEWAY_STORE__PASSWORD_FILE=$OUT/password"
  "GATEWAY_STORE__KEY_FILE=$OUT/gateway.key"
)

# Without the password's file, for URLs that hold one.
IN_URL=()
for setting in "${GATEWAY_ENV[@]}"; do [[ $setting == *PASSWORD_FILE* ]] || IN_URL+=("$setting"); done
# plain PASSWORD PORT DATABASE : the setting with a URL that holds the password.
plain() { printf 'GATEWAY_STORE__URL=postgres://gateway:%s@localhost:%s/%s' "$1" "$2" "$3"; }

# refuses TEXT PATTERN NAME=VALUE… : with these settings, the gateway does not start, and says why without the password.
refuses() {
  local text=$1 pattern=$2 status=0
  shift 2
  timeout 40 env "$@" "$REAL_GATEWAY" serve >"$OUT/refused.log" 2>&1 || status=$?
  cat "$OUT/refused.log" >>"$OUT/refusals.log"
  if grep -qF "$PASSWORD" "$OUT/refused.log"; then
    fail "$text: the password is shown"
  elif [ "$status" = 1 ] || [ "$status" = 64 ]; then
    check "$text" grep -qE "$pattern" "$OUT/refused.log"
  else
    fail "$text: status $status, $(tail -n 1 "$OUT/refused.log")"
  fi
}

start_echo
start_gateway
start_agent
answers() { visit -f --max-time 15 "http://$(host_of "$ECHO_PORT")/" -o /dev/null; }
check "an agent is let in and a request is answered" until_ok 15 answers
same "the connections are encrypted" t "$(query "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'gateway' AND client_addr IS NOT NULL")"
(umask 077 && printf '%s\n' "$USER_TOKEN" >"$OUT/user.token")
lists() { has_text "$WORKSPACE" gateway workspace list --gateway "http://localhost:$PUBLIC" --token-file "$OUT/user.token"; }
check "the workspace is listed over the API" lists
check "and on the database" has_text "$WORKSPACE" gateway --config "$OUT/gateway.toml" workspace list
gateway config show >"$OUT/shown.txt" 2>&1
check "the URL is shown" grep -q "store.url.*postgres://gateway@localhost:$PG_PORT/gateway" "$OUT/shown.txt"
env "${IN_URL[@]}" "$(plain "$PASSWORD" "$PG_PORT" gateway)" "$REAL_GATEWAY" config show >"$OUT/masked.txt" 2>&1
check "and a password in it is masked" grep -qF "postgres://gateway:********@localhost" "$OUT/masked.txt"
same "the key is the owner's alone" 600 "$(stat -c %a "$OUT/gateway.key")"

# --- another gateway ---------------------------------------------------------------------------------------------------
other=$(free_port)
spawn other env "${GATEWAY_ENV[@]}" "GATEWAY_LISTEN__PUBLIC=127.0.0.1:$other" "GATEWAY_LISTEN__AGENTS=127.0.0.1:$(free_port)" \
  "GATEWAY_LISTEN__ADMIN=off" "$REAL_GATEWAY" serve
waits() { grep -q 'another gateway serves this database.*waiting up to 60 s' "$OUT/other.log"; }
check "a second gateway on the same database waits for the first, and says so" until_ok 10 waits
check "and serves nobody" sh -c "! (exec 3<>/dev/tcp/127.0.0.1/$other) 2>/dev/null"
signal KILL gateway
ends_within 5 gateway >/dev/null || fail "the gateway cannot be killed"
check "when that was killed, it takes its place at once" until_ok 5 listening "$other"
at_other() { has_text "\"$WORKSPACE\"" curl -sf --max-time 10 -H "authorization: Bearer $USER_TOKEN" "http://localhost:$other/api/v1/workspaces"; }
check "and knows the same tokens and workspaces" at_other
signal TERM other
ends_within 40 other >/dev/null || fail "the second gateway does not end"
start_gateway
check "and lets the first one in again" until_ok 30 answers

# --- the server goes away ---------------------------------------------------------------------------------------------
NEVER_USED=$(gateway token create --user dev 2>>"$OUT/token.log")
spawn ticks curl -sN --max-time 120 -H "gateway-authorization: Bearer $USER_TOKEN" "http://$(host_of "$ECHO_PORT")/ticks"
until_ok 10 grep -q 'data: 5' "$OUT/ticks.log" >/dev/null || fail "a stream does not begin"
query "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE client_addr IS NOT NULL" >/dev/null
# A statement that was cut makes the store away for a quarter of a second.
is_here() { has_text . curl -sf --max-time 5 "http://127.0.0.1:$ADMIN/readyz" && ! has_text 'store: away' curl -s --max-time 5 "http://127.0.0.1:$ADMIN/readyz"; }
until_ok 5 is_here >/dev/null || fail "the store stays away"
check "connections that the server ends are replaced" lists
# As if the machine had lost its power.
signal QUIT postgres
ends_within 10 postgres >/dev/null || fail "PostgreSQL does not end"
came() { grep -c '^data' "$OUT/ticks.log"; }
before=$(came)
# Longer than what the gateway remembers of the store's answers.
sleep 12
check "without the server, what is open goes on" test "$(came)" -gt $((before + 80))
check "and who is known goes on" answers
code=$(curl -s -o /dev/null -D - --max-time 20 -H "gateway-authorization: Bearer $NEVER_USED" "http://$(host_of "$ECHO_PORT")/" | tr -d '\r' | sed -n 's/^gateway-error: *//Ip')
same "and who the store has to be asked for is refused by name" overloaded "$code"
check "the gateway is alive" alive gateway
start_server
began=$(now_ms)
check "when it is back, requests are answered" until_ok 20 lists
printf 'after the server is back: %s ms to an answer\n' "$(($(now_ms) - began))" >>"$OUT/recovery.txt"
check "and the agent is still there" until_ok 20 answers
check "and the stream never stopped" alive ticks
stop ticks

# --- a restart --------------------------------------------------------------------------------------------------------
signal TERM gateway
ends_within 40 gateway >/dev/null || fail "the gateway does not end"
start_gateway
check "after a restart the workspace is there" lists
check "and its agent comes back with its token" until_ok 20 answers
check "nothing of this has shown the password" sh -c "! grep -rqF '$PASSWORD' --include='*.log' --include='*.txt' '$OUT'"
stop gateway

# --- what does not fit ------------------------------------------------------------------------------------------------
refuses "a wrong password is told as such" "password authentication failed" "${IN_URL[@]}" "$(plain hunter2-wrong "$PG_PORT" gateway)"
refuses "a database that is not there is named" "no_such_database" "${IN_URL[@]}" "$(plain "$PASSWORD" "$PG_PORT" no_such_database)"
refuses "a server that is not there is named" "localhost:1/gateway" "${IN_URL[@]}" "$(plain "$PASSWORD" 1 gateway)"
refuses "an authority that nobody knows is refused" "certificate|TLS" \
  "${GATEWAY_ENV[@]}" "GATEWAY_STORE__URL=postgres://gateway@localhost:$PG_PORT/gateway?sslmode=verify-full"
refuses "a password in two places is refused" "one is enough" "${GATEWAY_ENV[@]}" "$(plain "$PASSWORD" "$PG_PORT" gateway)"
refuses "an unknown parameter is refused" "is not known" "${GATEWAY_ENV[@]}" "GATEWAY_STORE__URL=postgres://gateway@localhost:$PG_PORT/gateway?ssl=on"
refuses "a missing key is named, and no new one is made" "$OUT/absent.key does not exist" "${GATEWAY_ENV[@]}" "GATEWAY_STORE__KEY_FILE=$OUT/absent.key"
check "and is still missing" test ! -e "$OUT/absent.key"
(umask 077 && openssl rand -base64 32 >"$OUT/other.key")
refuses "another key is refused" "$OUT/other.key holds another key" "${GATEWAY_ENV[@]}" "GATEWAY_STORE__KEY_FILE=$OUT/other.key"
query "INSERT INTO _migrations (version, description, success, checksum, execution_time) VALUES (999, 'later', true, '', 0)"
refuses "a newer schema is refused" "has schema 999, made by a newer version" "${GATEWAY_ENV[@]}"
query "DELETE FROM _migrations WHERE version = 999"
query "UPDATE _migrations SET checksum = 'x' WHERE version = 1"
refuses "a schema whose history differs is refused" "migration 1" "${GATEWAY_ENV[@]}"
finish
