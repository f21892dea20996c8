# shellcheck shell=bash
# A machine of its own for a suite: the suite runs again in namespaces in which mounts, processes, network, host name and control
# groups are its own. All that it starts is in there, and ends with it; nothing of it stays on this machine.
# Sourced after common.sh; the suite then begins with
#
#   own_machine "$@"         only returns inside; where there can be none, the suite is said not to have run
#
# Inside, MACHINE is a folder for what need not be kept, and NODE_ADDRESS an address that pods reach as well.

MACHINE=$OUT/machine
NODE_ADDRESS=10.63.0.1

# lacks : prints what is missing for such a machine, nothing if it can be had.
lacks() {
  local program said
  [ "$(id -u)" = 0 ] || { echo "only root can run pods"; return; }
  for program in containerd ctr runc unshare ip nft iptables conntrack; do
    command -v "$program" >/dev/null || { echo "$program is missing: tests/real/install.sh pods"; return; }
  done
  [ -e "$CACHE/pods/.ready" ] || { echo "the images are missing: tests/real/install.sh pods"; return; }
  for program in memory cpu pids; do
    grep -qw "$program" /proc/self/cgroup /sys/fs/cgroup/cgroup.controllers 2>/dev/null || { echo "there is no control group of $program"; return; }
  done
  said=$(unshare -m -C -n -p -u --fork --mount-proc --propagation private sh -ec 'mount -t tmpfs tmpfs /run
    ip link add node0 type bridge
    ip link add one type veth peer name two
    nft add table ip try' 2>&1) || echo "namespaces, bridges or nftables: $(tail -n 1 <<<"$said")"
}

# own_machine ARGUMENTS… : see above. REAL_MACHINE tells inside from outside: there it has the control groups.
own_machine() {
  local reason unshare status=0
  if [ -n "${REAL_MACHINE:-}" ]; then
    furnish
    return
  fi
  reason=$(lacks)
  [ -z "$reason" ] || not_run "$reason"
  trap leave_cgroups EXIT
  make_cgroups
  # The suite joins its groups inside, before they become all that it sees, so that nothing else is in them. The signals are those
  # that a shell without job control turns off for what it starts in the background; see `spawn`. Whatever ends this shell or
  # `unshare` ends the first process inside, and that everything else there.
  # shellcheck disable=SC2016
  env --default-signal=INT,QUIT REAL_MACHINE="${CGROUPS[*]}" setpriv --pdeathsig KILL \
    unshare -m -n -p -u --fork --kill-child --mount-proc --propagation private bash -c '
      for place in $REAL_MACHINE; do echo 0 >"$place/cgroup.procs"; done
      exec unshare -C "$0" "$@"' "$0" "$@" </dev/null 2>&1 &
  unshare=$!
  # Ctrl-C reaches what is inside by itself.
  trap : INT
  trap 'pkill -TERM -P "$unshare"' TERM HUP
  while kill -0 "$unshare" 2>/dev/null; do
    wait "$unshare"
    status=$?
  done
  trap '' INT TERM HUP
  exit "$status"
}

# --- control groups ---------------------------------------------------------------------------------------------------

# Each machine has a group of its own, below the one that this shell is in, which is the top of what is seen inside. With version 1
# there is one in each hierarchy. With version 2, which could not be tried where this was written, it is below the top of all, since
# a group with processes may not hand controllers on; for the same reason the processes go to a group below it, inside.
version2() { [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]; }

make_cgroups() {
  local controllers own place controller
  CGROUPS=()
  if version2; then
    for controller in cpu cpuset memory pids io; do echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control; done 2>/dev/null
    CGROUPS=("/sys/fs/cgroup/real-$$")
    new_cgroup "${CGROUPS[0]}"
    return
  fi
  while IFS=: read -r _ controllers own; do
    [ -n "$controllers" ] || continue
    place=$(findmnt -n -t cgroup -O "$controllers" -o TARGET | head -n 1)${own%/}/real-$$
    new_cgroup "$place"
    # Processes cannot join a group that has neither processors nor memory.
    if [[ ",$controllers," = *,cpuset,* ]]; then
      cat "$place/../cpuset.cpus" >"$place/cpuset.cpus"
      cat "$place/../cpuset.mems" >"$place/cpuset.mems"
    fi
    CGROUPS+=("$place")
  done </proc/self/cgroup
}

# new_cgroup FOLDER : makes it, and takes away those beside it whose suite was killed.
new_cgroup() {
  local other
  for other in "${1%-*}"-*; do
    [ ! -e "$other" ] || kill -0 "${other##*-}" 2>/dev/null || find "$other" -depth -type d -exec rmdir {} + 2>/dev/null
  done
  mkdir "$1"
}

# leave_cgroups : takes the groups away, and the folder of what need not be kept.
leave_cgroups() {
  local place tries=100
  for place in "${CGROUPS[@]}"; do
    # What was killed is gone a moment later.
    until find "$place" -depth -type d -exec rmdir {} + 2>/dev/null || [ ! -e "$place" ] || [ "$tries" = 0 ]; do
      tries=$((tries - 1))
      sleep 0.05
    done
  done
  rm -rf --one-file-system "$MACHINE"
}

mount_cgroups() {
  local controllers name
  umount -l -R /sys
  mount -t sysfs sysfs /sys
  if grep -q '^0::' /proc/self/cgroup && [ "$(wc -l </proc/self/cgroup)" = 1 ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mkdir /sys/fs/cgroup/machine
    echo 0 >/sys/fs/cgroup/machine/cgroup.procs
    return
  fi
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  while IFS=: read -r _ controllers _; do
    [ -n "$controllers" ] || continue
    name=${controllers#name=}
    mkdir "/sys/fs/cgroup/$name"
    [ "$name" = "$controllers" ] || controllers=none,$controllers
    mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/$name"
  done </proc/self/cgroup
}

# --- inside -----------------------------------------------------------------------------------------------------------

# furnish : mounts and network of the machine.
furnish() {
  local place name
  hostname node-1
  mount_cgroups
  mkdir -p "$MACHINE"/{containerd,kubelet,cni,log,sysctl}
  for place in containerd kubelet cni; do mount --bind "$MACHINE/$place" "/var/lib/$place"; done
  mount --bind "$MACHINE/log" /var/log
  mount -t tmpfs -o mode=755 tmpfs /run
  # There is no server of names; a pod would be given those of this machine.
  : >"$MACHINE/resolv.conf"
  mount --bind "$MACHINE/resolv.conf" /etc/resolv.conf
  # A kubelet sets these for the whole kernel, unless they are so already.
  for name in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 \
    kernel/keys/root_maxbytes=25000000; do
    place=$MACHINE/sysctl/$(basename "${name%=*}")
    echo "${name#*=}" >"$place"
    mount --bind "$place" "/proc/sys/${name%=*}"
  done
  mount --make-rshared /
  ip link set lo up
  sysctl -q -w net.ipv4.ip_forward=1
  # A node's address may not be that of the loopback device.
  ip link add node0 type bridge
  ip address add "$NODE_ADDRESS/24" dev node0
  ip link set node0 up
  # Services, for processes outside of pods.
  ip route add 10.0.0.0/16 dev node0
}
