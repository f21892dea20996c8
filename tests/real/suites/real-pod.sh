#!/usr/bin/env bash
# A workspace in a real pod: kubelet, containerd and runc start what the gateway generates. It is made, opened in Chromium and worked
# in, stopped, started and terminated. Needs root, control groups, and what `install.sh pods` makes.
# shellcheck disable=SC2016
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/machine.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/node.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/real-pod.sh"

[ -n "$DIRECT" ] && { echo "real-pod: nothing to check without the gateway"; finish; }
own_machine "$@"

begun=$(now_ms)
real_cluster unique
note "the node is ready, and the gateway, after $(seconds $(($(now_ms) - begun))) s"
PORT=3000
git_server
git_project shop && git_project other || give_up "no projects: $(tail -n 1 "$OUT/shell.log")"

begun=$(now_ms)
create unique mine "$(cat <<YAML
schemaVersion: 2.2.0
components:
  - name: main
    attributes: {gateway/inject-editor: true}
    container:
      image: localhost/dev:1
      env: [{name: FROM_THE_DEVFILE, value: "it's here; \$HOME is not read, \$(HOME) neither, nor \$\$"}]
      endpoints:
        - {name: app, targetPort: $PORT, exposure: public}
        - {name: vite, targetPort: 5173, exposure: public, attributes: {gateway/host: localhost}}
        - {name: calls, targetPort: 50051, attributes: {gateway/protocol: h2}}
        - {name: secured, targetPort: 8443, protocol: https}
      memoryLimit: 1Gi
      volumeMounts: [{name: cache, path: /var/cache/mine}]
  - name: beside
    attributes: {overrideCommand: true}
    container:
      image: localhost/small:1
  - name: cache
    volume: {size: 1Gi}
commands:
  - id: serve
    exec: {component: main, commandLine: 'mkdir -p site && echo served >site/index.html && exec python3 -m http.server -d site $PORT 2>site.log &'}
  - id: failing
    exec: {component: main, commandLine: 'echo what is wrong >&2; exit 3'}
  - id: greedy
    exec: {component: main, commandLine: 'python3 -c "print(len(bytearray(1) * (1 << 31)))"'}
  - id: ordinary
    exec: {component: main, commandLine: 'git config --global user.name me && npm config set fund false && ssh -G nowhere >/dev/null && pwd'}
events:
  postStart: [failing, greedy, ordinary, serve]
YAML
)" "$GIT_URL/shop.git@other" "$GIT_URL/other.git" "$GIT_URL/none.git" >"$OUT/created.json" || give_up "the workspace is not taken: $(cat "$OUT/created.json")"
check "the cluster says that it runs" state_within 60 mine Running
running=$(($(now_ms) - begun))
check "its agent attaches" until_ok 30 attached mine
linked=$(($(now_ms) - begun))
check "the editor answers through the tunnel" until_ok 60 editor_answers mine
note "after the request: scheduled $(seconds "$(step_of mine scheduled "$begun")"), tools copied $(seconds "$(step_of mine tools "$begun")")," \
  "containers started $(seconds "$(step_of mine started "$begun")"), Running $(seconds "$running"), agent linked $(seconds "$linked")," \
  "editor answers $(seconds $(($(now_ms) - begun))) s"

check "everything runs as the user that the manifest names" says mine 5001:0 'echo "$(id -u):$(id -g)"'
check "without capabilities, and without a way to any" says mine '0000000000000000 1 2' \
  "awk '/^(CapEff|NoNewPrivs|Seccomp):/ { printf \"%s%s\", between, \$2; between = \" \" }' /proc/self/status"
check "without a token for the cluster" says mine none 'ls /var/run/secrets/kubernetes.io 2>/dev/null || echo none'
check "with the devfile's variables as they are" says mine "it's here; \$HOME is not read, \$(HOME) neither, nor \$\$" 'echo "$FROM_THE_DEVFILE"'
check "and the workspace's own" says mine "$SECRET_VALUE" 'echo "$GREETING"'
check "both of its volumes can be written to" in_pod_sh mine 'echo kept >/projects/kept && echo kept >/var/cache/mine/kept'
CONTAINER=beside check "the container beside it runs as the same user, in an image of one program" says mine 5001:0 'echo "$(id -u):$(id -g)"'
check "an endpoint that the devfile's command serves is reached" until_ok 20 has_text '^served$' visit -f "http://$(host_of "$PORT" mine)/"
same "a port on which nothing listens is closed, and not forbidden" port_closed "$(failure_of "$(host_of 22 mine)" /)"
check "a port that a program opens later is its owner's" in_pod_sh mine 'cd /projects/other && (python3 -m http.server 4000 >/dev/null 2>&1 &)'
check "and is reached" until_ok 20 has_text '^this is other$' visit -f "http://$(host_of 4000 mine)/README"

