#!/usr/bin/env bash
# HTTP/2 by the cases of h2spec, strict ones too: on the users' and the agents' listener, in the clear and over TLS. What a listener
# may fail is in h2spec.txt, each with the reason. The operator's listener speaks HTTP/1.1 only, which is looked at too.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "h2spec: it is the gateway that speaks HTTP/2"; finish; }
H2SPEC=$CACHE/h2spec/h2spec
[ -x "$H2SPEC" ] || give_up "h2spec is missing: run tests/real/install.sh"

# conforms LISTENER PORT PATH ARGUMENTS… : runs the cases, and counts.
conforms() {
  local listener=$1 port=$2 path=$3
  shift 3
  helper "$listener" 120 python3 "$APPS/h2spec_report.py" "$listener" "$REAL/h2spec.txt" 130 "$OUT/$listener.xml" \
    "$H2SPEC" -S -h localhost -p "$port" -P "$path" "$@"
  grep '^note' "$OUT/$listener.log" | sed 's/^note /note  h2spec: /'
}

# The same document for everybody, larger than any window of the cases.
DOCUMENT=/api/v1/openapi.json
start_gateway
conforms public-clear "$PUBLIC" "$DOCUMENT"
conforms agents-clear "$AGENTS" /
same "the operator's listener speaks no HTTP/2" 000 \
  "$(curl -s -o /dev/null -w '%{http_code}' --max-time 10 --http2-prior-knowledge "http://127.0.0.1:$ADMIN/healthz")"
stop gateway

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext 'subjectAltName=DNS:localhost' \
  -keyout "$OUT/key.pem" -out "$OUT/cert.pem" 2>"$OUT/openssl.log" || give_up "no certificate: $(tail -n 1 "$OUT/openssl.log")"
for listener in PUBLIC AGENTS; do
  GATEWAY_ENV+=("GATEWAY_TLS__${listener}__CERT=$OUT/cert.pem" "GATEWAY_TLS__${listener}__KEY=$OUT/key.pem")
done
printf 'zone = "localhost"\npublic_url = "https://localhost:%s"\n' "$PUBLIC" >"$OUT/gateway.toml"
start_gateway
conforms public-tls "$PUBLIC" "$DOCUMENT" -t -k
conforms agents-tls "$AGENTS" / -t -k
finish
