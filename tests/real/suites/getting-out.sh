#!/usr/bin/env bash
# Agents in networks that let only some things out: tinyproxy (CONNECT with Basic credentials), microsocks (SOCKS5 with user and
# password), nginx and HAProxy that reach the gateway over HTTP/1.1 only, and both kinds together. The agent's log says which
# way it got out, or which step failed and what to do; credentials are in no log.
# In direct mode the app is visited without a tunnel, and what is between is only started.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

SILENCE=12 # seconds; more than twice the balancers' timeouts
USER_NAME=agent
PASSWORD=p_ssword.7
LOGIN=agent:p%5Fssword.7

start_echo
start_files
mkdir -p "$OUT/nginx"

choose_ports
NGINX=$(free_port)
NGINX_TLS=$(free_port)
HAPROXY=$(free_port)
TINYPROXY=$(free_port)
SOCKS=$(free_port)
nginx_user
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
  -addext basicConstraints=critical,CA:false -keyout "$OUT/nginx/key.pem" -out "$OUT/nginx/cert.pem" 2>>"$OUT/openssl.log" || give_up "no certificate"
words=(-e "s|@USER@|$NGINX_USER|; s|@DIR@|$OUT/nginx|; s|@AGENTS@|$AGENTS|; s|@NGINX@|$NGINX|; s|@TLS_PORT@|$NGINX_TLS|; s|@NGINX_TLS@|$NGINX_TLS|")
sed "${words[@]}" -e "s|@PORT@|$NGINX|" "$APPS/nginx-websocket.conf" >"$OUT/nginx.conf"
sed "${words[@]}" -e "s|@PORT@|$HAPROXY|" "$APPS/haproxy-websocket.cfg" >"$OUT/haproxy.cfg"
sed "${words[@]}" -e "s|@PORT@|$TINYPROXY|" "$APPS/tinyproxy.conf" >"$OUT/tinyproxy.conf"
spawn nginx nginx -p "$OUT/nginx" -e stderr -c "$OUT/nginx.conf"
spawn haproxy haproxy -W -f "$OUT/haproxy.cfg"
spawn tinyproxy tinyproxy -d -c "$OUT/tinyproxy.conf"
spawn microsocks microsocks -i 127.0.0.1 -p "$SOCKS" -u "$USER_NAME" -P "$PASSWORD"
wait_port nginx "$NGINX"
wait_port haproxy "$HAPROXY"
wait_port tinyproxy "$TINYPROXY"
wait_port microsocks "$SOCKS"

GATEWAY_ENV+=(GATEWAY_TUNNEL__KEEPALIVE_INTERVAL=2s GATEWAY_TUNNEL__KEEPALIVE_TIMEOUT=3s)
start_gateway
[ -z "$DIRECT" ] && user_token

# way NAME URL ARGUMENTS… : an agent of a workspace of that name that gets to the gateway by that URL, with the variables that
# stand before the call.
way() {
  [ -n "$DIRECT" ] && return
  local name=$1 url=$2
  shift 2
  AGENT_URL=$url spawn_agent "agent-$name" "w-$name" "$@"
  # They are the agent's and not curl's.
  unset HTTP_PROXY HTTPS_PROXY http_proxy ALL_PROXY NO_PROXY
  until_ok 20 attached "w-$name" || fail "no session by $name: $(tail -n 1 "$OUT/agent-$name.log")"
}

# says NAME TEXT : the agent's log has a line with that, within some seconds.
says() {
  [ -n "$DIRECT" ] && return
  until_ok 10 grep -qE -- "$2" "$OUT/agent-$1.log" || { tail -n 1 "$OUT/agent-$1.log"; return 1; }
}

answers() { visit -f --max-time 5 "http://$(host_of "$ECHO_PORT" "$1")/" -o /dev/null; }

HTTP=http://127.0.0.1:$AGENTS
# By name, so that SOCKS has one to look up.
NAMED=http://localhost:$AGENTS

HTTP_PROXY=http://$LOGIN@127.0.0.1:$TINYPROXY way connect "$HTTP"
ALL_PROXY=socks5h://$LOGIN@127.0.0.1:$SOCKS way socks "$NAMED"
ALL_PROXY=socks5://$LOGIN@127.0.0.1:$SOCKS way socks-here "$NAMED"
way nginx "http://127.0.0.1:$NGINX"
way nginx-tls "https://localhost:$NGINX_TLS" --ca-file "$OUT/nginx/cert.pem"
way haproxy "http://127.0.0.1:$HAPROXY"
http_proxy=http://$LOGIN@127.0.0.1:$TINYPROXY way both "http://127.0.0.1:$NGINX"
HTTPS_PROXY=http://$LOGIN@localhost:$TINYPROXY way both-tls "https://localhost:$NGINX_TLS" --ca-file "$OUT/nginx/cert.pem"
HTTP_PROXY=http://127.0.0.1:1 NO_PROXY='example.com, 127.0.0.0/8' way exempt "$HTTP"
way named "$HTTP" --transport websocket

