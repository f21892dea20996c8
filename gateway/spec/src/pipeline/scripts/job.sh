# A workspace as a CI job: job.sh FOLDER, where FOLDER is its own and holds the other files. Ends with status 0 when the
# workspace is not to run any longer, when the time of the job is over, and when it is told to: so that its files are kept.
gw_job=$1
gw_steps='' gw_child='' gw_stopping='' gw_status=0
. "$gw_job/common.sh"
. "$gw_job/settings.sh"
trap 'stop "it was told to"' TERM INT HUP QUIT
trap 'stop "its time is over"' USR1
trap 'rm -rf "$gw_job"' EXIT
. "$gw_job/prepare.sh"
. "$gw_job/project.sh"
. "$gw_job/services.sh"

fail() {
  gw_status=1
  finish "$1"
}

get_agent() {
  gw_machine=$(uname -m)
  if ! agent_for "$gw_machine"; then
    say "there is no workspace agent for $gw_machine"
    return 1
  fi
  fetch "$gw_agent_url" "$gw_job/workspace-agent" "$gw_agent_sha256" && chmod 700 "$gw_job/workspace-agent"
}

# run_agent: keeps the agent in the workspace running. It is what tells that the workspace is not to run: with status 3.
run_agent() {
  gw_starts=0 gw_short=0 gw_delay=1
  while [ -z "$gw_stopping" ]; do
    gw_starts=$((gw_starts + 1))
    # Some tokens are good for one process only, so that there are several of them.
    gw_token=$gw_starts
    if [ "$gw_starts" -gt "$gw_tokens" ]; then
      [ "$gw_single_use" = no ] || fail 'the agent has ended too often: its tokens are used up'
      gw_token=$gw_tokens
    fi
    gw_began=$(date +%s)
    (
      . "$gw_job/environment.sh"
      . "$gw_job/agent.sh"
    ) </dev/null &
    await
    [ -z "$gw_stopping" ] || return
    case $gw_ended in
      3) return ;;
      2 | 64) fail "the agent does not take its arguments (status $gw_ended)" ;;
      126 | 127) fail "the agent cannot be run here (status $gw_ended); is $gw_job mounted noexec?" ;;
    esac
    gw_short=$((gw_short + 1))
    if [ "$(($(date +%s) - gw_began))" -ge 60 ]; then gw_short=0 gw_delay=1; fi
    [ "$gw_short" -lt 8 ] || fail 'the agent ends again and again'
    say "the agent ended with status $gw_ended; it starts again in $gw_delay s"
    sleep "$gw_delay" &
    await
    gw_delay=$((gw_delay * 2))
    [ "$gw_delay" -le 30 ] || gw_delay=30
  done
}

(sleep "$gw_seconds" && kill -s USR1 "$$") &
gw_steps=$!
say "$gw_workspace, run $gw_run, on $(uname -m)"
get_agent &
await || [ -n "$gw_stopping" ] || fail 'there is no agent'
[ -z "$gw_stopping" ] || finish
set_up &
gw_steps="$gw_steps $!"
run_editor &
gw_steps="$gw_steps $!"
run_main &
gw_steps="$gw_steps $!"
say 'the agent starts'
run_agent
finish 'the workspace is not to run'
