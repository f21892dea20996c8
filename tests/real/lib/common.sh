# shellcheck shell=bash
# What every suite shares: free ports, processes that never outlive the suite, checks, and the gateway with its agent.
# Sourced, not run. A suite is then:
#
#   source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
#   start_gateway && start_agent
#   check "what holds" command arguments
#   finish
#
# Environment that a suite reads:
#   DIRECT=1        run the same checks against the app itself, without gateway and agent (to check the suite)
#   REAL_GATEWAY    the gateway program   (default: target/release/gateway)
#   REAL_AGENT      the agent program     (default: target/release/workspace-agent)
#   REAL_AGENT_SLIM the one for images of workspaces (default: workspace-agent-slim beside REAL_AGENT)

set -uo pipefail

REAL=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
ROOT=$(cd -- "$REAL/../.." && pwd)
CACHE=$REAL/.cache
SUITE=$(basename -- "$0" .sh)
OUT=$REAL/out/$SUITE
APPS=$REAL/apps
# Ports of the proxies under test would otherwise reach curl, Chromium, grpcio and the programs under test.
unset http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY
# A setting of the person who runs this must not configure the gateway under test.
while IFS= read -r _name; do unset "$_name"; done < <(compgen -e | grep '^GATEWAY_' || true)
unset _name

DIRECT=${DIRECT:-}
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
REAL_GATEWAY=${REAL_GATEWAY:-$TARGET/release/gateway}
REAL_AGENT=${REAL_AGENT:-$TARGET/release/workspace-agent}
REAL_AGENT_SLIM=${REAL_AGENT_SLIM:-$REAL_AGENT-slim}
PYTHON=$CACHE/venv/bin/python
WORKSPACE=${WORKSPACE:-w-$SUITE}

rm -rf "$OUT"
mkdir -p "$OUT"
# The shell reports each process that a signal ends, which is what these suites are about; `finish` shows the rest. A file
# and not a pipe, because the other end of a pipe could be gone before `cleanup` is done.
exec 2>"$OUT/shell.log"

declare -A PIDS=()
PASSED=0
FAILED=0
STATUS=0
FINISHED=

# --- checks -----------------------------------------------------------------------------------------------------------

ok() {
  PASSED=$((PASSED + 1))
  printf 'ok    %s: %s\n' "$SUITE" "$*"
}

fail() {
  FAILED=$((FAILED + 1))
  printf 'FAIL  %s: %s\n' "$SUITE" "$*"
}

# check TEXT COMMAND… : passes if the command succeeds. What it prints goes to checks.log, its last line into the failure.
check() {
  local text=$1 said
  shift
  if said=$("$@" 2>&1); then
    ok "$text"
  else
    fail "$text: $(tail -n 1 <<<"$said" | cut -c 1-300)"
  fi
  printf '== %s\n%s\n' "$text" "$said" >>"$OUT/checks.log"
}

# same TEXT WANT GOT
same() {
  if [ "$2" = "$3" ]; then ok "$1"; else fail "$1: want ${2:0:200}, got ${3:0:200}"; fi
}

# has_text PATTERN COMMAND… : the command ends well, and what it prints has the pattern. All of it is read first: in a pipe, `grep -q` is
# gone with the first match, and a command that still has something to write ends badly for that.
has_text() {
  local pattern=$1 said
  shift
  said=$("$@") && grep -qE -- "$pattern" <<<"$said"
}

# count_checks : reads the output of a helper. Its lines `ok TEXT` and `FAIL TEXT` are checks of this suite.
count_checks() {
  local line
  while IFS= read -r line; do
    case $line in
      'ok '*) ok "${line#ok }" ;;
      'FAIL '*) fail "${line#FAIL }" ;;
    esac
  done
}

# helper NAME SECONDS COMMAND… : runs a helper with a time limit and counts its checks; its whole output is in NAME.log.
helper() {
  local name=$1 limit=$2
  shift 2
  spawn "$name" "$@"
  collect "$name" "$limit"
}

# collect NAME SECONDS : waits for a helper that was started with `spawn` and counts its checks. One that ends badly without having
# said so is one failed check.
collect() {
  local before=$FAILED ended=1
  ends_within "$2" "$1" >/dev/null || ended=
  [ -n "$ended" ] || stop "$1"
  count_checks <"$OUT/$1.log"
  if [ -z "$ended" ]; then
    fail "$1 took over $2 s: $(tail -n 1 "$OUT/$1.log")"
  elif [ "$STATUS" != 0 ] && [ "$FAILED" = "$before" ]; then
    fail "$1 ended with status $STATUS: $(tail -n 1 "$OUT/$1.log")"
  fi
}