check "through tinyproxy: the log says so" says connect "connected.* via=http2 proxy=http://127.0.0.1:$TINYPROXY\$"
check "through microsocks: the log says so" says socks "connected.* via=http2 proxy=socks5h://127.0.0.1:$SOCKS\$"
check "through microsocks, the name looked up here: the log says so" says socks-here "connected.* via=http2 proxy=socks5://127.0.0.1:$SOCKS\$"
check "through nginx with HTTP/1.1: a WebSocket, and the log says so" says nginx 'connected.* via=websocket$'
check "through nginx with TLS and HTTP/1.1: a WebSocket, and the log says so" says nginx-tls 'connected.* via=websocket$'
check "through HAProxy with HTTP/1.1 behind it: a WebSocket, and the log says so" says haproxy 'connected.* via=websocket$'
check "through tinyproxy and nginx: a WebSocket, and the log says so" says both "connected.* via=websocket proxy=http://127.0.0.1:$TINYPROXY\$"
check "through tinyproxy and TLS that ends at nginx: a WebSocket, and the log says so" says both-tls "connected.* via=websocket proxy=http://localhost:$TINYPROXY\$"
check "a gateway in NO_PROXY is reached without the proxy" says exempt 'connected.* via=http2$'
check "a WebSocket that was asked for is taken" says named 'connected.* via=websocket$'
WAYS=(connect socks socks-here nginx nginx-tls haproxy both both-tls exempt named)
for way in "${WAYS[@]}"; do
  check "a request by $way" answers "w-$way"
  same "a file of 20 MB by $way is the same bytes" "$(sha256sum <"$OUT/files/blob.bin")" \
    "$(visit "http://$(host_of "$FILES_PORT" "w-$way")/blob.bin" | sha256sum)"
done

# --- silence, and what comes back after an outage ---------------------------------------------------------------------
for way in connect socks nginx haproxy both; do
  websocket "idle-$way" "$ECHO_PORT" "w-$way" --text "a WebSocket by $way" --idle "$SILENCE"
done
for way in connect socks nginx haproxy both; do collect "idle-$way" 60; done

stop nginx
stop tinyproxy
sleep 1
spawn nginx nginx -p "$OUT/nginx" -e stderr -c "$OUT/nginx.conf"
spawn tinyproxy tinyproxy -d -c "$OUT/tinyproxy.conf"
wait_port nginx "$NGINX"
wait_port tinyproxy "$TINYPROXY"
for way in connect nginx both; do
  check "the agent comes back by $way after an outage" until_ok 20 answers "w-$way"
done

# --- failures are named, with what to do ------------------------------------------------------------------------------
if [ -z "$DIRECT" ]; then
  HTTP_PROXY=http://127.0.0.1:$TINYPROXY AGENT_URL=$HTTP spawn_agent agent-anonymous w-lost
  HTTP_PROXY=http://agent:wr0ng@127.0.0.1:$TINYPROXY AGENT_URL=$HTTP spawn_agent agent-wrong w-lost
  HTTP_PROXY=http://$LOGIN@127.0.0.1:$TINYPROXY AGENT_URL=http://127.0.0.1:$ADMIN spawn_agent agent-port w-lost
  ALL_PROXY=socks5h://agent:wr0ng@127.0.0.1:$SOCKS AGENT_URL=$HTTP spawn_agent agent-socks-wrong w-lost
  HTTP_PROXY=http://127.0.0.1:1 AGENT_URL=$HTTP spawn_agent agent-nobody w-lost
  AGENT_URL=http://127.0.0.1:$FILES_PORT spawn_agent agent-web w-lost
  HTTP_PROXY='http://agent:wr0ng/x@127.0.0.1' AGENT_URL=$HTTP spawn_agent agent-damaged w-lost
  check "a proxy that wants credentials: the log says where to put them" says anonymous 'proxy http://127.0.0.1:[0-9]+ requires authentication \(407\).* HTTP_PROXY'
  check "a proxy that does not accept them: the log says so" says wrong 'does not accept the user and password in HTTP_PROXY \((401|407)\)'
  check "a proxy that does not lead to this port: the log says so" says port 'does not allow connections to 127.0.0.1:[0-9]+ \(403\)'
  check "SOCKS that does not accept the credentials: the log says so" says socks-wrong 'does not accept the user and password in ALL_PROXY'
  check "a proxy that is not there: the log says so" says nobody 'the proxy http://127.0.0.1:1 cannot be reached'
  check "neither way leads to a gateway: the log names both" says web 'nothing gets through. HTTP/2: .*WebSocket: .*not a gateway'
  ends_within 5 agent-damaged && same "a damaged proxy URL is bad configuration" 64 "$STATUS"
  check "and names the variable" grep -q 'HTTP_PROXY is not the URL of a proxy' "$OUT/agent-damaged.log"
  same "no credential is in any log of gateway or agents" '' "$(grep -lE 'ssword.7|wr0ng|YWdlbnQ6|Proxy-Auth' "$OUT"/agent-*.log "$OUT/gateway.log")"
  check "and no failed agent got past its proxy" test "$(failure_of "$(host_of 1 w-lost)" /)" = agent_absent
fi
finish
