#!/usr/bin/env bash
# Runs the programs, those of the release if nothing else is said, together with real parts: browsers, VS Code, Vite, gRPC stacks, OpenSSH, file servers, load balancers,
# proxies, authorities, an identity provider, PostgreSQL, a Kubernetes cluster, a node with real pods.
#
#   cargo build --release && tests/real/install.sh && tests/real/run.sh
#   tests/real/run.sh vite grpc           only these suites
#   tests/real/suites/vite.sh             one suite by itself; chart-real, ci-crash, counts, dev-servers, footprint, kubernetes-crash, kubernetes-scale, real-faults, real-life, real-network, replacement, replicas-faults, replicas-resize, replicas-restart, replicas-scale and versions run only so
#   DIRECT=1 tests/real/suites/vite.sh    the same checks on the app itself, without gateway and agent
#
# A suite that this machine cannot have, such as real pods without root, is said not to run, with the reason; it is counted apart.
# One line for each check; the last line has the counts. Logs and screenshots are in tests/real/out/SUITE.
# CARGO_TARGET_DIR, REAL_GATEWAY, REAL_AGENT and REAL_AGENT_SLIM say which programs, REAL_CHROMIUM which browser.
set -uo pipefail

REAL=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# What measures how quickly something happens has the machine for itself. The others go in four lanes, one suite of each at a time,
# because most of a suite is waiting. Editors of workspaces always listen on the same port, and pods are played on this machine: whatever
# has such an editor is in one lane with the others of its kind, those in pods and those without. Real pods have networks of their
# own, and what else is in that lane has no editor.
ALONE=(revocation fault floods kubernetes-life)
PODS=(chart cluster-scenarios kubernetes-frozen kubernetes-trouble kubernetes-limits kubernetes-identity kubernetes-page)
MACHINES=(real-pod images packages git-credentials replicas acme idle dashboard-people monitoring failures inspector doctor)
EDITORS=(ci-workspace workspace-scripts kubernetes-pod code-server ci-job ci-schema environments-trouble ssh workspace-ssh memory sign-in terminal
  demo agent-life)
OTHERS=(dashboard environments store reload outage h2spec load-balancers http-server getting-out websocket vite environment-templates grpc)
# Seconds for one suite, against those that hang: the longest takes 200.
LIMIT=1200

for suite in "$@"; do
  [ -x "$REAL/suites/$suite.sh" ] ||
    { echo "no such suite: $suite (suites: ${ALONE[*]} ${PODS[*]} ${MACHINES[*]} ${EDITORS[*]} ${OTHERS[*]})" >&2; exit 2; }
done

mkdir -p "$REAL/out"
WORK=$(mktemp -d)
lanes=()
finish() {
  trap - EXIT INT TERM HUP
  trap '' PIPE
  # A lane ends its suite, and the suite what it started, when it is told to end; they get the time for that.
  for lane in "${lanes[@]}"; do kill -TERM "$lane" 2>/dev/null; done
  wait
  rm -rf "$WORK"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# lane SUITE… : one after another. What came out of each is a line `PASSED FAILED` of the file `counts`; both are 0 for one that this
# machine cannot have, which ends with the status 77.
lane() {
  local suite running='' began status good bad out copy lines=$WORK/lines.$BASHPID
  trap '[ -z "$running" ] || { kill -TERM "$running"; wait "$running"; } 2>/dev/null; exit 143' TERM
  for suite in "$@"; do
    began=$SECONDS
    exec {out}> >(exec tee "$lines" > >(exec grep --line-buffered -vE '^[0-9]+ passed, [0-9]+ failed$'))
    copy=$!
    timeout -k 60 "$LIMIT" "$REAL/suites/$suite.sh" >&"$out" 2>&1 {out}>&- &
    running=$!
    wait "$running"
    status=$?
    running=
    exec {out}>&-
    # Counted is what has arrived. Something of the suite's that still writes would be waited for without end.
    timeout 60 tail -s 0.1 --pid="$copy" -f /dev/null
    good=$(grep -c '^ok ' "$lines")
    bad=$(grep -c '^FAIL ' "$lines")
    if [ "$status" = 77 ] && [ "$good" = 0 ] && [ "$bad" = 0 ] && grep -q '^not run: ' "$lines"; then
      printf '0 0\n' >>"$WORK/counts"
      continue
    elif [ "$status" != 0 ] && [ "$bad" = 0 ]; then
      printf 'FAIL  %s: ended with status %s (124: took over %s s)\n' "$suite" "$status" "$LIMIT"
      bad=1
    elif [ "$good" = 0 ] && [ "$bad" = 0 ]; then
      # It said that all went well, and nothing was checked.
      printf 'FAIL  %s: ended without a check\n' "$suite"
      bad=1
    fi
    printf -- '----  %s: %s of %s in %s s\n' "$suite" "$good" "$((good + bad))" "$((SECONDS - began))"
    printf '%s %s\n' "$good" "$bad" >>"$WORK/counts"
  done
}

start() {
  lane "$@" &
  lanes+=($!)
}

all_ended() {
  for lane in "${lanes[@]}"; do wait "$lane"; done
  lanes=()
}

if [ $# -gt 0 ]; then
  wanted=$#
  start "$@"
else
  wanted=$((${#ALONE[@]} + ${#PODS[@]} + ${#MACHINES[@]} + ${#EDITORS[@]} + ${#OTHERS[@]}))
  start "${ALONE[@]}"
  all_ended
  start "${PODS[@]}"
  start "${MACHINES[@]}"
  start "${EDITORS[@]}"
  start "${OTHERS[@]}"
fi
all_ended

passed=0
failed=0
ran=0
left=0
while read -r good bad; do
  passed=$((passed + good))
  failed=$((failed + bad))
  ran=$((ran + 1))
  [ "$good$bad" != 00 ] || left=$((left + 1))
done <"$WORK/counts"
if [ "$ran" != "$wanted" ]; then
  printf 'FAIL  %s of %s suites ran\n' "$ran" "$wanted"
  failed=$((failed + 1))
fi
[ "$left" = 0 ] || printf '%s suite%s not run\n' "$left" "$([ "$left" = 1 ] || echo s)"
printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
