# The project, and what the devfile runs when the workspace has started. In the background; what fails stops nothing.

# Gives the token of the job to its own server, and to nobody else. It is in no argument and in no file.
gw_credentials='!give() { [ "$1" != get ] || printf "username=gitlab-ci-token\npassword=%s\n" "$GW_GIT_TOKEN"; }; give'

clone() {
  case $gw_project_url in http://* | https://*) ;; *) return ;; esac
  if [ -n "$(ls -A "$gw_source" 2>/dev/null)" ]; then
    say "$gw_project_folder is as it was left"
    return
  fi
  # Commands begin there, whatever becomes of the clone.
  mkdir -p "$gw_source"
  if ! command -v git >/dev/null 2>&1; then
    say 'the image has no git: the project is not cloned'
    return
  fi
  gw_clone=$gw_projects/.cloning
  rm -rf "$gw_clone"
  set -- clone
  [ -z "$gw_project_reference" ] || set -- "$@" --branch "$gw_project_reference"
  set -- "$@" -- "$gw_project_url" "$gw_clone"
  [ -z "$gw_server_ca" ] || set -- -c "http.$gw_server.sslCAInfo=$gw_server_ca" "$@"
  [ -z "$gw_git_token" ] || set -- -c "credential.$gw_server.helper=$gw_credentials" "$@"
  if (
    GW_GIT_TOKEN=$gw_git_token GIT_TERMINAL_PROMPT=0 GIT_ALLOW_PROTOCOL=https:http
    export GW_GIT_TOKEN GIT_TERMINAL_PROMPT GIT_ALLOW_PROTOCOL
    exec git -c credential.helper= "$@" >"$gw_logs/clone.log" 2>&1
  ) && rmdir "$gw_source" && mv "$gw_clone" "$gw_source"; then
    say "$gw_project_folder is cloned"
  else
    say "$gw_project_folder could not be cloned:"
    tail -n 3 "$gw_logs/clone.log"
  fi
}

# run_command ID NUMBER: a command of the devfile, to its end.
run_command() {
  gw_output=$(fresh_log "command-$1")
  say "command $1 begins"
  (
    . "$gw_job/environment.sh"
    "gw_folder_$2" || exit
    exec /bin/sh "$gw_job/command-$1"
  ) >>"$gw_output" 2>&1 </dev/null
  say "command $1 ended with status $?"
}

set_up() {
  clone
  . "$gw_job/commands.sh"
}
