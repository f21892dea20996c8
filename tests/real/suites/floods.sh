#!/usr/bin/env bash
# Users behind a real balancer of connections (HAProxy, PROXY protocol), and a real load generator (h2load) that floods the gateway
# without an account, while somebody else works.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "floods: nothing to check without the gateway"; finish; }

start_echo
choose_ports
BALANCER=127.0.0.100 # where HAProxy connects from
GATEWAY_ENV+=("GATEWAY_LISTEN__TRUSTED_PROXIES=$BALANCER")
start_gateway
start_agent
declare -A BALANCED=([version1]=$(free_port) [version2]=$(free_port) [silent]=$(free_port))
sed -e "s|@PORT1@|${BALANCED[version1]}|; s|@PORT2@|${BALANCED[version2]}|; s|@PORT0@|${BALANCED[silent]}|; s|@PUBLIC@|$PUBLIC|" \
  "$APPS/haproxy-users.cfg" >"$OUT/haproxy.cfg"
spawn haproxy haproxy -W -f "$OUT/haproxy.cfg"
wait_port haproxy "${BALANCED[version1]}"

# through NAME ADDRESS PATH : a visit through HAProxy from an address of this machine.
through() {
  MAX_TIME=5 visit -f --interface "$2" --connect-to "::127.0.0.1:${BALANCED[$1]}" "http://$(host_of "$ECHO_PORT")$3"
}
for version in version1 version2; do
  same "the app sees the client behind HAProxy ($version)" 127.0.0.55 "$(through "$version" 127.0.0.55 /who)"
done
refused() { ! through silent 127.0.0.55 /who; }
check "a trusted balancer that does not say for whom is cut" refused
same "without a balancer the app sees the client" 127.0.0.1 "$(visit -f "http://$(host_of "$ECHO_PORT")/who")"

# --- a flood without an account, and somebody who works meanwhile -----------------------------------------------------
rss() { awk '/^VmRSS:/ { print $2 }' "/proc/${PIDS[gateway]}/status"; }
before=$(rss)
spawn flood h2load -D 8 -c 100 -m 100 "http://127.0.0.1:$PUBLIC/" -H ":authority: $(host_of "$ECHO_PORT")"
sleep 2
visits() { visit -f -o /dev/null "http://$(host_of "$ECHO_PORT")/"; }
during=$(slowest 3 20 visits)
check "visits beside the flood take below 1 s (third slowest of 20: $during ms)" test "$during" -lt 1000
ends_within 30 flood || stop flood
grown=$((($(rss) - before) / 1024))
# A hundred connections with a hundred requests each are ten thousand at a time; the allocator keeps most of what those took.
check "the gateway's memory grows by less than 128 MiB ($grown MiB)" test "$grown" -lt 128
# The first may not have reached what its connections can take at most; what each flood leaves behind adds up without end.
for again in second third fourth; do
  before=$(rss)
  spawn flood h2load -D 8 -c 100 -m 100 "http://127.0.0.1:$PUBLIC/" -H ":authority: $(host_of "$ECHO_PORT")"
  ends_within 30 flood || stop flood
  grown=$((($(rss) - before) / 1024))
  [ "$grown" -ge 24 ] || break
done
check "flood after flood, memory comes to rest (the $again takes $grown MiB more)" test "$grown" -lt 24
reached() { has_text 'gateway_limits_reached_total\{limit="limits\.requests_per_second_per_address"\} [1-9]' curl -sf "http://127.0.0.1:$ADMIN/metrics"; }
check "the limit that the flood met is counted by name" reached
lines=$(wc -l <"$OUT/gateway.log")
check "the flood did not fill the log ($lines lines)" test "$lines" -lt 5000
check "after the flood a visit is answered" visit -f -o /dev/null "http://$(host_of "$ECHO_PORT")/"

finish
