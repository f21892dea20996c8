#!/usr/bin/env bash
# Private repositories in a real pod: cloned before the agent runs, pulled and pushed to, with what their owner has stored at the gateway.
# One git server wants a password, another one access tokens of OAuth, whose refresh token is exchanged and rotates.
# shellcheck disable=SC2016
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/machine.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/node.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/real-pod.sh"

[ -n "$DIRECT" ] && { echo "git-credentials: nothing to check without the gateway"; finish; }
own_machine "$@"

# Secrets, of which none may be found anywhere later. The servers' names are addresses with ports.
PASSWORD=password-$(tr -dc a-f0-9 </dev/urandom | head -c 24)
REFRESH=refresh-$(tr -dc a-f0-9 </dev/urandom | head -c 24)
CLIENT_SECRET=client-$(tr -dc a-f0-9 </dev/urandom | head -c 24)
BASIC=$NODE_ADDRESS:$(free_port)
OAUTH=$NODE_ADDRESS:$(free_port)
UNKNOWN=$NODE_ADDRESS:$(free_port)
printf '%s' "$CLIENT_SECRET" >"$OUT/client-secret"
GATEWAY_ENV+=("GATEWAY_AUDIT__PATH=$OUT/audit.log" "GATEWAY_GIT__INTERN__HOST=$BASIC" GATEWAY_GIT__INTERN__PLAIN_HTTP=true
  "GATEWAY_GIT__FORGE__HOST=$OAUTH" GATEWAY_GIT__FORGE__PLAIN_HTTP=true "GATEWAY_GIT__FORGE__TOKEN_URL=http://127.0.0.1:${OAUTH#*:}/oauth/token"
  GATEWAY_GIT__FORGE__CLIENT_ID=gateway "GATEWAY_GIT__FORGE__CLIENT_SECRET_FILE=$OUT/client-secret")
real_cluster unique

mkdir -p "$OUT/git"
BASIC_PASSWORD=$PASSWORD REFRESH_TOKEN=$REFRESH CLIENT_SECRET=$CLIENT_SECRET ACCESS_SECONDS=8 \
  spawn git python3 "$REAL/apps/git_server.py" "$OUT/git" 0.0.0.0 basic "${BASIC#*:}" oauth "${OAUTH#*:}" basic "${UNKNOWN#*:}"
wait_port git "${BASIC#*:}"
git_project shop && git_project other || give_up "no projects: $(tail -n 1 "$OUT/shell.log")"

printf '%s' "$USER_TOKEN" >"$OUT/user.token"
chmod 600 "$OUT/user.token"
credential() { env NO_COLOR=1 "$REAL_GATEWAY" git-credential "$@" --gateway "http://localhost:$PUBLIC" --token-file "$OUT/user.token" 2>&1; }
# What is said of a credential that is refused is the command's last word.
refused() { ! credential "$@"; }
exchanges() { grep -c '^exchanged' "$OUT/git.log"; }
log_of_clone() { in_pod_sh mine "cat /workspace-gateway/logs/gw-clone/command-$1.log"; }

check "a password is stored" credential set "$BASIC" --user ann <<<"$PASSWORD"
check "a refresh token too" credential set "$OAUTH" --oauth <<<"$REFRESH"
check "one of a host without OAuth is not" has_text 'no_oauth' refused set "$BASIC" --oauth <<<"$REFRESH"
same "they are listed, without their secrets" "$BASIC basic ann stored
$OAUTH oauth oauth2 stored" "$(credential list | awk 'NR > 1 { print $1, $2, $3, $4 }' | sort -t ' ' -k 2)"

begun=$(now_ms)
create unique mine "$(devfile localhost/dev:1)" "http://$BASIC/shop.git" "http://$OAUTH/other.git" "http://$UNKNOWN/shop.git" \
  >"$OUT/created.json" || give_up "the workspace is not taken: $(cat "$OUT/created.json")"
