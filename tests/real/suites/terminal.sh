#!/usr/bin/env bash
# The terminal in a browser: Chromium types, resizes, reloads; two pages and somebody who may only look; connections cut on both sides of
# the gateway; the agent started anew. People sign in with a real provider (oidc-provider), because one of them is not the owner.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "terminal: the agent has no other way to it"; finish; }
[ -d "$REAL/node_modules/oidc-provider" ] || give_up "oidc-provider is missing: run tests/real/install.sh"

choose_ports
IDP=$(free_port) USERS=$(free_port) LINKS=$(free_port)
SITE=http://localhost:$USERS
provider_settings "$SITE"
# What can be cut: the way of users to the gateway, and the agent's link.
spawn users python3 "$APPS/relay.py" "$USERS" "$PUBLIC"
spawn links python3 "$APPS/relay.py" "$LINKS" "$AGENTS"
wait_port users "$USERS"
wait_port links "$LINKS"
spawn provider node "$APPS/provider.mjs" "$IDP" "$SITE" gateway "$OUT/client.secret"
wait_port provider "$IDP"
start_gateway
owned() { gateway --config "$OUT/gateway.toml" "$@" 2>>"$OUT/token.log"; }
(umask 077 && owned token create --workspace one --owner ann >"$OUT/one.token") || give_up "no agent token: $(tail -n 1 "$OUT/token.log")"

AGENT_URL=http://127.0.0.1:$LINKS
has_session() { has_text '"workspace"' curl -sf "http://127.0.0.1:$ADMIN/debug/sessions"; }
start_terminals() {
  # A shell that looks the same on every machine.
  spawn "$1" env -C "$OUT" NO_COLOR=1 PS1='$ ' ENV= SHELL=/bin/sh "$REAL_AGENT" run --gateway "$AGENT_URL" --token-file "$OUT/one.token" --terminal
}
start_terminals agent
until_ok 20 has_session >/dev/null || give_up "the agent does not attach: $(tail -n 1 "$OUT/agent.log")"

resident() { sed -nE 's/^VmRSS:[^0-9]*([0-9]+) kB/\1/p' "/proc/${PIDS[$1]}/status"; }

check "the terminal is shared with a user" owned workspace share one 60002 --with user:bob
for audience in public signed-in; do
  said=$(gateway --config "$OUT/gateway.toml" workspace share one 60002 --with "$audience" 2>&1) && fail "the terminal is shared with $audience"
  case $said in *"port 60002"*terminal*) ok "it is not shared with $audience, and told why" ;; *) fail "sharing with $audience says: $said" ;; esac
done

spawn browser node "$REAL/suites/terminal.mjs" --terminal "http://60002-one.localhost:$USERS" --out "$OUT" \
  --users "${PIDS[users]}" --links "${PIDS[links]}"
# Some of its steps are the operator's.
while alive browser && [ ! -e "$OUT/restart" ]; do sleep 0.1; done
signal KILL agent
ends_within 10 agent
start_terminals agent2
until_ok 20 grep -q connected "$OUT/agent2.log"
idle=$(resident agent2)
touch "$OUT/restarted"
collect browser 180
check "the log says when a terminal was opened" grep -q 'a terminal was opened' "$OUT/agent.log"
check "what was typed is in no log" sh -c "! grep -q secret-typed '$OUT'/agent*.log '$OUT/gateway.log'"
busy=$(resident agent2)
check "a terminal costs its agent less than 6 MB (from $idle to $busy kB)" test "$((busy - idle))" -lt 6000
finish
