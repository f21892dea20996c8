#!/usr/bin/env bash
# OpenSSH through a gateway: `gateway ssh`, plain ssh, scp and rsync by `gateway ssh-config`, and `gateway forward`. A server of
# this suite's own listens on a free port, with keys of its own; nobody's ~/.ssh is read for keys or written to.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "ssh: nothing to check without the gateway"; finish; }

SSHD=$(PATH=$PATH:/usr/sbin command -v sshd) || give_up "sshd is missing: tests/real/install.sh debian"
for _program in ssh scp rsync ssh-keygen; do command -v "$_program" >/dev/null || give_up "$_program is missing: tests/real/install.sh debian"; done
SSH_HOME=$OUT/home
CONFIG=$SSH_HOME/.ssh/config
HOST=$WORKSPACE.gateway

# --- an SSH server ----------------------------------------------------------------------------------------------------
mkdir -p "$OUT/sshd" "$OUT/far" "$SSH_HOME/.ssh"
chmod 700 "$SSH_HOME/.ssh"
ssh-keygen -q -t ed25519 -N '' -f "$OUT/sshd/host_key"
ssh-keygen -q -t ed25519 -N '' -f "$SSH_HOME/.ssh/id"
cp "$SSH_HOME/.ssh/id.pub" "$OUT/sshd/authorized_keys"
SSH_PORT=$(free_port)
cat >"$OUT/sshd/config" <<LINES
Port $SSH_PORT
ListenAddress 127.0.0.1
HostKey $OUT/sshd/host_key
PidFile none
AuthorizedKeysFile $OUT/sshd/authorized_keys
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitRootLogin prohibit-password
MaxStartups 200
Subsystem sftp internal-sftp
LINES
# The server that separates its rights as root wants this folder; anybody else's does without.
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
spawn sshd "$SSHD" -D -e -f "$OUT/sshd/config"
wait_port sshd "$SSH_PORT"

# --- gateway, and an agent behind a relay -----------------------------------------------------------------------------
start_gateway
RELAY=$(free_port)
spawn relay python3 "$APPS/relay.py" "$RELAY" "$AGENTS"
wait_port relay "$RELAY"
AGENT_URL=http://127.0.0.1:$RELAY start_agent
(umask 077 && printf '%s\n' "$USER_TOKEN" >"$OUT/user.token")

AS_USER=(env "HOME=$SSH_HOME" "GATEWAY_URL=http://localhost:$PUBLIC" "GATEWAY_TOKEN_FILE=$OUT/user.token")
OPTIONS=(-i "$SSH_HOME/.ssh/id" -o IdentitiesOnly=yes -o BatchMode=yes)
gateway_ssh() { timeout 60 "${AS_USER[@]}" "$REAL_GATEWAY" ssh "$WORKSPACE" --port "$SSH_PORT" -- "${OPTIONS[@]}" "$@"; }
plain_ssh() { timeout 60 ssh -F "$CONFIG" "$HOST" "$@"; }
# status TEXT WANT COMMAND… : the exit status is this one.
status() {
  local text=$1 want=$2 got
  shift 2
  "$@" >>"$OUT/status.log" 2>&1 </dev/null
  got=$?
  same "$text" "$want" "$got"
}

# --- gateway ssh ------------------------------------------------------------------------------------------------------
same "gateway ssh runs a command" "hello from far" "$(gateway_ssh echo hello from far </dev/null 2>>"$OUT/ssh.log")"
same "standard input reaches it" "$(head -c 100000 "$REAL_GATEWAY" | sha256sum)" "$(head -c 100000 "$REAL_GATEWAY" | gateway_ssh sha256sum 2>>"$OUT/ssh.log")"
status "the exit status of a command that is well is 0" 0 gateway_ssh true
status "the exit status of a command is passed on" 7 gateway_ssh exit 7
status "that of a command that a signal ended too" 255 gateway_ssh 'kill -TERM $$'
status "ssh's own failure is 255" 255 timeout 60 "${AS_USER[@]}" "$REAL_GATEWAY" ssh "$WORKSPACE" --port 1 -- "${OPTIONS[@]}" true
check "and the gateway's code says why" grep -q "nothing listens on port 1 of $WORKSPACE (port_closed)" "$OUT/status.log"
status "a workspace of nobody is refused" 255 timeout 60 "${AS_USER[@]}" "$REAL_GATEWAY" ssh nobodys -- "${OPTIONS[@]}" true
check "as one that there is not" grep -q "there is no workspace nobodys, or it is not yours (no_such_host)" "$OUT/status.log"
check "the server's key is remembered by the workspace's name" ssh-keygen -F "$HOST" -f "$SSH_HOME/.ssh/gateway_known_hosts"

