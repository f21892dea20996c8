#!/bin/sh
# Puts the SSH server of workspaces into a folder, with everything that it needs, so that it runs in images of any kind, also of
# musl: from the Debian packages openssh-server, openssh-client, libnss-wrapper and rsync, which have to be installed.
#
#   deploy/images/ssh-tools.sh FOLDER
#
#   FOLDER/lib          programs, their libraries and their loader
#   FOLDER/sshd, …      scripts that start a program by that loader, wherever the folder is copied to
#   FOLDER/bin          the same for programs that the other end runs (scp, rsync); sessions have it last in their PATH
#   FOLDER/shell        begins sessions
#
# A loader that is called by its path needs no change of the programs, and leaves no variable behind for what they start.
set -eu

[ "$#" = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
top=$1
mkdir -p "$top/lib" "$top/bin"

die() { printf '%s\n' "$*" >&2; exit 1; }

# The first of some files that is there.
first() {
  for file in "$@"; do
    [ ! -f "$file" ] || { printf '%s\n' "$file"; return; }
  done
  die "not there: $1 (is its package installed?)"
}

# libraries FILE : puts a file's libraries and its loader where the scripts find them.
libraries() {
  ldd "$1" | while read -r name arrow path _; do
    case $name in
      linux-vdso*) ;;
      /*) cp -L "$name" "$top/lib/ld.so" ;;
      *)
        if [ "$arrow" != '=>' ] || [ ! -f "$path" ]; then die "a library of $1 is missing: $name"; fi
        cp -L "$path" "$top/lib/$name"
        ;;
    esac
  done
}

# program NAME FILE SCRIPT UP [OPTIONS] : a program, and the script that starts it; UP leads from the script's folder to the top.
program() {
  [ -x "$2" ] || die "not there: $2 (is its package installed?)"
  cp -L "$2" "$top/lib/$1"
  libraries "$2"
  cat >"$top/$3" <<END
#!/bin/sh
top=\${0%/*}$4
exec "\$top/lib/ld.so" --library-path "\$top/lib" ${5:-}"\$top/lib/$1" "\$@"
END
  chmod 755 "$top/$3" "$top/lib/$1"
}

# The preloaded library answers the server's questions for its user from files that the agent writes: images have no such user.
wrapper=$(first /usr/lib/*/libnss_wrapper.so.0 /usr/lib/*/libnss_wrapper.so)
cp -L "$wrapper" "$top/lib/libnss_wrapper.so"
libraries "$wrapper"
# Where an image's nsswitch.conf names it.
compat=$(first /lib/*/libnss_compat.so.2 /usr/lib/*/libnss_compat.so.2)
cp -L "$compat" "$top/lib/libnss_compat.so.2"
# shellcheck disable=SC2016
preload='--preload "$top/lib/libnss_wrapper.so" '

program sshd.bin /usr/sbin/sshd sshd '' "$preload"
# Since OpenSSH 9.8 the server is several programs, which it starts by their paths: the agent's configuration names them.
for part in sshd-session sshd-auth; do
  [ ! -f "/usr/lib/openssh/$part" ] || program "$part.bin" "/usr/lib/openssh/$part" "$part" '' "$preload"
done
program scp.bin /usr/bin/scp bin/scp /..
program rsync.bin /usr/bin/rsync bin/rsync /..
program ssh-keygen.bin /usr/bin/ssh-keygen ssh-keygen '' "$preload"
chmod 755 "$top/lib/ld.so"

# Sessions are no login shells: one of those reads /etc/profile, which sets the container's environment back to a login's.
cat >"$top/shell" <<'END'
#!/bin/sh
exec "${SHELL:-/bin/sh}" "$@"
END
chmod 755 "$top/shell"
