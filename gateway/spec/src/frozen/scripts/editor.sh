# The editor. On loopback only and without a password: nothing but the tunnel reaches it, and the gateway asks who comes.
data=/projects/.workspace-gateway/editor
mkdir -p "$data"
if [ ! -w "${HOME:-/}" ]; then
  HOME=$data/home
  mkdir -p "$HOME"
  export HOME
fi
: >>"$data/config.yaml"
exec /workspace-gateway/tools/bin/code-server --bind-addr 127.0.0.1:60001 --auth none \
  --config "$data/config.yaml" --user-data-dir "$data/data" --extensions-dir "$data/extensions" \
  --disable-telemetry --disable-update-check --disable-workspace-trust --disable-getting-started-override /projects