# --- a terminal -------------------------------------------------------------------------------------------------------
spawn terminal "${AS_USER[@]}" python3 "$APPS/pty_run.py" "$REAL_GATEWAY" ssh "$WORKSPACE" --port "$SSH_PORT" -- "${OPTIONS[@]}" -t \
  'trap "echo caught; exit 5" INT; tty && echo ready; while :; do sleep 0.1; done'
check "a session has a terminal" until_ok 20 grep -q '^ready' "$OUT/terminal.log"
# The pattern comes from a file, so that this search does not find itself.
same "the token is in nobody's arguments" '' "$(grep -laF -f "$OUT/user.token" /proc/[0-9]*/cmdline 2>/dev/null)"
signal USR1 terminal
if ends_within 10 terminal; then same "Ctrl-C reaches the far end, and its status comes back" 5 "$STATUS"; else fail "Ctrl-C does not reach the far end"; stop terminal; fi
check "what the far end said last is heard" grep -q 'caught' "$OUT/terminal.log"

# --- gateway ssh-config -----------------------------------------------------------------------------------------------
printf '# mine\nHost *.gateway\n    Port %s\n    IdentityFile %s/.ssh/id\n    IdentitiesOnly yes\n    BatchMode yes\n' "$SSH_PORT" "$SSH_HOME" >"$CONFIG"
chmod 640 "$CONFIG"
cp "$CONFIG" "$OUT/config.before"
status "gateway ssh-config --write" 0 "${AS_USER[@]}" "$REAL_GATEWAY" ssh-config --write
sum=$(cat "$CONFIG" "$SSH_HOME/.ssh/gateway.config" | sha256sum)
status "and again" 0 "${AS_USER[@]}" "$REAL_GATEWAY" ssh-config --write
same "changes nothing the second time" "$sum" "$(cat "$CONFIG" "$SSH_HOME/.ssh/gateway.config" | sha256sum)"
same "keeps the mode" 640 "$(stat -c %a "$CONFIG")"
same "keeps what was there" "$(cat "$OUT/config.before")" "$(tail -n "$(wc -l <"$OUT/config.before")" "$CONFIG")"
same "plain ssh finds the workspace" "plain" "$(plain_ssh echo plain </dev/null 2>>"$OUT/ssh.log")"
status "with its exit status" 7 plain_ssh exit 7

# --- scp and rsync ----------------------------------------------------------------------------------------------------
head -c $((200 * 1024 * 1024)) /dev/urandom >"$OUT/big"
want=$(sha256sum <"$OUT/big")
began=$(now_ms)
check "scp takes 200 MiB there" timeout 120 scp -q -F "$CONFIG" "$OUT/big" "$HOST:$OUT/far/big"
printf 'scp there: %s ms\n' "$(($(now_ms) - began))" >>"$OUT/speed.txt"
same "whole" "$want" "$(sha256sum <"$OUT/far/big")"
began=$(now_ms)
check "scp takes 200 MiB back" timeout 120 scp -q -F "$CONFIG" "$HOST:$OUT/far/big" "$OUT/back"
printf 'scp back: %s ms\n' "$(($(now_ms) - began))" >>"$OUT/speed.txt"
same "whole as well" "$want" "$(sha256sum <"$OUT/back")"
rm -f "$OUT/big" "$OUT/back" "$OUT/far/big"
python3 "$APPS/make_tree.py" "$OUT/tree" >"$OUT/tree.txt"
for number in $(seq 1 300); do printf 'file %s\n' "$number" >"$OUT/tree/many-$number"; done
check "rsync takes a tree there" timeout 120 rsync -a -e "ssh -F $CONFIG" "$OUT/tree/" "$HOST:$OUT/far/tree/"
check "with every file" diff -r "$OUT/tree" "$OUT/far/tree"
printf 'changed\n' >>"$OUT/tree/many-7"
rm -f "$OUT/tree/many-8"
same "and then only what changed" "many-7" "$(timeout 120 rsync -a --delete --out-format=%n -e "ssh -F $CONFIG" "$OUT/tree/" "$HOST:$OUT/far/tree/" | grep -v -e '^deleting ' -e '/$')"
check "rsync takes it back" timeout 120 rsync -a -e "ssh -F $CONFIG" "$HOST:$OUT/far/tree/" "$OUT/tree-back/"
check "with every file as well" diff -r "$OUT/tree" "$OUT/tree-back"

