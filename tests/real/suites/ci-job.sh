#!/usr/bin/env bash
# A CI job under `workspace-agent ci`: `make test` fails, its owner opens the printed link in Chromium, tries the fix in the terminal and
# continues or fails the job there. The same with a gateway that is not there, and with one that takes connections and says nothing.
# And the templates of deploy/ci, whose shell parts run here as a runner would run them; no GitLab and no GitHub was asked.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "ci-job: nothing to check without the programs"; finish; }
command -v make >/dev/null || give_up "make is missing"

choose_ports
# The program that jobs fetch.
GATEWAY_ENV+=("GATEWAY_CI__AGENT_FILES=$REAL_AGENT_SLIM")
start_gateway
user_token
TOKEN_FILE=$(workspace_token "$WORKSPACE") || give_up "no agent token: $(tail -n 1 "$OUT/token.log")"
PROJECT=$OUT/project
mkdir -p "$PROJECT"
printf 'test:\n\t@echo "the answer is $$(cat answer)"\n\t@test "$$(cat answer)" = 42\n' >"$PROJECT/Makefile"
break_project() { echo 41 >"$PROJECT/answer"; }
break_project

# job NAME ARGUMENTS… : `make test` of the project as a job, with the variables in JOB_GIVES; what comes out of it is in NAME.log.
JOB_GIVES=()
job() {
  local name=$1
  shift
  spawn "$name" env -C "$PROJECT" PS1='$ ' ENV= SHELL=/bin/sh CI_SECRET=in-the-job "${JOB_GIVES[@]}" "$REAL_AGENT" ci \
    --gateway "http://127.0.0.1:$AGENTS" --token-file "$TOKEN_FILE" "$@" -- make test
}
link_of() { grep -oE 'https?://[^ ]+' "$OUT/$1.log"; }
# as_person NAME CHOICE : what somebody does behind the link of a job.
as_person() {
  until_ok 20 link_of "$1" || give_up "no link is printed: $(tail -n 1 "$OUT/$1.log")"
  helper "browser-$2" 120 node "$REAL/suites/ci-job.mjs" --terminal "$(link_of "$1")" --choice "$2" --project "$PROJECT" --out "$OUT" \
    --link "$(sign_in_link)" --signed "$OUT/signed-in.json"
}
# lines NAME : what a job's log has of the command and of make, without the wrapper's own.
lines() { grep -v '^workspace-agent: ' "$OUT/$1.log"; }

# --- as if nobody were there ------------------------------------------------------------------------------------------

env -C "$PROJECT" make test >"$OUT/plain.log" 2>&1
plain=$?

# --- held, fixed, continued -------------------------------------------------------------------------------------------

job continued --hold 5m
check "a job prints its link" until_ok 20 link_of continued
same "nobody gets in there who is not signed in" sign_in_required \
  "$(curl -s -o /dev/null -D - "$(link_of continued)state" | tr -d '\r' | sed -n 's/^gateway-error: *//Ip')"
as_person continued continue
if ends_within 10 continued; then same "a job that is continued passes" 0 "$STATUS"; else fail "the job still runs"; fi
same "the fix was made in the job" 42 "$(cat "$PROJECT/answer")"
same "what make wrote is all there, and as it wrote it" "$(cat "$OUT/plain.log")" "$(lines continued)"
same "one link is printed" 1 "$(grep -c '://' "$OUT/continued.log")"
same "it leads to the terminal of this workspace" "http://60002-$WORKSPACE.localhost:$PUBLIC/" "$(link_of continued)"
check "nothing secret is printed" sh -c "! grep -qFf '$TOKEN_FILE' '$OUT/continued.log'"
check "the log says who continued it" grep -q '^workspace-agent: continued by dev: ' "$OUT/continued.log"

break_project
job failed --hold 5m
as_person failed fail
if ends_within 10 failed; then same "a job that is failed has its command's own status" "$plain" "$STATUS"; else fail "the job still runs"; fi

# A runner that cancels a job ends its process group.
job cancelled --hold 5m
until_ok 20 link_of cancelled || fail "no link is printed"
kill -s TERM -- "-${PIDS[cancelled]}"
if ends_within 5 cancelled; then same "a held job that is cancelled ends at once" "$plain" "$STATUS"; else fail "a cancelled job still runs"; fi

job timed --hold 1s
if ends_within 15 timed; then same "a job that nobody looks at ends with its command's own status" "$plain" "$STATUS"; else fail "a job is held for ever"; fi

