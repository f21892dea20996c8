# shellcheck shell=bash
# Workspaces in real pods, for a suite: a node, the gateway, and a cluster agent that has the rights of deploy/rbac and nothing else.
# Sourced after common.sh, kubernetes.sh, workspaces.sh, machine.sh and node.sh:
#
#   own_machine "$@"
#   real_cluster unique
#   create unique mine "$(devfile localhost/dev:1)" && state_within 60 mine Running
#   in_pod mine id -u
#
# What the pods of a workspace went through is in pods.log, with milliseconds: see `step_of`.

# shellcheck disable=SC2034
TOOLS_IMAGE=localhost/tools:1
# shellcheck disable=SC2034
AGENTS_ADDRESS=$NODE_ADDRESS

# real_cluster MODE : everything, ready to make workspaces in that cluster.
real_cluster() {
  MODE=$1
  start_node
  [ "$MODE" != shared ] || kc create namespace "$SHARED_NAMESPACE" --save-config >>"$OUT/rights.log"
  rights "$MODE"
  clusters "$MODE"
  # Agents in pods come from another address than people.
  GATEWAY_ENV+=("GATEWAY_LISTEN__AGENTS=0.0.0.0:$AGENTS")
  start_gateway
  user_token
  cluster_agent agent "$MODE"
  watch_pods
}