# --- fifty at once ----------------------------------------------------------------------------------------------------
mkdir -p "$OUT/many"
for number in $(seq 1 50); do
  spawn "many-$number" sh -c "timeout 90 ssh -F '$CONFIG' '$HOST' 'for line in \$(seq 1 200); do echo $number \$line; done; exit $number' >'$OUT/many/$number' 2>>'$OUT/many.log'"
done
wrong=
for number in $(seq 1 50); do
  ends_within 90 "many-$number" >/dev/null || { stop "many-$number"; wrong="$wrong $number:hangs"; continue; }
  [ "$STATUS" = "$number" ] || wrong="$wrong $number:status-$STATUS"
  seq 1 200 | sed "s/^/$number /" | cmp -s - "$OUT/many/$number" || wrong="$wrong $number:output"
done
same "50 sessions at once each hear their own output and status" "" "$wrong"

# --- links that break -------------------------------------------------------------------------------------------------
spawn counter sh -c "ssh -F '$CONFIG' '$HOST' 'for line in \$(seq 1 300); do echo \$line; sleep 0.02; done; exit 3' >'$OUT/counted'"
for _ in 1 2 3; do sleep 1; signal USR1 relay; done
signal STOP agent
sleep 2
signal CONT agent
if ends_within 60 counter; then same "a session outlives three broken links and an agent that sleeps" 3 "$STATUS"; else fail "the session hangs after broken links"; stop counter; fi
check "with no line lost or repeated" sh -c "seq 1 300 | cmp - '$OUT/counted'"
head -c 30000000 /dev/urandom >"$OUT/big"
(sleep 0.3; kill -USR1 "${PIDS[relay]}"; sleep 0.3; kill -USR1 "${PIDS[relay]}") &
check "an upload goes on over broken links" timeout 120 sh -c "ssh -F '$CONFIG' '$HOST' 'cat >$OUT/far/big' <'$OUT/big'"
check "and arrives whole" cmp "$OUT/big" "$OUT/far/big"
wait $!

# --- gateway forward --------------------------------------------------------------------------------------------------
LOCAL=$(free_port)
spawn forward "${AS_USER[@]}" "$REAL_GATEWAY" forward "$WORKSPACE" "$LOCAL:$SSH_PORT" -v
wait_port forward "$LOCAL"
check "gateway forward says where it listens" until_ok 10 grep -q "^127.0.0.1:$LOCAL is port $SSH_PORT of $WORKSPACE" "$OUT/forward.log"
same "a forwarded port is the server" "through" "$(timeout 60 ssh -F "$CONFIG" -o ProxyCommand=none -o HostName=127.0.0.1 -o "HostKeyAlias=$HOST" -p "$LOCAL" "$HOST" echo through </dev/null 2>>"$OUT/ssh.log")"
signal INT forward
if ends_within 5 forward; then same "Ctrl-C ends it with status 0" 0 "$STATUS"; else fail "Ctrl-C does not end gateway forward"; stop forward; fi
banner() { printf '' | timeout 10 "${AS_USER[@]}" "$REAL_GATEWAY" forward --stdio "$WORKSPACE" "$SSH_PORT" | head -n 1 | tr -d '\r'; }
check "gateway forward --stdio carries the server's first words" sh -c "case '$(banner 2>>"$OUT/ssh.log")' in SSH-2.0-*) ;; *) exit 1 ;; esac"

# --- access that ends -------------------------------------------------------------------------------------------------
spawn cut sh -c "ssh -F '$CONFIG' '$HOST' 'echo up; sleep 100'"
check "a session is up" until_ok 20 grep -q '^up' "$OUT/cut.log"
token_id=$(gateway token list 2>>"$OUT/token.log" | awk '$2 == "user" && $3 == "dev" { id = $1 } END { print id }')
gateway token revoke "$token_id" 2>>"$OUT/token.log"
# How long the command itself takes to start is no part of it.
began=$(now_ms)
if ends_within 6 cut; then
  took=$(($(now_ms) - began))
  if [ "$took" -lt 5000 ]; then ok "revoking the token cuts the session within 5 s"; else fail "revoking the token cuts the session after $took ms"; fi
  printf 'revoked to cut: %s ms\n' "$took" >>"$OUT/speed.txt"
else
  fail "revoking the token does not cut the session"
  stop cut
fi
check "and says why" grep -q "access to port $SSH_PORT of $WORKSPACE has ended (sign_in_required)" "$OUT/cut.log"
check "neither program panicked" sh -c "! grep -n panicked '$OUT'/*.log"
check "the token is in no log" sh -c "! grep -rF -- \"\$(cat '$OUT/user.token')\" '$OUT'/*.log"
finish
