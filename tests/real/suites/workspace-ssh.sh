#!/usr/bin/env bash
# The SSH server that an agent offers by itself, as pods of workspaces have it: an agent that runs as their user, without a line in any
# list of users, a key or a password, and the machine's own ssh, scp, sftp and rsync at the other end. What VS Code Remote and JetBrains
# Gateway need of a server is played step by step; neither program itself runs here.
# shellcheck disable=SC2016
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "workspace-ssh: nothing to check without the gateway"; finish; }
[ "$(id -u)" = 0 ] || give_up "only root can start an agent as another user"
for _program in ssh scp sftp rsync setpriv script; do command -v "$_program" >/dev/null || give_up "$_program is missing: tests/real/install.sh debian"; done

POD=$OUT/pod
TOOLS=$POD/tools/ssh
FAR=$POD/home
SSH_HOME=$OUT/home
CONFIG=$SSH_HOME/.ssh/config
HOST=$WORKSPACE.gateway
mkdir -p "$FAR" "$SSH_HOME/.ssh" "$POD/files"
"$ROOT/deploy/images/ssh-tools.sh" "$TOOLS" 2>>"$OUT/tools.log" || give_up "no tools: $(tail -n 1 "$OUT/tools.log")"

# --- gateway, and agents as pods have them ----------------------------------------------------------------------------
start_gateway
user_token
gateway token create --user eve >"$OUT/eve.token" 2>>"$OUT/token.log" || give_up "no token for another user: $(tail -n 1 "$OUT/token.log")"
(umask 077 && printf '%s\n' "$USER_TOKEN" >"$OUT/user.token")
chown -R 5001:0 "$FAR"
# pod_agent NAME WORKSPACE TOOLS : an agent as the user of pods, with an environment like theirs.
pod_agent() {
  [ -e "$POD/files/$2.token" ] || { workspace_token "$2" >/dev/null && cp "$OUT/$2.token" "$POD/files/" && chown 5001:0 "$POD/files/$2.token"; }
  spawn "$1" setpriv --reuid 5001 --regid 0 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
    env -i -C "$FAR" NO_COLOR=1 PATH=/opt/image/bin:/usr/local/bin:/usr/bin:/bin HOME="$FAR" SHELL=/bin/bash USER=workspace \
    GREETING="it's \"here\" \\ #1 \$HOME" WORKSPACE_AGENT_SSH_SERVER="$3" WORKSPACE_AGENT_LOG=debug \
    "$REAL_AGENT" run --gateway "http://127.0.0.1:$AGENTS" --token-file "$POD/files/$2.token"
  until_ok 20 attached "$2" || give_up "the agent $1 does not attach: $(tail -n 1 "$OUT/$1.log")"
}
pod_agent agent "$WORKSPACE" "$TOOLS"

AS_USER=(env "HOME=$SSH_HOME" "GATEWAY_URL=http://localhost:$PUBLIC" "GATEWAY_TOKEN_FILE=$OUT/user.token")
gateway_ssh() { timeout 30 "${AS_USER[@]}" "$REAL_GATEWAY" ssh "${NAME:-$WORKSPACE}" -- -F none -o BatchMode=yes "$@"; }
far() { timeout 30 ssh -F "$CONFIG" "$HOST" "$@" 2>>"$OUT/ssh.log"; }
# answers WANT COMMAND… : what it prints is exactly this.
answers() {
  local said
  said=$("${@:2}" </dev/null) || { echo "status $?: $said"; return 1; }
  [ "$said" = "$1" ] || { echo "want $1, got $said"; return 1; }
}
# status TEXT WANT COMMAND… : the exit status is this one.
status() {
  local text=$1 want=$2
  shift 2
  "$@" >>"$OUT/status.log" 2>&1 </dev/null
  same "$text" "$want" "$?"
}
# Processes of servers; their titles keep the loader's first words. connections : one of each connection's two processes.
no_servers() { ! pgrep -af -u 5001 "$TOOLS/lib/ld.so"; }
connections() { pgrep -fc -u 5001 ': workspace \[priv\]'; }