# GitLab says when a job began and how long it may take.
JOB_GIVES=(CI_JOB_STARTED_AT="$(date -u +%Y-%m-%dT%H:%M:%SZ)" CI_JOB_TIMEOUT=600)
job short --hold 1h
check "a job whose own time ends before is held for what is left of it" until_ok 20 grep -q ' at most, because its own time ends then, ' "$OUT/short.log"
stop short
JOB_GIVES=(CI_JOB_STARTED_AT="$(date -u +%Y-%m-%dT%H:%M:%SZ)" CI_JOB_TIMEOUT=65)
job over --hold 1h
if ends_within 15 over; then same "one whose time is nearly over ends with its command's own status" "$plain" "$STATUS"; else fail "a job is held beyond its time"; fi
check "and says why" grep -q 'not held open: its own time is nearly over' "$OUT/over.log"
JOB_GIVES=()

# --- the templates ----------------------------------------------------------------------------------------------------

# The gateway serves the program by its hash. Somebody else serves another one by that name, and the tokens of steps.
SUM=$(sha256sum "$REAL_AGENT_SLIM" | cut -d' ' -f1)
mkdir -p "$OUT/site/api/v1/ci/agents"
cp "$REAL_GATEWAY" "$OUT/site/api/v1/ci/agents/$SUM"
SITE=$(free_port)
spawn site python3 -m http.server --bind 127.0.0.1 --directory "$OUT/site" "$SITE"
wait_port site "$SITE"
break_project

# gitlab_job PUBLIC_URL SHA256 [SCRIPT] : the script of a job that extends the template, as a runner makes it of `before_script` and
# `script`.
gitlab_job() {
  sed -n '/^    - |$/,$p' "$ROOT/deploy/ci/gitlab/ci-debug.yml" | tail -n +2 | sed -e 's/^      //' \
    -e "s|\$\[\[ inputs.public-url \]\]|$1|g" -e "s|\$\[\[ inputs.sha256-[a-z0-9]* \]\]|$2|g"
  printf 'cd "%s"\nmarker=set-in-the-shell\n%s\n' "$PROJECT" "${3:-held make test || echo \"status \$? \$marker\"}"
}
# The id_tokens of a job: only the last one is good.
JOB_TOKENS=(WORKSPACE_GATEWAY_TOKEN_{1..4}=x "WORKSPACE_GATEWAY_TOKEN_5=$(cat "$TOKEN_FILE")")
# template SHELL PUBLIC_URL SHA256 [SCRIPT [GATEWAY]] : runs it, without a gateway to be held at if there is none.
template() {
  local patience=1s
  [ -z "${5:-}" ] || patience=60s
  # shellcheck disable=SC2086
  gitlab_job "$2" "$3" "${4:-}" | env "${JOB_TOKENS[@]}" WORKSPACE_AGENT_GATEWAY="${5:-http://127.0.0.1:1}" WORKSPACE_AGENT_CI_PATIENCE=$patience \
    WORKSPACE_AGENT_CI_HOLD=1s TMPDIR="$OUT" $1 -eu >"$OUT/template.log" 2>&1
}
for shell in sh bash "busybox sh"; do
  # shellcheck disable=SC2086
  command -v ${shell%% *} >/dev/null || continue
  # shellcheck disable=SC2086
  gitlab_job x y >"$OUT/template.sh" && check "the GitLab template is $shell" $shell -n "$OUT/template.sh"
done
template sh "http://localhost:$PUBLIC" "$SUM"
check "the GitLab template runs the command under the agent that it checked" grep -q '^workspace-agent: this job is not held open' "$OUT/template.log"
check "and the command's status is the shell's to handle" grep -q "^status $plain set-in-the-shell\$" "$OUT/template.log"
for shell in sh bash "busybox sh"; do
  command -v ${shell%% *} >/dev/null || continue
  # Commands that pass take no token; of those that fail each has one of its own, up to the last.
  template "$shell" "http://localhost:$PUBLIC" "$SUM" 'env | grep -c ^WORKSPACE_GATEWAY_TOKEN || true
