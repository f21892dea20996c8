#!/usr/bin/env bash
# Certificates: from an ACME server (Pebble, with its DNS server) by a program that sets records, for names and for the whole
# zone, renewed while the gateway runs; and from a folder, by the name that a client asks for.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
[ -n "$DIRECT" ] && { ok "nothing to compare without a gateway"; finish; }

pebble=$(echo "$CACHE"/pebble-*/)
[ -x "$pebble/pebble" ] || give_up "pebble is missing: run tests/real/install.sh"
acme_port=$(free_port) roots_port=$(free_port) dns_port=$(free_port) records_port=$(free_port)

# The authority's own certificate.
own=$OUT/authority
mkdir -p "$own"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=test authority" \
  -keyout "$own/ca.key" -out "$own/ca.pem" 2>>"$OUT/openssl.log"
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=127.0.0.1" -keyout "$own/key.pem" -out "$own/csr.pem" 2>>"$OUT/openssl.log"
printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n' >"$own/ext"
openssl x509 -req -in "$own/csr.pem" -CA "$own/ca.pem" -CAkey "$own/ca.key" -CAcreateserial -days 2 -extfile "$own/ext" -out "$own/cert.pem" 2>>"$OUT/openssl.log"
cat >"$OUT/pebble.json" <<JSON
{"pebble": {"listenAddress": "127.0.0.1:$acme_port", "managementListenAddress": "127.0.0.1:$roots_port",
  "certificate": "$own/cert.pem", "privateKey": "$own/key.pem", "httpPort": 5002, "tlsPort": 5001,
  "ocspResponderURL": "", "externalAccountBindingRequired": false, "retryAfter": {"authz": 1, "order": 1},
  "profiles": {"default": {"description": "short", "validityPeriod": 40}}}}
JSON
spawn records "$pebble/pebble-challtestsrv" -management "127.0.0.1:$records_port" -dnsserver "127.0.0.1:$dns_port" -http01 "" -https01 "" -tlsalpn01 "" -doh ""
wait_port records "$records_port"
spawn pebble env PEBBLE_VA_NOSLEEP=1 PEBBLE_WFE_NONCEREJECT=20 "$pebble/pebble" -config "$OUT/pebble.json" -dnsserver "127.0.0.1:$dns_port" -strict
wait_port pebble "$acme_port"
wait_port pebble "$roots_port"
curl -sk "https://127.0.0.1:$roots_port/roots/0" >"$OUT/root.pem"

cat >"$OUT/hook" <<'HOOK'
#!/bin/sh
echo "$*" >>"$(dirname "$0")/hook.log"
env >"$(dirname "$0")/hook.env"
case $1 in present) call=set-txt ;; cleanup) call=clear-txt ;; *) exit 2 ;; esac
exec curl -sf -o /dev/null -d "{\"host\": \"$2.\", \"value\": \"$3\"}" "http://127.0.0.1:$RECORDS_PORT/$call"
HOOK
printf '#!/bin/sh\necho "no such zone" >&2\nexit 1\n' >"$OUT/broken-hook"
chmod +x "$OUT/hook" "$OUT/broken-hook"
export RECORDS_PORT=$records_port

choose_ports
settings() {
  cat <<TOML
zone = "ws.example"
public_url = "https://gw.example:$PUBLIC"
[tls.acme]
directory = "https://127.0.0.1:$acme_port/dir"
email = "operator@gw.example"
ca_file = "$own/ca.pem"
folder = "$OUT/acme"
TOML
}

# served NAME : what a client that asks for the name is shown, verified against the authority's root.
served() { openssl s_client -connect "127.0.0.1:$PUBLIC" -servername "$1" -CAfile "$OUT/root.pem" -verify_hostname "$1" </dev/null 2>/dev/null; }
serial() { served "$1" | openssl x509 -noout -serial; }
verified() { has_text 'Verify return code: 0 \(ok\)' served "$1"; }
changed() { [ "$(serial gw.example)" != "$1" ]; }

# tells PATTERN : it is in what the program said, which is shown where it is not.
tells() {
  printf '%s\n' "$heard"
  grep -qz "$1" <<<"$heard"
}
settings >"$OUT/gateway.toml"
heard=$(gateway config check --config "$OUT/gateway.toml" 2>&1)
same "terms that nobody accepted and a missing hook: exit status" 64 $?
check "both problems are told at once" tells 'dns_hook.*accept_terms\|accept_terms.*dns_hook'

{ settings; printf 'accept_terms = true\ndns_hook = "%s"\n' "$OUT/broken-hook"; } >"$OUT/gateway.toml"
# The authority says in which order names are proven, and another time in another.
heard=$(gateway serve --config "$OUT/gateway.toml" 2>&1)
same "a hook that fails: exit status" 1 $?
check "the failure names the hook and what it said" tells 'broken-hook present _acme-challenge[.][a-z]*.example failed.*no such zone'

