#!/usr/bin/env bash
# Installs what the suites in this folder run against: Debian packages, npm packages, code-server, a Python gRPC stack, the
# Autobahn testsuite, h2spec, an ACME server, Kubernetes and a node that runs pods, grpcurl, Go's own reading of environment templates,
# and Helm.
# Can be run again at any time; when everything is there it takes about a second. Everything but the Debian packages
# stays below tests/real (node_modules and .cache, both ignored by git).
#
#   tests/real/install.sh                everything
#   tests/real/install.sh node grpc      only these steps: debian node code-server grpc autobahn pebble kubernetes pods grpcurl h2spec templates helm,
#                                        and network, which is not among everything
set -euo pipefail

REAL=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
CACHE=$REAL/.cache
CODE_SERVER_VERSION=4.100.3 # the last one that runs on Node 20
GRPCIO_VERSION=1.85.1
PEBBLE_VERSION=v2.10.1
GRPCURL_VERSION=v1.9.3
# The last one that Go installs by its version: the module path of later ones does not name theirs.
H2SPEC_VERSION=v2.2.1+incompatible
HELM_VERSION=v3.22.0
# Of these, the definitions of the objects that the charts can make. The last that the Go of Kubernetes takes.
DEFINITIONS=(sigs.k8s.io/gateway-api@v1.6.0 github.com/cert-manager/cert-manager@v1.21.2
  github.com/prometheus-operator/prometheus-operator@v0.85.0)
mkdir -p "$CACHE/log"

# Go's compiler otherwise collects its garbage again and again: there is memory enough, and a cluster takes minutes.
export GOGC=${GOGC:-400}

say() { printf 'install: %s\n' "$*"; }
die() { printf 'install: error: %s\n' "$*" >&2; exit 1; }

