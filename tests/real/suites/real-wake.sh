#!/usr/bin/env bash
# Wakes of a workspace in a real pod, as its owner has them: Chromium opens the address of the stopped workspace, asks for its start, and
# waits for the page. Images are on the node already. Needs what real-pod.sh needs; WAKES is how many, and SMALL_TOOLS=1 leaves the editor out.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/machine.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/node.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/real-pod.sh"

[ -n "$DIRECT" ] && { echo "real-wake: nothing to check without the gateway"; finish; }
own_machine "$@"
WAKES=${WAKES:-30}
real_cluster unique
git_server
git_project shop || give_up "no project: $(tail -n 1 "$OUT/shell.log")"

create unique mine "$(devfile localhost/dev:1 '      endpoints: [{name: app, targetPort: 3000}]
commands:
  - {id: serve, exec: {component: main, commandLine: "mkdir -p site && cp shop/README site/index.html && python3 -m http.server -d site 3000 2>/dev/null &", workingDir: /projects}}
events: {postStart: [serve]}')" "$GIT_URL/shop.git" >"$OUT/created.json" || give_up "the workspace is not taken: $(cat "$OUT/created.json")"
check "a workspace runs" state_within 90 mine Running
check "and serves its project" until_ok 20 has_text '^this is shop$' visit -f "http://$(host_of 3000 mine)/"

helper browser $((WAKES * 40)) env "REAL_USER_TOKEN=$USER_TOKEN" node "$REAL/suites/real-wake.mjs" --app "http://$(host_of 3000 mine)" \
  --site "http://localhost:$PUBLIC" --name mine --wakes "$WAKES" --out "$OUT" --link "$(sign_in_link)"
sed -n "s/^note /note  $SUITE: /p" "$OUT/browser.log"
# at PERCENT : milliseconds within which so many of the wakes were over.
at() { sed -n 's/^woken //p' "$OUT/browser.log" | cut -d " " -f 2 | percentile "$1"; }
same "each wake led to the page" "$WAKES" "$(grep -c '^woken ' "$OUT/browser.log")"
# steps : for each wake, how long after the click its pod was scheduled, had the tools, and had started.
steps() {
  local since step
  sed -n 's/^woken //p' "$OUT/browser.log" | while read -r since _; do
    for step in scheduled tools started; do printf '%s ' "$(step_of mine "$step" "$since")"; done
    echo
  done
}
note "from the click to the page: half within $(seconds "$(at 50)") s, 99 of 100 within $(seconds "$(at 99)") s"
# middle FIELD : the median of a step.
middle() { seconds "$(steps | cut -d " " -f "$1" | percentile 50)"; }
note "medians: scheduled after $(middle 1) s, tools copied after $(middle 2) s, containers started after $(middle 3) s"
quiet_logs
finish
