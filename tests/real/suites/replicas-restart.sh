#!/usr/bin/env bash
# A rolling restart of three replicas behind HAProxy, on one PostgreSQL, under agents with and without TLS, steady requests and
# WebSockets.
#   AGENT_COUNT=5000 SOCKETS=500 RATE=200 tests/real/suites/replicas-restart.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "replicas-restart: nothing to check without the gateway"; finish; }
AGENT_COUNT=${AGENT_COUNT:-1000}
TLS_COUNT=${TLS_COUNT:-$((AGENT_COUNT / 10))}
RATE=${RATE:-100}
SOCKETS=${SOCKETS:-100}
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/fleet.sh"
SESSIONS=$((AGENT_COUNT * 2 + 1000))
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/three-replicas.sh"
# The replicas take agents over TLS alone. HAProxy passes on what comes over TLS, and makes TLS of the rest.
AGENTS_TLS=$(free_port)
certificate agents IP:127.0.0.1 >>"$OUT/openssl.log" 2>&1 || give_up "no certificate: $(tail -n 1 "$OUT/openssl.log")"
for name in "${NAMES[@]}"; do printf '[tls.agents]\ncert = "agents.pem"\nkey = "agents.key"\n' >>"$OUT/$name.toml"; done
sed -n '/^listen agents/,$p' "$OUT/balancer.conf" | sed "s/^listen agents/&-tls/; s/:$AGENTS\$/:$AGENTS_TLS/" >"$OUT/passed.conf"
sed -i '/^listen agents/,$s/^ *server .*/& ssl verify none alpn h2/' "$OUT/balancer.conf"
cat "$OUT/passed.conf" >>"$OUT/balancer.conf"
start_replicas
start_echo
user_token
start_fleet --config "$OUT/one.toml"
HOSTS=$(hosts_of "$ECHO_PORT")

sleep 5
open_sockets --again 1001
rolling_restart
close_sockets
same "agents without a session for a moment" 0 "$GAPS"
echo "rolling restart in $TOOK ms under $AGENT_COUNT agents, $TLS_COUNT of them over TLS: $GAPS without a session for a moment" | tee -a "$OUT/figures.txt"
sed -n 's|^ok ||p' "$OUT/rolling.log" | tee -a "$OUT/figures.txt"
grep -h '^closed' "$OUT/sockets.log" | tee -a "$OUT/figures.txt"
check "no program panicked" sh -c "! grep -n panicked '$OUT'/*.log"
finish