{ settings; printf 'accept_terms = true\ndns_hook = "%s"\n' "$OUT/hook"; } >"$OUT/gateway.toml"
export GATEWAY_LOG=info
start_gateway
check "the public host has a certificate of the authority" verified gw.example
check "so has every workspace host" verified 3000-app.ws.example
check "a name outside has none" eval '! verified other.example'
same "keys are for their owner only" "600 600 600" "$(stat -c %a "$OUT/acme/key.pem" "$OUT/acme/cert.pem" "$OUT/acme/account.json" | xargs)"
same "every record that was set is removed" "$(grep -c ^present "$OUT/hook.log")" "$(grep -c ^cleanup "$OUT/hook.log")"
check "the hook does not see the gateway's settings" eval '! grep -q ^GATEWAY_ "$OUT/hook.env"'
check "the operator can watch when it ends" has_text '^gateway_certificate_not_after_seconds [1-9]' curl -s "http://127.0.0.1:$ADMIN/metrics"
first=$(serial gw.example)
check "it is renewed while the gateway runs" until_ok 60 changed "$first"
check "and the new one is good" verified gw.example

accounts=$(grep -c 'new-account\|POST /sign-me-up' "$OUT/pebble.log")
stop gateway
start_gateway
check "after a restart it serves at once" verified gw.example
same "with the same account" "$accounts" "$(grep -c 'new-account\|POST /sign-me-up' "$OUT/pebble.log")"
stop gateway

# A folder with more certificates.
mkdir -p "$OUT/more"
pair() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" -addext "subjectAltName=DNS:$1" -keyout "$OUT/more/$1.key" -out "$OUT/more/$1.crt" 2>>"$OUT/openssl.log"; }
pair one.example
printf 'zone = "ws.example"\npublic_url = "https://gw.example:%s"\n[tls.public]\ncert = "%s"\nkey = "%s"\ncerts_dir = "%s"\n' \
  "$PUBLIC" "$OUT/acme/cert.pem" "$OUT/acme/key.pem" "$OUT/more" >"$OUT/gateway.toml"
start_gateway
shows() { has_text "$1" openssl x509 -noout -subject <<<"$(served "$1")"; }
check "a name with a certificate of its own gets that" shows one.example
check "another name gets the first one" eval '! shows two.example'
pair two.example
check "a certificate that is added is taken up without a restart" until_ok 15 shows two.example
echo broken >"$OUT/more/two.example.crt"
check "a broken one is complained of" until_ok 15 grep -q 'cannot be used, keeping the old ones.*two.example' "$OUT/gateway.log"
check "and does not replace the good one" shows two.example

# Two replicas that start at once: one orders at a time, and both serve what was ordered last.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/postgres.sh"
trap 'status=$?; stop postgres; rm -rf "$DATA"; (exit "$status"); cleanup' EXIT
stop gateway
create_server
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=replica" -keyout "$own/peer.key" -out "$own/peer.csr" 2>>"$OUT/openssl.log"
printf 'subjectAltName=URI:spiffe://ws.example/replica\nextendedKeyUsage=serverAuth,clientAuth\n' >"$own/peer.ext"
openssl x509 -req -in "$own/peer.csr" -CA "$own/ca.pem" -CAkey "$own/ca.key" -CAcreateserial -days 2 -extfile "$own/peer.ext" -out "$own/peer.pem" 2>>"$OUT/openssl.log"
declare -A USERS_OF
shared_url=https://gw.example:$PUBLIC
for name in one two; do
  USERS_OF[$name]=$(free_port)
  { settings | sed "s|$OUT/acme|$OUT/acme-$name|; s|^public_url = .*|public_url = \"$shared_url\"\ndirectory = \"store\"|"
    cat <<TOML
accept_terms = true
dns_hook = "$OUT/hook"
[listen]
public = "127.0.0.1:${USERS_OF[$name]}"
agents = "127.0.0.1:$(free_port)"
admin = "off"
peers = "127.0.0.1:$(free_port)"
[tls.peers]
cert = "$own/peer.pem"
key = "$own/peer.key"
ca = "$own/ca.pem"
[store]
url = "postgres://gateway@127.0.0.1:$PG_PORT/gateway"
key_file = "$OUT/shared.key"
TOML
  } >"$OUT/$name.toml"
done
asked() { cat "$OUT/one.log" "$OUT/two.log" | grep -c 'asking for a certificate'; }
at() { local PUBLIC=${USERS_OF[$1]}; shift; "$@"; }
for name in one two; do spawn "$name" env NO_COLOR=1 "$REAL_GATEWAY" serve --config "$OUT/$name.toml"; done
for name in one two; do check "replica $name has a certificate of the authority" until_ok 60 at "$name" verified gw.example; done
same "ordered once for both" 1 "$(asked)"
first=$(at one serial gw.example)
same "which is the same one" "$first" "$(at two serial gw.example)"
both_changed() { [ "$(at one serial gw.example)" = "$(at two serial gw.example)" ] && at one changed "$first"; }
check "a renewed one is served by both" until_ok 90 both_changed
same "which one of them ordered" 2 "$(asked)"
grep -q 'there is a new certificate' "$OUT/one.log" && [ "$(grep -c 'there is a new certificate' "$OUT/one.log")" -ge "$(grep -c 'there is a new certificate' "$OUT/two.log")" ] &&
  { dead=one left=two; } || { dead=two left=one; }
signal KILL "$dead"
ends_within 2 "$dead"
first=$(at "$left" serial gw.example)
check "when the one that ordered is killed, the other one orders the next" until_ok 90 at "$left" changed "$first"
finish
