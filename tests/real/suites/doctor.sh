#!/usr/bin/env bash
# `gateway doctor` and `workspace-agent doctor` on an installation of real parts: a gateway with TLS behind HAProxy, DNS, PostgreSQL, an
# identity provider, a Kubernetes API server. On the healthy one they find nothing. Then each of these faults is put into it by itself,
# and found by its word, and nothing else is: no wildcard record; a wildcard to elsewhere; a certificate that is over, for another name,
# without its chain; a clock ten minutes off; a front without HTTP/2, without trailers, without WebSocket, that cuts after 30 s of
# silence; agents at the port of users; https to a plain port; the store away; a read-only disk; the issuer away; a wrong client secret;
# rights in the cluster missing; too few files; another version; a proxy that asks for a password.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/postgres.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"

[ -n "$DIRECT" ] && { echo "doctor: there is nothing to look at without the gateway"; finish; }
# A network of its own, for the ports of DNS and HTTPS, and mounts of its own, for the resolver's file of each view.
if [ -z "${DOCTOR_INSIDE:-}" ]; then
  [ "$(id -u)" = 0 ] || not_run "only root has a network of its own"
  unshare -m -n ip link set lo up 2>/dev/null || not_run "there are no namespaces"
  trap - EXIT INT TERM HUP
  export DOCTOR_INSIDE=1
  exec unshare -m -n --propagation private "$0" "$@"
fi
# The API server wants an address that is not the loopback's.
ip link set lo up && ip link add outside type veth peer name inside && ip link set inside up && ip address add 10.64.0.1/24 dev outside && ip link set outside up &&
  ip route add default via 10.64.0.2 || give_up "no network"
for part in haproxy nginx tinyproxy node; do command -v "$part" >/dev/null || give_up "$part is missing: tests/real/install.sh"; done
[ -d "$REAL/node_modules/oidc-provider" ] || give_up "oidc-provider is missing: run tests/real/install.sh"
trap 'status=$?; stop postgres; rm -rf "$DATA"; (exit "$status"); cleanup' EXIT

# --- certificates: an authority, one between, and leaves ---------------------------------------------------------------
CERTS=$OUT/certs
mkdir -p "$CERTS/issued"
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$CERTS/$1.key"; }
for name in root middle leaf; do key "$name"; done
openssl req -x509 -new -key "$CERTS/root.key" -days 30 -subj /CN=root -out "$CERTS/root.pem"
openssl req -new -key "$CERTS/middle.key" -subj /CN=middle -out "$CERTS/middle.csr"
openssl x509 -req -in "$CERTS/middle.csr" -CA "$CERTS/root.pem" -CAkey "$CERTS/root.key" -set_serial 2 -days 30 -out "$CERTS/middle.pem" \
  -extfile <(printf 'basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign\n') 2>>"$OUT/openssl.log"
openssl req -new -key "$CERTS/leaf.key" -subj /CN=leaf -out "$CERTS/leaf.csr"
: >"$CERTS/issued/index"
cat >"$CERTS/ca.cnf" <<CNF
[ca]
default_ca=own
[own]
database=$CERTS/issued/index
new_certs_dir=$CERTS/issued
certificate=$CERTS/middle.pem
private_key=$CERTS/middle.key
default_md=sha256
policy=any
unique_subject=no
rand_serial=yes
[any]
commonName=supplied
CNF
day() { date -u -d "$1" +%y%m%d%H%M%SZ; }
# leaf NAME END NAMES : a certificate that has been good for a month, with its chain.
leaf() {
  openssl ca -batch -notext -config "$CERTS/ca.cnf" -in "$CERTS/leaf.csr" -startdate "$(day '-30 days')" -enddate "$(day "$2")" \
    -extfile <(printf 'subjectAltName=%s\nbasicConstraints=CA:false\nextendedKeyUsage=serverAuth\n' "$3") -out "$CERTS/$1.only" &&
    cat "$CERTS/$1.only" "$CERTS/middle.pem" >"$CERTS/$1.pem" && cat "$CERTS/$1.pem" "$CERTS/leaf.key" >"$CERTS/$1.both"
}
{
  leaf good '+60 days' DNS:gw.example,DNS:*.ws.example && leaf expired '-1 day' DNS:gw.example,DNS:*.ws.example &&
    leaf soon '+5 days' DNS:gw.example,DNS:*.ws.example && leaf name '+60 days' DNS:other.example,DNS:*.other.example
} 2>>"$OUT/openssl.log" || give_up "no certificates: $(tail -n 1 "$OUT/openssl.log")"
cp "$CERTS/good.only" "$CERTS/chain.pem"
cat "$CERTS/chain.pem" "$CERTS/leaf.key" >"$CERTS/chain.both"

