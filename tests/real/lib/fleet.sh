# shellcheck shell=bash
# Many agents in one process of the load lab, each of a workspace of its own. Sourced after common.sh:
#
#   source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/fleet.sh"
#   start_fleet --config "$OUT/one.toml"
#
# AGENT_COUNT says how many; TLS_COUNT of them dial AGENTS_TLS, with TLS and the authority `ca.pem`. The operator's command line begins
# with the arguments of start_fleet, or has them in its environment.

AGENT_COUNT=${AGENT_COUNT:-1000}
TLS_COUNT=${TLS_COUNT:-0}
LOADLAB=${REAL_LOADLAB:-$TARGET/release/loadlab}
[ -x "$LOADLAB" ] || give_up "build first: cargo build --release -p loadlab ($LOADLAB is missing)"
ulimit -n "$(ulimit -Hn)"

token_of() { env NO_COLOR=1 "$REAL_GATEWAY" "${FLEET[@]}" token create --workspace "$1" 2>>"$OUT/token.log"; }
# fleet NAME ARGUMENTS… : agents in a process of that name, with the tokens in NAME.tokens.
fleet() { spawn "$1" "$LOADLAB" agents --tokens "$OUT/$1.tokens" --gaps "$OUT/$1.gaps" --spread 5s "${@:2}"; }
are_up() { [ "$2" = 0 ] || [ "$(tail -n 1 "$OUT/$1.log")" = "$2 of $2 up" ]; }
all_up() { are_up fleet $((AGENT_COUNT - TLS_COUNT)) && are_up fleet-tls "$TLS_COUNT"; }

# start_fleet ARGUMENTS… : makes the tokens, and starts the agents of w-1 to w-AGENT_COUNT. They dial AGENTS.
start_fleet() {
  FLEET=("$@")
  seq -f "w-%g" "$AGENT_COUNT" | xargs -P 4 -I{} env NO_COLOR=1 "$REAL_GATEWAY" "$@" token create --workspace {} 2>>"$OUT/token.log" >"$OUT/tokens" ||
    give_up "no tokens: $(tail -n 1 "$OUT/token.log")"
  same "a token for each workspace" "$AGENT_COUNT" "$(wc -l <"$OUT/tokens")"
  head -n "$TLS_COUNT" "$OUT/tokens" >"$OUT/fleet-tls.tokens"
  tail -n "+$((TLS_COUNT + 1))" "$OUT/tokens" >"$OUT/fleet.tokens"
  fleet fleet --gateway "http://127.0.0.1:$AGENTS"
  [ "$TLS_COUNT" = 0 ] || fleet fleet-tls --gateway "https://127.0.0.1:$AGENTS_TLS" --ca-file "$OUT/ca.pem"
  check "$AGENT_COUNT agents are up" until_ok 120 all_up || finish
}

# hosts_of PORT : that port of twenty of the workspaces, between commas.
hosts_of() { for number in $(seq 20); do host_of "$1" "w-$((number * AGENT_COUNT / 20))"; done | paste -sd ,; }

# load NAME PORT ARGUMENTS… : RATE requests a second by way of a port, until `loaded NAME`.
load() {
  local name=$1 port=$2
  shift 2
  rm -f "$OUT/$name.done"
  REAL_CREDENTIALS="token $USER_TOKEN" spawn "$name" node "$APPS/steady_load.mjs" --connect "127.0.0.1:$port" --rate "$RATE" \
    --until-file "$OUT/$name.done" "$@"
}
loaded() { touch "$OUT/$1.done"; collect "$1" 60; }

# open_sockets ARGUMENTS… : SOCKETS WebSockets by way of PUBLIC, until `close_sockets`.
open_sockets() {
  rm -f "$OUT/sockets.ready" "$OUT/sockets.done"
  spawn sockets env REAL_USER_TOKEN="$USER_TOKEN" node "$APPS/steady_sockets.mjs" --connect "127.0.0.1:$PUBLIC" --hosts "$HOSTS" \
    --count "$SOCKETS" --ready-file "$OUT/sockets.ready" --until-file "$OUT/sockets.done" "$@"
  until_ok 60 test -e "$OUT/sockets.ready" || give_up "the WebSockets do not open: $(tail -n 1 "$OUT/sockets.log")"
}
close_sockets() { touch "$OUT/sockets.done"; collect sockets 60; }

# rolling_restart : all replicas (lib/three-replicas.sh) under load by way of PUBLIC. Leaves its length in TOOK, in milliseconds, and the
# number of agents that were without a session for a moment in GAPS.
rolling_restart() {
  load rolling "$PUBLIC" --host "$HOSTS"
  sleep 2
  local began
  began=$(now_ms)
  restart_all
  TOOK=$(($(now_ms) - began))
  sleep 2
  check "all agents are up after it" until_ok 30 all_up
  loaded rolling
  GAPS=$(times_since "$began" | wc -l)
}

# times_since BEGAN : milliseconds after that time at which agents had a session again after they had none, in order.
times_since() { awk -v began="$1" '$1 >= began { print $1 - began }' "$OUT"/fleet*.gaps | sort -n; }
# are_back BEGAN COUNT : so many have had a session again since that time, and all are up.
are_back() { [ "$(times_since "$1" | wc -l)" -ge "$2" ] && all_up; }
# back_after BEGAN COUNT : waits for that, and prints the median, the 99th percentile and the slowest, in milliseconds after it.
back_after() {
  until_ok 60 are_back "$1" "$2"
  times_since "$1" | awk '{ at[NR] = $1 } END { print at[int((NR + 1) / 2)], at[int(NR * 0.99)] ? at[int(NR * 0.99)] : at[NR], at[NR] }'
}
