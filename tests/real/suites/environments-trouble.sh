#!/usr/bin/env bash
# Many jobs for one environment at once, stops among them, and kill -9 of the gateway and the cluster agent in the middle, on a real API
# server; how many calls of `unmet` there are in a second, and that they need neither the database nor an agent. On PostgreSQL.
#
#   STORE=sqlite KILLS=60 SEED=7 tests/real/suites/environments-trouble.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/environments.sh"

[ -n "$DIRECT" ] && { echo "environments-trouble: nothing to check without the gateway"; finish; }
STORE=${STORE:-postgres}

start_environments
kc create namespace "$SHARED_NAMESPACE" --save-config >/dev/null
for cluster in as-agent as-job; do
  kc create namespace "$(home "$cluster")" --save-config >/dev/null
done
agent_rights as-job environments-ci-job
agent_rights as-agent environments-agent
ci_access as-job ci_job
ci_access as-agent agent
for cluster in as-agent as-job; do
  accounts 'crowd-{{ .environment.slug }}' a >"$OUT/agents/$cluster/environment_templates/small.yaml"
  accounts 'crowd-{{ .environment.slug }}' a b c >"$OUT/agents/$cluster/environment_templates/large.yaml"
done
[ "$STORE" = sqlite ] || on_postgres
start_gateway
user_token
for cluster in as-agent as-job; do cluster_agent "agent-$cluster" "$cluster"; done
for cluster in as-agent as-job; do check "$cluster: the agent is there" until_ok 60 agent_is_here "$cluster"; done
for cluster in as-agent as-job; do
  check "$cluster: its templates too" until_ok 15 has_template "$cluster" large
done

# --- many at once -----------------------------------------------------------------------------------------------------
for cluster in as-job as-agent; do
  REAL_JOB_TOKEN=$(job_token 8001 first)
  export REAL_JOB_TOKEN
  workspaces_helper "race-$cluster" 240 environments.py race --cluster "$cluster" --audit "$AUDIT"
done

# --- how fast, and with what --------------------------------------------------------------------------------------------
# A job whose prerequisites were completed, and one that has none: both are answered of what is in memory.
prepared 9001 speed as-job small >/dev/null || fail "no environment for the measurement"
printf '{"agent": "as-job"}' >"$OUT/unmet.json"
# rate NAME : calls per second that were measured.
rate() { echo "note  $SUITE: $1: $(grep -oE '[0-9.]+ req/s' "$OUT/$1.log")"; }
# measure NAME TOKEN : many calls over 8 connections, each answered well.
measure() {
  h2load --h1 -n 20000 -c 8 -t 1 -d "$OUT/unmet.json" -H "authorization: Bearer $2" -H 'content-type: application/json' \
    --connect-to="127.0.0.1:$PUBLIC" "http://localhost:$PUBLIC/api/v1/environments/unmet" >"$OUT/$1.log" 2>&1
  grep -q '20000 succeeded' "$OUT/$1.log" && grep -qE 'status codes: 20000 2xx' "$OUT/$1.log" || { grep -E 'status codes|requests:' "$OUT/$1.log"; return 1; }
}
DONE=$(job_token 9001 speed)
NEW=$(job_token 9002 speed)
same "a job that was prepared" 'false completed' "$(unmet "$DONE" as-job)"
same "a job that was not" true "$(unmet "$NEW" as-job)"
check "20,000 calls of unmet for a job that was prepared" measure "unmet-completed" "$DONE"
rate unmet-completed
check "and for one that was not" measure "unmet-new" "$NEW"
rate unmet-new
stop agent-as-job
if [ "$STORE" = postgres ]; then
  before=$(on_server "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database WHERE datname = 'gateway'")
  check "without an agent, 20,000 more" measure "unmet-without-agent" "$NEW"
  rate unmet-without-agent
  after=$(on_server "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database WHERE datname = 'gateway'")
  check "for which the database did not do one transaction for each forty ($((after - before)))" test $((after - before)) -lt 500
  for pid in "${PIDS[postgres]}" $(pgrep -P "${PIDS[postgres]}"); do kill -s STOP "$pid"; done
  check "with a database that stands still, too" measure "unmet-without-database" "$NEW"
  rate unmet-without-database
  same "with the same answers" 'false completed' "$(unmet "$DONE" as-job)"
  for pid in $(pgrep -P "${PIDS[postgres]}") "${PIDS[postgres]}"; do kill -s CONT "$pid"; done
else
  check "without an agent, 20,000 more" measure "unmet-without-agent" "$NEW"
  rate unmet-without-agent
fi
cluster_agent agent-as-job as-job
until_ok 60 agent_is_here as-job >/dev/null || fail "the agent does not come back"
set_state as-job speed stopped >/dev/null && gone_within 60 as-job speed >/dev/null || fail "the measurement's environment does not go"

# --- kills --------------------------------------------------------------------------------------------------------------
stop agent-as-job
stop agent-as-agent
stop gateway
as_list() { python3 -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "$@"; }
REAL_AGENT_HOME=$(home as-job)
export REAL_AGENT_HOME
kc -n "$REAL_AGENT_HOME" delete leases --all >/dev/null
workspaces_helper crash 420 environments.py crash --cluster as-job --audit "$AUDIT" --kills "${KILLS:-20}" ${SEED:+--seed "$SEED"} --logs "$OUT" \
  --gateway "$(as_list env "${GATEWAY_ENV[@]}" "$REAL_GATEWAY" serve --config "$OUT/gateway.toml")" \
  --agent "$(as_list env NO_COLOR=1 KUBECONFIG="$KUBE/as-job.kubeconfig" "$REAL_AGENT" cluster --gateway "http://127.0.0.1:$AGENTS" --token-file "$OUT/as-job.token")"

check "no program panicked" sh -c "! grep -n 'panicked at' '$OUT'/*.log"
for name in gateway agent agent-as-agent agent-as-job; do
  same "$name logs no error" '' "$(grep -E '\bERROR\b' "$OUT/$name.log" 2>/dev/null | head -n 2 | cut -c 1-300)"
done
finish