# --- the way in -------------------------------------------------------------------------------------------------------
check "gateway ssh finds the server by itself, without a key or a password" answers 5001:0 gateway_ssh 'echo $(id -u):$(id -g)'
check "its key is remembered as that of this server" ssh-keygen -F "[$HOST]:60022" -f "$SSH_HOME/.ssh/gateway_known_hosts"
status "the exit status of a command is passed on" 7 gateway_ssh exit 7
status "gateway ssh-config --write" 0 "${AS_USER[@]}" "$REAL_GATEWAY" ssh-config --write
# Commands in ssh's configuration find the token by its lines alone, and no other file of ssh is read.
same "plain ssh takes its port and user" "user workspace
port 60022" "$(ssh -F "$CONFIG" -G "$HOST" 2>>"$OUT/ssh.log" | grep -xE '(user|port) .*')"
same "unless another port is named" "port 2222" "$(ssh -F "$CONFIG" -p 2222 -G "$HOST" 2>>"$OUT/ssh.log" | grep -xE 'user workspace|port .*')"
check "plain ssh works" answers plain far echo plain
check "sessions begin at home, with the container's variables" answers "$FAR it's \"here\" \\ #1 \$HOME" far 'echo "$PWD $GREETING"'
check "its shell, and its search path before the tools'" answers "/bin/bash /opt/image/bin:/usr/local/bin:/usr/bin:/bin:$TOOLS/bin workspace" far 'echo "$SHELL $PATH $USER"'
check "and no variable of the agent" answers none far 'env | grep -E "WORKSPACE_AGENT|NSS_WRAPPER|LD_" || echo none'
same "input reaches a command as it is, without a terminal" "$(head -c 1000000 "$REAL_GATEWAY" | sha256sum)" "$(head -c 1000000 "$REAL_GATEWAY" | far sha256sum)"
status "no other user is let in, such as root" 255 timeout 30 ssh -F "$CONFIG" -o BatchMode=yes -l root "$HOST" true
check "and told so" grep -q 'Permission denied' "$OUT/status.log"

# --- a terminal -------------------------------------------------------------------------------------------------------
printf 'echo $((6*7)) $(stty size | wc -w) $PATH; exit 3\n' | timeout 30 script -qec "ssh -F '$CONFIG' -tt '$HOST'" "$OUT/shell.typescript" >>"$OUT/terminal.log" 2>&1
same "a shell on a terminal ends with its status" 3 "$?"
check "and has the container's search path, not a login's" grep -qF "42 2 /opt/image/bin:" "$OUT/shell.typescript"
spawn keys "${AS_USER[@]}" python3 "$APPS/pty_run.py" ssh -F "$CONFIG" -t "$HOST" 'trap "echo caught; exit 5" INT; echo ready; while :; do sleep 0.1; done'
check "a command has a terminal" until_ok 20 grep -q '^ready' "$OUT/keys.log"
signal USR1 keys
if ends_within 10 keys; then same "to which Ctrl-C gets" 5 "$STATUS"; else fail "Ctrl-C does not reach the far end"; stop keys; fi

# --- files ------------------------------------------------------------------------------------------------------------
head -c 4000000 /dev/urandom >"$OUT/big"
check "scp takes a file there" timeout 30 scp -q -F "$CONFIG" "$OUT/big" "$HOST:big"
check "whole" cmp "$OUT/big" "$FAR/big"
check "and back" timeout 30 scp -q -F "$CONFIG" "$HOST:$FAR/big" "$OUT/back"
check "whole as well" cmp "$OUT/big" "$OUT/back"
printf 'mkdir put\nput %s put/big\nget put/big %s\n' "$OUT/big" "$OUT/got" | timeout 30 sftp -q -b - -F "$CONFIG" "$HOST" >>"$OUT/sftp.log" 2>&1
same "sftp works" 0 "$?"
check "whole" cmp "$OUT/big" "$OUT/got"
python3 "$APPS/make_tree.py" "$OUT/tree" >"$OUT/tree.txt"
check "rsync works, also with the tools' own at the far end" timeout 60 rsync -a --rsync-path="$TOOLS/bin/rsync" -e "ssh -F $CONFIG" "$OUT/tree/" "$HOST:tree/"
check "with every file" diff -r "$OUT/tree" "$FAR/tree"
check "a stream that goes both ways at once does not stand still" sh -c "timeout 30 ssh -F '$CONFIG' '$HOST' 'gzip -1 | zcat' <'$REAL_AGENT' | cmp - '$REAL_AGENT'"

# --- ports ------------------------------------------------------------------------------------------------------------
PAGE=$(free_port) LOCAL=$(free_port) BACK=$(free_port) SOCKS=$(free_port)
echo served >"$OUT/far-page" && echo local >"$OUT/near-page"
spawn page python3 -m http.server --bind 127.0.0.1 --directory "$OUT" "$PAGE"
wait_port page "$PAGE"
spawn ways ssh -F "$CONFIG" -N -o ExitOnForwardFailure=yes -L "$LOCAL:127.0.0.1:$PAGE" -R "$BACK:127.0.0.1:$PAGE" -D "127.0.0.1:$SOCKS" \
  -L "$OUT/near.sock:$FAR/far.sock" "$HOST"
