#!/usr/bin/env bash
# RFC 6455 by the cases of the Autobahn testsuite, against an app that echoes (ws): framing, pings, reserved bits, opcodes,
# fragments, UTF-8, closing, and a part of those with many or large messages. Three times: the app itself, through the tunnel over
# HTTP/1.1, and through the tunnel over HTTP/2 (RFC 8441). What the app answers must be the same each time, byte for byte.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "websocket: the app is one of the three ways anyway"; finish; }
[ -e "$CACHE/autobahn/.ready" ] || give_up "the Autobahn testsuite is missing: run tests/real/install.sh"
PYTHON2=$(cat "$CACHE/autobahn/.ready")

CASES='["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.1.1", "9.1.3", "9.2.1", "9.2.3", "9.4.4", "9.5.6", "9.6.6", "9.7.3", "9.8.3"]'
start_echo
start_gateway
start_agent
host=$(host_of "$ECHO_PORT")
BRIDGE=$(free_port)
spawn bridge env "REAL_USER_TOKEN=$USER_TOKEN" node "$APPS/websocket_bridge.mjs" "$BRIDGE" "$PUBLIC" "$host"
wait_port bridge "$BRIDGE"

# cases WAY URL PORT [VARIABLE]
cases() { spawn "$1" env ${4:+"$4"} "$PYTHON2" "$APPS/websocket_cases.py" "$CACHE/autobahn" "$OUT/reports-$1" "$2" "$3" "$CASES"; }
cases direct "ws://127.0.0.1:$ECHO_PORT/" "$ECHO_PORT"
cases http1 "ws://$host/" "$PUBLIC" "REAL_USER_TOKEN=$USER_TOKEN"
cases http2 "ws://127.0.0.1:$BRIDGE/" "$BRIDGE"
for way in direct http1 http2; do
  if ends_within 300 "$way" >/dev/null; then same "the cases end ($way)" 0 "$STATUS"; else fail "the cases do not end ($way)"; stop "$way"; fi
done
helper compare 30 node "$REAL/suites/websocket.mjs" --direct "$OUT/reports-direct" --http1 "$OUT/reports-http1" --http2 "$OUT/reports-http2" --least 250
quiet_logs
finish
