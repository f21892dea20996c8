#!/usr/bin/env bash
# What a workspace's pod runs, run here: the commands and scripts of recorded frozen configs as local processes, with the folders
# where a pod has them and a process tree of their own, the real agent and the real editor, reached through the tunnel.
# Needs root, or a system that lets anybody make namespaces.
WORKSPACE=scripts
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "workspace-scripts: nothing to check without the gateway"; finish; }

ENTRY=$(echo "$CACHE"/code-server-*/node_modules/code-server/out/node/entry.js)
[ -e "$ENTRY" ] || give_up "code-server is missing: run tests/real/install.sh"
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -n 1)
EDITOR_PORT=60001
APP_PORT=28573
as_user=()
into_user=()
if [ "$(id -u)" != 0 ]; then
  as_user=(--user --map-root-user)
  into_user=(--user --preserve-credentials)
fi
unshare "${as_user[@]}" --mount --pid --fork true || give_up "no namespaces here: $(tail -n 1 "$OUT/shell.log")"
for port in $EDITOR_PORT $APP_PORT; do ! listening "$port" || give_up "port $port is taken"; done

start_gateway
user_token

# --- a pod ------------------------------------------------------------------------------------------------------------

# What the tools image has.
mkdir -p "$OUT/image/bin"
cp "$REAL_AGENT_SLIM" "$OUT/image/bin/workspace-agent"
printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$(type -P node)" "$ENTRY" >"$OUT/image/bin/code-server"
chmod +x "$OUT/image/bin/code-server"

# lay RECORD : the volumes of a pod, in $POD, and its config in $CONFIG. The gateway's address is the one thing that is replaced.
lay() {
  POD=$OUT/$1
  CONFIG=$POD.json
  sed "s|http://gateway.example.com:8081|http://127.0.0.1:$AGENTS|" "$ROOT/gateway/spec/tests/frozen/v$VERSION/$1.json" >"$CONFIG"
  rm -rf "$POD"
  mkdir -p "$POD"/{volume,tools,files}
  python3 "$APPS/kubelet.py" lay "$CONFIG" "$POD"
  local named
  mapfile -d '' -t named < <(python3 "$APPS/kubelet.py" words "$CONFIG" gw-tools workspace)
  cp "$(workspace_token "${named[0]}")" "$POD/files/agent-token"
  chmod 440 "$POD/files/agent-token"
}

# words CONTAINER WHAT : into WORDS.
words() { mapfile -d '' -t WORDS < <(python3 "$APPS/kubelet.py" words "$CONFIG" "$1" "$2"); }

# environment CONTAINER : into ENVIRONMENT.
environment() {
  words "$1" env
  ENVIRONMENT=("PATH=/usr/local/bin:/usr/bin:/bin:/sbin" "${WORDS[@]}")
}

# contain NAME FOLDERS… -- COMMAND… : a container as process NAME, whose first process is the command.
contain() {
  local name=$1
  shift
  mkdir -p "$OUT/roots/$name"
  spawn "$name" unshare "${as_user[@]}" --mount --pid --fork --kill-child "$APPS/container.sh" "$OUT/roots/$name" "$@"
}

# start CONTAINER : its command, as a kubelet starts it.
start() {
  environment "$1"
  words "$1" command
  contain "$1" "${VOLUMES[@]}" -- "${ENVIRONMENT[@]}" "${WORDS[@]}"
  until_ok 10 first_of "$1" >/dev/null || give_up "$1 does not start: $(tail -n 1 "$OUT/$1.log")"
}

# first_of CONTAINER : its first process, once that is the command and no longer what prepares it.
first_of() {
  local first
  first=$(cat "/proc/${PIDS[$1]}/task/${PIDS[$1]}/children") || return 1
  first=${first%% *}
  [ -n "$first" ] && [[ "$(tr '\0' ' ' <"/proc/$first/cmdline")" != *container.sh* ]] && echo "$first"
}

# volumes TOOLS [ro] : where a pod's containers have its volumes, into VOLUMES; with `ro` the workspace's own cannot be written to.
volumes() {
  VOLUMES=("projects=$POD/volume/projects${2:+:ro}" "home/workspace=$POD/volume/home${2:+:ro}" "workspace-gateway/logs=$POD/volume/logs${2:+:ro}"
    "workspace-gateway/scripts=$POD/scripts:ro" "workspace-gateway/files=$POD/files:ro" "workspace-gateway/tools=$1:ro")
}