check "-L leads to a port there" until_ok 20 curl -sf "http://127.0.0.1:$LOCAL/far-page"
check "-R leads back" answers local curl -sf "http://127.0.0.1:$BACK/near-page"
check "-D leads anywhere" answers served curl -sf --socks5-hostname "127.0.0.1:$SOCKS" "http://127.0.0.1:$PAGE/far-page"
check "sockets are forwarded as well" sh -c "ssh -F '$CONFIG' '$HOST' 'rm -f far.sock; exec timeout 10 python3 -c \"
import socket
s = socket.socket(socket.AF_UNIX); s.bind(\\\"far.sock\\\"); s.listen(); c = s.accept()[0]; c.sendall(b\\\"by socket\\\"); c.close()\"' & sleep 1; curl -s --http0.9 --unix-socket '$OUT/near.sock' http://x/ | grep -q 'by socket'; wait"
stop ways

# --- many sessions on one connection ----------------------------------------------------------------------------------
check "no server is left of what has ended" until_ok 10 no_servers
spawn master ssh -F "$CONFIG" -M -S "$OUT/control" -N "$HOST"
check "a connection is made for many sessions" until_ok 20 ssh -F "$CONFIG" -S "$OUT/control" -O check "$HOST"
wrong=
for number in $(seq 1 24); do spawn "many-$number" ssh -F "$CONFIG" -S "$OUT/control" "$HOST" "seq 1 500; sleep 0.5; exit $number"; done
for number in $(seq 1 24); do
  ends_within 30 "many-$number" >/dev/null || { stop "many-$number"; wrong="$wrong $number:hangs"; continue; }
  [ "$STATUS" = "$number" ] || wrong="$wrong $number:status-$STATUS"
  seq 1 500 | cmp -s - "$OUT/many-$number.log" || wrong="$wrong $number:output"
done
same "24 sessions on it each hear their own output and status" "" "$wrong"

# --- what editors need ------------------------------------------------------------------------------------------------
# VS Code Remote: a shell without a terminal that reads a script, unpacks a server into the home and starts it apart; a proxy (-D) of
# the same connection leads to its port.
mkdir -p "$OUT/editor" && echo "#!/bin/sh" >"$OUT/editor/run" && echo 'exec python3 -m http.server --bind 127.0.0.1 "$1"' >>"$OUT/editor/run" && chmod +x "$OUT/editor/run"
EDITOR=$(free_port) SOCKS=$(free_port)
cat >"$OUT/vscode.script" <<LINES
echo "platform \$(uname -sm) home \$HOME"
mkdir -p ~/.vscode-server/bin && cd ~/.vscode-server/bin
echo '$(tar -C "$OUT/editor" -cz run | base64 -w0)' | base64 -d | tar xzf -
umask 077; ./run $EDITOR >server.log 2>&1 </dev/null & echo \$! >server.pid
echo "listeningOn==$EDITOR=="
sleep 30
LINES
spawn vscode sh -c "exec ssh -F '$CONFIG' -T -D $SOCKS '$HOST' sh <'$OUT/vscode.script'"
check "VS Code Remote: a script on the input of a shell without a terminal unpacks and starts a server" until_ok 20 grep -q "^listeningOn==$EDITOR==" "$OUT/vscode.log"
same "and nothing else is heard than what it says" "platform $(uname -sm) home $FAR" "$(head -n 1 "$OUT/vscode.log")"
check "which the connection's proxy reaches" until_ok 20 curl -sf --socks5-hostname "127.0.0.1:$SOCKS" "http://127.0.0.1:$EDITOR/server.pid"
stop vscode
check "and which outlives it, for the next connection" far 'kill "$(cat .vscode-server/bin/server.pid)"'
# JetBrains Gateway: commands without a terminal, files by sftp, channels to a port, all on one connection and many at a time.
near() { timeout 30 ssh -F "$CONFIG" -S "$OUT/control" "$HOST" "$@"; }
tar -C "$OUT/editor" -czf "$OUT/ide.tar.gz" run
same "JetBrains Gateway: commands without a terminal say what they say and nothing else" "$(uname -s) x err" "$(near 'uname -s; echo x; echo err >&2' 2>&1 | tr '\n' ' ' | sed 's/ $//')"
printf 'mkdir .cache\nmkdir .cache/JetBrains\nput %s .cache/JetBrains/ide.tar.gz\n' "$OUT/ide.tar.gz" |
  timeout 30 sftp -q -b - -o "ControlPath=$OUT/control" -F "$CONFIG" "$HOST" >>"$OUT/sftp.log" 2>&1
same "a file is put into the home by sftp" 0 "$?"
check "unpacked, and started apart from its session" near "cd .cache/JetBrains && tar xzf ide.tar.gz && (setsid ./run $EDITOR >ide.log 2>&1 </dev/null & echo \$! >ide.pid)"
LOCAL=$(free_port)
check "a port of it is forwarded on the same connection" ssh -F "$CONFIG" -S "$OUT/control" -O forward -L "$LOCAL:127.0.0.1:$EDITOR" "$HOST"
check "and reached" until_ok 20 curl -sf "http://127.0.0.1:$LOCAL/ide.pid"
near 'kill "$(cat .cache/JetBrains/ide.pid)"' >>"$OUT/ssh.log" 2>&1
check "all of it was one server" test "$(connections)" = 1
stop master

# --- no other user ----------------------------------------------------------------------------------------------------
own_port=$(host_of 60022)
same "a browser is refused, although it comes with the owner's token" port_not_allowed "$(failure_of "$own_port" /)"
status "another user is refused" 255 timeout 30 env "HOME=$SSH_HOME" "GATEWAY_URL=http://localhost:$PUBLIC" "GATEWAY_TOKEN_FILE=$OUT/eve.token" \
  "$REAL_GATEWAY" ssh "$WORKSPACE" --port 60022 -- -F none -o BatchMode=yes true
check "as of a workspace that there is not" grep -q "there is no workspace $WORKSPACE, or it is not yours (no_such_host)" "$OUT/status.log"
status "and the port cannot be shared" 1 gateway --config "$OUT/gateway.toml" workspace share "$WORKSPACE" 60022 --with user:eve
check "for a reason" grep -q "port 60022 is the workspace's SSH server" "$OUT/status.log"

# --- ends -------------------------------------------------------------------------------------------------------------
check "no server is left" until_ok 10 no_servers
spawn cut ssh -F "$CONFIG" -tt "$HOST" 'echo up; exec sleep 1000'
check "a session is up" until_ok 20 grep -q '^up' "$OUT/cut.log"
signal KILL cut
ends_within 5 cut >/dev/null
check "one whose client is gone ends with its terminal's programs" until_ok 10 eval '! pgrep -u 5001 -fx "sleep 1000" && no_servers'
spawn killed ssh -F "$CONFIG" -tt "$HOST" 'echo up; exec sleep 1000'
check "another one is up" until_ok 20 grep -q '^up' "$OUT/killed.log"
signal KILL agent
ends_within 5 agent >/dev/null
check "an agent that is killed leaves no server" until_ok 10 no_servers
stop killed
pod_agent agent2 "$WORKSPACE" "$TOOLS"
check "the next one has the same key" answers again far -o StrictHostKeyChecking=yes echo again
spawn ended ssh -F "$CONFIG" -tt "$HOST" 'echo up; exec sleep 1000'
check "and a session" until_ok 20 grep -q '^up' "$OUT/ended.log"
signal TERM agent2
if ends_within 10 agent2; then ok "an agent that is told to end does"; else fail "the agent does not end"; fi
check "and its servers with it" no_servers
stop ended

# --- a server that does not start -------------------------------------------------------------------------------------
cp -r "$TOOLS" "$POD/broken" && rm "$POD/broken/lib/sshd.bin"
pod_agent broken-agent broken "$POD/broken"
NAME=broken status "a server that does not start is told by gateway ssh" 255 gateway_ssh true
check "in words" grep -q "the SSH server of broken does not start: the agent's log says why (port_closed: ssh_not_started)" "$OUT/status.log"
check "and its own are in the agent's log" grep -q 'ended before it began.*sshd.bin' "$OUT/broken-agent.log"
pod_agent none-agent none "$POD/nothing"
NAME=none status "without a server gateway ssh asks for the usual port" 255 gateway_ssh true
check "and says that nothing listens there" grep -q "nothing listens on port 22 of none" "$OUT/status.log"
check "which the agent's log explains" grep -q 'offers no SSH' "$OUT/none-agent.log"
check "no program panicked" sh -c "! grep -n panicked '$OUT'/*.log"
finish
