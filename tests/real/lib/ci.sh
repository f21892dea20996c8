# shellcheck shell=bash
# Workspaces as jobs on this machine, for a suite: a gateway with the provider `local`, which is gitlab-ci-local with its shell
# executor. Sourced after common.sh and workspaces.sh:
#
#   ci_gateway none && user_token
#   create_ci mine && state_within 120 mine Running

JOBS=$OUT/jobs
# For what is temporary, and nobody else's. Short: editors have their sockets there.
JOBS_TMP=$(mktemp -d) || give_up "no temporary folder"

# ci_gateway EDITOR : the configuration, and the programs that jobs find.
ci_gateway() {
  [ -x "$REAL/node_modules/.bin/gitlab-ci-local" ] || give_up "gitlab-ci-local is missing: run tests/real/install.sh"
  choose_ports
  cat >"$OUT/gateway.toml" <<TOML
zone = "localhost"
public_url = "http://localhost:$PUBLIC"

[ci]
enabled = true
agent_files = "$REAL_AGENT"
agents_url = "http://127.0.0.1:$AGENTS"

[ci.providers.local]
kind = "command"
program = "$ROOT/deploy/ci/command/gitlab-ci-local.sh"
dir = "$JOBS"
editor = "$1"
TOML
  mkdir -p "$OUT/bin" "$OUT/home" "$OUT/tmp"
  # A home of its own: jobs run as whoever runs this suite. What it sets up of git is nobody's business here.
  GATEWAY_ENV+=("PATH=$OUT/bin:$REAL/node_modules/.bin:$PATH" "HOME=$OUT/home" "TMPDIR=$JOBS_TMP")
}

# project PORT : a small project that can be cloned from there.
project() {
  local work=$OUT/project
  mkdir -p "$work" "$OUT/web"
  printf 'first line\n' >"$work/notes.txt"
  printf 'to be deleted\n' >"$work/old.txt"
  {
    git -C "$work" init --quiet --initial-branch main
    git -C "$work" add .
    git -C "$work" -c user.name=suite -c user.email=suite@localhost commit --quiet --message 'A project'
    git clone --quiet --bare "$work" "$OUT/web/shop.git"
    # What is asked of a server that knows no Git.
    git -C "$OUT/web/shop.git" update-server-info
  } >"$OUT/project.log" 2>&1 || give_up "no project: $(tail -n 1 "$OUT/project.log")"
  spawn web python3 -m http.server --bind 127.0.0.1 --directory "$OUT/web" "$1"
  wait_port web "$1"
}

# create_ci NAME [PROJECT_URL]
create_ci() {
  local body
  body=$(NAME=$1 PROJECT=${2:-} SECRET=$SECRET_VALUE python3 -c 'import json, os
body = {"name": os.environ["NAME"], "executor": "ci", "agent": "local",
  "devfile": "schemaVersion: 2.2.0\ncomponents:\n  - name: main\n    attributes: {gateway/inject-editor: true}\n    container: {image: example.net/tools:1}\n",
  "variables": [{"kind": "env", "name": "GREETING", "value": os.environ["SECRET"]}]}
if os.environ["PROJECT"]: body["project"] = {"url": os.environ["PROJECT"]}
print(json.dumps(body))')
  ask POST /workspaces "$body"
}

# job_processes : the processes of all jobs, by where they are.
job_processes() {
  local place
  for place in /proc/[0-9]*/cwd; do
    case $(readlink "$place" 2>/dev/null) in "$JOBS"/*) place=${place#/proc/} && echo "${place%/cwd}" ;; esac
  done
}
# job_arguments : the arguments of these, and of whatever they have started elsewhere.
job_arguments() {
  local pids more pid
  pids=$(job_processes)
  more=$pids
  while more=$(pgrep -P "$(paste -sd , <<<"$more")"); do pids+=$'\n'$more; done
  for pid in $pids; do tr '\0' ' ' <"/proc/$pid/cmdline" && echo; done 2>/dev/null
}
no_job_processes() {
  local pid left
  left=$(job_processes)
  for pid in $left; do tr '\0' ' ' <"/proc/$pid/cmdline" && echo; done
  [ -z "$left" ]
}

# kept NAME : a file of the project, in the folder of the job that runs or ran last.
kept() { ls -d "$JOBS"/*/.gitlab-ci-local/builds/*/workspace-*/projects/shop/"$1"; }
# cached NAME : the same, in what the next job gets.
cached() { ls -d "$JOBS"/*/.gitlab-ci-local/cache/*/workspace-*/projects/shop/"$1"; }

# nothing_private : no job's own folder, with its values and its agent, is left in a place for what is temporary.
nothing_private() { [ -z "$(ls -d "$JOBS"/*/run/private "$JOBS_TMP"/workspace.?????? 2>/dev/null)" ]; }

# nothing_of_jobs : no folder of any workspace.
nothing_of_jobs() { [ -z "$(ls -A "$JOBS")" ] || { ls -A "$JOBS"; return 1; }; }

# end_jobs : whatever a suite that failed left. For `trap`, before `cleanup`, which gets to see the status from before; jobs outlive gateways.
end_jobs() {
  local status=$? pid
  for pid in $(job_processes); do kill -s KILL "$pid" 2>/dev/null; done
  rm -rf "$JOBS_TMP"
  return "$status"
}