# --- processes --------------------------------------------------------------------------------------------------------

# spawn NAME COMMAND… : in the background, in a process group of its own, output appended to NAME.log.
spawn() {
  local name=$1
  shift
  # A shell without job control starts what is in the background deaf to Ctrl-C; here it is as if somebody had started it.
  setsid env --default-signal=INT,QUIT "$@" >>"$OUT/$name.log" 2>&1 </dev/null &
  PIDS[$name]=$!
}

alive() { kill -0 "${PIDS[$1]}" 2>/dev/null; }

# ends_within SECONDS NAME : waits for the process to end; leaves its exit status in STATUS.
ends_within() {
  local tries=$(($1 * 20))
  while alive "$2"; do
    tries=$((tries - 1))
    [ "$tries" -le 0 ] && { echo "$2 still runs after $1 s"; return 1; }
    sleep 0.05
  done
  wait "${PIDS[$2]}" 2>/dev/null
  STATUS=$?
  unset "PIDS[$2]"
}

signal() { kill -s "$1" "${PIDS[$2]}"; }

# grouped PID : waits until a process that was just spawned has a group of its own, or has ended. Until then it is a copy of this shell
# with this shell's traps: a signal to the group would reach nobody, so that the wait for its end never ended; one to the copy would
# have it clean up here.
grouped() {
  local tries=250
  until kill -0 -- "-$1" 2>/dev/null || ! kill -0 "$1" 2>/dev/null; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || return 0
    sleep 0.02
  done
}

# stop NAME : ends it for good, with the whole process group, whatever state it is in.
stop() {
  local pid=${PIDS[$1]:-}
  [ -n "$pid" ] || return 0
  grouped "$pid"
  kill -s CONT -- "-$pid" 2>/dev/null
  kill -s TERM -- "-$pid" 2>/dev/null
  local tries=60
  while kill -0 -- "-$pid" 2>/dev/null && [ "$tries" -gt 0 ]; do
    tries=$((tries - 1))
    sleep 0.05
  done
  kill -s KILL -- "-$pid" 2>/dev/null || kill -s KILL "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null
  unset "PIDS[$1]"
  return 0
}

