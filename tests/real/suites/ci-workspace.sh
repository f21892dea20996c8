#!/usr/bin/env bash
# A workspace as a CI job on this machine: one API call makes a pipeline that gitlab-ci-local runs with its shell executor, and
# Chromium works in its code-server through the tunnel. Stopped, started, restarted; what was in its project is there again through
# the cache, and what was deleted is not. The gateway is restarted meanwhile; in the end nothing is left.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/ci.sh"

[ -n "$DIRECT" ] && { echo "ci-workspace: nothing to check without the gateway"; finish; }
ENTRY=$(echo "$CACHE"/code-server-*/node_modules/code-server/out/node/entry.js)
[ -e "$ENTRY" ] || give_up "code-server is missing: run tests/real/install.sh"

ci_gateway installed
printf '#!/bin/sh\nexec %q %q "$@"\n' "$(type -P node)" "$ENTRY" >"$OUT/bin/code-server"
chmod +x "$OUT/bin/code-server"
trap 'end_jobs; cleanup' EXIT
web=$(free_port)
project "$web"
start_gateway
user_token
NAME=shop
EDITOR_HOST=$(host_of 60001 "$NAME")

# run_of : the key of the run that is there.
run_of() { sed -n 's/.*"key":"\([0-9a-f]*\)".*/\1/p' "$JOBS"/*/run/record.json; }
# editor_answers : the editor is there, through the tunnel.
editor_answers() { visit -o /dev/null -f "http://$EDITOR_HOST/healthz"; }
# alone : each workspace has one program at most.
alone() { [ "$(pgrep -cf "^[^ ]*node [^ ]*gitlab-ci-local .*--home $JOBS")" -le 1 ]; }
# browse STEP : as a person, in Chromium.
browse() {
  REAL_SECRET=$SECRET_VALUE helper "browser-$1" 240 node "$REAL/suites/ci-workspace.mjs" --step "$1" --base "http://$EDITOR_HOST" --out "$OUT" --link "$(sign_in_link)" \
    --folder "$(dirname "$(kept notes.txt)")"
}

began=$(now_ms)
check "one API call makes the workspace" create_ci "$NAME" "http://127.0.0.1:$web/shop.git"
check "its agent connects" state_within 120 "$NAME" Running
check "its editor answers through the tunnel" until_ok 90 editor_answers
echo "note  $SUITE: from the call to the editor $(($(now_ms) - began)) ms"
check "its project is cloned" until_ok 30 kept notes.txt
check "it has one program" alone
first=$(run_of)
browse first

# What is written to the log is the workspace's owner's to see, and no secret is in it.
check "no secret is in a log" bash -c "! grep -rnE '$SECRET_VALUE|$(printf %s "$SECRET_VALUE" | base64)|gwa_[A-Za-z0-9_-]{20}' '$JOBS'/*/run/log* '$OUT/gateway.log' '$JOBS'/*/.gitlab-ci-local/output"
# The value is in a file: arguments of this very search would be found. Tokens are looked for in the job only, because other suites
# have theirs among the arguments of what they search with.
printf '%s\n' "$SECRET_VALUE" >"$OUT/secrets"
same "no secret is in an argument" '' "$(grep -laF -f "$OUT/secrets" /proc/[0-9]*/cmdline 2>/dev/null)"
arguments=$(job_arguments)
check "the job's arguments are known" grep -q workspace-agent <<<"$arguments"
same "no token is among them" '' "$(grep -oE 'gwa_[A-Za-z0-9_-]{20}' <<<"$arguments")"
same "other users cannot look into the folder" 700 "$(stat -c %a "$JOBS"/*)"
check "the job's own folder is where the supervisor deletes it" ls -d "$JOBS"/*/run/private/workspace.??????/workspace-agent

signal KILL gateway
ends_within 10 gateway >/dev/null
check "the job goes on without a gateway" bash -c "[ -n '$(job_processes)' ]"
start_gateway
check "a gateway that was killed finds its run again" state_within 60 "$NAME" Running
check "the editor answers again" until_ok 60 editor_answers
same "it is the same run" "$first" "$(run_of)"

check "stop is taken" desire "$NAME" Stopped
check "it stops" state_within 120 "$NAME" Stopped
check "nothing of the job runs any more" until_ok 10 no_job_processes
check "its values are deleted" bash -c "! ls -d '$JOBS'/*/run/secrets"
check "so is what the job made of them" nothing_private
check "its files are in the cache" cached notes.txt
check "a deleted file is not" bash -c "! ls '$JOBS'/*/.gitlab-ci-local/cache/*/workspace-*/projects/shop/old.txt"
# Only the cache brings files back.
rm -rf "$JOBS"/*/.gitlab-ci-local/builds

check "start is taken" desire "$NAME" Running
check "it starts" state_within 120 "$NAME" Running
check "its editor answers" until_ok 90 editor_answers
second=$(run_of)
check "it is another run" test "$first" != "$second"
browse second

check "restart is taken" desire "$NAME" RestartRequested
check "it stops for that" until_ok 120 bash -c "[ \"\$(sed -n 's/.*\"key\":\"\\([0-9a-f]*\\)\".*/\\1/p' '$JOBS'/*/run/record.json)\" != '$second' ]"
check "it starts again" state_within 120 "$NAME" Running
check "its editor answers after the restart" until_ok 90 editor_answers
check "it has one program still" alone
check "the file is as it was" grep -q 'typed in a CI job' "$(kept notes.txt)"

# A job that is killed deletes nothing itself. While its agent is there, which goes on, its provider is asked once a minute.
kill -s KILL "$(sed -n 's/.*"supervisor":{"pid":\([0-9]*\).*/\1/p' "$JOBS"/*/run/record.json)"
check "a job whose supervisor is killed is seen to be over" until_ok 90 nothing_private
same "what it made of its values is in no other place" "" "$(find "$JOBS_TMP" -name 'workspace.??????')"

check "terminate is taken" desire "$NAME" Terminated
check "it terminates" state_within 120 "$NAME" Terminated
check "nothing runs" until_ok 10 no_job_processes
check "nothing of it is left on the disk" nothing_of_jobs
check "no program panicked" sh -c "! grep -n 'panicked at' '$OUT'/*.log"
finish