# watch_pods : follows the pods of workspaces. A line of pods.log is MILLISECONDS WORKSPACE:POD, and what is so from then on, among
# `scheduled`, `tools` (copied), `started` (its containers) and `leaving`.
watch_pods() {
  # shellcheck disable=SC2016
  spawn pods bash -c '"$@" | while IFS="|" read -r name scheduled tools started leaving; do
    echo "$(date +%s%3N) $name${scheduled:+ scheduled}${tools:+ tools}${started:+ started}${leaving:+ leaving}"
  done' - "$PARTS/kubectl" --kubeconfig "$KUBECONFIG_ADMIN" get pods -A -l "$LABEL" --watch -o jsonpath="$(tr -d '\n' <<TEMPLATE
{.metadata.labels.${LABEL//./\\.}}:{.metadata.name}|{.status.conditions[?(@.type=="PodScheduled")].reason}
{.status.conditions[?(@.type=="PodScheduled")].lastTransitionTime}|
{.status.initContainerStatuses[?(@.name=="gw-tools")].state.terminated.finishedAt}|
{.status.containerStatuses[0].state.running.startedAt}|{.metadata.deletionTimestamp}
TEMPLATE
  )"$'{"\\n"}'
}

# step_of WORKSPACE STEP SINCE : milliseconds from then to the first time that a pod of the workspace, not one that is leaving, came so far.
step_of() {
  awk -v name="$1:" -v step=" $2" -v since="$3" \
    '$1 >= since && index($2, name) == 1 && index($0, step) && !/ leaving/ { print $1 - since; exit }' "$OUT/pods.log"
}

# pod_of NAME : the name of its pod that is not about to go.
pod_of() {
  kc -n "$(namespace_of "$MODE" "$1")" get pods -l "$LABEL=$1" \
    -o jsonpath='{range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}{"\n"}{end}' |
    awk 'NF == 1 { print $1; exit }'
}

# in_pod NAME COMMAND… : runs it in the workspace's pod, as kubectl does, in the container `main` or CONTAINER.
# in_pod_sh NAME LINE : a line of shell.
in_pod() { kc -n "$(namespace_of "$MODE" "$1")" exec "$(pod_of "$1")" -c "${CONTAINER:-main}" -- "${@:2}"; }
in_pod_sh() { in_pod "$1" /bin/sh -c "$2"; }
# says NAME WANT LINE : what the line of shell prints is exactly this.
says() {
  local said
  said=$(in_pod_sh "$1" "$3") || { echo "$said"; return 1; }
  [ "$said" = "$2" ] || { echo "want $2, got $said"; return 1; }
}

# all_ended NAMESPACE : no pod there has a container that runs. The cluster may show the pods for another moment.
all_ended() {
  local running
  running=$(kc -n "$1" get pods -o jsonpath='{range .items[*].status.containerStatuses[*]}{.name} {.state.running.startedAt}{"\n"}{end}' |
    awk 'NF == 2')
  [ -z "$running" ] || { echo "$running"; return 1; }
}

editor_answers() { visit -f "http://$(host_of 60001 "$1")/healthz"; }

# git_server : serves $OUT/git to pods, which may push too. GIT_URL is where. git_project NAME : a repository there, with a file README.
git_server() {
  local port
  port=$(free_port)
  GIT_URL=http://$NODE_ADDRESS:$port
  mkdir -p "$OUT/git"
  spawn git python3 "$APPS/git_server.py" "$OUT/git" 0.0.0.0 open "$port"
  wait_port git "$port"
}
git_project() {
  local work=$OUT/git-work/$1
  git init -q -b main "$work" && echo "this is $1" >"$work/README" && git -C "$work" add . &&
    git -C "$work" -c user.name=a -c user.email=a@example.net commit -q -m first && git -C "$work" branch other &&
    git clone -q --bare "$work" "$OUT/git/$1.git" && git -C "$OUT/git/$1.git" config http.receivepack true
}

# start_apps NAME : starts Vite with the example of vite.sh (port 5173), a gRPC server (50051) and one with a certificate of its own
# (8443) in the workspace's pod, and waits for them.
start_apps() {
  local packages port
  packages=$(echo "$REAL"/.cache/venv/lib/python*/site-packages)
  # Vite and everything that it needs, of what is installed.
  (cd "$REAL" && node -e '
    const { existsSync, readFileSync } = require("node:fs");
    const found = new Set();
    const add = (name) => {
      const folder = `node_modules/${name}`;
      if (found.has(folder) || !existsSync(folder)) return;
      found.add(folder);
      const { dependencies = {}, optionalDependencies = {} } = JSON.parse(readFileSync(`${folder}/package.json`));
      for (const name of Object.keys({ ...dependencies, ...optionalDependencies })) add(name);
    };
    add("vite");
    console.log([...found].join("\n"));
  ' >"$OUT/vite.list") || return
  mkdir -p "$OUT/files"
  tar -C "$APPS" -cf "$OUT/files/apps.tar" vite grpc_server.py && tar -C "$REAL" -rf "$OUT/files/apps.tar" -T "$OUT/vite.list" &&
    tar -C "$packages" -rf "$OUT/files/apps.tar" grpc typing_extensions.py || return
  port=$(free_port)
  spawn files python3 -m http.server --directory "$OUT/files" "$port"
  wait_port files "$port"
  in_pod_sh "$1" "mkdir -p /projects/apps && cd /projects/apps && curl -fsS http://$NODE_ADDRESS:$port/apps.tar | tar x || exit
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout key.pem -out cert.pem 2>/dev/null || exit
    node node_modules/vite/bin/vite.js vite --port 5173 >vite.log 2>&1 &
    python3 grpc_server.py 50051 >grpc.log 2>&1 &
    node -e 'const read = require(\"fs\").readFileSync;
      require(\"https\").createServer({ key: read(\"key.pem\"), cert: read(\"cert.pem\") }, (_, answer) => answer.end(\"secured\\n\"))
        .listen(8443, \"127.0.0.1\")' >secured.log 2>&1 &
    for port in 5173 50051 8443; do
      tries=0
      until python3 -c \"import socket; socket.create_connection(('127.0.0.1', \$port))\" 2>/dev/null; do
        tries=\$((tries + 1))
        [ \$tries -lt 150 ] || { tail vite.log grpc.log secured.log; exit 1; }
        sleep 0.1
      done
    done"
}

# grpc_call NAME PORT TEXT : the answer of the gRPC server there to a text.
grpc_call() {
  REAL_USER_TOKEN=$USER_TOKEN "$PYTHON" -c '
import grpc, os, sys
target, authority, text = sys.argv[1:]
channel = grpc.insecure_channel(target, options=[("grpc.default_authority", authority), ("grpc.enable_http_proxy", 0)])
metadata = (("gateway-authorization", "Bearer " + os.environ["REAL_USER_TOKEN"]),)
print(channel.unary_unary("/real.Parts/Unary")(text.encode(), timeout=20, metadata=metadata).decode())
' "127.0.0.1:$PUBLIC" "$(host_of "$2" "$1")" "$3"
}

# has_reason NAME TEXT : why it is in its state, as its owner reads it, says this.
has_reason() { reason "$1" | tee -a "$OUT/reasons.log" | grep -qF -- "$2"; }
# command_of NAME ID : what became of a command of the start: status, and what it wrote last. became NAME ID TEXT : that it is this.
became() {
  local said
  said=$(command_of "$1" "$2")
  [ "$said" = "$3" ] || { echo "$2: $said" >>"$OUT/became.log"; return 1; }
}
command_of() { ask GET "/workspaces/$1" | jq -r --arg id "$2" '.agent.commands[] | select(.id == $id) | "\(.status) \(.last_line)"'; }

# percentile PERCENT : the number within which so many of those on standard input are.
percentile() { sort -n | awk -v percent="$1" '{ all[NR] = $1 } END { print all[int((NR * percent + 99) / 100)] }'; }

note() { printf 'note  %s: %s\n' "$SUITE" "$*"; }
seconds() { awk -v ms="$1" 'BEGIN { printf "%.1f", ms / 1000 }'; }
