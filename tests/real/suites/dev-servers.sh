#!/usr/bin/env bash
# Dev servers that insist on their host, as people start them, with an agent without any flag for ports: in the zone `localhost`
# and in a real one, JupyterLab, Django, webpack-dev-server, Vite, Next and Streamlit answer their owner's first request. A part of .ci/nightly,
# because they are large: what is not there is installed from PyPI and npm, once.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

SERVERS=$CACHE/dev-servers
export HOME=$OUT JUPYTER_CONFIG_DIR=$OUT/jupyter

install_servers() {
  mkdir -p "$SERVERS"
  [ -x "$SERVERS/venv/bin/jupyter-lab" ] && [ -x "$SERVERS/venv/bin/django-admin" ] &&
    [ -x "$SERVERS/venv/bin/streamlit" ] || {
    python3 -m venv "$SERVERS/venv" &&
      "$SERVERS/venv/bin/pip" install --quiet --disable-pip-version-check 'jupyterlab==4.*' 'django==5.*' 'streamlit==1.*'
  } >>"$OUT/install.log" 2>&1 || give_up "PyPI: $(tail -n 1 "$OUT/install.log")"
  [ -x "$SERVERS/node_modules/.bin/webpack" ] && [ -x "$SERVERS/node_modules/.bin/vite" ] && [ -x "$SERVERS/node_modules/.bin/next" ] || {
    npm install --prefix "$SERVERS" --silent --no-audit --no-fund webpack@5 webpack-cli@6 webpack-dev-server@5 vite@7 \
      next@16 react@19 react-dom@19
  } >>"$OUT/install.log" 2>&1 || give_up "npm: $(tail -n 1 "$OUT/install.log")"
}
install_servers

declare -A PORTS=()
for name in jupyterlab django webpack vite next streamlit; do PORTS[$name]=$(free_port); done
mkdir -p "$OUT/django" "$OUT/web" "$OUT/lab" "$SERVERS/next/pages"
"$SERVERS/venv/bin/django-admin" startproject site1 "$OUT/django" >>"$OUT/install.log" 2>&1
printf '<!doctype html><h1>hello from the dev server</h1>\n' >"$OUT/web/index.html"
printf 'console.log("hello")\n' >"$OUT/web/index.js"
printf 'module.exports = {mode: "development", entry: "./index.js", devServer: {static: "."}}\n' >"$OUT/web/webpack.config.js"
echo '{}' >"$OUT/web/package.json" # or that of the suites would count, whose files are modules
ln -sfn "$SERVERS/node_modules" "$OUT/web/node_modules"
spawn jupyterlab "$SERVERS/venv/bin/jupyter-lab" --no-browser --allow-root --ip 127.0.0.1 --port "${PORTS[jupyterlab]}" \
  --IdentityProvider.token= --notebook-dir "$OUT/lab"
spawn django "$SERVERS/venv/bin/python" "$OUT/django/manage.py" runserver --noreload "127.0.0.1:${PORTS[django]}"
spawn webpack env -C "$OUT/web" "$SERVERS/node_modules/.bin/webpack" serve --host 127.0.0.1 --port "${PORTS[webpack]}"
spawn vite env -C "$OUT/web" "$SERVERS/node_modules/.bin/vite" --host 127.0.0.1 --port "${PORTS[vite]}"
# Where its modules are: it follows no link out of its own folder.
printf 'export default function Page() { return <h1>hello from next</h1> }\n' >"$SERVERS/next/pages/index.js"
spawn next env -C "$SERVERS/next" NEXT_TELEMETRY_DISABLED=1 "$SERVERS/node_modules/.bin/next" dev -H 127.0.0.1 -p "${PORTS[next]}"
printf 'import streamlit\nstreamlit.write("hello from streamlit")\n' >"$OUT/web/page.py"
spawn streamlit "$SERVERS/venv/bin/streamlit" run "$OUT/web/page.py" --server.headless true --server.address 127.0.0.1 \
  --server.port "${PORTS[streamlit]}" --browser.gatherUsageStats false
for name in "${!PORTS[@]}"; do wait_port "$name" "${PORTS[$name]}" 120; done

# ask ZONE NAME PATH : the status that the owner gets, and what is behind it in the file `answer`.
ask() {
  curl -sS -L -o "$OUT/answer" -w '%{http_code}' --max-time 60 --connect-to "::127.0.0.1:$PUBLIC" \
    -H "gateway-authorization: Bearer $USER_TOKEN" "http://${PORTS[$2]}-$WORKSPACE.$1:$PUBLIC$3"
}

# events ZONE NAME PATH : the status of the socket by which a page learns of changes.
events() {
  local host="${PORTS[$2]}-$WORKSPACE.$1:$PUBLIC"
  curl -sS --http1.1 -o /dev/null -w '%{http_code}' --max-time 3 --connect-to "::127.0.0.1:$PUBLIC" -H "gateway-authorization: Bearer $USER_TOKEN" \
    -H "origin: http://$host" -H 'connection: upgrade' -H 'upgrade: websocket' -H 'sec-websocket-version: 13' \
    -H 'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==' "http://$host$3" || true
}

for zone in localhost ws.test; do
  public=localhost
  [ "$zone" = localhost ] || public=gw.example
  unset PUBLIC USER_TOKEN
  choose_ports
  rm -f "$OUT/gateway.toml" "$OUT/$WORKSPACE.token" "$OUT"/gateway.db*
  printf 'zone = "%s"\npublic_url = "http://%s:%s"\n' "$zone" "$public" "$PUBLIC" >"$OUT/gateway.toml"
  start_gateway
  user_token
  : >"$OUT/agent.log"
  spawn_agent agent "$WORKSPACE"
  check "$zone: the agent says where the workspace is and what listens" until_ok 20 grep -q "  ${PORTS[vite]}  *http://" "$OUT/agent.log"
  same "$zone: JupyterLab" 200 "$(ask "$zone" jupyterlab /lab)"
  check "$zone: and it is the lab's page" grep -q '<title>JupyterLab</title>' "$OUT/answer"
  same "$zone: JupyterLab's settings, for its page" 200 "$(ask "$zone" jupyterlab /lab/api/settings)"
  same "$zone: Django" 200 "$(ask "$zone" django /)"
  same "$zone: webpack-dev-server" 200 "$(ask "$zone" webpack /main.js)"
  same "$zone: Vite" 200 "$(ask "$zone" vite /)"
  check "$zone: and it is the page" grep -q 'hello from the dev server' "$OUT/answer"
  same "$zone: Next" 200 "$(ask "$zone" next /)"
  check "$zone: and it is its page" grep -q 'hello from next' "$OUT/answer"
  same "$zone: Streamlit" 200 "$(ask "$zone" streamlit /)"
  same "$zone: Streamlit's events, from its own page" 101 "$(events "$zone" streamlit /_stcore/stream)"
  stop agent
  # What the guide says of its event socket.
  spawn_agent agent "$WORKSPACE" --app "${PORTS[next]}:host=localhost"
  next_is_there() { [ "$(ask "$zone" next /)" = 200 ]; }
  check "$zone: the agent is back" until_ok 20 next_is_there
  same "$zone: Next's events, with --app PORT:host=localhost" 101 "$(events "$zone" next '/_next/hmr?id=x')"
  same "$zone: which closes no other port" 200 "$(ask "$zone" vite /)"
  stop agent
  stop gateway
done
finish