cleanup() {
  local status=$? name
  trap - EXIT INT TERM HUP
  trap '' PIPE
  for name in "${!PIDS[@]}"; do stop "$name"; done
  if [ -z "$FINISHED" ]; then
    fail "the suite ended before its last check (status $status); logs are in $OUT"
    finish
  fi
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Prints the counts and ends the suite.
finish() {
  FINISHED=1
  grep -vE '^[^ ]+: line [0-9]+: +[0-9]+ (Killed|Terminated|Stopped) |^$' "$OUT/shell.log" | sed "s/^/note  $SUITE: /"
  printf '%s passed, %s failed\n' "$PASSED" "$FAILED"
  [ "$FAILED" = 0 ] && exit 0
  exit 1
}

# give_up REASON : a part is missing, which is a failure, because a suite that quietly does nothing looks like one that passes.
give_up() {
  fail "$*"
  finish
}

# not_run REASON : this machine cannot have what the suite is about, which run.sh counts apart from what passed.
not_run() {
  printf 'not run: %s (%s)\n' "$SUITE" "$*"
  FINISHED=1
  exit 77
}

# --- waiting ----------------------------------------------------------------------------------------------------------

# A port that nothing listens on, below the range from which the kernel takes ports for outgoing connections. Whoever asks next, in
# this suite or in one beside it, gets another one: what asked for it may not listen yet.
free_port() {
  python3 - "$REAL/out/.port" <<'PY'
import fcntl, random, socket, sys

# Recorded configurations of workspaces name 28573.
FIRST, LAST = 20000, 28499
with open(sys.argv[1], "a+") as given:
    fcntl.flock(given, fcntl.LOCK_EX)
    given.seek(0)
    port = int(given.read() or random.randint(FIRST, LAST))
    while True:
        port = port + 1 if port < LAST else FIRST
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                break
            except OSError:
                continue
    given.truncate(0)
    given.write(str(port))
print(port)
PY
}

# until_ok SECONDS COMMAND… : repeats the command until it succeeds.
until_ok() {
  local deadline=$((SECONDS + $1 + 1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -ge "$deadline" ] && { echo "not within the time: $*"; return 1; }
    sleep 0.1
  done
}

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# wait_port NAME PORT [SECONDS] : until the process listens; gives up if it ends before.
wait_port() {
  local deadline=$((SECONDS + ${3:-20}))
  until listening "$2"; do
    alive "$1" || give_up "$1 ended at start: $(tail -n 1 "$OUT/$1.log")"
    [ "$SECONDS" -ge "$deadline" ] && give_up "$1 does not listen on port $2: $(tail -n 1 "$OUT/$1.log")"
    sleep 0.05
  done
}

now_ms() { date +%s%3N; }

# slowest WHICH COUNT COMMAND… : runs it so many times, one after the other, and says how long the slowest took, the second slowest or a
# later one, in milliseconds. The machine itself may stand still for a moment, which is no more than one or two of many. One that
# fails takes for ever.
slowest() {
  local which=$1 count=$2 began took=()
  shift 2
  while [ "${#took[@]}" -lt "$count" ]; do
    began=$(now_ms)
    "$@" || { echo 999999; return; }
    took+=($(($(now_ms) - began)))
  done
  printf '%s\n' "${took[@]}" | sort -rn | sed -n "${which}p"
}

# --- the programs under test ------------------------------------------------------------------------------------------

# gateway ARGUMENTS… : the gateway's commands, with this suite's listeners and store. Settings come from the environment,
# so that every command sees the same ones; `serve` also reads a file.
gateway() { env "${GATEWAY_ENV[@]}" "$REAL_GATEWAY" "$@"; }

# choose_ports : new listeners for this suite. Extra settings go into GATEWAY_ENV before start_gateway.
GATEWAY_ENV=()
choose_ports() {
  PUBLIC=$(free_port)
  AGENTS=$(free_port)
  ADMIN=$(free_port)
  GATEWAY_ENV+=(
    "GATEWAY_LISTEN__PUBLIC=127.0.0.1:$PUBLIC"
    "GATEWAY_LISTEN__AGENTS=127.0.0.1:$AGENTS"
    "GATEWAY_LISTEN__ADMIN=127.0.0.1:$ADMIN"
    "GATEWAY_STORE__URL=sqlite://$OUT/gateway.db"
    "NO_COLOR=1"
    # Machines that allow few open files would be warned of.
    "GATEWAY_LIMITS__CONNECTIONS=1000" "GATEWAY_LIMITS__SESSIONS=1000"
  )
}

# start_gateway : starts it (again) and waits until it is ready. Nothing to do in direct mode.
start_gateway() {
  [ -n "$DIRECT" ] && return
  [ -x "$REAL_GATEWAY" ] && [ -x "$REAL_AGENT" ] || give_up "build first: cargo build --release ($REAL_GATEWAY or $REAL_AGENT is missing)"
  [ -n "${PUBLIC:-}" ] || choose_ports
  [ -e "$OUT/gateway.toml" ] || printf 'zone = "localhost"\npublic_url = "http://localhost:%s"\n' "$PUBLIC" >"$OUT/gateway.toml"
  spawn gateway env "${GATEWAY_ENV[@]}" "$REAL_GATEWAY" serve --config "$OUT/gateway.toml"
  wait_port gateway "$PUBLIC"
  wait_port gateway "$AGENTS"
  until_ok 10 curl -sf "http://127.0.0.1:$ADMIN/readyz" >/dev/null || give_up "the gateway does not become ready: $(tail -n 1 "$OUT/gateway.log")"
}

# A token for programs, for the user that dev mode knows.
user_token() {
  if [ -z "${USER_TOKEN:-}" ]; then
    USER_TOKEN=$(gateway token create --user dev 2>>"$OUT/token.log") || give_up "no user token: $(tail -n 1 "$OUT/token.log")"
  fi
}

# workspace_token NAME : makes the workspace's agent token, in a file that only the owner reads; prints the path.
workspace_token() {
  local file=$OUT/$1.token
  (umask 077 && gateway token create --workspace "$1" >"$file" 2>>"$OUT/token.log") || return 1
  printf '%s\n' "$file"
}

# spawn_agent NAME WORKSPACE ARGUMENTS… : the agent of a workspace as process NAME; the gateway is reached on AGENT_URL.
spawn_agent() {
  local name=$1 workspace=$2
  shift 2
  [ -e "$OUT/$workspace.token" ] || workspace_token "$workspace" >/dev/null || give_up "no agent token: $(tail -n 1 "$OUT/token.log")"
  spawn "$name" env NO_COLOR=1 "$REAL_AGENT" run --gateway "${AGENT_URL:-http://127.0.0.1:$AGENTS}" --token-file "$OUT/$workspace.token" "$@"
}

# start_agent ARGUMENTS… : the agent of this suite's workspace, waiting until its session is there.
start_agent() {
  [ -n "$DIRECT" ] && return
  user_token
  spawn_agent agent "$WORKSPACE" "$@"
  until_ok 20 attached "$WORKSPACE" || give_up "the agent does not attach: $(tail -n 1 "$OUT/agent.log")"
}

# attached WORKSPACE : the gateway has a session for the workspace. Port 1 is closed: the failure `port_closed` comes from the agent.
attached() {
  case $(failure_of "$(host_of 1 "$1")" /) in port_closed | port_not_allowed) return 0 ;; *) return 1 ;; esac
}

