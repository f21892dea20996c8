# Takes what the CI system gave, and leaves in the environment only what is meant for a workspace.

# keep FROM TO WHAT: keeps a file that the CI system gave, since its variable goes.
keep() {
  [ -f "$1" ] && cat "$1" >"$2" && return
  say "the CI system did not give $3"
  exit 1
}

# keep_value GIVEN TO WHAT: keeps the value of a variable, which is given in base64: in a file, or, where the CI system hands such
# variables on as plain ones, as it is. `?` is none. No text in UTF-8 has a slash as its first character in base64.
keep_value() {
  case $1 in
    '?') false ;;
    /*) base64 -d <"$1" >"$2" ;;
    *) printf %s "$1" | base64 -d >"$2" ;;
  esac && return
  say "the CI system did not give $3"
  exit 1
}

# is_kept NAME: where programs find themselves and their way, and what was asked for.
is_kept() {
  case " $gw_inherit " in *" $1 "*) return 0 ;; esac
  case $1 in
    CI | CI_* | GITLAB_* | RUNNER_* | FF_* | GIT_* | CACHE_* | KUBERNETES_* | GW_* | WORKSPACE_AGENT_*) return 1 ;;
    gw_* | PATH | HOME | USER | LOGNAME | SHELL | LANG | LANGUAGE | LC_* | TERM | TZ | TMPDIR | HOSTNAME | PWD | _) ;;
    *_PROXY | *_proxy | SSL_CERT_FILE | SSL_CERT_DIR) ;;
    # Where the image has its programs.
    *PATH | *_HOME | *_ROOT | *_DIR | *_VERSION) ;;
    *) return 1 ;;
  esac
}

# Where a job begins. What CI_PROJECT_DIR says is not always a folder of this machine.
gw_base=$PWD
gw_server=${CI_SERVER_URL:-}
gw_server_ca=${CI_SERVER_TLS_CA_FILE:-}
gw_git_token=${CI_JOB_TOKEN:-}
# Without a project of its own, a workspace is for the one that its job belongs to.
if [ -z "$gw_project_url" ] && [ "${GITLAB_CI:-}" = true ] && [ -n "${CI_PROJECT_URL:-}" ]; then
  gw_project_url=$CI_PROJECT_URL.git
  gw_project_reference=${CI_COMMIT_REF_NAME:-}
  gw_project_folder=${CI_PROJECT_NAME:-project}
fi
mkdir "$gw_job/files" "$gw_job/variables"
take_proof
take_variables
for gw_name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
  # Some names are read-only in some shells, which end where one of them is unset.
  is_kept "$gw_name" || { (unset "$gw_name") && unset "$gw_name"; }
done 2>/dev/null
GW_RUN_MARK=$gw_job
export GW_RUN_MARK

# What the job leaves to the next one. What jobs of other workspaces left here is theirs, and goes.
gw_root=$gw_base/$gw_folder
for gw_other in "$gw_base"/workspace-????????; do
  if [ -e "$gw_other/.workspace-gateway" ] && [ "$gw_other" != "$gw_root" ]; then rm -rf -- "$gw_other"; fi
done
gw_projects=$gw_root/projects
gw_logs=$gw_root/logs
gw_source=$gw_projects${gw_project_url:+/$gw_project_folder}
if [ -e "$gw_root/.workspace-gateway" ]; then say 'files of the last run are there'; else say 'no files of a run before'; fi
if ! mkdir -p "$gw_projects" "$gw_logs" || ! true >"$gw_root/.workspace-gateway"; then
  say "cannot write to $gw_base"
  exit 1
fi
if [ -z "${HOME:-}" ] || [ ! -w "$HOME" ]; then
  HOME=$gw_root/home
  mkdir -p "$HOME"
  export HOME
fi
cd "$gw_projects" || exit 1
