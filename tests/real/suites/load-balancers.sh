#!/usr/bin/env bash
# HTTP/2 load balancers between the agents and the gateway: nginx (grpc_pass) and HAProxy, both with timeouts of 5 s. The tunnel
# works through them, its pings keep a silent stream alive, and what they do close is dialled again.
# In direct mode the app is visited without a tunnel, and the balancers are only started.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

SILENCE=12 # seconds; more than twice the balancers' timeouts

start_echo
start_files
mkdir -p "$OUT/nginx"

choose_ports
declare -A BALANCER=([nginx]=$(free_port) [haproxy]=$(free_port))
nginx_user
sed -e "s|@USER@|$NGINX_USER|; s|@DIR@|$OUT/nginx|; s|@PORT@|${BALANCER[nginx]}|; s|@AGENTS@|$AGENTS|" "$APPS/nginx-agents.conf" >"$OUT/nginx.conf"
sed -e "s|@PORT@|${BALANCER[haproxy]}|; s|@AGENTS@|$AGENTS|" "$APPS/haproxy-agents.cfg" >"$OUT/haproxy.cfg"
spawn nginx nginx -p "$OUT/nginx" -e stderr -c "$OUT/nginx.conf"
spawn haproxy haproxy -W -f "$OUT/haproxy.cfg"
wait_port nginx "${BALANCER[nginx]}"
wait_port haproxy "${BALANCER[haproxy]}"

# attach NAME : an agent of a workspace of that name, through the balancer of that name.
attach() {
  [ -n "$DIRECT" ] && return
  AGENT_URL=http://127.0.0.1:${BALANCER[$1]} spawn_agent "agent-$1" "w-$1"
  until_ok 20 attached "w-$1" || give_up "no session through $1: $(tail -n 1 "$OUT/agent-$1.log")"
}


answers() { visit -f --max-time 5 "http://$(host_of "$ECHO_PORT" "$1")/" -o /dev/null; }

# --- the tunnel works through each, and its pings keep it alive -------------------------------------------------------
GATEWAY_ENV+=(GATEWAY_TUNNEL__KEEPALIVE_INTERVAL=2s GATEWAY_TUNNEL__KEEPALIVE_TIMEOUT=3s)
start_gateway
[ -z "$DIRECT" ] && user_token
for balancer in nginx haproxy; do
  attach "$balancer"
  check "a request through $balancer" answers "w-$balancer"
  same "a file of 20 MB through $balancer is the same bytes" "$(sha256sum <"$OUT/files/blob.bin")" \
    "$(visit "http://$(host_of "$FILES_PORT" "w-$balancer")/blob.bin" | sha256sum)"
done
# Both at once: the silence is the longest part of this suite.
for balancer in nginx haproxy; do
  websocket "idle-$balancer" "$ECHO_PORT" "w-$balancer" --text "a WebSocket through $balancer" --idle "$SILENCE"
done
collect idle-nginx 60
collect idle-haproxy 60

# --- reloads that cut the old connections after two seconds -----------------------------------------------------------
check "nginx takes the reload" nginx -p "$OUT/nginx" -e stderr -c "$OUT/nginx.conf" -s reload
signal USR2 haproxy
sleep 4
for balancer in nginx haproxy; do
  began=$(now_ms)
  check "requests go through $balancer again after a reload" until_ok 10 answers "w-$balancer"
  printf '%s: %s ms from the end of the old connections to an answer\n' "$balancer" "$(($(now_ms) - began))" >>"$OUT/recovery.txt"
  websocket "fresh-$balancer" "$ECHO_PORT" "w-$balancer" --text "a new WebSocket through $balancer after the reload"
  collect "fresh-$balancer" 30
done

# --- a balancer that is gone for a while ------------------------------------------------------------------------------
stop nginx
# Whether the request waits for the agent or is refused at once: it ends, and the reason has a name.
[ -z "$DIRECT" ] && check "while nginx is away its workspace has a named failure" named_failure 15 "$(host_of "$ECHO_PORT" w-nginx)"
check "the workspace behind haproxy does not notice" answers w-haproxy
spawn nginx nginx -p "$OUT/nginx" -e stderr -c "$OUT/nginx.conf"
wait_port nginx "${BALANCER[nginx]}"
began=$(now_ms)
check "the agent comes back through nginx" until_ok 20 answers w-nginx
printf 'nginx: %s ms from its return to an answer\n' "$(($(now_ms) - began))" >>"$OUT/recovery.txt"

# --- without pings: the balancers cut the stream, and the agents dial again -------------------------------------------
if [ -z "$DIRECT" ]; then
  stop agent-nginx
  stop agent-haproxy
  stop gateway
  GATEWAY_ENV+=(GATEWAY_TUNNEL__KEEPALIVE_INTERVAL=60s)
  start_gateway
  attach nginx
  attach haproxy
  sleep "$SILENCE"
  for balancer in nginx haproxy; do
    check "after a silence that $balancer does not accept, requests are answered within 10 s" until_ok 10 answers "w-$balancer"
  done
fi
finish
