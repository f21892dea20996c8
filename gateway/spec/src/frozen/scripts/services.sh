# Keeps the agent and the editor of a workspace running. The first process of a container whose command is not its own.
. /workspace-gateway/scripts/common.sh
cd "${PROJECT_SOURCE:-/projects}" 2>/dev/null || cd /projects 2>/dev/null || cd /

# The shell of terminals, in the editor and elsewhere: the image's own choice, or a real one if there is any.
# A bash that runs as `sh` takes the one of the list of users for the choice.
case ${SHELL:-/bin/sh} in
  /bin/sh)
    for SHELL in /bin/bash /usr/bin/bash /bin/sh; do
      [ ! -x "$SHELL" ] || break
    done
    ;;
esac
export SHELL

now() { date +%s; }
alive() { [ -n "$1" ] && kill -0 "$1" 2>/dev/null; }

stop() {
  stopping=1
  kill -s TERM "$child" 2>/dev/null
}

# supervise NAME: runs NAME.sh, and again when it ends: after 1 s, 2 s, up to 30 s, and from the beginning once it ran for a minute.
supervise() {
  stopping='' child='' delay=1
  trap stop TERM
  log=$(fresh_log "$1")
  while [ -z "$stopping" ]; do
    began=$(now)
    /bin/sh "$scripts/$1.sh" >>"$log" 2>&1 </dev/null &
    child=$!
    wait "$child"
    status=$?
    # A signal ends the wait before the process.
    while [ -n "$stopping" ] && [ "$status" -gt 128 ] && alive "$child"; do
      wait "$child"
      status=$?
    done
    [ -z "$stopping" ] || break
    [ "$(($(now) - began))" -lt 60 ] || delay=1
    [ "$(wc -c <"$log")" -le 1048576 ] || log=$(fresh_log "$1")
    say "$log" "$1 ended with status $status; it starts again in $delay s"
    sleep "$delay" &
    child=$!
    wait "$child"
    delay=$((delay * 2))
    [ "$delay" -le 30 ] || delay=30
  done
}

agent='' editor='' stopping=''
trap 'stopping=1' TERM INT QUIT
while [ -z "$stopping" ]; do
  if ! alive "$agent"; then
    supervise agent &
    agent=$!
  fi
  if [ -e "$scripts/editor.sh" ] && ! alive "$editor"; then
    supervise editor &
    editor=$!
  fi
  sleep 10 &
  wait "$!"
done
kill -s TERM "$agent" ${editor:+"$editor"} 2>/dev/null
wait "$agent"
[ -z "$editor" ] || wait "$editor"
end_others
exit 0
