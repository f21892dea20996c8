#!/usr/bin/env bash
# The cluster agent's own scenarios (workspace-agent/cluster/tests/reconcile), which `cargo test` runs on a server in memory, on a real
# API server with its controllers: each of them is a check.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"

[ -n "$DIRECT" ] && { echo "cluster-scenarios: nothing to check without the agent"; finish; }

# What the server was asked, to count the scenarios that were there.
mkdir -p "$OUT"
printf 'apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n' >"$OUT/audit.yaml"
APISERVER_MORE=(--audit-policy-file "$OUT/audit.yaml" --audit-log-path "$OUT/audit.log" --audit-log-maxsize 4000)

# The whole workspace, of which only this is run: a package alone has other features, and everything would be compiled again.
BUILD=(cargo test --locked --workspace --features agent-cluster/real-server --test reconcile)
(cd "$ROOT" && "${BUILD[@]}" --no-run >"$OUT/build.log" 2>&1) || give_up "the scenarios cannot be compiled: $(tail -n 1 "$OUT/build.log")"
start_cluster
log=$OUT/tests.log
(cd "$ROOT" && AGENT_CLUSTER_TEST_KUBECONFIG=$KUBECONFIG_ADMIN timeout 900 "${BUILD[@]}" -- --test-threads=16 on_a_real_server >"$log" 2>&1)
while read -r name result; do
  case $result in
    ok) ok "$name" ;;
    *) fail "$name: $(grep -A 3 "^thread '$name'" "$log" | sed -n 2p | cut -c 1-200)" ;;
  esac
done < <(sed -n 's/^test \([^ ]*on_a_real_server[^ ]*\) \.\.\. \(.*\)$/\1 \2/p' "$log")
ran=$(grep -c '^test .*on_a_real_server.* \.\.\. ' "$log")
check "$ran scenarios ran to their end" grep -qE "^test result: .* $ran passed; 0 failed; 0 ignored" "$log"
# Each has a name for its cluster, which is in the names of its namespaces or its lease.
there=$(grep -oE '(ws|shared|agents|lease)-t[0-9a-f]{8}' "$OUT/audit.log" | grep -oE 't[0-9a-f]{8}' | sort -u | wc -l)
same "each of them at the API server" "$ran" "$there"
check "which are no fewer than there were" test "$ran" -ge 50
finish
