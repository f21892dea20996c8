#!/usr/bin/env bash
# Kill -9 of the gateway, and of the supervisor, the program, the processes and the agent of jobs, at many random moments while
# workspaces that are jobs on this machine are made, changed and terminated. Not one of the suites that run by default: it takes about
# a quarter of an hour.
#
#   KILLS=40 SEED=7 tests/real/suites/ci-crash.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/ci.sh"

[ -n "$DIRECT" ] && { echo "ci-crash: nothing to check without the gateway"; finish; }

ci_gateway none
trap 'end_jobs; cleanup' EXIT
# The store and the token; the program that kills runs the gateway itself.
start_gateway
user_token
stop gateway
as_list() { python3 -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "$@"; }
helper crash 3600 env REAL_PUBLIC_PORT="$PUBLIC" REAL_USER_TOKEN="$USER_TOKEN" PYTHONPATH="$REAL/lib" PYTHONUNBUFFERED=1 \
  python3 "$APPS/ci_crash.py" --kills "${KILLS:-40}" ${SEED:+--seed "$SEED"} --jobs "$JOBS" --logs "$OUT" \
  --gateway "$(as_list env "${GATEWAY_ENV[@]}" "$REAL_GATEWAY" serve --config "$OUT/gateway.toml")"
grep '^note ' "$OUT/crash.log" | sed "s/^note/note  $SUITE:/"
check "nothing runs" until_ok 10 no_job_processes
check "nothing of any of them is left on the disk" nothing_of_jobs
check "nothing private of any of them is left elsewhere" nothing_private
check "no program panicked" sh -c "! grep -n 'panicked at' '$OUT'/*.log"
finish
