#!/usr/bin/env bash
# What a workspace's pod starts, started: the gateway's objects are read from the cluster, and the commands of the pod run as local
# processes where its volumes are mounted. The tools are put there, the agent and the editor run under their supervisor, the devfile's
# commands run, and people reach the editor and an endpoint through the tunnel. Needs root, for the mounts.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"

[ -n "$DIRECT" ] && { echo "kubernetes-pod: nothing to check without the gateway"; finish; }
[ "$(id -u)" = 0 ] || give_up "nothing was checked: only root may mount volumes into a pod's containers; run it as root, or leave this suite out"

EDITOR_ROOT=$(echo "$CACHE"/code-server-*)
[ -e "$EDITOR_ROOT/.ready" ] || [ -d "$EDITOR_ROOT/node_modules/code-server" ] || give_up "code-server is missing: run tests/real/install.sh"
NAME=pod
PORT=$(free_port)

# What the tools image brings.
mkdir -p "$OUT/tools/bin"
cp "$REAL_AGENT_SLIM" "$OUT/tools/bin/workspace-agent"
printf '#!/bin/sh\nexec node /opt/editor/node_modules/code-server/out/node/entry.js "$@"\n' >"$OUT/tools/bin/code-server"
cp "$APPS/echo.mjs" "$OUT/tools/echo.mjs"
chmod -R a+rX "$OUT/tools"
chmod a+x "$OUT/tools/bin/code-server"

start_cluster
rights unique
clusters unique
start_gateway
user_token
cluster_agent agent unique
create unique "$NAME" "$(cat <<YAML
schemaVersion: 2.2.0
components:
  - name: main
    attributes: {gateway/inject-editor: true}
    container:
      image: example.net/ready:1
      env:
        - {name: FROM_THE_DEVFILE, value: "it's here; \$HOME is not read, \$(HOME) neither, nor \$\$"}
      endpoints:
        - {name: app, targetPort: $PORT, exposure: public}
commands:
  - id: serve
    exec: {component: main, commandLine: 'cd /opt/app && exec node tools/echo.mjs $PORT app >/tmp/serve.log 2>&1 &'}
  - id: write
    exec: {component: main, commandLine: 'env >seen.txt; pwd >>seen.txt'}
  - id: failing
    exec: {component: main, commandLine: 'exit 3'}
events:
  postStart: [write, failing, serve]
YAML
)" >"$OUT/created.json" || fail "the workspace is not taken: $(cat "$OUT/created.json")"
check "the cluster says that it runs" state_within 60 "$NAME" Running

mkdir -p "$OUT/app"
ln -sfn "$REAL/node_modules" "$OUT/app/node_modules"
cp -r "$OUT/tools" "$OUT/app/tools"
pod_starts() {
  spawn "$1" env REAL_CLUSTER_URL="$API_URL" REAL_CLUSTER_CA="$CLUSTER_CA" REAL_CLUSTER_TOKEN="$ADMIN_TOKEN" PYTHONPATH="$REAL/lib" \
    python3 "$APPS/pod.py" --namespace "ws-$NAME" --name "$NAME" --work "$OUT/pod" --bind "/workspace-tools=$OUT/tools" \
    --bind "/opt/editor=$EDITOR_ROOT" --bind "/opt/app=$OUT/app" --bind "$REAL/node_modules=$REAL/node_modules"
}
pod_starts pod
check "its pod starts" until_ok 30 grep -qx running "$OUT/pod.log"
check "its agent attaches" until_ok 30 attached "$NAME"
check "an endpoint of the devfile is reached through the tunnel" until_ok 20 visit -f "http://$(host_of "$PORT" "$NAME")/"
check "the editor is reached through the tunnel" until_ok 60 visit -f "http://$(host_of 60001 "$NAME")/healthz"
check "the default port is the editor's" visit -f "http://$NAME.localhost:$PUBLIC/healthz"
same "one on which nothing listens is closed, and not forbidden" port_closed "$(failure_of "$(host_of "$(free_port)" "$NAME")" /)"
seen=$OUT/pod/volumes
find_seen() { find "$seen" -name seen.txt | head -n 1; }
check "the devfile's commands ran, one failing among them" grep -qxF "FROM_THE_DEVFILE=it's here; \$HOME is not read, \$(HOME) neither, nor \$\$" "$(find_seen)"
check "with the variables of the workspace" grep -qx "GREETING=$SECRET_VALUE" "$(find_seen)"
check "in the projects' folder" grep -qx /projects "$(find_seen)"
check "what failed is in a log" grep -rqE 'failing ended with status 3' "$seen" --include '*.log'

# The supervisor: what dies is there again.
# In the pod's own processes: another suite may have such an agent too.
first=$(pgrep -P "$(pgrep -P "${PIDS[pod]}" -x unshare)")
agent_pid() { pgrep --ns "$first" --nslist pid -f "workspace-gateway/tools/bin/workspace-agent run" | head -n 1; }
victim=$(agent_pid)
kill -s KILL "$victim"
again() { local now; now=$(agent_pid); [ -n "$now" ] && [ "$now" != "$victim" ]; }
check "an agent that is killed is started again" until_ok 15 again
check "and attaches" until_ok 30 visit -f "http://$(host_of "$PORT" "$NAME")/"

# Its processes and no others: real pods of another suite have the same programs.
inside=$(readlink "/proc/$first/ns/pid")
none_inside() { [ -z "$(readlink /proc/[0-9]*/ns/pid 2>/dev/null | grep -xF "$inside")" ]; }
check "its processes are seen" sh_not none_inside
signal TERM pod
began=$(now_ms)
ends_within 40 pod || fail "the pod does not end"
check "told to end, the first process ends well" grep -qx 'main ended with status 0' "$OUT/pod.log"
check "before Kubernetes would kill it ($(($(now_ms) - began)) ms)" test $(($(now_ms) - began)) -lt 25000
check "and leaves nothing running" none_inside
check "in its folders either" sh_not pgrep -f "$OUT/pod/roots"
desire "$NAME" Terminated >/dev/null
check "the workspace terminates" state_within 60 "$NAME" Terminated
finish