# prepare TIME : the first container.
prepare() {
  words gw-tools command
  contain tools "workspace-tools=$OUT/image:ro" "workspace-gateway/tools=$POD/tools" "workspace-gateway/volume=$POD/volume" \
    "workspace-gateway/scripts=$POD/scripts:ro" -- PATH=/usr/bin:/bin "${WORDS[@]}"
  ends_within 20 tools
  same "the tools are copied and the folders made, the $1 time too" "0 yes home logs projects" \
    "$STATUS $([ -x "$POD/tools/bin/workspace-agent" ] && echo yes) $(cd "$POD/volume" && echo *)"
}

# inside CONTAINER COMMAND… : in its namespaces, with its variables, as a kubelet runs a hook.
inside() {
  local first
  first=$(first_of "$1")
  environment "$1"
  timeout 30 nsenter --target "$first" "${into_user[@]}" --mount --pid --root --wd /usr/bin/env -i "${ENVIRONMENT[@]}" "${@:2}"
}

# hook CONTAINER : its postStart hook.
hook() {
  words "$1" hook
  local line=("${WORDS[@]}")
  inside "$1" "${line[@]}"
}

# processes CONTAINER PATTERN : pids there, as seen from here.
processes() { pgrep --ns "$(first_of "$1")" --nslist pid -f -- "$2"; }
agent_pid() { processes "$1" '^/workspace-gateway/tools/bin/workspace-agent run'; }
editor_pid() { processes "$1" "out/node/entry.js --bind-addr" | head -n 1; }

# another COMMAND OLD CONTAINER : the process that the command finds is there, and is not the old one.
another() { local now; now=$("$1" "$3") && [ -n "$now" ] && [ "$now" != "$2" ]; }

