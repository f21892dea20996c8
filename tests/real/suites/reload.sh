#!/usr/bin/env bash
# Changes while everything runs: the configuration by SIGHUP under traffic, backups under load and one brought back, the key of secrets
# exchanged, at one gateway with SQLite and at two replicas on PostgreSQL. No request fails for any of it.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "reload: there is nothing to check without the gateway"; finish; }
command -v jq >/dev/null || give_up "jq is missing: tests/real/install.sh debian"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/postgres.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/replicas.sh"
trap 'status=$?; stop postgres; rm -rf "$DATA"; (exit "$status"); cleanup' EXIT
RATE=${RATE:-50}

# --- one gateway --------------------------------------------------------------------------------------------------------
choose_ports
# configure LINES : the gateway's file, with this at its end.
configure() { printf 'zone = "localhost"\npublic_url = "http://localhost:%s"\n%s\n' "$PUBLIC" "$1" >"$OUT/gateway.toml"; }
# reloads ADMIN OUTCOME : how many reloads ended so.
reloads() { curl -sf "http://127.0.0.1:$1/metrics" | sed -n "s/^gateway_reloads_total{outcome=\"$2\"} //p"; }
has_reloaded() { [ "$(reloads "$1" "$2")" = "$3" ]; }
# reload NAME ADMIN OUTCOME : has the process read its configuration again, and waits until that ended so.
reload() {
  local count
  count=$(($(reloads "$2" "$3") + 1))
  signal HUP "$1"
  until_ok 10 has_reloaded "$2" "$3" "$count"
}
command_of() { gateway "$@" --config "$OUT/gateway.toml" 2>>"$OUT/commands.log"; }
# load NAME CONNECT : requests at a steady rate, until `loaded NAME`.
load() {
  rm -f "$OUT/$1.done" "$OUT/$1.ready"
  REAL_CREDENTIALS="token $USER_TOKEN" spawn "$1" node "$APPS/steady_load.mjs" --connect "127.0.0.1:$2" --rate "$RATE" \
    --host "$(host_of "$ECHO_PORT")" --until-file "$OUT/$1.done" --ready-file "$OUT/$1.ready"
  until_ok 20 test -e "$OUT/$1.ready" || fail "$1 does not begin"
}
loaded() { touch "$OUT/$1.done"; collect "$1" 60; }
status() { visit -o /dev/null -w '%{http_code}' "$@"; }

configure ''
start_gateway
start_echo
start_agent
HOST=$(host_of "$ECHO_PORT")
websocket ws "$ECHO_PORT" "$WORKSPACE" --until-file "$OUT/ws.done"
is_open() { has_text "\"$WORKSPACE\"" curl -sf "http://127.0.0.1:$ADMIN/debug/sessions" && has_text 'gateway_websockets_open(_count)? 1|gateway_websockets 1' curl -sf "http://127.0.0.1:$ADMIN/metrics"; }
until_ok 10 is_open || fail "the WebSocket does not open"
configure '[limits]
requests_per_port = 1'
check "a limit is taken over on SIGHUP" reload gateway "$ADMIN" applied
same "and holds for the next request, since a WebSocket has the one permit" 503 "$(status "http://$HOST/")"
configure '[limits]
requests_per_port = 100
requests_per_user = "many"'
check "a file with one wrong value is refused" reload gateway "$ADMIN" refused
configure '[limits]
requests_per_port = 100
[tunnel]
lanes_max = 3'
check "so is one with a key that needs a restart" reload gateway "$ADMIN" refused
check "which the log names" grep -q 'tunnel.lanes_max' "$OUT/gateway.log"
same "and nothing of either holds" 503 "$(status "http://$HOST/")"
configure ''
check "the limit is taken back" reload gateway "$ADMIN" applied
same "and the next request passes" 200 "$(status "http://$HOST/")"
touch "$OUT/ws.done"
collect ws 30

load steady "$PUBLIC"
for number in 1 2 3; do
  check "backup $number is made under load" command_of backup --to "$OUT/$number.backup"
  check "and is whole" command_of backup --check "$OUT/$number.backup"
  check "while the configuration is reloaded" reload gateway "$ADMIN" unchanged
