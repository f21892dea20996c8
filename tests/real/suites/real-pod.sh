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

begun=$(now_ms)
create unique mine "$(cat <<YAML
schemaVersion: 2.2.0
components:
  - name: main
    attributes: {gateway/inject-editor: true}
    container:
      image: localhost/dev:1
      env: [{name: FROM_THE_DEVFILE, value: "it's here; \$HOME is not read, \$(HOME) neither, nor \$\$"}]
      endpoints: [{name: app, targetPort: $PORT, exposure: public}]
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
    exec: {component: main, commandLine: 'exit 3'}
events:
  postStart: [failing, serve]
YAML
)" >"$OUT/created.json" || give_up "the workspace is not taken: $(cat "$OUT/created.json")"
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
same "a port that nobody named is not" port_not_allowed "$(failure_of "$(host_of 22 mine)" /)"
check "what failed of the devfile's commands is in a log" in_pod_sh mine "grep -rqF 'failing ended with status 3' /projects/workspace-logs"

in_pod_sh mine 'echo first line >/projects/notes.txt'
helper browser 150 node "$REAL/suites/real-pod.mjs" --out "$OUT" --link "$(sign_in_link)" --site "http://mine.localhost:$PUBLIC" \
  --app "http://$(host_of "$PORT" mine)/"
grep '^the workbench' "$OUT/browser.log" | sed "s/^/note  $SUITE: /"
check "what was typed is in the pod's file" says mine 'first line
typed through the browser: déjà vu 42' 'cat /projects/notes.txt'
check "the terminal's command ran in the pod, as its user" says mine "$(pod_of mine) 5001" 'cat /projects/proof.txt'

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
