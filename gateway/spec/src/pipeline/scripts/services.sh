# What stays: the editor, and what the devfile has the main container run.

# supervise NAME COMMAND...: runs a command in the workspace, and again when it ends: after 1 s, 2 s, up to 30 s.
supervise() {
  gw_service=$1
  shift
  gw_delay=1
  gw_log=$(fresh_log "$gw_service")
  while :; do
    gw_began=$(date +%s)
    (
      . "$gw_job/environment.sh"
      exec "$@"
    ) >>"$gw_log" 2>&1 </dev/null
    gw_ended=$?
    [ "$(($(date +%s) - gw_began))" -lt 60 ] || gw_delay=1
    [ "$(wc -c <"$gw_log")" -le 1048576 ] || gw_log=$(fresh_log "$gw_service")
    say "$gw_service ended with status $gw_ended; it starts again in $gw_delay s"
    sleep "$gw_delay"
    gw_delay=$((gw_delay * 2))
    [ "$gw_delay" -le 30 ] || gw_delay=30
  done
}

# The editor, on loopback only and without a password: nothing but the tunnel reaches it, and the gateway asks who comes.
run_editor() {
  case $gw_editor in
    none) return ;;
    installed) gw_program=$( . "$gw_job/environment.sh"; command -v code-server) ;;
    archive)
      gw_program=
      if fetch "$gw_editor_url" "$gw_job/editor.tar.gz" "$gw_editor_sha256"; then
        mkdir "$gw_job/editor" && tar -xzf "$gw_job/editor.tar.gz" -C "$gw_job/editor"
        rm -f "$gw_job/editor.tar.gz"
        for gw_program in "$gw_job"/editor/*/bin/code-server; do break; done
      fi
      ;;
  esac
  if [ ! -x "$gw_program" ]; then
    say 'there is no editor: code-server was not found. The terminal is there'
    return
  fi
  true >>"$gw_root/editor.yaml"
  say 'the editor starts'
  supervise editor "$gw_program" --bind-addr "127.0.0.1:$gw_editor_port" --auth none --config "$gw_root/editor.yaml" \
    --user-data-dir "$gw_root/editor" --extensions-dir "$gw_root/extensions" --disable-telemetry --disable-update-check \
    --disable-workspace-trust --disable-getting-started-override "$gw_projects"
}