held sh -c "env | grep -c ^WORKSPACE_GATEWAY_TOKEN; true"
for number in 1 2 3 4 5 6; do held true; done
for number in 1 2 3 4 5 6; do held sh -c "exit 7" || echo "status $?"; done' "http://127.0.0.1:$AGENTS"
  same "$shell: no command of a job sees its tokens" "0 0" "$(grep -x '[0-9][0-9]*' "$OUT/template.log" | tr '\n' ' ' | sed 's/ $//')"
  same "$shell: each command that fails shows a token of its own" "4 1" \
    "$(grep -c 'not held open: ' "$OUT/template.log") $(grep -c 'no choice was made within 1s' "$OUT/template.log")"
  same "$shell: until there is none" "1 6" "$(grep -c '^held: this job has used up' "$OUT/template.log") $(grep -c '^status 7' "$OUT/template.log")"
done
template sh "http://127.0.0.1:$SITE" "$SUM"
check "a program with another hash is not run" grep -q '^held: what was fetched is not the agent' "$OUT/template.log"
check "and the command is, all the same" grep -q "^status $plain set-in-the-shell\$" "$OUT/template.log"
template sh http://127.0.0.1:1 "$SUM"
check "a template without its gateway runs the command" grep -q "^status $plain set-in-the-shell\$" "$OUT/template.log"
template sh "http://localhost:$PUBLIC" "$(printf '%064d' 0)"
check "a program that the gateway does not have is not run" grep -q '^held: the agent cannot be fetched' "$OUT/template.log"

# The step of the workflow, then a step with `held`.
sed -n '/^        run: |$/,/^      - name: Test/p' "$ROOT/deploy/ci/github/held.yml" | sed -e '1d' -e '$d' -e 's/^          //' >"$OUT/step.sh"
mkdir -p "$OUT/runner" "$OUT/oidc"
printf '{"value": "an-id-token"}' >"$OUT/site/oidc"
step() {
  env RUNNER_TEMP="$OUT/runner" GITHUB_PATH="$OUT/runner/path" HELD_PUBLIC_URL="$1" HELD_SHA256="$SUM" sh -e "$OUT/step.sh" >"$OUT/step.log" 2>&1
}
held_step() {
  env -C "$PROJECT" PATH="$OUT/runner/held:$PATH" HELD_PUBLIC_URL="http://127.0.0.1:$SITE" WORKSPACE_AGENT_GATEWAY=http://127.0.0.1:1 \
    WORKSPACE_AGENT_CI_PATIENCE=1s ACTIONS_ID_TOKEN_REQUEST_URL="http://127.0.0.1:$SITE/oidc" ACTIONS_ID_TOKEN_REQUEST_TOKEN=secret \
    held make test >"$OUT/held.log" 2>&1
}
check "the GitHub template gets ready without an agent" step "http://127.0.0.1:$SITE"
held_step
same "and runs the command" "$plain" "$?"
same "as it is" "$(cat "$OUT/plain.log")" "$(cat "$OUT/held.log")"
check "the GitHub template gets ready with one" step "http://localhost:$PUBLIC"
same "and puts itself into the path of steps" "$OUT/runner/held" "$(tail -n 1 "$OUT/runner/path")"
held_step
same "the command of a step has its own status" "$plain" "$?"
check "with a token that it asked for" grep -q '^workspace-agent: this job is not held open: cannot connect' "$OUT/held.log"
check "by its audience" grep -qiF "GET /oidc?audience=http%3A%2F%2F127.0.0.1%3A$SITE" "$OUT/site.log"
break_project

# --- a gateway that does not work -------------------------------------------------------------------------------------

# alone NAME SECONDS TEXT : a job whose gateway does not work is one line longer and at most so many seconds.
alone() {
  local began
  began=$(now_ms)
  job "$1" --patience 3s
  if ends_within "$2" "$1"; then
    same "$3: the status is the command's" "$plain" "$STATUS"
    echo "$1: $(($(now_ms) - began)) ms" >>"$OUT/kept.txt"
  else
    fail "$3: the job still runs after $2 s"
    stop "$1"
  fi
  same "$3: what make wrote is all there" "$(cat "$OUT/plain.log")" "$(lines "$1")"
  same "$3: one line says why it is not held" 1 "$(grep -c '^workspace-agent: this job is not held open: ' "$OUT/$1.log")"
  same "$3: and that is all" 1 "$(grep -c '^workspace-agent: ' "$OUT/$1.log")"
}
signal STOP gateway
alone hanging 10 "a gateway that hangs"
signal CONT gateway
stop gateway
alone absent 10 "a gateway that is not there"
echo 42 >"$PROJECT/answer"
job passing
if ends_within 10 passing; then same "a job that passes does not ask for the gateway" 0 "$STATUS"; else fail "a passing job waits"; fi
same "and says nothing" "the answer is 42" "$(cat "$OUT/passing.log")"
finish

