# The editor that was chosen for this workspace, one of the operator's. Nothing but the tunnel reaches it, if it listens on loopback.
export EDITOR_PORT=60001
exec /bin/sh /workspace-gateway/scripts/editor-command