done
same "a backup can be read by its owner alone" 600 "$(stat -c %a "$OUT/1.backup")"
check "a key is added under load" command_of key add
check "the gateway reads it" reload gateway "$ADMIN" applied
check "it becomes the first" command_of key promote
check "the gateway seals with it" reload gateway "$ADMIN" applied
check "what is stored is sealed anew" command_of key reseal
check "the old one goes" command_of key drop
check "and the gateway forgets it" reload gateway "$ADMIN" applied
loaded steady

LATER=$(command_of token create --user dev)
[ "$(USER_TOKEN=$LATER status "http://localhost:$PUBLIC/api/v1/whoami")" = 200 ] || fail "the later token is not good"
said=$(gateway --config "$OUT/gateway.toml" restore --from "$OUT/3.backup" --replace 2>&1) && fail "a database in use is restored"
case $said in *"in use"*) ok "a database in use is not restored" ;; *) fail "restoring over a running gateway says: $said" ;; esac
signal KILL gateway
ends_within 10 gateway
said=$(gateway --config "$OUT/gateway.toml" restore --from "$OUT/3.backup" 2>&1) && fail "a database is written over"
head -c 5000 "$OUT/3.backup" >"$OUT/cut.backup"
said=$(gateway --config "$OUT/gateway.toml" restore --from "$OUT/cut.backup" --replace 2>&1) && fail "half a backup is restored"
case $said in *"cut off"*) ok "half a backup is refused as such" ;; *) fail "half a backup: $said" ;; esac
check "the backup is restored" command_of restore --from "$OUT/3.backup" --replace
start_gateway
check "the restored gateway has its agent back" until_ok 20 attached "$WORKSPACE"
same "and requests reach its app" 200 "$(status "http://$HOST/")"
same "a token that came after the backup is worth nothing" 401 "$(USER_TOKEN=$LATER status "http://localhost:$PUBLIC/api/v1/whoami")"
stop agent
stop gateway

# --- two replicas -------------------------------------------------------------------------------------------------------
create_server
create_authority
for name in one two; do prepare_replica "$name" && start "$name"; done
gateway() { env NO_COLOR=1 "$REAL_GATEWAY" --config "$OUT/one.toml" "$@"; }
AGENTS=${AGENTS_OF[one]}
AGENT_URL=http://127.0.0.1:$AGENTS
rm -f "$OUT/$WORKSPACE.token"
USER_TOKEN=
user_token
spawn_agent pair "$WORKSPACE"
is_there() { [ "$(visit --connect-to "::127.0.0.1:${PUBLIC_OF[$1]}" -o /dev/null -w '%{http_code}' "http://$HOST/")" = 200 ]; }
for name in one two; do check "the app is reached by way of $name" until_ok 20 is_there "$name"; done
load first "${PUBLIC_OF[one]}"
load second "${PUBLIC_OF[two]}"
# reload_both OUTCOME
reload_both() { reload one "${ADMIN_OF[one]}" "$1" && reload two "${ADMIN_OF[two]}" "$1"; }
check "a key is added to the file of both" gateway key add
check "both read it" reload_both applied
check "it becomes the first" gateway key promote
check "one seals with it, and the other opens" reload one "${ADMIN_OF[one]}" applied
said=$(gateway key drop 2>&1) && fail "a key is dropped while it is needed"
case $said in *"still sealed"*) ok "the old one is not dropped while it is needed" ;; *) fail "dropping it too soon says: $said" ;; esac
check "the other seals with it too" reload two "${ADMIN_OF[two]}" applied
check "what is stored is sealed anew" gateway key reseal
check "the old one goes" gateway key drop
check "and both forget it" reload_both applied
check "the keys are backed up, and pg_dump is named for the rest" has_text '' gateway backup --to "$OUT/keys.backup"
loaded first
loaded second
signal KILL one
ends_within 10 one
start one
for name in one two; do check "after a crash of one, the app is reached by way of $name" until_ok 30 is_there "$name"; done
check "no program panicked" sh -c "! grep -n panicked '$OUT'/*.log"
finish
