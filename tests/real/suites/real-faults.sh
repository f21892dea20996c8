#!/usr/bin/env bash
# What the owner of a workspace reads when its node or its images fail, and after how long: each fault is made for real, on a node with
# kubelet and containerd. Needs what real-pod.sh needs. The table is in table.txt.
# shellcheck disable=SC2016
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/machine.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/node.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/real-pod.sh"

[ -n "$DIRECT" ] && { echo "real-faults: nothing to check without the gateway"; finish; }
own_machine "$@"
real_cluster unique
git_server
git_project shop || give_up "no project: $(tail -n 1 "$OUT/shell.log")"

# made NAME [DEVFILE [PROJECT…]] : makes a workspace; told NAME LIMIT STATE TEXT : its owner reads this within so many seconds of that.
declare -A BEGUN
made() {
  BEGUN[$1]=$(now_ms)
  create unique "$@" >>"$OUT/created.json" || give_up "the workspace is not taken: $(tail -n 1 "$OUT/created.json")"
}
reads() {
  local said
  said=$(ask GET "/workspaces/$1" | value state.actual state.reason | paste -sd ' ') || return 1
  [[ $said = $2* ]] && grep -qF -- "$3" <<<"$said"
}
told() {
  local passed=0
  until_ok "$2" reads "$1" "$3" "$4" && passed=1
  printf '%s | %s s | %s: %s\n' "$1" "$(seconds $(($(now_ms) - BEGUN[$1])))" "$(state "$1")" "$(reason "$1")" | tee -a "$OUT/table.txt" |
    sed "s/^/note  $SUITE: /"
  [ "$passed" = 1 ]
}
# beside LINES : a devfile with a second container that is like this.
beside() {
  cat <<YAML
schemaVersion: 2.2.0
components:
  - name: main
    attributes: {gateway/inject-editor: true}
    container: {image: localhost/dev:1}
  - name: beside
    container:
$1
YAML
}
: >"$OUT/table.txt"

# --- images and containers ---
made no-image "$(devfile localhost/none:1)"
check "an image that cannot be pulled" told no-image 30 Starting 'localhost/none:1'
made no-program "$(beside '      image: localhost/small:1
      command: [/bin/nothing]')"
check "a program that the image has not" told no-program 30 Starting '/bin/nothing'
made crashing "$(beside '      image: localhost/small:1
      command: [/bin/sh, -c, "echo no database at 5432 >&2; exit 7"]')"
check "a container that ends again and again" told crashing 60 '' 'container beside ended with exit code 7'
check "with what it wrote last" until_ok 30 has_reason crashing 'no database at 5432'
made hungry "$(beside '      image: localhost/dev:1
      command: [python3, -c, "print(len(bytearray(1) * (1 << 30)))"]
      memoryLimit: 64Mi')"
check "a container that takes more memory than it may" told hungry 60 '' 'container beside used more memory than its limit allows'

# --- the cluster has no room ---
made too-large "$(devfile localhost/dev:1 '      memoryRequest: 7Gi
      memoryLimit: 7Gi
      cpuRequest: 3500m')"
check "more than any node has" told too-large 30 Starting 'nsufficient cpu'
made no-volume "$(cat <<'YAML'
schemaVersion: 2.2.0
components:
  - name: main
    attributes: {gateway/inject-editor: true}
    container: {image: localhost/dev:1, volumeMounts: [{name: large, path: /large}]}
  - {name: large, volume: {size: 900Gi}}
YAML
)"
check "a volume larger than there is" told no-volume 30 Starting 'persistent volume'
for name in no-image no-program crashing hungry too-large no-volume; do desire "$name" Terminated >/dev/null; done

made full "$(devfile localhost/dev:1)"
check "a workspace runs" state_within 90 full Running
desire full Stopped >/dev/null
check "and is stopped" state_within 60 full Stopped
kc -n ws-full create quota none --hard pods=0 >/dev/null
BEGUN[full]=$(now_ms)
desire full Running >/dev/null
check "a quota of the namespace that is used up" told full 30 '' 'exceeded quota: none'
kc -n ws-full delete quota none >/dev/null
# The controller of ReplicaSets asks again with growing pauses.
check "it starts once there is room" state_within 120 full Running

# --- the disk ---
# Of the volumes that are large enough, a claim gets the smallest.
mkdir -p "$MACHINE/volumes/small"
mount -t tmpfs -o size=1m,mode=0777 tmpfs "$MACHINE/volumes/small"
kc get pv local-1 -o json | python3 -c 'import json, sys
volume = json.load(sys.stdin)
spec = {key: value for key, value in volume["spec"].items() if key != "claimRef"}
spec["capacity"]["storage"], spec["local"]["path"] = "50Gi", sys.argv[1]
print(json.dumps({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "small"}, "spec": spec}))' "$MACHINE/volumes/small" |
  kc apply -f - >/dev/null
head -c 3000000 /dev/urandom >"$OUT/git-work/shop/large" && git -C "$OUT/git-work/shop" add . &&
  git -C "$OUT/git-work/shop" -c user.name=a -c user.email=a@example.net commit -q -m large &&
  git -C "$OUT/git-work/shop" push -q "$OUT/git/shop.git" main
made no-space "$(devfile localhost/dev:1)" "$GIT_URL/shop.git"
clone_is() { command_of no-space clone-1 | tee -a "$OUT/clone.log" | grep -q 'the volume is full'; }
check "a volume that is full" until_ok 90 clone_is
printf 'no-space | %s s | %s, command clone-1: %s\n' "$(seconds $(($(now_ms) - BEGUN[no-space])))" "$(state no-space)" "$(command_of no-space clone-1)" |
  tee -a "$OUT/table.txt" | sed "s/^/note  $SUITE: /"
desire no-space Terminated >/dev/null

# --- the node ---
made mine "$(devfile localhost/dev:1)"
check "a workspace runs on the node" state_within 90 mine Running
check "its agent is connected" until_ok 30 attached mine
BEGUN[mine]=$(now_ms)
stop kubelet
check "a node that goes away" told mine 120 '' 'ode is not ready'
check "what runs there is reached as long as it runs" editor_answers mine
start_kubelet
check "and nothing is left of it when the node is back" state_within 60 mine Running
same "not even a reason" '' "$(reason mine)"

# The node has to make room: it ends pods, and takes none.
stop kubelet
BEGUN[mine]=$(now_ms)
start_kubelet 99%
check "a node without disk that ends pods" told mine 120 '' 'the pod before was evicted: The node'
quiet_logs
finish