# --- names: views, each with the resolver's file that leads to it ------------------------------------------------------
mkdir -p "$OUT/dns"
# view NUMBER PUBLIC ZONE : the addresses of the public host and of the hosts below the zone; `-` for none.
view() {
  { printf 'gw.example %s\n' "$2"; [ "$3" = - ] || printf '*.ws.example %s\n' "$3"; } >"$OUT/dns/$1"
  printf 'nameserver 127.0.53.%s\noptions timeout:2 attempts:2\n' "$1" >"$OUT/resolv.$1"
}
view 11 127.0.0.1 127.0.0.1
for number in 1 2 3 4 5 6 7 8 9 10; do view "$number" "127.0.1.$number" "127.0.1.$number"; done
view 21 127.0.1.1 -
view 22 127.0.1.1 127.0.9.9
spawn dns python3 "$APPS/doctor_dns.py" "$OUT/dns"

# --- the gateway, its database and its provider ------------------------------------------------------------------------
(umask 077 && openssl rand -hex 24 >"$OUT/client.secret" && openssl rand -hex 24 >"$OUT/wrong.secret")
IDP=$(free_port) LATE=$(free_port) OTHER=$(free_port) TINYPROXY=$(free_port)
spawn provider node "$APPS/provider.mjs" "$IDP" https://gw.example gateway "$OUT/client.secret"
spawn late python3 "$APPS/doctor_provider.py" provider "$LATE"
spawn other python3 "$APPS/doctor_provider.py" gateway "$OTHER"
create_server
GATEWAY_ENV=(
  NO_COLOR=1 GATEWAY_ZONE=ws.example GATEWAY_PUBLIC_URL=https://gw.example
  GATEWAY_LISTEN__PUBLIC=127.0.0.1:443 GATEWAY_LISTEN__AGENTS=127.0.0.1:8081 GATEWAY_LISTEN__ADMIN=127.0.0.1:8082
  "GATEWAY_TLS__PUBLIC__CERT=$CERTS/good.pem" "GATEWAY_TLS__PUBLIC__KEY=$CERTS/leaf.key"
  "GATEWAY_TLS__AGENTS__CERT=$CERTS/good.pem" "GATEWAY_TLS__AGENTS__KEY=$CERTS/leaf.key"
  "GATEWAY_STORE__URL=postgres://gateway:p4ssword@127.0.0.1:$PG_PORT/gateway" "GATEWAY_STORE__KEY_FILE=$OUT/store.key"
  "GATEWAY_AUDIT__PATH=$OUT/audit.jsonl"
  GATEWAY_AUTH__MODE=oidc "GATEWAY_AUTH__OIDC__ISSUER=http://127.0.0.1:$IDP" GATEWAY_AUTH__OIDC__CLIENT_ID=gateway
  "GATEWAY_AUTH__OIDC__CLIENT_SECRET_FILE=$OUT/client.secret"
  GATEWAY_LIMITS__CONNECTIONS=1000 GATEWAY_LIMITS__SESSIONS=1000
)
wait_port provider "$IDP"
spawn gateway env "${GATEWAY_ENV[@]}" "$REAL_GATEWAY" serve
# Another one, small: plain, on SQLite, with defaults, and with few files.
SMALL=("NO_COLOR=1" "GATEWAY_LISTEN__PUBLIC=127.0.0.1:9080" "GATEWAY_LISTEN__AGENTS=127.0.0.1:9081" "GATEWAY_LISTEN__ADMIN=127.0.0.1:9082"
  "GATEWAY_PUBLIC_URL=http://localhost:9080" "GATEWAY_STORE__URL=sqlite://$OUT/small.db" "GATEWAY_LIMITS__CONNECTIONS=1000"
  "GATEWAY_LIMITS__SESSIONS=1000")
