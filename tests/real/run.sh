#!/usr/bin/env bash
# Runs the release programs together with real parts: browsers, VS Code, Vite, gRPC stacks, OpenSSH, file servers, load balancers,
# proxies, authorities, an identity provider, PostgreSQL, a Kubernetes cluster.
#
#   cargo build --release && tests/real/install.sh && tests/real/run.sh
#   tests/real/run.sh vite grpc           only these suites
#   tests/real/suites/vite.sh             one suite by itself; ci-crash, footprint, kubernetes-crash and kubernetes-scale run only so
#   DIRECT=1 tests/real/suites/vite.sh    the same checks on the app itself, without gateway and agent
#
# One line for each check; the last line has the counts. Logs and screenshots are in tests/real/out/SUITE.
# CARGO_TARGET_DIR, REAL_GATEWAY, REAL_AGENT and REAL_AGENT_SLIM say which programs, REAL_CHROMIUM which browser.
set -uo pipefail

REAL=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
ALL=(store http-server grpc websocket vite code-server load-balancers floods getting-out sign-in revocation ssh agent-life fault acme demo terminal
  ci-job ci-schema ci-workspace workspace-scripts kubernetes-frozen kubernetes-identity kubernetes-life kubernetes-trouble kubernetes-pod
  kubernetes-page environment-templates environments environments-trouble)
LIMIT=480 # seconds for one suite

suites=("$@")
[ ${#suites[@]} = 0 ] && suites=("${ALL[@]}")
for suite in "${suites[@]}"; do
  [ -x "$REAL/suites/$suite.sh" ] || { echo "no such suite: $suite (suites: ${ALL[*]})" >&2; exit 2; }
done

mkdir -p "$REAL/out"
lines=$(mktemp)
running=
finish() {
  trap - EXIT INT TERM HUP
  trap '' PIPE
  # The suite ends what it started when it is told to end; it gets the time for that.
  if [ -n "$running" ] && kill -TERM "$running" 2>/dev/null; then wait "$running" 2>/dev/null; fi
  rm -f "$lines"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

passed=0
failed=0
for suite in "${suites[@]}"; do
  began=$SECONDS
  timeout -k 30 "$LIMIT" "$REAL/suites/$suite.sh" > >(tee "$lines" | grep -vE '^[0-9]+ passed, [0-9]+ failed$') 2>&1 &
  running=$!
  wait "$running"
  status=$?
  running=
  wait
  good=$(grep -c '^ok ' "$lines")
  bad=$(grep -c '^FAIL ' "$lines")
  if [ "$status" != 0 ] && [ "$bad" = 0 ]; then
    printf 'FAIL  %s: ended with status %s (124: took over %s s)\n' "$suite" "$status" "$LIMIT"
    bad=1
  fi
  printf -- '----  %s: %s of %s in %s s\n' "$suite" "$good" "$((good + bad))" "$((SECONDS - began))"
  passed=$((passed + good))
  failed=$((failed + bad))
done
printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
