#!/usr/bin/env bash
# Quotas of a cluster, and what a lost record leaves there, on a real API server: refusals that name the limit and what to stop, and
# orphans that are listed, left alone by themselves, and deleted on an operator's word.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"

[ -n "$DIRECT" ] && { echo "kubernetes-limits: nothing to check without the gateway"; finish; }

start_cluster
for mode in unique shared; do rights "$mode"; done
clusters unique shared
# The one container of a workspace requests 0.1 of a processor and 128Mi, and its claim is of 50Gi.
quotas() {
  printf '  running_quota_per_user: %s\n  resource_quota_per_user: {cpu: 350m, storage: 200Gi}\n' "$1" |
    cat "$OUT/unique.config" - >"$OUT/agents/unique/config.new" && mv "$OUT/agents/unique/config.new" "$OUT/agents/unique/config.yaml"
}
cp "$OUT/agents/unique/config.yaml" "$OUT/unique.config"
quotas 2
GATEWAY_ENV+=("GATEWAY_AUDIT__PATH=$OUT/audit.log")
start_gateway
user_token
(umask 077 && echo "$USER_TOKEN" >"$OUT/user.token")
tell() { "$REAL_GATEWAY" "$@" --gateway "http://localhost:$PUBLIC" --token-file "$OUT/user.token"; }
cluster_agent first unique
cluster_agent agent-shared shared

# --- quotas -----------------------------------------------------------------------------------------------------------
create unique lost >/dev/null || fail "lost is not taken"
create unique kept >/dev/null || fail "kept is not taken"
create shared astray >/dev/null || fail "astray is not taken"
create shared beside >/dev/null || fail "beside is not taken"
tell workspace create third --agent unique >"$OUT/third.log" 2>&1 && fail "a third running workspace is made"
check "a third workspace is refused with the limit" grep -q 'you have 2 running workspaces of 2 there, and this needs 1 running workspaces more' "$OUT/third.log"
check "and what to stop" grep -qE 'stop one of (lost, kept|kept, lost)' "$OUT/third.log"
same "programs get a code" quota_exceeded "$(create unique third | value code)"
check "nothing is made of it" refused GET /workspaces/third
for name in lost kept astray beside; do
  check "$name runs" state_within 60 "$name" Running
done
desire kept Stopped >/dev/null
makes_third() { create unique third >/dev/null; }
check "a workspace that is to stop makes room at once" makes_third
refuses_start() { ! tell workspace start kept >"$OUT/start.log" 2>&1; }
check "to start it again is refused" refuses_start
check "with the limit" grep -q 'running workspaces of 2 there' "$OUT/start.log"
quotas 1
lowered() { [ "$(ask GET /agents/unique/usage | python3 -c 'import json, sys
print([row["allowed"] for row in json.load(sys.stdin)["user"] if row["item"] == "running"][0])')" = 1 ]; }
check "a lowered quota is in force" until_ok 20 lowered
tell cluster show unique >"$OUT/show.log" 2>&1
check "and shown beside what is in use" grep -qE '^running +2 +1 +2 +any$' "$OUT/show.log"
check "with what is requested" grep -qE '^memory requested +256Mi +any +256Mi +any$' "$OUT/show.log"
check "and with the storage of what is stopped too" grep -qE '^storage +150Gi +200Gi +150Gi +any$' "$OUT/show.log"
desire third Terminated >/dev/null
check "neither of two running ones is stopped by it" is lost Running
quotas 2
until_ok 20 sh_not lowered || fail "the quota is not raised"
starts_kept() { desire kept Running >/dev/null; }
check "with room, the stopped one starts" starts_kept
check "and runs" state_within 60 kept Running
check "the third one terminates" state_within 60 third Terminated

# --- records that are lost --------------------------------------------------------------------------------------------
same "a cluster without orphans has none" 0 "$(ask GET /agents/unique/orphans | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["orphans"]))')"
stop gateway
# As an older backup has it: without two of the workspaces.
python3 - "$OUT/gateway.db" lost astray <<'PY' || fail "the rows cannot be deleted"
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
for name in sys.argv[2:]:
    row = database.execute("SELECT id FROM workspaces WHERE name = ?", (name,)).fetchone()
    for table in ("variables", "kubernetes_frozen", "kubernetes_workspaces", "devfiles", "lifecycles", "agent_token_uses", "shares", "tokens"):
        database.execute(f"DELETE FROM {table} WHERE workspace_id = ?", row)
    database.execute("DELETE FROM workspaces WHERE id = ?", row)
database.commit()
PY
start_gateway
# orphans MODE : each as ID, whether it has its objects, and its claims.
orphans() { ask GET "/agents/$1/orphans" | python3 -c 'import json, sys
for one in json.load(sys.stdin)["orphans"]: print(one["id"], one["objects"] > 5, *one["claims"], sep=":")'; }
finds() { [ "$(orphans "$1")" = "$2" ] || { orphans "$1"; return 1; }; }
check "what a lost record left is listed with its claim" until_ok 30 finds unique 'lost.ws-lost:True:lost-data'
check "in a shared namespace too" until_ok 30 finds shared "astray.$SHARED_NAMESPACE:True:astray-data"
tell cluster orphans unique >"$OUT/orphans.log" 2>&1
check "the command shows it" grep -qE '^lost +ws-lost +[0-9]+ +lost-data ' "$OUT/orphans.log"
check "a workspace with a record is not deleted as one" refused DELETE /agents/unique/orphans/kept.ws-kept
same "and that is said" not_an_orphan "$(ask DELETE /agents/unique/orphans/kept.ws-kept | value reason)"
before=$(of lost; of astray)
# Each gateway that starts tells the agents all its records anew, as the hourly round does.
stop gateway
start_gateway
check "a further round of all records changes nothing" until_ok 30 finds unique 'lost.ws-lost:True:lost-data'
same "nothing of it was removed by itself" "$before" "$(of lost; of astray)"
asked() { ! tell cluster orphans unique --delete-all </dev/null >"$OUT/unsure.log" 2>&1; }
check "without a person and --yes nothing is deleted" asked
same "so it is all there" "$before" "$(of lost; of astray)"
check "it is deleted on the operator's word" tell cluster orphans unique --delete lost --yes
check "with its namespace" without namespace ws-lost
check "and in the shared namespace" tell cluster orphans shared --delete-all --yes
same "with all objects" '' "$(of astray)"
check "where its claim went too" without pvc astray-data "$SHARED_NAMESPACE"
check "no orphan is left" finds unique ''
for name in kept beside; do
  check "$name runs on" is "$name" Running
done
# A request waits a few seconds for its removal; the command asks again while something is left.
removals() { grep -oE '"event":"orphan_removed".*"state":"(gone|leaving)"' "$OUT/audit.log" | grep -oE '"orphan":"[^"]*"' | sort -u | wc -l; }
same "each removal is in the audit log" 2 "$(removals)"
same "and none has failed" 0 "$(grep -c '"event":"orphan_removed".*"state":"failed"' "$OUT/audit.log")"
no_secret_in gateway first agent-shared
finish
