#!/usr/bin/env bash
# Kill -9 of the gateway or the cluster agent at many random moments while workspaces are made, changed and terminated on a real
# Kubernetes cluster. After some kills of the agent the next one waits until the lease has run out, after the others the lease is
# taken away to save that time. Not one of the suites that run by default: it takes about twenty minutes.
#
#   MODE=shared KILLS=200 SEED=7 tests/real/suites/kubernetes-crash.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"

[ -n "$DIRECT" ] && { echo "kubernetes-crash: nothing to check without the gateway"; finish; }
MODE=${MODE:-unique}

start_cluster
for namespace in foreign ws-taken "$SHARED_NAMESPACE"; do
  kc create namespace "$namespace" >/dev/null
  theirs_in "$namespace"
done
rights "$MODE"
clusters "$MODE"
theirs >"$OUT/theirs.before"
# The store and the tokens; the program that kills runs both programs itself.
start_gateway
user_token
cluster_token "$MODE"
stop gateway
# as_list COMMAND… : as a JSON list.
as_list() { python3 -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "$@"; }
REAL_AGENT_HOME=$(home "$MODE")
export REAL_AGENT_HOME
workspaces_helper crash 3600 crash.py --kills "${KILLS:-200}" ${SEED:+--seed "$SEED"} --cluster "$MODE" --logs "$OUT" \
  --gateway "$(as_list env "${GATEWAY_ENV[@]}" "$REAL_GATEWAY" serve --config "$OUT/gateway.toml")" \
  --agent "$(as_list env NO_COLOR=1 KUBECONFIG="$KUBE/$MODE.kubeconfig" "$REAL_AGENT" cluster --gateway "http://127.0.0.1:$AGENTS" --token-file "$OUT/$MODE.token")"
same "nothing of ours is left" '' "$(of '')"
check "things of others are as they were" untouched
check "no program panicked" sh -c "! grep -n 'panicked at' '$OUT'/*.log"
finish
