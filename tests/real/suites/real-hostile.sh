#!/usr/bin/env bash
# Hostile devfiles and projects against a node on which users share one namespace: what they ask for beyond a workspace is refused by
# name before anything is made, and what is made reaches nothing of others, seen from inside the pod. Needs what real-pod.sh needs.
# What pods reach over the network is real-network.sh's.
# shellcheck disable=SC2016
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/machine.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/node.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/real-pod.sh"

[ -n "$DIRECT" ] && { echo "real-hostile: nothing to check without the gateway"; finish; }
own_machine "$@"
real_cluster shared
git_server
git_project shop || give_up "no project: $(tail -n 1 "$OUT/shell.log")"

# Things of others in the namespace that all share: a Secret, a claim with a file, an account that may read every Secret.
shared() { kc -n "$SHARED_NAMESPACE" "$@"; }
shared create secret generic theirs --from-literal=password=foreign-secret >>"$OUT/made.log"
shared create serviceaccount theirs >>"$OUT/made.log"
kc create clusterrolebinding theirs --clusterrole cluster-admin --serviceaccount "$SHARED_NAMESPACE:theirs" >>"$OUT/made.log"
shared apply -f - >>"$OUT/made.log" <<'YAML'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: theirs}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: theirs}
spec:
  containers: [{name: main, image: localhost/small:1, imagePullPolicy: Never, command: [/bin/sh, -c, "echo foreign-file >/data/file; exec sleep 3600"],
    volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: theirs}}]
YAML
check "things of others are in the namespace that all share" shared wait --for condition=Ready pod/theirs --timeout 60s

# --- what a devfile cannot ask for ---
# wrong TEXT : the devfile that comes in is refused with a problem that names this.
wrong() { create shared wrong "$(cat)" >"$OUT/wrong.json"; [ $? != 0 ] && grep -qF -- "$1" "$OUT/wrong.json"; }
# root ATTRIBUTES, more COMPONENTS : devfiles that are fine but for these.
root() { printf 'schemaVersion: 2.2.0\nattributes: %s\ncomponents:\n  - {name: main, attributes: {gateway/inject-editor: true}, container: {image: localhost/dev:1}}\n' "$1"; }
more() { devfile localhost/dev:1; printf '%s\n' "$1"; }
check "the node's network, its processes, a folder of it, another account: by overrides of the pod" wrong pod-overrides < <(root \
  '{pod-overrides: {spec: {hostNetwork: true, hostPID: true, serviceAccountName: theirs, volumes: [{name: host, hostPath: {path: /}}]}}}')
check "privileges: by overrides of a container" wrong container-overrides < <(devfile localhost/dev:1 | sed 's/attributes: {/&container-overrides: {securityContext: {privileged: true}}, /')
check "objects of the user's own" wrong "a component is a container or a volume" < <(more \
  '  - {name: mine, kubernetes: {inlined: "{apiVersion: v1, kind: Pod, metadata: {name: mine}, spec: {hostNetwork: true}}"}}')
check "a component from elsewhere" wrong "a component is a container or a volume" < <(more '  - {name: other, plugin: {uri: "http://169.254.169.254/devfile.yaml"}}')
check "a parent from elsewhere" wrong parent < <(devfile localhost/dev:1; echo 'parent: {uri: "http://169.254.169.254/devfile.yaml"}')
check "a source of variables that is a Secret of others" wrong valueFrom < <(devfile localhost/dev:1 \
  '      env: [{name: STOLEN, valueFrom: {secretKeyRef: {name: theirs, key: password}}}]')
check "a source of all variables" wrong envFrom < <(devfile localhost/dev:1 '      envFrom: [{secretRef: {name: theirs}}]')
check "a volume that is a claim by name" wrong persistentVolumeClaim < <(more '  - {name: theirs, volume: {persistentVolumeClaim: {claimName: theirs}}}')
check "a volume with a name that is a path" wrong ../theirs < <(more '  - {name: ../theirs, volume: {size: 1Gi}}')
check "a volume over the folder with the agent's token" wrong /workspace-gateway < <(
  devfile localhost/dev:1 '      volumeMounts: [{name: over, path: /workspace-gateway/files}]'; echo '  - {name: over, volume: {size: 1Gi}}')
check "the same by a longer way" wrong /projects/../workspace-gateway < <(
  devfile localhost/dev:1 '      volumeMounts: [{name: over, path: /projects/../workspace-gateway/files}]'; echo '  - {name: over, volume: {size: 1Gi}}')