# What ordinary programs find.
check "its user has a name and a home that can be written to" says mine 'workspace /home/workspace yes' \
  'echo "$(whoami) $HOME $(test -w "$HOME" && echo yes)"'
CONTAINER=beside check "in the container beside it too" says mine 'workspace /home/workspace yes' 'echo "$(whoami) $HOME $(test -w "$HOME" && echo yes)"'
check "a command that failed is told with its status and what it wrote last" until_ok 20 became mine failing '3 what is wrong'
check "one that was killed for memory with that of a kill" until_ok 20 became mine greedy '137 Killed'
check "git, npm and ssh work unprepared" until_ok 20 became mine ordinary '0 '
check "where the first project is" in_pod_sh mine 'grep -qx /projects/shop /workspace-gateway/logs/main/command-ordinary.log'
check "terminals have a real shell" in_pod_sh mine 'tr "\0" "\n" <"/proc/$(pgrep -of code-server)/environ" | grep -qx SHELL=/bin/bash'
check "a project was cloned, at the branch that was asked for" says mine 'other this is shop' 'cd /projects/shop && echo "$(git branch --show-current) $(cat README)"'
check "and another one beside it" says mine 'main' 'git -C /projects/other branch --show-current'
check "one that is not there is told, and stops nothing" has_text '^128 fatal: .*not found' command_of mine clone-3
check "git trusts the folder of all projects" in_pod_sh mine 'cd /projects && git init -q . && git status --short >/dev/null && rm -rf .git'
check "in which there is nothing but what was put there" says mine 'kept none other shop' 'echo $(ls -A /projects)'

in_pod_sh mine 'echo first line >/projects/shop/notes.txt'
helper browser 150 node "$REAL/suites/real-pod.mjs" --out "$OUT" --link "$(sign_in_link)" --site "http://mine.localhost:$PUBLIC" \
  --app "http://$(host_of "$PORT" mine)/"
grep '^the workbench' "$OUT/browser.log" | sed "s/^/note  $SUITE: /"
check "what was typed is in the pod's file" says mine 'first line
typed through the browser: déjà vu 42' 'cat /projects/shop/notes.txt'
same "what was pushed from the editor's terminal is at the git server" 'from the editor by me: typed through the browser: déjà vu 42' \
  "$(git -C "$OUT/git/shop.git" log -1 --format='%s by %an' other): $(git -C "$OUT/git/shop.git" show other:notes.txt | tail -n 1)"
check "the terminal's command ran in the pod, as its user" says mine "$(pod_of mine) 5001" 'cat /projects/shop/proof.txt'

# SSH, with no more than a token.
(umask 077 && printf '%s\n' "$USER_TOKEN" >"$OUT/user.token")
AS_USER=(timeout 30 env "HOME=$OUT" "GATEWAY_URL=http://localhost:$PUBLIC" "GATEWAY_TOKEN_FILE=$OUT/user.token")
pod_ssh() { "${AS_USER[@]}" "$REAL_GATEWAY" ssh mine -- -F none -o BatchMode=yes "$@" </dev/null 2>>"$OUT/ssh.log"; }
begun=$(now_ms)
same "gateway ssh logs in to an image that was not prepared for it" "workspace 5001:0 /home/workspace $SECRET_VALUE" \
  "$(pod_ssh 'echo "$(whoami) $(id -u):$(id -g) $PWD $GREETING"')"
