# shellcheck shell=bash
# Many agents in one process of the load lab, each of a workspace of its own. Sourced after common.sh:
#
#   source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/fleet.sh"
#   start_fleet --config "$OUT/one.toml"
#
# AGENT_COUNT says how many. The operator's command line begins with the arguments of start_fleet, or has them in its environment.

AGENT_COUNT=${AGENT_COUNT:-1000}
LOADLAB=${REAL_LOADLAB:-$TARGET/release/loadlab}
[ -x "$LOADLAB" ] || give_up "build first: cargo build --release -p loadlab ($LOADLAB is missing)"
ulimit -n "$(ulimit -Hn)"

token_of() { env NO_COLOR=1 "$REAL_GATEWAY" "${FLEET[@]}" token create --workspace "$1" 2>>"$OUT/token.log"; }
all_up() { [ "$(tail -n 1 "$OUT/fleet.log")" = "$AGENT_COUNT of $AGENT_COUNT up" ]; }

# start_fleet ARGUMENTS… : makes the tokens, and starts the agents of w-1 to w-AGENT_COUNT. They dial AGENTS.
start_fleet() {
  FLEET=("$@")
  seq -f "w-%g" "$AGENT_COUNT" | xargs -P 4 -I{} env NO_COLOR=1 "$REAL_GATEWAY" "$@" token create --workspace {} 2>>"$OUT/token.log" >"$OUT/tokens" ||
    give_up "no tokens: $(tail -n 1 "$OUT/token.log")"
  same "a token for each workspace" "$AGENT_COUNT" "$(wc -l <"$OUT/tokens")"
  spawn fleet "$LOADLAB" agents --gateway "http://127.0.0.1:$AGENTS" --tokens "$OUT/tokens" --gaps "$OUT/gaps" --spread 5s
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

# times_since BEGAN : milliseconds after that time at which agents had a session again after they had none, in order.
times_since() { awk -v began="$1" '$1 >= began { print $1 - began }' "$OUT/gaps" | sort -n; }