check "a security context" wrong securityContext < <(devfile localhost/dev:1 '      securityContext: {runAsUser: 0}')
check "a device of the node" wrong volumeDevices < <(devfile localhost/dev:1 '      volumeDevices: [{name: disk, devicePath: /dev/vda}]')
bomb() { # 10^8 values by aliases of aliases
  local level
  printf 'attributes:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n'
  for level in 1 2 3 4 5 6 7; do printf '  a%s: &a%s [%s]\n' $level $level "$(printf "*a$((level - 1)), %.0s" 1 2 3 4 5 6 7 8 9)*a$((level - 1))"; done
}
check "aliases of aliases that are a hundred million values" wrong alias < <(devfile localhost/dev:1; bomb)
project() { create shared wrong "$(devfile localhost/dev:1)" "$1" >"$OUT/wrong.json"; [ $? != 0 ] && grep -qi "$2" "$OUT/wrong.json"; }
check "a project that is a folder of the node" project file:///etc project
check "a project that is a program" project 'ext::sh${IFS}-c${IFS}id' project
check "a project that is an argument of git" project --upload-pack=id project
check "a ref that is an argument of git" project "$GIT_URL/shop.git@--upload-pack=id" ref
same "nothing is made of them" '' "$(of wrong)"
same "nor remembered" 0 "$(ask GET /workspaces | jq '[.workspaces[] | select(.name == "wrong")] | length')"

# --- what one may ask for, with the names of others ---
create shared mine "$(devfile localhost/dev:1 '      env: [{name: STOLEN, value: $(theirs) $(GATEWAY_AGENT_TOKEN)}]
      volumeMounts: [{name: theirs, path: /theirs}]'; echo '  - {name: theirs, volume: {size: 1Gi}}')" \
  "$GIT_URL/shop.git" >"$OUT/created.json" || give_up "the workspace is not taken: $(cat "$OUT/created.json")"
create shared theirs "$(devfile localhost/dev:1)" >>"$OUT/created.json"
check "a workspace whose volume has the name of a claim of others runs" state_within 120 mine Running
check "one with the name of their account does not take it" why_within 60 theirs 'ServiceAccount theirs is there already'
check "and nothing of it is started" test -z "$(shared get deployments -l "$LABEL=theirs" -o name)"
check "its volume is its own: what is in theirs is not there" says mine '' 'ls -A /theirs'
same "and theirs has what they wrote" foreign-file "$(shared exec theirs -- cat /data/file)"
check "no process of it has a secret of others" says mine 0 'cat /proc/[0-9]*/environ 2>/dev/null | tr "\0" "\n" | grep -c foreign-secret; true'
check "no variable is replaced by what a devfile does not declare" says mine '$(theirs) $(GATEWAY_AGENT_TOKEN)' 'echo "$STOLEN"'
same "the account of others has what it had" '' "$(shared get serviceaccount theirs -o jsonpath='{.metadata.labels}')"

# --- from inside the pod ---
check "no token of any account is in it" says mine '' 'ls /var/run/secrets /run/secrets 2>/dev/null; true'
check "its user is not root" says mine different '[ "$(id -u)" = 0 ] && echo same || echo different'
check "nor can it become root" says mine 'CapEff: 0000000000000000 CapBnd: 0000000000000000 NoNewPrivs: 1 Seccomp: 2' \
  'echo $(sed -n "s/^\(CapEff\|CapBnd\|NoNewPrivs\|Seccomp\):[[:space:]]*/\1: /p" /proc/self/status | sort | sed "s/^CapB/2&/; s/^CapE/1&/" | sort | sed "s/^[12]//")'
check "it sees its own processes only" says mine '' 'grep -l kubelet /proc/[0-9]*/comm 2>/dev/null; true'
check "it has an address of its own, and not the node's" says mine 10.64 "hostname -i | cut -d . -f 1,2"
check "it can mount nothing" says mine no 'mkdir /tmp/m && mount -t tmpfs none /tmp/m 2>/dev/null && echo yes || echo no'
check "it can make no device" says mine no 'mknod /tmp/disk b 254 0 2>/dev/null && echo yes || echo no'
check "it cannot change the programs that the gateway put there" says mine no 'echo x >>/workspace-gateway/tools/bin/workspace-agent 2>/dev/null && echo yes || echo no'
check "nor the scripts of its start" says mine no 'for file in /workspace-gateway/scripts/*; do echo x >>"$file"; done 2>/dev/null && echo yes || echo no'
check "the agent's token is not in an environment" says mine 0 'cat /proc/[0-9]*/environ 2>/dev/null | tr "\0" "\n" | grep -c gwa_; true'

for name in mine theirs; do desire "$name" Terminated >/dev/null; done
for name in mine theirs; do check "workspace $name terminates" state_within 90 "$name" Terminated; done
check "what others have in the namespace is left alone" shared get secret/theirs pvc/theirs serviceaccount/theirs pod/theirs
check "the gateway warns of nothing" sh_not grep -qE '\b(WARN|ERROR)\b|panicked' "$OUT/gateway.log"
check "the agent warns of that account alone" sh_not grep -E '\b(WARN|ERROR)\b|panicked' <(grep -v 'ServiceAccount theirs' "$OUT/agent.log")
finish
