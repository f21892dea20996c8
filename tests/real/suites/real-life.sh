#!/usr/bin/env bash
# The life of workspaces in real pods: what a stop, a start, a restart and an end keep and take away, and how long each takes, also with
# what holds them up: a process that ignores TERM, a finalizer, a volume that something else uses. Needs what real-pod.sh needs.
# shellcheck disable=SC2016
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/machine.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/node.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/real-pod.sh"

[ -n "$DIRECT" ] && { echo "real-life: nothing to check without the gateway"; finish; }
own_machine "$@"
real_cluster unique

# timed TEXT SECONDS NAME DESIRED STATE : asks for it, waits for the state, and says how long that took.
timed() {
  local from
  from=$(now_ms)
  desire "$3" "$4" >/dev/null || fail "$1: not taken"
  check "$1" state_within "$2" "$3" "$5"
  note "$1: $(seconds $(($(now_ms) - from))) s"
}

create unique mine "$(devfile localhost/dev:1 '      volumeMounts: [{name: cache, path: /var/cache/mine}]')
  - {name: cache, volume: {size: 1Gi}}" >>"$OUT/created.json" || give_up "the workspace is not taken: $(tail -n 1 "$OUT/created.json")"
check "a workspace runs" state_within 90 mine Running
check "its agent is connected" until_ok 30 attached mine
in_pod_sh mine 'echo kept | tee /projects/kept "$HOME/kept" /var/cache/mine/kept >/dev/null; echo lost >/tmp/lost'
timed "a stop" 60 mine Stopped Stopped
check "leaves no pod that runs" all_ended ws-mine
timed "a start" 60 mine Running Running
again() { [ "$(pod_of mine)" != "$first" ] && is mine Running && attached mine; }
first=$(pod_of mine)
begun=$(now_ms)
desire mine RestartRequested >/dev/null
check "a restart gives another pod" until_ok 90 again
note "a restart: $(seconds $(($(now_ms) - begun))) s"
check "which has the files of projects, home and further volumes" says mine 'kept kept kept' 'echo $(cat /projects/kept "$HOME/kept" /var/cache/mine/kept)'
check "and not those outside of volumes" says mine none 'cat /tmp/lost 2>/dev/null || echo none'

# --- a process that ignores TERM ---
create unique deaf "$(cat <<'YAML'
schemaVersion: 2.2.0
components:
  - name: main
    attributes: {gateway/inject-editor: true}
    container: {image: localhost/dev:1}
  - name: beside
    container:
      image: localhost/dev:1
      command: [python3, -c, "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"]
YAML
)" >>"$OUT/created.json" || give_up "the workspace is not taken: $(tail -n 1 "$OUT/created.json")"
check "a workspace with a process that ignores TERM runs" state_within 90 deaf Running
desire deaf Stopped >/dev/null
check "its stop says what it waits for" why_within 10 deaf 'processes have not ended'
check "and is Stopping meanwhile" is deaf Stopping
timed "a stop beside a process that ignores TERM" 60 deaf Stopped Stopped
check "which the node has killed" all_ended ws-deaf

# --- a finalizer, and a volume in use ---
kc -n ws-deaf patch deployment deaf --type merge -p '{"metadata": {"finalizers": ["example.net/hold"]}}' >/dev/null
desire deaf Terminated >/dev/null
check "an end that a finalizer holds up names it" until_ok 60 shown deaf example.net/hold
check "and is Terminating" is deaf Terminating
check "while its neighbour runs" is mine Running
kc -n ws-deaf patch deployment deaf --type merge -p '{"metadata": {"finalizers": null}}' >/dev/null
check "without it, the end comes" state_within 60 deaf Terminated

claim=$(kc -n ws-mine get pvc -o jsonpath='{.items[0].metadata.name}')
kc -n ws-mine apply -f - >/dev/null <<YAML
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  terminationGracePeriodSeconds: 5
  securityContext: {runAsUser: 5001, fsGroup: 5001}
  containers: [{name: user, image: localhost/small:1, imagePullPolicy: Never, command: [sleep, "3600"],
    resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: $claim}}]
YAML
check "a pod of an operator uses the workspace's volume" kc -n ws-mine wait --for condition=Ready pod/user --timeout 30s
desire mine Terminated >/dev/null
check "an end that this holds up names the claim, and what protects it" until_ok 60 shown mine kubernetes.io/pvc-protection
check "and is Terminating still" is mine Terminating
check "the operator's pod is left alone" kc -n ws-mine wait --for condition=Ready pod/user --timeout 1s
kc -n ws-mine delete pod user --wait=false >/dev/null
check "when that pod is gone, the end comes" state_within 90 mine Terminated
check "with the namespace" without namespace ws-mine
check "and the claims of its volumes" test -z "$(kc get pvc -A -o name)"
quiet_logs
finish
