#!/usr/bin/env bash
# HTTP/2 by the cases of h2spec, strict ones too: on the users' and the agents' listener, in the clear and over TLS. What a listener
# may fail is in h2spec.txt, each with the reason. The operator's listener speaks HTTP/1.1 only, which is looked at too.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "h2spec: it is the gateway that speaks HTTP/2"; finish; }
H2SPEC=$CACHE/h2spec/h2spec
[ -x "$H2SPEC" ] || give_up "h2spec is missing: run tests/real/install.sh"

# Some cases send a frame that is wrong right behind a request, and take what comes next for the answer to that frame. A server that has
# answered the request by then is right, and fails. So what a case writes in one go comes to the gateway in one go.
QUIET_MS=50
relay() {
  spawn "relay-$1" python3 "$APPS/gathering_relay.py" "$1" "$2" "$QUIET_MS"
  wait_port "relay-$1" "$1"
}

# conforms SUFFIX ARGUMENTS… : runs the cases against both listeners at once, and counts.
conforms() {
  local suffix=$1 listener port path
  shift
  # The same document for everybody.
  while read -r listener port path; do
    spawn "$listener-$suffix" python3 "$APPS/h2spec_report.py" "$listener-$suffix" "$REAL/h2spec.txt" 130 "$OUT/$listener-$suffix.xml" \
      "$H2SPEC" -S -o 5 -h localhost -p "$port" -P "$path" "$@"
  done <<<"$LISTENERS"
  while read -r listener port path; do
    collect "$listener-$suffix" 180
    grep '^note' "$OUT/$listener-$suffix.log" | sed 's/^note /note  h2spec: /'
  done <<<"$LISTENERS"
}

choose_ports
USERS=$(free_port) DIALED=$(free_port)
LISTENERS="public $USERS /api/v1/openapi.json
agents $DIALED /"
printf 'zone = "localhost"\npublic_url = "http://localhost:%s"\n' "$USERS" >"$OUT/gateway.toml"
start_gateway
relay "$USERS" "$PUBLIC"
relay "$DIALED" "$AGENTS"
conforms clear
same "the operator's listener speaks no HTTP/2" 000 \
  "$(curl -s -o /dev/null -w '%{http_code}' --max-time 10 --http2-prior-knowledge "http://127.0.0.1:$ADMIN/healthz")"
stop gateway

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext 'subjectAltName=DNS:localhost' \
  -keyout "$OUT/key.pem" -out "$OUT/cert.pem" 2>"$OUT/openssl.log" || give_up "no certificate: $(tail -n 1 "$OUT/openssl.log")"
for listener in PUBLIC AGENTS; do
  GATEWAY_ENV+=("GATEWAY_TLS__${listener}__CERT=$OUT/cert.pem" "GATEWAY_TLS__${listener}__KEY=$OUT/key.pem")
done
printf 'zone = "localhost"\npublic_url = "https://localhost:%s"\n' "$USERS" >"$OUT/gateway.toml"
start_gateway
conforms tls -t -k
finish