note "which took $(seconds $(($(now_ms) - begun))) s"
"${AS_USER[@]}" "$REAL_GATEWAY" ssh-config --write >>"$OUT/ssh.log" 2>&1
head -c 3000000 /dev/urandom >"$OUT/sent"
check "scp takes a file there" "${AS_USER[@]}" scp -q -F "$OUT/.ssh/config" "$OUT/sent" mine.gateway:sent
check "whole" says mine "$(sha256sum <"$OUT/sent" | cut -d ' ' -f 1)" 'sha256sum <~/sent | cut -d " " -f 1'
same "a terminal is one" 0 "$(pod_ssh -tt 'test -t 0 && stty size >/dev/null; echo $?' | tr -d '\r')"
FORWARDED=$(free_port)
spawn forwarded "${AS_USER[@]}" "$REAL_GATEWAY" ssh mine -- -F none -N -L "$FORWARDED:127.0.0.1:$PORT"
check "-L leads to a port of the pod" until_ok 20 has_text '^served$' curl -sf "http://127.0.0.1:$FORWARDED/"
stop forwarded
key=$(in_pod_sh mine 'cat ~/.local/share/workspace-gateway/ssh_host_ed25519_key | sha256sum')
check "and back, as old clients do" "${AS_USER[@]}" scp -q -O -F "$OUT/.ssh/config" mine.gateway:sent "$OUT/back"
check "whole as well" cmp "$OUT/sent" "$OUT/back"
# Apps that need more than HTTP/1.1 under the host that users ask for: the devfile's endpoints say what.
begun=$(now_ms)
check "Vite, a gRPC server and one with a certificate of its own start in the pod" start_apps mine
check "what the devfile wants to be public is proposed to the owner" test "$(ask GET /workspaces/mine | jq -r '.ports[] | select(.port == 5173) | .proposed')" = public
same "and closed to others" sign_in_required "$(USER_TOKEN='' failure_of "$(host_of 5173 mine)" /)"
check "the owner confirms it" gateway workspace share mine 5173 --with public
check "and it is open" until_ok 10 curl -sf -o /dev/null "http://$(host_of 5173 mine)/"
check "a gRPC call reaches its server" has_text '^lennut$' grpc_call mine 50051 tunnel
check "the app with its own certificate answers" has_text '^secured$' visit -f "http://$(host_of 8443 mine)/"
same "ports have the devfile's names and protocols, or the program's" "3000 app http1
4000 python3 http1
5173 vite http1
8443 secured https
50051 calls h2" "$(ask GET /workspaces/mine | jq -r '.agent.listening[] | select(.port < 60000) | "\(.port) \(.label) \(.protocol)"')"
# What the pod sees, so that the pod's watcher sees the edits.
pod=/proc/$(pgrep -nf '^node node_modules/vite/bin/vite.js')/root
projects=$pod/projects/apps
mkdir "$OUT/vite"
helper vite 60 node "$REAL/suites/vite.mjs" --base "http://$(host_of 5173 mine)" --app "$projects/vite" --edits "$projects" --out "$OUT/vite" --link ''
note "these apps after $(seconds $(($(now_ms) - begun))) s"

# A container that is killed, and why it ended is told although it runs again.
pkill -KILL -f /workspace-gateway/scripts/keep-alive.sh
check "a container that was killed is told with its exit code, and runs again" until_ok 30 has_reason mine 'container beside ended with exit code 137'
check "so the workspace does" state_within 30 mine Running

# A gateway that a pod does not reach: the workspace does not count as running, and its owner reads why.
in_force() { [ "$(grep -c 'configuration is in force' "$OUT/gateway.log")" -ge "$1" ]; }
forces=$(grep -c 'configuration is in force' "$OUT/gateway.log")
sed -i "s|gateway_url: .*|gateway_url: http://$NODE_ADDRESS:1|" "$OUT/agents/unique/config.yaml"
check "the cluster's configuration changes" until_ok 20 in_force "$((forces + 1))"
begun=$(now_ms)
create unique lost "$(devfile localhost/dev:1)" >>"$OUT/created.json" || fail "the workspace is not taken"
check "a workspace whose agent reaches no gateway says so" until_ok 60 has_reason lost 'the agent is not connected: '
note "told after $(seconds $(($(now_ms) - begun))) s: $(reason lost)"
same "and does not count as running" Starting "$(state lost)"
desire lost Terminated >/dev/null
check "it can be ended all the same" state_within 90 lost Terminated

first=$(pod_of mine)
begun=$(now_ms)
desire mine Stopped >/dev/null
check "a stop ends its pod" state_within 60 mine Stopped
note "stopped after $(seconds $(($(now_ms) - begun))) s"
check "in which nothing runs any more" all_ended ws-mine
begun=$(now_ms)
desire mine Running >/dev/null
check "it starts again" state_within 60 mine Running
check "and its agent attaches" until_ok 30 attached mine
check "and its editor answers" until_ok 60 editor_answers mine
note "started again after $(seconds $(($(now_ms) - begun))) s"
check "in another pod" test "$(pod_of mine)" != "$first"
check "gateway ssh knows it again" has_text '^again$' pod_ssh -o StrictHostKeyChecking=yes echo again
same "by the key that its volume kept" "$key" "$(in_pod_sh mine 'cat ~/.local/share/workspace-gateway/ssh_host_ed25519_key | sha256sum')"
check "with the files of both volumes" says mine 'kept kept' 'echo $(cat /projects/kept /var/cache/mine/kept)'
check "and the devfile's command served again" until_ok 20 has_text '^served$' visit -f "http://$(host_of "$PORT" mine)/"

begun=$(now_ms)
desire mine Terminated >/dev/null
check "it terminates" state_within 90 mine Terminated
note "terminated after $(seconds $(($(now_ms) - begun))) s"
check "and its namespace is gone" without namespace ws-mine
check "no secret is in a log" no_secret_in gateway agent
quiet_logs
finish