check "the workspace runs" state_within 90 mine Running
note "Running after $(seconds $(($(now_ms) - begun))) s, with two private projects cloned"
check "the project behind a password was cloned before the agent" says mine 'this is shop' 'cat /projects/shop/README'
check "the one behind OAuth too" says mine 'this is other' 'cat /projects/other/README'
check "by one exchange of the refresh token" test "$(exchanges)" -ge 1
check "one without a stored credential failed and stopped nothing" until_ok 20 has_text '^128 ' command_of mine clone-3
check "and its log says what to do" has_text "gateway git-credential set $UNKNOWN" log_of_clone clone-3

# Work in the pod, as a person in a terminal does.
check "a commit has its owner's name and address" says mine 'dev <dev@noreply.localhost>' \
  'cd /projects/shop && echo more >>README && git commit -q -a -m second && git log -1 --format="%an <%ae>"'
check "it is pushed" in_pod_sh mine 'cd /projects/shop && GIT_TERMINAL_PROMPT=0 git push -q'
same "and is there" second "$(git -C "$OUT/git/shop.git" log -1 --format=%s main)"
check "what others pushed is pulled" in_pod_sh mine 'cd /projects/shop && GIT_TERMINAL_PROMPT=0 git pull -q'
check "the user's own name counts more" says mine 'me <me@example.org>' \
  'cd /projects/other && git config --global user.name me && git config --global user.email me@example.org && echo more >>README && git commit -q -a -m third && git log -1 --format="%an <%ae>"'
before=$(exchanges)
sleep 8
check "once the access token has ended, a push works with the next one" in_pod_sh mine 'cd /projects/other && GIT_TERMINAL_PROMPT=0 git push -q'
check "for which the rotated refresh token was exchanged" test "$(exchanges)" -gt "$before"
same "and none twice" 0 "$(grep -c '^REUSED' "$OUT/git.log")"

# The secrets are nowhere but in the database, sealed, and in git's memory.
without_secret() { ! grep -lF -e "$PASSWORD" -e "$REFRESH" -e "$CLIENT_SECRET" "$@"; }
check "no process of the pod has a credential in its environment" says mine none \
  "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -e '$PASSWORD' -e '$REFRESH' -e access- -e '$CLIENT_SECRET' || echo none"
check "nor has a file" says mine none \
  "grep -rlF -e '$PASSWORD' -e '$REFRESH' /home/workspace /projects /workspace-gateway/logs /workspace-gateway/files /workspace-gateway/scripts 2>/dev/null || echo none"
kc -n ws-mine get all,configmaps,secrets -o yaml >"$OUT/objects.yaml"
check "nor has an object in the cluster" without_secret "$OUT/objects.yaml"
for file in "$OUT"/gateway.db*; do check "nor is one readable in ${file##*/}" without_secret "$file"; done
check "nor is one in a log" without_secret "$OUT/gateway.log" "$OUT/agent.log"
check "each answer is in the audit log" has_text '"git_credential_asked".*"given"' cat "$OUT/audit.log"

curl -sf -X POST "http://127.0.0.1:${OAUTH#*:}/oauth/end" >/dev/null
# The access token that is left is refused first, and not given again.
check "a refused access token is told where git is used" has_text 'refused the credential' \
  in_pod_sh mine 'cd /projects/other && GIT_TERMINAL_PROMPT=0 git pull 2>&1; true'
check "a refresh token that has ended too" has_text 'sign in again' \
  in_pod_sh mine 'cd /projects/other && GIT_TERMINAL_PROMPT=0 git pull 2>&1; true'
check "and in the list" has_text 'sign in again' credential list
check "a credential is removed" credential rm "$BASIC"
check "and not given any more, which git is told" has_text "gateway git-credential set $BASIC" in_pod_sh mine 'cd /projects/shop && GIT_TERMINAL_PROMPT=0 git pull 2>&1; true'

desire mine Terminated >/dev/null
check "it terminates" state_within 90 mine Terminated
quiet_logs
finish
