# Clones the projects of a workspace whose folders are empty or not there. One that cannot be cloned stops nothing: it is told like a
# command of the start.
. /workspace-gateway/scripts/common.sh
events=$(fresh_log post-start)

# clone ID FOLDER URL REFERENCE
clone() {
  target=/projects/$2
  if [ -n "$(ls -A "$target" 2>/dev/null)" ]; then
    return
  fi
  # Editor and commands begin there, whatever becomes of it.
  mkdir -p "$target"
  output=$(fresh_log "command-$1")
  say "$events" "$1 begins"
  partly=/projects/.cloning-$1
  if [ -e "$partly" ]; then
    # This container was killed over it, mostly for memory, and would be again.
    rm -rf "$partly"
    echo Killed >>"$output"
    say "$events" "$1 ended with status 137"
    return
  fi
  # Not on the volume: of a full one, nothing would be told.
  said=/tmp/$1.log
  (
    # The order of git-clone(1): options, then the URL, which begins with no dash.
    url=$3
    if [ -n "$4" ]; then set -- --branch "$4"; else set --; fi
    GIT_TERMINAL_PROMPT=0 GIT_ALLOW_PROTOCOL=https:http timeout -k 10 1800 git -c http.lowSpeedLimit=1000 -c http.lowSpeedTime=60 \
      clone "$@" -- "$url" "$partly" || { status=$?; rm -rf "$partly"; exit "$status"; }
    rmdir "$target" && mv "$partly" "$target"
  ) >"$said" 2>&1 </dev/null
  status=$?
  # The last line is what the owner reads first, and git's is about its own parts.
  ! grep -q 'No space left on device' "$said" || echo 'the volume is full: No space left on device' >>"$said"
  cat "$said" >>"$output"
  rm -f "$said"
  say "$events" "$1 ended with status $status"
}