FEW=("${SMALL[@]}" "GATEWAY_LISTEN__PUBLIC=127.0.0.1:9180" "GATEWAY_LISTEN__AGENTS=127.0.0.1:9181" "GATEWAY_LISTEN__ADMIN=127.0.0.1:9182"
  "GATEWAY_PUBLIC_URL=http://localhost:9180" "GATEWAY_STORE__URL=sqlite://$OUT/few.db")
spawn small env "${SMALL[@]}" "$REAL_GATEWAY" serve
spawn few prlimit --nofile=1024 env "${FEW[@]}" "$REAL_GATEWAY" serve

# --- fronts ------------------------------------------------------------------------------------------------------------
mkdir -p "$OUT/nginx"
cp "$CERTS/good.pem" "$CERTS/leaf.key" "$OUT/nginx/"
nginx_user
sed -e "s|@USER@|$NGINX_USER|; s|@DIR@|$OUT/nginx|; s|@HOST@|127.0.1.5|" "$APPS/doctor-nginx.conf" >"$OUT/nginx.conf"
spawn nginx nginx -p "$OUT/nginx" -e stderr -c "$OUT/nginx.conf"
# users HOST CERTIFICATE [TIME] and agents HOST [ALPN] : a front of HTTP. pass HOST PORT : one of bytes.
users() {
  printf 'frontend u%s\n  mode http\n  bind %s:443 ssl crt %s alpn h2,http/1.1\n  timeout client %s\n  default_backend ub%s\n' "$1" "$1" "$CERTS/$2.both" "${3:-5m}" "$1"
  printf 'backend ub%s\n  mode http\n  timeout server %s\n  timeout tunnel %s\n  server gateway 127.0.0.1:443 ssl verify none sni ssl_fc_sni alpn http/1.1\n' "$1" "${3:-5m}" "${3:-5m}"
}
agents() {
  printf 'frontend a%s\n  mode http\n  bind %s:8081 ssl crt %s alpn %s\n  default_backend ab%s\n' "$1" "$1" "$CERTS/good.both" "${2:-h2,http/1.1}" "$1"
  printf 'backend ab%s\n  mode http\n  server gateway 127.0.0.1:8081 ssl verify none sni str(gw.example) alpn %s\n' "$1" "${2:-h2,http/1.1}"
}
pass() { printf 'listen p%s-%s\n  mode tcp\n  bind %s:%s\n  server gateway 127.0.0.1:%s\n' "$1" "$2" "$1" "$2" "$2"; }
{
  printf 'global\n  log stderr format raw local0 warning\ndefaults\n  log global\n  timeout connect 5s\n  timeout client 5m\n  timeout server 5m\n'
  users 127.0.1.1 good; agents 127.0.1.1
  users 127.0.1.2 good 30s; agents 127.0.1.2
  pass 127.0.1.3 443; agents 127.0.1.3 http/1.1
  pass 127.0.1.4 443
  pass 127.0.1.5 8081
  users 127.0.1.6 expired; pass 127.0.1.6 8081
  users 127.0.1.7 name; pass 127.0.1.7 8081
  users 127.0.1.8 chain; pass 127.0.1.8 8081
  pass 127.0.1.9 443
  pass 127.0.1.10 443
} >"$OUT/haproxy.cfg"
spawn haproxy haproxy -W -f "$OUT/haproxy.cfg"
spawn trailers node "$APPS/doctor_front.mjs" trailers 127.0.1.4 8081 https://127.0.0.1:8081 "$CERTS/good.pem" "$CERTS/leaf.key"
spawn date node "$APPS/doctor_front.mjs" date 127.0.1.9 8081 https://127.0.0.1:8081 "$CERTS/good.pem" "$CERTS/leaf.key"
spawn version-front node "$APPS/doctor_front.mjs" version 127.0.1.10 8081 https://127.0.0.1:8081 "$CERTS/good.pem" "$CERTS/leaf.key"
printf 'Port %s\nListen 127.0.0.1\nTimeout 60\nBasicAuth agent p_ssword.7\n' "$TINYPROXY" >"$OUT/tinyproxy.conf"
spawn tinyproxy tinyproxy -d -c "$OUT/tinyproxy.conf"
until_ok 20 curl -sf http://127.0.0.1:8082/readyz >/dev/null || give_up "the gateway does not become ready: $(tail -n 1 "$OUT/gateway.log")"
until_ok 20 curl -sf http://127.0.0.1:9082/readyz >/dev/null || give_up "the small gateway does not become ready: $(tail -n 1 "$OUT/small.log")"
until_ok 20 curl -sf http://127.0.0.1:9182/readyz >/dev/null || give_up "the gateway with few files does not become ready: $(tail -n 1 "$OUT/few.log")"
wait_port haproxy 8081
for part in trailers date version-front dns; do until_ok 20 grep -q ready "$OUT/$part.log" || give_up "$part does not start: $(tail -n 1 "$OUT/$part.log")"; done
wait_port tinyproxy "$TINYPROXY"
for port in "$LATE" "$OTHER"; do until_ok 20 listening "$port" || give_up "a server of faults does not start"; done

