# Read by the other scripts of the job. Names that begin with gw_ are theirs: no variable of a workspace is called so.

# say TEXT: a line for the log of the job. Others than the owner of the workspace may read it.
say() { printf 'workspace: %s\n' "$1"; }

# await: waits for the process that was begun last, unless a signal comes first. Whoever stops the job ends it too, so that
# no signal is too early for the wait.
await() {
  gw_child=$!
  [ -z "$gw_stopping" ] || insist "$gw_child"
  wait "$gw_child"
  gw_ended=$?
  # A signal ends the wait, and not what was waited for.
  [ -n "$gw_stopping" ] || gw_child=''
  return "$gw_ended"
}

# stop WHY
stop() {
  gw_stopping=$1
  [ -z "$gw_child" ] || insist "$gw_child"
}

# insist PID: asks a process to end, beside what this shell does next, until it has: a shell that was only just begun may not
# hear it the first time.
insist() {
  (
    gw_tries=5
    while [ "$gw_tries" -gt 0 ] && kill -s TERM "$1"; do
      sleep 2
      gw_tries=$((gw_tries - 1))
    done
  ) 2>/dev/null &
  gw_steps="$gw_steps $!"
}

# Ends everything that this job began: what is asked to has ten seconds, and is killed then.
finish() {
  say "ends, since ${gw_stopping:-$1}"
  trap '' TERM INT HUP QUIT USR1
  tell TERM steps
  tell TERM ours
  gw_tries=10
  while [ "$gw_tries" -gt 0 ] && [ -n "$(steps)$(ours)" ]; do
    sleep 1
    # They may not have heard it the first time, as in `insist`. For programs of others a second time is one too many.
    tell TERM steps
    gw_tries=$((gw_tries - 1))
  done
  tell KILL steps
  tell KILL ours
  exit "$gw_status"
}

# fresh_log NAME: prints the path of a new log. The one before it is kept.
fresh_log() {
  [ ! -e "$gw_logs/$1.log" ] || mv -f "$gw_logs/$1.log" "$gw_logs/$1.log.old"
  if (: >"$gw_logs/$1.log"); then echo "$gw_logs/$1.log"; else echo /dev/null; fi
} 2>/dev/null

# get URL FILE [CERTIFICATES]: one try. Both programs verify who answers, and nothing here tells them not to.
get() {
  if command -v curl >/dev/null 2>&1; then
    curl -fsSL --connect-timeout 20 --max-time 900 ${3:+--cacert "$3"} -o "$2" "$1"
  elif command -v wget >/dev/null 2>&1; then
    wget -q -T 60 ${3:+--ca-certificate="$3"} -O "$2" "$1"
  else
    say 'the image has neither curl nor wget, and nothing else downloads here'
    return 1
  fi
}

# fetch URL FILE SHA256: downloads what is to be exactly that. Nothing is run before it was compared.
fetch() {
  gw_try=1
  until get "$1" "$2" || { [ -s "$gw_job/ca.pem" ] && get "$1" "$2" "$gw_job/ca.pem"; }; do
    [ "$gw_try" -lt 4 ] || return 1
    sleep "$((gw_try * 3))"
    gw_try=$((gw_try + 1))
  done
  gw_sum=$(sum_of "$2")
  [ "$gw_sum" = "$3" ] && return
  rm -f "$2"
  say "what came is not what was to come: its SHA-256 is ${gw_sum:-unknown}, and not $3"
  return 1
}

sum_of() {
  if command -v sha256sum >/dev/null 2>&1; then
    sha256sum <"$1"
  elif command -v shasum >/dev/null 2>&1; then
    shasum -a 256 <"$1"
  else
    openssl dgst -sha256 -r <"$1"
  fi | cut -c 1-64
}

# tell SIGNAL LIST: the list is `steps` or `ours`.
tell() {
  for gw_one in $("$2"); do kill -s "$1" "$gw_one"; done 2>/dev/null
}

# steps: lists the shells that this one began and that have not ended. The number of one that has may be anybody's by now.
steps() {
  for gw_step in $gw_steps $gw_child; do
    read -r gw_stat <"/proc/$gw_step/stat" || continue
    case ${gw_stat##*) } in
      [ZX]*) ;;
      ?" $$ "*) echo "$gw_step" ;;
    esac
  done 2>/dev/null
}

# ours: lists the programs that this job began. All have its mark; shells that only forked have not.
ours() {
  set -- /proc/[0-9]*/environ
  grep -lsF -- "GW_RUN_MARK=$gw_job" "$@" | cut -d / -f 3
  : # keeps the last of them from taking the place of this shell, which is in the list
}