editor_answers() { has_text '"status"' visit -f --max-time 5 "http://$(host_of $EDITOR_PORT)/healthz"; }
# The editor loads its server in the first request for a page.
page_is_the_editors() { has_text 'vscode' visit -fL "http://$1/"; }
app_answers() { [ "$(visit -f --max-time 5 "http://$(host_of $APP_PORT)/path?query")" = 'app /path?query' ]; }
has() { grep -qE -- "$2" "$1" || { tail -n 3 "$1"; return 1; }; }
log() { echo "$POD/volume/logs/main/$1.log"; }

# --- the tools --------------------------------------------------------------------------------------------------------
lay scripts
volumes "$POD/tools"
prepare first
prepare second

# --- the main container -----------------------------------------------------------------------------------------------
mkdir -p "$POD/volume/projects/it's \$(here)"
start main
began=$(now_ms)
hook main
hooked=$?
took=$(($(now_ms) - began))
same "the hook succeeds, though one of its commands fails and one never ends" 0 "$hooked"
check "and at once: after $took ms" test "$took" -lt 10000
check "the agent attaches" until_ok 30 attached "$WORKSPACE"
check "the editor answers through the tunnel" until_ok 60 editor_answers
check "its page is served" page_is_the_editors "$(host_of $EDITOR_PORT)"
check "also where no port is said" page_is_the_editors "$WORKSPACE.localhost:$PUBLIC"
same "the editor listens on loopback only" 127.0.0.1:$EDITOR_PORT "$(ss -Hltn "sport = :$EDITOR_PORT" | awk '{print $4}')"
check "an app that a command of the devfile started answers" until_ok 20 app_answers
same "a port on which nothing listens is closed" port_closed "$(failure_of "$(host_of 28574)" /)"

# --- commands of the devfile ------------------------------------------------------------------------------------------
cd "$POD/volume/projects" || give_up "no projects"
check "the last command that can begin does" until_ok 20 test -e forever
same "commands run in the project's folder" /projects "$(cat where)"
same "or in theirs, whatever its name" "/projects/it's \$(here)" "$(cat "it's \$(here)/where")"
same "variables arrive as they are" "it's \"\$HOME\" \`id\`; é \$(HOME) \$\$ \$é" "$(cat greeting)"
same "a line with everything that means something to a shell arrives as it is" "it's|a \"b\" \$(id) \`id\` \${HOME} \\|42
  kept: \$HOME	'tab'" "$(cat hostile)"
check "one whose folder is missing does not run elsewhere" test ! -e must-not-be
check "what it said is in its log" has "$(log command-nowhere)" 'no/such/folder'
check "so is what a command said that failed" has "$(log command-fails)" 'trouble'
check "and how it ended" has "$(log post-start)" 'fails ended with status 137'
check "the next one ran" has "$(log post-start)" 'app ended with status 0'
check "one behind a command that never ends waits, and stops nothing" test ! -e unreached
cd "$ROOT" || give_up "no root"

# --- who dies comes back ----------------------------------------------------------------------------------------------
old=$(agent_pid main)
kill -9 "$old"
check "a killed agent comes back" until_ok 10 another agent_pid "$old" main
check "and the editor is reached again" until_ok 15 editor_answers
check "the log says that it ended" has "$(log agent)" 'agent ended with status 137; it starts again in 1 s'
old=$(editor_pid main)
kill -9 "$old"
check "a killed editor comes back" until_ok 60 another editor_pid "$old" main
check "and answers" until_ok 60 editor_answers
first=$(first_of main)
inside main /bin/kill -9 -1
same "when everything in the container is killed, its first process stays" "$first" "$(first_of main)"
check "and brings agent and editor back" until_ok 60 editor_answers
same "with one agent" 1 "$(agent_pid main | wc -l)"

# A token that does not count ends the agent at once, each time.
cp "$POD/files/agent-token" "$OUT/good.token"
chmod 600 "$POD/files/agent-token"
printf 'gwa_nothing\n' >"$POD/files/agent-token"
kill -9 "$(agent_pid main)"
check "an agent that cannot start is started less and less often" until_ok 30 has "$(log agent)" 'starts again in 4 s'
check "the editor goes on meanwhile" curl -sf -o /dev/null "http://127.0.0.1:$EDITOR_PORT/healthz"
cp "$OUT/good.token" "$POD/files/agent-token"
check "with a good token it attaches" until_ok 40 attached "$WORKSPACE"

# --- the end ----------------------------------------------------------------------------------------------------------
inside main /bin/sh -c "(trap 'echo goodbye >/projects/polite; exit' TERM; echo ready >/projects/polite; while :; do sleep 1; done) >/dev/null 2>&1 &"
check "a process works in the container" until_ok 5 has "$POD/volume/projects/polite" ready
editor=$(editor_pid main)
kill -s TERM "$(first_of main)"
if ends_within 25 main; then same "SIGTERM ends the container well" 0 "$STATUS"; else fail "SIGTERM does not end the container within 25 s"; stop main; fi
same "whoever works there can say goodbye" goodbye "$(cat "$POD/volume/projects/polite")"
check "nothing is left" test ! -e "/proc/$editor"
check "the log says that the agent was told to end, and not that it is started again" sh -c "! tail -n 1 '$(log agent)' | grep -q 'starts again'"

start main
check "the next start has new logs, and keeps the last ones" until_ok 10 test -s "$(log agent).old"
check "and the editor answers" until_ok 60 editor_answers
stop main

# --- beside it --------------------------------------------------------------------------------------------------------
start side
hook side
same "the hook of a side container succeeds" 0 "$?"
check "its command runs, where the image says" until_ok 5 has "$POD/volume/projects/beside" '^/$'
kill -s TERM "$(first_of side)"
if ends_within 5 side; then same "SIGTERM ends what only stays" 0 "$STATUS"; else fail "SIGTERM does not end what only stays within 5 s"; stop side; fi
words own command
same "a command of the devfile's own stays as it is" '/bin/sh -c exec sleep 1000' "${WORDS[*]}"

# --- a volume that cannot be written to -------------------------------------------------------------------------------
volumes "$POD/tools" ro
start main
hook main
same "with a volume that cannot be written to, the hook succeeds too" 0 "$?"
check "the agent attaches" until_ok 30 attached "$WORKSPACE"
check "and logs in the container" inside main /bin/sh -c 'test -s /tmp/workspace-logs/agent.log'
inside main /bin/rm -rf /tmp/workspace-logs
stop main

# --- the devfile's own command in the main container ------------------------------------------------------------------
WORKSPACE=own
lay own-command
prepare first
volumes "$POD/tools"
start main
hook main
same "beside a command of the devfile's own, the hook succeeds" 0 "$?"
check "the agent attaches" until_ok 30 attached "$WORKSPACE"
old=$(agent_pid main)
kill -9 "$old"
check "and comes back when it is killed" until_ok 10 another agent_pid "$old" main
check "the editor answers" until_ok 60 editor_answers
check "the devfile's own command is the first process" grep -q sleep "/proc/$(first_of main)/cmdline"
stop main

check "no token is in a log or among arguments" sh -c "! grep -rF -- \"\$(cat '$OUT/good.token')\" '$OUT'/*.log '$OUT'/*/volume/logs"
check "no program panicked" sh -c "! grep -rn panicked '$OUT'/*.log '$OUT'/*/volume/logs"
finish
