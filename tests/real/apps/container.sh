#!/bin/bash
# Runs a command as the first process of a container: with this machine's system, and the folders of a workspace where its scripts
# look for them. Started by `unshare --mount --pid --fork`.
#
#   container.sh POD NAME=FOLDER… -- COMMAND…
#
# POD is an empty folder for the root. FOLDER appears as /NAME; with a `:ro` at its end it cannot be written to.
set -euo pipefail

root=$1
shift
mount --make-rprivate /
mount -t tmpfs root "$root"
mkdir "$root/home" # its own, so that a folder for the workspace's home is not made on this machine
homes=/home
for entry in /* "$homes"/*; do
  name=${entry#/}
  if [ -L "$entry" ]; then
    cp -a "$entry" "$root/$name"
  elif [ "$name" != proc ] && [ "$name" != home ] && [ -d "$entry" ]; then
    mkdir "$root/$name"
    mount --rbind "$entry" "$root/$name"
  fi
done
mkdir "$root/proc"
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do
  name=${1%%=*}
  folder=${1#*=}
  mkdir -p "$root/$name"
  mount --bind "${folder%:ro}" "$root/$name"
  [ "$folder" = "${folder%:ro}" ] || mount -o remount,bind,ro "$root/$name"
  shift
done
shift
exec chroot "$root" /usr/bin/env -i "$@"
