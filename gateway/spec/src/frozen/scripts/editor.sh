# The editor. On loopback only and without a password: nothing but the tunnel reaches it, and the gateway asks who comes.
if [ ! -w "${HOME:-/}" ]; then
  HOME=/tmp/home
  mkdir -p "$HOME"
  export HOME
fi
# On the volume, also where a devfile has a home of its own.
data=/home/workspace/.local/share/code-server
mkdir -p "$data" 2>/dev/null && [ -w "$data" ] || data=$HOME/.local/share/code-server
mkdir -p "$data"
: >>"$data/config.yaml"
exec /workspace-gateway/tools/bin/code-server --bind-addr 127.0.0.1:60001 --auth none \
  --config "$data/config.yaml" --user-data-dir "$data" --extensions-dir "$data/extensions" \
  --disable-telemetry --disable-update-check --disable-workspace-trust --disable-getting-started-override "${PROJECT_SOURCE:-/projects}"
