#!/usr/bin/env bash
# The Debian packages, as `cargo xtask deb` writes them from the programs under test: the same twice, installed by dpkg into a Debian of
# their own, started there as their user, and removed; and their units, as systemd reads them. Needs root, and the base of the images that
# `install.sh pods` makes; and static programs, from .ci/static-programs.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "packages: nothing to check without the gateway"; finish; }
REAL_STATIC=${REAL_STATIC:-$(dirname "$REAL_GATEWAY")/static}
REAL_XTASK=${REAL_XTASK:-$(dirname "$REAL_GATEWAY")/xtask}
[ "$(id -u)" = 0 ] || not_run "only root can install packages"
[ -e "$CACHE/pods/base.ready" ] || not_run "the base of images is missing: tests/real/install.sh pods"
for program in "$REAL_STATIC"/{gateway,workspace-agent} "$REAL_XTASK"; do
  [ -x "$program" ] || give_up "build first: cargo build -p packaging; .ci/static-programs ($program is missing)"
done
DEBIAN=$OUT/debian
# What runs in there is this suite's own, and so is the folder.
trap 'rm -rf --one-file-system "$DEBIAN"; cleanup' EXIT

write() { (cd "$ROOT" && "$REAL_XTASK" deb --uncompressed --programs "$REAL_STATIC" --out "$OUT/$1"); }
spawn second bash -c 'cd "$1" && "$2" deb --uncompressed --programs "$3" --out "$4"' - "$ROOT" "$REAL_XTASK" "$REAL_STATIC" "$OUT/two"
check "packages are written" write one
ends_within 120 second >/dev/null
same "and once more" 0 "$STATUS"
for package in workspace-gateway workspace-agent; do
  check "the package $package is the same from two runs" cmp "$OUT/one/${package}"_*.deb "$OUT/two/${package}"_*.deb
done
same "dpkg reads what it is" 'workspace-gateway amd64 passwd' \
  "$(dpkg-deb --field "$OUT"/one/workspace-gateway_*.deb Package Architecture Depends | awk '{ print $2 }' | xargs)"

# --- units ------------------------------------------------------------------------------------------------------------

if command -v systemd-analyze >/dev/null; then
  for program in gateway workspace-agent; do
    mkdir -p "$OUT/units"
    # The program is elsewhere, and no manual is installed.
    sed "s|/usr/bin/$program|$REAL_STATIC/$program|; /^Documentation=/d" "$ROOT/deploy/systemd/$program.service" >"$OUT/units/$program.service"
    same "systemd reads the unit $program without a complaint" '' "$(systemd-analyze verify "$OUT/units/$program.service" 2>&1)"
    # Tenths, on a scale from 0 to 100.
    check "and finds it well closed" systemd-analyze security --offline=true --threshold=20 "$OUT/units/$program.service"
  done
else
  echo "note  packages: units are not looked at: systemd-analyze is missing"
fi

# --- installed --------------------------------------------------------------------------------------------------------

mkdir -p "$DEBIAN"
tar -xf "$CACHE/pods/base.tar" -C "$DEBIAN" || give_up "no Debian to install into"
cp "$OUT"/one/*.deb "$DEBIAN/tmp"
inside() { chroot "$DEBIAN" "$@"; }
install() { inside sh -c 'dpkg --install /tmp/*.deb'; }
check "dpkg installs both" install
same "each has a user without rights" '_gateway:/var/lib/gateway:/usr/sbin/nologin
_workspace-agent:/var/lib/workspace-agent:/usr/sbin/nologin' "$(inside sh -c 'getent passwd _gateway _workspace-agent' | cut -d : -f 1,6,7)"
same "secrets are root's" '700 root:root' "$(inside stat -c '%a %U:%G' /etc/gateway/secrets)"
same "the program is root's" '755 root:root' "$(inside stat -c '%a %U:%G' /usr/bin/gateway)"
check "the agent says its version" has_text '^workspace-agent [0-9]' inside /usr/bin/workspace-agent --version

choose_ports
mkdir -p "$DEBIAN/var/lib/gateway" && inside chown _gateway:_gateway /var/lib/gateway
installed=()
for setting in "${GATEWAY_ENV[@]}"; do [[ $setting = GATEWAY_STORE__* ]] || installed+=("$setting"); done
spawn gateway chroot --userspec=_gateway:_gateway "$DEBIAN" env "${installed[@]}" GATEWAY_STORE__URL=sqlite:///var/lib/gateway/gateway.db \
  /usr/bin/gateway serve --config /etc/gateway/gateway.toml
check "the gateway is ready with the settings that come along" until_ok 20 curl -sf "http://127.0.0.1:$ADMIN/readyz"
stop gateway

without_complaint() { ! grep -nE '\b(WARN|ERROR)\b|panicked' "$OUT/gateway.log"; }
# An administrator's change outlives an upgrade, and goes with a purge alone.
echo '# changed' >>"$DEBIAN/etc/gateway/gateway.toml"
check "they are installed over themselves" install
same "a changed configuration stays" '# changed' "$(tail -n 1 "$DEBIAN/etc/gateway/gateway.toml")"
check "they are removed" inside dpkg --remove workspace-gateway workspace-agent
check "with the configuration left" test -e "$DEBIAN/etc/gateway/gateway.toml"
check "they are purged" inside dpkg --purge workspace-gateway workspace-agent
check "without it" test ! -e "$DEBIAN/etc/gateway/gateway.toml"
check "and with what the gateway kept" test -e "$DEBIAN/var/lib/gateway/gateway.db"
check "the gateway complained of nothing" without_complaint
finish