# Runs a command quietly; shows the end of its output only if it fails.
quiet() {
  local log=$CACHE/log/$1.log
  shift
  if ! "$@" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    die "failed: $* (whole output in $log)"
  fi
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# The programs and libraries from Debian, named by package.
step_debian() {
  local wanted=(chromium fonts-dejavu-core nginx haproxy nghttp2-client tinyproxy-bin microsocks ripgrep curl jq openssl procps
    openssh-server openssh-client libnss-wrapper rsync postgresql libfaketime prometheus busybox shellcheck git docker-registry skopeo
    build-essential pkg-config python3-venv libkrb5-dev libx11-dev libxkbfile-dev libsecret-1-dev)
  local missing=() package
  for package in "${wanted[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  say "debian: ${missing[*]}"
  # A package manager that is killed half way has to be repaired by hand.
  trap '' TERM INT
  quiet apt-update as_root apt-get update -qq
  quiet apt-install as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
  trap - TERM INT
}

# The npm packages of package-lock.json, at exactly these versions.
step_node() {
  local stamp=$CACHE/node.sha256 want
  command -v node >/dev/null || die "node is missing: Node.js 20 or newer is needed"
  [ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] || die "node $(node --version) is too old: 20 or newer is needed"
  want=$(sha256sum <"$REAL/package-lock.json")
  [ -d "$REAL/node_modules" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return
  say "npm packages"
  (cd "$REAL" && quiet npm-ci npm ci)
  printf '%s\n' "$want" >"$stamp"
}

# code-server from npm. Its own install scripts download binaries from elsewhere, so they are switched off and the three
# native parts (ripgrep, the terminal and watcher modules, argon2) are put in place by hand.
step_code_server() {
  local dir=$CACHE/code-server-$CODE_SERVER_VERSION top
  [ -e "$dir/.ready" ] && return
  say "code-server $CODE_SERVER_VERSION (builds native modules: some minutes)"
  rm -rf "$dir"
  mkdir -p "$dir"
  printf '{"private":true}\n' >"$dir/package.json"
  # The headers that came with the node in use; without them node-gyp would download them.
  local include
  include=$(dirname "$(dirname "$(readlink -f "$(type -P node)")")")
  [ -e "$include/include/node/node.h" ] && export npm_config_nodedir=$include
  export npm_config_yes=true npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false
  (cd "$dir" && quiet code-server-1 npm install --ignore-scripts "code-server@$CODE_SERVER_VERSION")
  top=$dir/node_modules/code-server
  (cd "$top/lib/vscode" && quiet code-server-2 npm install --unsafe-perm --omit=dev --ignore-scripts)
  mkdir -p "$top/lib/vscode/node_modules/@vscode/ripgrep/bin"
  ln -sf "$(command -v rg)" "$top/lib/vscode/node_modules/@vscode/ripgrep/bin/rg"
  (cd "$top/lib/vscode" && quiet code-server-3 npm rebuild)
  (cd "$dir" && quiet code-server-4 npm rebuild argon2 --build-from-source)
  (cd "$top/lib/vscode/extensions" && quiet code-server-5 npm install --omit=dev --ignore-scripts)
  node "$top/out/node/entry.js" --version >"$CACHE/log/code-server-version.log" 2>&1 || die "code-server does not start: $CACHE/log/code-server-version.log"
  touch "$dir/.ready"
}

# The Python gRPC client and server: a gRPC stack that is not written in Rust.
step_grpc() {
  local venv=$CACHE/venv
  [ "$(cat "$venv/.ready" 2>/dev/null)" = "$GRPCIO_VERSION" ] && return
  say "python grpcio $GRPCIO_VERSION"
  rm -rf "$venv"
  quiet venv python3 -m venv "$venv"
  quiet grpcio "$venv/bin/pip" install --disable-pip-version-check --only-binary :all: "grpcio==$GRPCIO_VERSION"
  printf '%s\n' "$GRPCIO_VERSION" >"$venv/.ready"
}

# The Autobahn testsuite of WebSocket cases, which needs Python 2.7. It is found by its name, among the versions of pyenv, or by
# PYTHON2. The packages go into a folder of their own.
step_autobahn() {
  local dir=$CACHE/autobahn python
  [ -e "$dir/.ready" ] && [ -x "$(cat "$dir/.ready")" ] && return
  python=${PYTHON2:-$(compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/2.7.*/bin/python2.7" | tail -n 1 || command -v python2.7 || true)}
  [ -x "$python" ] || die "python2.7 is missing: install it (pyenv install 2.7.18), or name it with PYTHON2"
  say "autobahn testsuite"
  rm -rf "$dir"
  quiet autobahn "$python" -m pip install --disable-pip-version-check --no-deps --target "$dir" -r "$REAL/autobahn.txt"
  printf '%s\n' "$python" >"$dir/.ready"
}

# Pebble, the ACME server that authorities test clients with, and its DNS server.
step_pebble() {
  local dir=$CACHE/pebble-$PEBBLE_VERSION
  [ -e "$dir/.ready" ] && return
  command -v go >/dev/null || die "go is missing: Go 1.24 or newer is needed"
  say "pebble $PEBBLE_VERSION"
  quiet pebble env GOBIN="$dir" go install "github.com/letsencrypt/pebble/v2/cmd/pebble@$PEBBLE_VERSION" \
    "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@$PEBBLE_VERSION"
  touch "$dir/.ready"
}

# A Kubernetes cluster, from the Go module in tests/real/kubernetes: one program under the names of its
# parts. Compiled again when that module changes; Go keeps what it compiled, so that this is quick then.
step_kubernetes() {
  local dir=$CACHE/kubernetes version want part
  version=$(sed -n 's|^\tk8s.io/kubernetes v||p' "$REAL/kubernetes/go.mod")
  want=$(cat "$REAL"/kubernetes/{main.go,go.mod,go.sum} | sha256sum)
  [ "$(cat "$dir/.ready" 2>/dev/null)" = "$want" ] && return
  command -v go >/dev/null || die "go is missing: Go 1.26 or newer is needed"
  say "kubernetes $version (compiles for some minutes)"
  rm -rf "$dir"
  mkdir -p "$dir"
  (cd "$REAL/kubernetes" && quiet kubernetes env CGO_ENABLED=0 go build -trimpath -o "$dir/cluster" -ldflags "-s -w \
    -X k8s.io/component-base/version.gitVersion=v$version -X k8s.io/component-base/version.gitMajor=${version%%.*} \
    -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$version")" .)
  for part in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kwok kubectl; do ln -s cluster "$dir/$part"; done
  printf '%s\n' "$want" >"$dir/.ready"
}

# A node that really runs pods. It needs root, Debian and control groups; without it everything else is installed all the same, and
# run.sh says which suites are not run for that.
step_pods() {
  local log=$CACHE/log/pods.log
  [ -e "$CACHE/pods/.ready" ] || say "a node that runs pods, and its images (some minutes)"
  "$REAL/kubernetes/images.sh" >"$log" 2>&1 || say "no node that runs pods: $(tail -n 1 "$log") (whole output in $log)"
}

# What enforces network policies on that node, from the Go module in tests/real/network, and the package that it needs. For the suite
# real-network alone, which runs by itself.
step_network() {
  local dir=$CACHE/network want
  want=$(cat "$REAL"/network/{tools.go,go.mod,go.sum} | sha256sum)
  [ "$(cat "$dir/.ready" 2>/dev/null)" = "$want" ] && return
  command -v go >/dev/null || die "go is missing: Go 1.26 or newer is needed"
  say "kube-router (compiles for some minutes)"
  command -v ipset >/dev/null || quiet apt-ipset as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ipset
  mkdir -p "$dir"
  (cd "$REAL/network" && quiet network env CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$dir/kube-router" \
    github.com/cloudnativelabs/kube-router/v2/cmd/kube-router)
  printf '%s\n' "$want" >"$dir/.ready"
}

# go_program NAME VERSION PACKAGE : a program that Go compiles from its module, in a folder of its name.
go_program() {
  local dir=$CACHE/$1
  [ "$(cat "$dir/.ready" 2>/dev/null)" = "$2" ] && return
  command -v go >/dev/null || die "go is missing: Go 1.24 or newer is needed"
  say "$1 $2"
  mkdir -p "$dir"
  quiet "$1" env GOBIN="$dir" go install "$3@$2"
  printf '%s\n' "$2" >"$dir/.ready"
}

# A gRPC client that knows nothing but what reflection tells it.
step_grpcurl() { go_program grpcurl "$GRPCURL_VERSION" github.com/fullstorydev/grpcurl/cmd/grpcurl; }

# The cases by which servers of HTTP/2 are tested.
step_h2spec() { go_program h2spec "$H2SPEC_VERSION" github.com/summerwind/h2spec/cmd/h2spec; }

# Helm, and the definitions of objects that are not Kubernetes' own, from the modules that publish them.
step_helm() {
  local dir=$CACHE/helm want="$HELM_VERSION ${DEFINITIONS[*]}" module from file
  [ "$(cat "$dir/.ready" 2>/dev/null)" = "$want" ] && return
  command -v go >/dev/null || die "go is missing: Go 1.26 or newer is needed"
  say "helm $HELM_VERSION (compiles for some minutes)"
  rm -rf "$dir"
  mkdir -p "$dir/definitions"
  quiet helm env CGO_ENABLED=0 GOBIN="$dir" go install -trimpath -ldflags "-s -w" "helm.sh/helm/v3/cmd/helm@$HELM_VERSION"
  for module in "${DEFINITIONS[@]}"; do
    from=$(go mod download -json "$module" | jq -r '.Dir // empty')
    [ -n "$from" ] || die "not to be had: $module"
    for file in config/crd/standard/gateway.networking.k8s.io_{httproutes,grpcroutes}.yaml \
      deploy/crds/cert-manager.io_{certificates,issuers}.yaml \
      example/prometheus-operator-crd/monitoring.coreos.com_{podmonitors,servicemonitors,prometheusrules}.yaml; do
      [ ! -e "$from/$file" ] || install -m 644 "$from/$file" "$dir/definitions"
    done
  done
  [ "$(find "$dir/definitions" -name '*.yaml' | wc -l)" = 7 ] || die "a definition is missing in $dir/definitions"
  printf '%s\n' "$want" >"$dir/.ready"
}

# What renders environment templates as Go's text/template does, from tests/real/templates.
step_templates() {
  local dir=$CACHE/templates want
  want=$(cat "$REAL"/templates/{main.go,go.mod,go.sum} | sha256sum)
  [ "$(cat "$dir/.ready" 2>/dev/null)" = "$want" ] && return
  command -v go >/dev/null || die "go is missing: Go 1.26 or newer is needed"
  say "Go's reading of environment templates"
  mkdir -p "$dir"
  (cd "$REAL/templates" && quiet templates env CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$dir/templates" .)
  printf '%s\n' "$want" >"$dir/.ready"
}

# Whoever comes second waits for the first, and finds everything done.
exec 9>"$CACHE/install.lock"
flock 9
steps=("$@")
[ ${#steps[@]} = 0 ] && steps=(debian node code-server grpc autobahn pebble kubernetes pods grpcurl h2spec templates helm)
for step in "${steps[@]}"; do
  case $step in
    # Without the lock: a package may start a server, which would hold it.
    debian | node | code-server | grpc | autobahn | pebble | kubernetes | pods | network | grpcurl | h2spec | templates | helm) "step_${step//-/_}" 9>&- ;;
    *) die "no such step: $step (steps: debian node code-server grpc autobahn pebble kubernetes pods network grpcurl h2spec templates helm)" ;;
  esac
done
say "ready"