# --- how they are run --------------------------------------------------------------------------------------------------
# in_view NAME VIEW COMMAND… : in the background; what it prints goes to NAME.out. A few at a time: a machine that is busy with them makes
# the database slow, which would be found too.
CASES=()
few_run() {
  local name count=0
  for name in "${CASES[@]}"; do [ -z "${PIDS[$name]:-}" ] || ! alive "$name" || count=$((count + 1)); done
  [ "$count" -lt 8 ]
}
in_view() {
  local name=$1 view=$2
  shift 2
  until_ok 60 few_run || give_up "they do not end"
  CASES+=("$name")
  # shellcheck disable=SC2016
  spawn "$name" unshare -m --propagation private sh -c 'mount --bind "$1" /etc/resolv.conf && out=$2 && shift 2 && exec "$@" >"$out"' sh \
    "$OUT/resolv.$view" "$OUT/$name.out" "$@"
}
# of_gateway NAME VIEW [VARIABLE=VALUE…] [FLAGS…] : the gateway's doctor, with these settings instead of the installation's.
of_gateway() {
  local name=$1 view=$2 settings=()
  shift 2
  while [[ "${1:-}" = *=* && "${1:-}" != -* ]]; do settings+=("$1"); shift; done
  in_view "$name" "$view" env "${GATEWAY_ENV[@]}" "${settings[@]}" "$REAL_GATEWAY" doctor --ca-file "$CERTS/root.pem" -o json "$@"
}
# of_agent NAME VIEW [VARIABLE=VALUE…] FLAGS… : the agent's.
of_agent() {
  local name=$1 view=$2 settings=()
  shift 2
  while [[ "${1:-}" = *=* && "${1:-}" != -* ]]; do settings+=("$1"); shift; done
  in_view "$name" "$view" env NO_COLOR=1 "${settings[@]}" "$REAL_AGENT" doctor --ca-file "$CERTS/root.pem" -o json "$@"
}
# words NAME : the ids that were found, each once.
words() {
  python3 -c 'import json, sys
found = [one["id"] for check in json.load(open(sys.argv[1]))["checks"] for one in check.get("findings", [])]
print(*sorted(set(found)))' "$OUT/$1.out"
}
# finds TEXT NAME STATUS [WORDS] : it ends with the status, and has found these and nothing else.
finds() {
  local text=$1 name=$2 status=$3 want=${4:-}
  ends_within 60 "$name" >/dev/null || { fail "$text: it does not end"; stop "$name"; return; }
  same "$text" "$status ${want:-nothing}" "$STATUS $(words "$name" | sed 's/^$/nothing/')"
}
# shown NAME CHECK : how a check went.
shown() {
  python3 -c 'import json, sys
print(*[check["result"] for check in json.load(open(sys.argv[1]))["checks"] if check["check"] == sys.argv[2]])' "$OUT/$1.out" "$2"
}