# failure_of HOST PATH : the code with which the gateway refuses a request; empty if it did not.
failure_of() {
  curl -s -o /dev/null -D - --max-time "${MAX_TIME:-30}" -H "gateway-authorization: Bearer ${USER_TOKEN:-}" "http://$1$2" |
    tr -d '\r' | sed -n 's/^gateway-error: *//Ip'
}

# named_failure SECONDS HOST : within the time, a request there ends with a failure that the gateway names.
named_failure() {
  local code
  code=$(MAX_TIME=$1 failure_of "$2" /)
  [ -n "$code" ] || { echo "no named failure within $1 s"; return 1; }
  echo "$code"
}

# start_echo : the app that says back what it is asked, on ECHO_PORT.
start_echo() {
  ECHO_PORT=$(free_port)
  spawn app node "$APPS/echo.mjs" "$ECHO_PORT"
  wait_port app "$ECHO_PORT"
}

# start_files : an app with one large file, `blob.bin`, on FILES_PORT.
start_files() {
  mkdir -p "$OUT/files"
  head -c 20000001 /dev/urandom >"$OUT/files/blob.bin"
  FILES_PORT=$(free_port)
  spawn files python3 -m http.server --bind 127.0.0.1 --directory "$OUT/files" "$FILES_PORT"
  wait_port files "$FILES_PORT"
}

# nginx_user : the line of nginx's configuration that lets it run as root, in NGINX_USER; empty for anybody else.
nginx_user() {
  NGINX_USER=''
  [ "$(id -u)" != 0 ] || NGINX_USER='user root;'
}

# websocket NAME PORT WORKSPACE ARGUMENTS… : starts the WebSocket client of apps/ws_client.mjs; to be collected by NAME.
websocket() {
  local name=$1 port=$2 workspace=$3 connect
  shift 3
  if [ -n "$DIRECT" ]; then connect=127.0.0.1:$port; else connect=127.0.0.1:$PUBLIC; fi
  spawn "$name" env REAL_USER_TOKEN="${USER_TOKEN:-}" node "$APPS/ws_client.mjs" --connect "$connect" --host "$(host_of "$port" "$workspace")" "$@"
}

# host_of PORT [WORKSPACE] : where the port of a workspace is for a visitor.
host_of() {
  if [ -n "$DIRECT" ]; then echo "127.0.0.1:$1"; else echo "$1-${2:-$WORKSPACE}.localhost:$PUBLIC"; fi
}

# visit ARGUMENTS… : curl as a signed-in program.
visit() { curl -sS --max-time "${MAX_TIME:-60}" -H "gateway-authorization: Bearer ${USER_TOKEN:-none}" "$@"; }

# provider_settings URL [LINE…] : the configuration of a gateway at this URL whose people sign in with the provider on port IDP, and the
# client's secret; the lines go into its section `auth`. More sections can be appended.
provider_settings() {
  local url=$1
  shift
  (umask 077 && head -c 24 /dev/urandom | base64 | tr '+/' '-_' >"$OUT/client.secret")
  {
    printf '%s\n' 'zone = "localhost"' "public_url = \"$url\"" '[auth]' 'mode = "oidc"' "$@" '[auth.oidc]'
    printf '%s\n' "issuer = \"http://127.0.0.1:$IDP\"" 'client_id = "gateway"' "client_secret_file = \"$OUT/client.secret\""
  } >"$OUT/gateway.toml"
}

# The one-time link that dev mode prints; empty in direct mode.
sign_in_link() {
  [ -n "$DIRECT" ] && return
  sed 's/\x1b\[[0-9;]*m//g' "$OUT/${1:-gateway}.log" | grep -oE 'https?://[^[:space:]"]+/\.gateway/sign-in\?code=[^[:space:]"<>]+' | tail -n 1
}

# quiet_logs : neither program complained. For suites that break nothing on purpose.
quiet_logs() {
  [ -n "$DIRECT" ] && return
  local name found
  for name in gateway agent; do
    found=$(grep -nE '\b(WARN|ERROR)\b|panicked' "$OUT/$name.log" | head -n 3)
    if [ -z "$found" ]; then ok "the $name logs no warning"; else fail "the $name logs: $(tr '\n' '|' <<<"$found")"; fi
  done
}
