# Read by the other scripts of a workspace.
scripts=/workspace-gateway/scripts

# Where logs go: the data volume or, if that cannot be written to, the container's own temporary folder.
logs=${GW_LOGS_DIR:-/tmp/workspace-logs}
if ! mkdir -p "$logs" 2>/dev/null || [ ! -w "$logs" ]; then
  logs=/tmp/workspace-logs
  mkdir -p "$logs" 2>/dev/null
fi

# fresh_log NAME: prints the path of a new log. The one before it is kept; one that cannot be written stops nothing.
fresh_log() {
  [ ! -e "$logs/$1.log" ] || mv -f "$logs/$1.log" "$logs/$1.log.old"
  if (: >"$logs/$1.log"); then echo "$logs/$1.log"; else echo /dev/null; fi
} 2>/dev/null

# say LOG TEXT
say() { printf '%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$2" >>"$1"; }

# run ID FOLDER: a command of the devfile, to its end. What becomes of it is in the logs and stops nothing.
run() {
  output=$(fresh_log "command-$1")
  say "$events" "$1 begins"
  (
    [ -z "$2" ] || cd -- "$2" || exit
    exec /bin/sh "$scripts/command-$1"
  ) >>"$output" 2>&1 </dev/null
  say "$events" "$1 ended with status $?"
}

# end_others: as the first process of a container, tells every other one to end, and waits for them a while.
end_others() {
  [ "$$" = 1 ] || return 0
  kill -s TERM -- -1 2>/dev/null
  tries=20
  while [ "$tries" -gt 0 ]; do
    set -- /proc/[0-9]*
    [ "$#" -gt 1 ] || return 0
    sleep 1
    tries=$((tries - 1))
  done
}