# --- the healthy one, and what takes long ------------------------------------------------------------------------------
of_gateway slow-healthy 1 --slow --strict
of_gateway slow-idle 2 --slow
(umask 077 && gateway token create --workspace w1 --owner ann >"$OUT/w1.token" 2>"$OUT/token.log") || give_up "no token: $(cat "$OUT/token.log")"
in_view agent 11 env NO_COLOR=1 "$REAL_AGENT" run --gateway https://gw.example:8081 --token-file "$OUT/w1.token" --ca-file "$CERTS/root.pem" --port 443
generation() { curl -sf http://127.0.0.1:8082/debug/sessions | grep -o '"generation":[0-9]*'; }
until_ok 20 generation >/dev/null || give_up "the agent does not attach: $(tail -n 1 "$OUT/agent.log")"
BEFORE=$(generation)
of_gateway direct 11 --strict
in_view small-doctor 1 env "${SMALL[@]}" "$REAL_GATEWAY" doctor --strict -o json
finds "nothing is found on a gateway without a front" direct 0
finds "nor on a small one: SQLite, no TLS, no provider" small-doctor 0
check "what was not looked at is not said to be well" test "$(shown small-doctor 'database: clock')" = skipped
check "what was looked at is" test "$(shown direct 'database: clock')" = ok

# --- the API server, while the slow ones wait --------------------------------------------------------------------------
start_cluster identity
kc apply -f "$ROOT/deploy/rbac/unique.yaml" >/dev/null || give_up "no rights: $(tail -n 1 "$OUT/shell.log")"
account_kubeconfig cluster-agent workspace-gateway cluster-agent >/dev/null || give_up "no account"
(umask 077 && gateway token create --cluster prod >"$OUT/prod.token" 2>"$OUT/token.log") || give_up "no token: $(cat "$OUT/token.log")"
of_cluster() { of_agent "$1" 11 --gateway https://gw.example:8081 --token-file "$OUT/prod.token" --cluster --kubeconfig "$KUBE/cluster-agent.kubeconfig" "${@:2}"; }
of_cluster cluster-healthy --strict
finds "nothing is found for a cluster agent with its rights" cluster-healthy 0
check "and its rights were looked at" test "$(shown cluster-healthy 'cluster: rights')" = ok
kc delete clusterrolebinding workspace-gateway-cluster-agent >/dev/null
of_cluster cluster-rights

# --- faults, all at once -----------------------------------------------------------------------------------------------
RO=$OUT/ro
FULL=$OUT/full
mkdir -p "$RO" "$FULL"
mount -t tmpfs -o size=1m tmpfs "$RO" && touch "$RO/audit.jsonl" && mount -o remount,ro "$RO" || give_up "no read-only disk"
mount -t tmpfs -o size=64k tmpfs "$FULL" && head -c 200000 /dev/zero >"$FULL/rest" 2>/dev/null
file() { printf 'GATEWAY_TLS__PUBLIC__CERT=%s' "$CERTS/$1.pem"; }
of_gateway no-wildcard 21
of_gateway elsewhere 22
of_gateway expired 6 "$(file expired)"
of_gateway name 7 "$(file name)"
of_gateway chain 8 "$(file chain)"
of_gateway soon 1 "$(file soon)"
of_gateway soon-strict 1 "$(file soon)" --strict
of_gateway clock-issuer 1 "GATEWAY_AUTH__OIDC__ISSUER=http://127.0.0.1:$LATE"
of_gateway http2 3
of_gateway trailers-front 4
of_gateway websocket 5
of_gateway users-port 1 --agents-url https://gw.example
of_gateway plain-port 11 --agents-url https://gw.example:8082
of_gateway tls-port 1 --agents-url http://gw.example:8081
of_gateway store 1 "GATEWAY_STORE__URL=postgres://gateway:p4ssword@127.0.0.1:1/gateway"
of_gateway read-only 1 "GATEWAY_AUDIT__PATH=$RO/audit.jsonl"
of_gateway full 1 "GATEWAY_STORE__URL=sqlite://$FULL/gateway.db"
of_gateway issuer 1 GATEWAY_AUTH__OIDC__ISSUER=http://127.0.0.1:1
of_gateway secret 1 "GATEWAY_AUTH__OIDC__CLIENT_SECRET_FILE=$OUT/wrong.secret"
in_view files 1 env "${FEW[@]}" "$REAL_GATEWAY" doctor -o json
of_gateway version 1 "GATEWAY_LISTEN__ADMIN=127.0.0.1:$OTHER"
of_gateway proxy 1 "HTTPS_PROXY=http://127.0.0.1:$TINYPROXY"
of_gateway broken 1 GATEWAY_ZONE=ws..example GATEWAY_LIMITS__CONNECTIONS=none

finds "no wildcard record" no-wildcard 1 dns_wildcard_missing
finds "a wildcard to elsewhere" elsewhere 1 dns_wildcard_elsewhere
finds "a certificate that is over" expired 1 certificate_expired
finds "a certificate for another name" name 1 certificate_wrong_name
finds "a certificate without its chain" chain 1 certificate_untrusted
finds "a certificate that is soon over is a warning" soon 0 certificate_expires_soon
finds "and fails for the strict" soon-strict 1 certificate_expires_soon
finds "a clock ten minutes off, by the provider's" clock-issuer 1 clock_off
finds "a front without HTTP/2: agents have a WebSocket" http2 0 front_without_http2
finds "a front without trailers" trailers-front 1 front_without_trailers
finds "a front without WebSocket" websocket 1 front_without_websocket
finds "agents at the port of users" users-port 1 agents_wrong_listener
finds "https to a plain port" plain-port 1 tls_to_plain_port
finds "http to a port with TLS" tls-port 1 plain_to_tls_port
finds "the store away" store 1 store_unreachable
finds "a read-only disk" read-only 1 disk_read_only
finds "a full disk" full 1 disk_full
finds "the issuer away" issuer 1 issuer_unreachable
finds "a wrong client secret" secret 1 issuer_secret_wrong
finds "rights in the cluster missing" cluster-rights 1 cluster_rights_missing
finds "too few files" files 0 files_limit_low
finds "a gateway and an agent of another version" version 0 'agents_old version_differs'
finds "a proxy that asks for a password" proxy 1 proxy_wants_password
finds "a configuration with mistakes" broken 1 config_invalid
same "each of its mistakes is one" 2 "$(grep -c '"config_invalid"' "$OUT/broken.out")"

# A database whose clock is ten minutes late, and a replica of another version in it.
query "CREATE ROLE late LOGIN SUPERUSER; ALTER ROLE late SET search_path = public, pg_catalog;
  CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
    \$\$SELECT pg_catalog.clock_timestamp() - interval '10 minutes'\$\$;" || fail "no late clock"
of_gateway clock-store 1 "GATEWAY_STORE__URL=postgres://late@127.0.0.1:$PG_PORT/gateway"
finds "a clock ten minutes off, by the database's" clock-store 1 clock_off
query "INSERT INTO replicas (peer_url, version, zone, public_url, state, since, expires_at)
  VALUES ('https://10.0.0.9:8083', '0.0.9', 'ws.example', 'https://gw.example', 'serving', 0, 9000000000000)" || fail "no replica"
of_gateway replica 1
finds "a replica of another version" replica 0 version_differs
query "DELETE FROM replicas; INSERT INTO _migrations (version, description, success, checksum, execution_time)
  VALUES (9999, 'of tomorrow', true, '', 0)" || fail "no migration"
of_gateway newer 1
finds "a database of a newer version" newer 1 store_schema_newer
query "DELETE FROM _migrations WHERE version >= (SELECT max(version) FROM _migrations WHERE version < 9999)" || fail "no migration"
of_gateway older 1
finds "a database without the last migration" older 0 store_schema_older

# --- from the agent's place --------------------------------------------------------------------------------------------
W1=(--gateway https://gw.example:8081 --token-file "$OUT/w1.token")
printf 'gwa_%s\n' "$(head -c 43 /dev/zero | tr '\0' A)" >"$OUT/refused.token"
of_agent a-direct 11 "${W1[@]}" --strict --port 443
of_agent a-healthy 1 "${W1[@]}" --strict
of_agent a-http2 3 "${W1[@]}"
of_agent a-trailers 4 "${W1[@]}"
of_agent a-clock 9 "${W1[@]}"
of_agent a-version 10 "${W1[@]}"
of_agent a-users 1 --gateway https://gw.example --token-file "$OUT/w1.token"
of_agent a-expired 6 --gateway https://gw.example --token-file "$OUT/w1.token"
of_agent a-name 7 --gateway https://gw.example --token-file "$OUT/w1.token"
of_agent a-chain 8 --gateway https://gw.example --token-file "$OUT/w1.token"
of_agent a-plain 11 --gateway https://gw.example:8082 --token-file "$OUT/w1.token"
of_agent a-tls 1 --gateway http://gw.example:8081 --token-file "$OUT/w1.token"
of_agent a-away 1 --gateway https://gw.example:9 --token-file "$OUT/w1.token"
of_agent a-dns 1 --gateway https://agents.nowhere.example --token-file "$OUT/w1.token"
of_agent a-proxy 1 "HTTPS_PROXY=http://127.0.0.1:$TINYPROXY" "${W1[@]}"
of_agent a-file 1 --gateway https://gw.example:8081 --token-file "$OUT/no.token"
of_agent a-refused 1 --gateway https://gw.example:8081 --token-file "$OUT/refused.token"
of_agent a-port 1 "${W1[@]}" --port 1
in_view a-files 1 prlimit --nofile=256 "$REAL_AGENT_SLIM" doctor --ca-file "$CERTS/root.pem" -o json "${W1[@]}"
of_agent a-url 1 --gateway ftp://gw.example --token-file "$OUT/w1.token"
finds "an agent without a front: nothing" a-direct 0
finds "an agent through a healthy front: nothing" a-healthy 0
check "its credential was tried" test "$(shown a-healthy 'gateway: credential')" = ok
check "and the gateway said its version" test "$(shown a-healthy 'gateway: version')" = ok
finds "an agent: a front without HTTP/2" a-http2 0 front_without_http2
finds "an agent: a front without trailers" a-trailers 1 front_without_trailers
finds "an agent: a clock ten minutes off" a-clock 1 clock_off
finds "an agent: a gateway of another version" a-version 0 version_differs
finds "an agent: the port of users" a-users 1 agents_wrong_listener
finds "an agent: a certificate that is over" a-expired 1 certificate_expired
finds "an agent: a certificate for another name" a-name 1 certificate_wrong_name
finds "an agent: a certificate without its chain" a-chain 1 certificate_untrusted
finds "an agent: https to a plain port" a-plain 1 tls_to_plain_port
finds "an agent: http to a port with TLS" a-tls 1 plain_to_tls_port
finds "an agent: the gateway away" a-away 1 agents_unreachable
finds "an agent: no such name" a-dns 1 dns_host_missing
finds "an agent: a proxy that asks for a password" a-proxy 1 proxy_wants_password
finds "an agent: no token" a-file 1 token_unusable
finds "an agent: a token that is refused" a-refused 1 credential_refused
finds "an agent: nothing listens on its port" a-port 0 port_not_listening
finds "an agent, the slim one: too few files" a-files 0 files_limit_low
finds "an agent: no URL of a gateway" a-url 1 config_invalid
same "the agent that runs still has its session" "$BEFORE" "$(generation)"

# --- what took long ----------------------------------------------------------------------------------------------------
finds "nothing is found behind a healthy front, silence included" slow-healthy 0
check "and the silence was looked at" test "$(shown slow-healthy 'public URL: silence')" = ok
finds "a front that cuts after 30 s of silence" slow-idle 1 front_cuts_idle

gateway doctor --nonsense >/dev/null 2>&1
same "wrong usage ends with 2" 2 $?
"$REAL_AGENT" doctor --nonsense >/dev/null 2>&1
same "and so for an agent" 2 $?
cat "$OUT/client.secret" "$OUT/wrong.secret" "$OUT"/*.token >"$OUT/secrets.txt"
printf 'p4ssword\np_ssword.7\n' >>"$OUT/secrets.txt"
same "no secret is in what they print" '' "$(grep -lFf "$OUT/secrets.txt" "$OUT"/*.out)"
finish
