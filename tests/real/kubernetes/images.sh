#!/usr/bin/env bash
# Makes what a node needs that runs real pods: Debian packages, images, and a folder of containerd in which the images are
# unpacked already, of which each suite takes a copy. Run by install.sh; its last line says why where it cannot be done.
#
#   localhost/pause:1   holds the namespaces of a pod
#   localhost/small:1   busybox and nothing else
#   localhost/dev:1     an ordinary image to develop in: Debian with git, ssh, Python, Node.js and npm
#   localhost/tools:0   what a tools image has but the agent, which a suite puts on top as localhost/tools:1
#
# All of it is in tests/real/.cache/pods. No registry is involved.
set -euo pipefail

KUBERNETES=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
CACHE=$(cd -- "$KUBERNETES/../.cache" && pwd)
PODS=$CACHE/pods
CODE_SERVER=$(echo "$CACHE"/code-server-*)
PACKAGES=(containerd runc containernetworking-plugins nftables iptables conntrack mmdebstrap)
# The packages of the image to develop in. The static busybox becomes an image of its own.
INSIDE=bash,git,openssh-client,python3,procps,curl,ca-certificates,rsync,busybox-static

die() { printf '%s\n' "$*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || die "only root can run pods"
[ -e "$CODE_SERVER/.ready" ] || die "code-server is missing: tests/real/install.sh code-server"
command -v apt-get >/dev/null || die "the packages are Debian's: ${PACKAGES[*]}"

# Services of these packages are not started: the machine's own are none of the suites' business.
packages() {
  local missing=() package policy=/usr/sbin/policy-rc.d made='' status=0
  for package in "${PACKAGES[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  # Mount points of every node. They stay: a folder that is removed is no longer mounted in other namespaces either.
  mkdir -p /var/lib/containerd /var/lib/kubelet /var/lib/cni
  [ ${#missing[@]} -gt 0 ] || return 0
  # A package manager that is killed half way has to be repaired by hand.
  trap '' TERM INT
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    made=1
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" || status=$?
  [ -z "$made" ] || rm "$policy"
  trap - TERM INT
  [ "$status" = 0 ] || die "apt-get does not install ${missing[*]}"
}

# layer NAME FOLDER : the layer with what is in the folder, owned by root.
layer() { tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$2" -cf "$WORK/$1.tar" .; }

# The image to develop in, once: it takes a minute and most of the network.
base() {
  [ "$(cat "$PODS/base.ready" 2>/dev/null)" != "$INSIDE" ] || return 0
  # shellcheck disable=SC1091
  . /etc/os-release
  rm -f "$PODS"/base.*
  mmdebstrap --quiet --variant=minbase --include="$INSIDE" --aptopt='Acquire::Languages "none"' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' --format=tar "$VERSION_CODENAME" "$PODS/base.tar"
  printf '%s\n' "$INSIDE" >"$PODS/base.ready"
}

pause_layer() {
  (cd "$KUBERNETES" && mkdir "$WORK/pause" && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$WORK/pause/pause" ./pause)
  layer pause "$WORK/pause"
}

small_layer() {
  local name
  mkdir -p "$WORK/small/bin" "$WORK/small/tmp"
  chmod 1777 "$WORK/small/tmp"
  # Debian has moved it.
  tar -xOf "$PODS/base.tar" ./bin/busybox >"$WORK/small/bin/busybox" 2>/dev/null ||
    tar -xOf "$PODS/base.tar" ./usr/bin/busybox >"$WORK/small/bin/busybox"
  chmod 755 "$WORK/small/bin/busybox"
  for name in $("$WORK/small/bin/busybox" --list); do
    [ "$name" = busybox ] || ln -s busybox "$WORK/small/bin/$name"
  done
  layer small "$WORK/small"
}

# This machine's Node.js, where an image would have it.
node_layer() {
  local local=$WORK/node/usr/local
  mkdir -p "$local/bin" "$local/lib/node_modules"
  cp "$(readlink -f "$(type -P node)")" "$local/bin/node"
  cp -r "$(npm root -g)/npm" "$local/lib/node_modules/npm"
  ln -s ../lib/node_modules/npm/bin/npm-cli.js "$local/bin/npm"
  ln -s ../lib/node_modules/npm/bin/npx-cli.js "$local/bin/npx"
  layer node "$WORK/node"
}

# The editor, with a node of its own, laid out as in deploy/images/tools.Dockerfile. The maps of its sources are half of it, and only
# people who look for mistakes in it read them.
editor_layer() {
  local tools=$WORK/editor/workspace-tools
  mkdir -p "$tools/bin" "$tools/lib/code-server/bin" "$tools/lib/code-server/lib"
  cp -r "$CODE_SERVER/node_modules" "$tools/lib/code-server/node_modules"
  find "$tools" \( -name '*.map' -o -name obj.target -o -name .deps \) -prune -exec rm -r {} +
  cp --remove-destination "$(command -v rg)" "$tools/lib/code-server/node_modules/code-server/lib/vscode/node_modules/@vscode/ripgrep/bin/rg"
  cp "$(readlink -f "$(type -P node)")" "$tools/lib/code-server/lib/node"
  cat >"$tools/lib/code-server/bin/code-server" <<'SH'
#!/bin/sh
top=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
exec "$top/lib/node" "$top/node_modules/code-server/out/node/entry.js" "$@"
SH
  chmod 755 "$tools/lib/code-server/bin/code-server"
  ln -s ../lib/code-server/bin/code-server "$tools/bin/code-server"
  cp "$KUBERNETES/../../../deploy/images/tools.files" "$tools/files"
  chmod -R a+rX,go-w "$tools"
  layer editor "$WORK/editor"
}

# unpack : has a containerd of its own unpack the images of standard input into the folder that suites take.
unpack() {
  local containerd status=0
  mount -t tmpfs tmpfs /run
  printf 'version = 2\nroot = "%s/new"\nstate = "/run/containerd"\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n' "$PODS" >/run/config.toml
  containerd --config /run/config.toml --log-level warn >&2 </dev/null &
  containerd=$!
  for _ in $(seq 100); do
    ! ctr version >/dev/null 2>&1 || break
    sleep 0.1
  done
  ctr -n k8s.io images import - || status=$?
  kill "$containerd"
  wait "$containerd" || true
  return "$status"
}

if [ "${1:-}" = unpack ]; then
  unpack
  exit
fi

packages
want=$({
  cat "$KUBERNETES"/{images.sh,images.py,go.mod,pause/main.go} "$CODE_SERVER/package-lock.json"
  node --version
} | sha256sum)
[ "$(cat "$PODS/.ready" 2>/dev/null)" != "$want" ] || exit 0
mkdir -p "$PODS"
rm -rf "$PODS/.ready" "$PODS/new" "$PODS/containerd"
WORK=$(mktemp -d "$PODS/work.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
base
pause_layer
small_layer
node_layer
editor_layer
python3 "$KUBERNETES/images.py" localhost/pause:1 "layer=$WORK/pause.tar" user=65535:65535 entry=/pause \
  localhost/small:1 "layer=$WORK/small.tar" command=/bin/sh \
  localhost/dev:1 "layer=$PODS/base.tar" "layer=$WORK/node.tar" command=/bin/bash \
  localhost/tools:0 "layer=$PODS/base.tar" "layer=$WORK/editor.tar" |
  unshare --mount --propagation private "$0" unpack
mv "$WORK/editor.tar.digest" "$PODS"
mv "$PODS/new" "$PODS/containerd"
printf '%s\n' "$want" >"$PODS/.ready"
