# shellcheck shell=bash
# Programs of an earlier version, built once into .ci/cache. Sourced after common.sh:
#
#   programs_of COMMIT       BEFORE is the folder with its gateway, workspace-agent and workspace-agent-slim

# programs_of COMMIT : debug programs, because nothing measures how fast they are.
programs_of() {
  BEFORE=$ROOT/.ci/cache/versions/$1
  [ -x "$BEFORE/gateway" ] && return
  git -C "$ROOT" cat-file -e "$1^{commit}" 2>/dev/null || give_up "commit $1 is missing: git fetch origin $1"
  build_before "$1" >"$OUT/build.log" 2>&1 || give_up "commit $1 cannot be built: $(tail -n 1 "$OUT/build.log")"
}

# build_before COMMIT : with a folder of its own for what is compiled: cargo would take crates of one version for those of the other.
build_before() {
  local tree=$BEFORE.tree built=$BEFORE.built status
  rm -rf "$BEFORE" "$tree" "$built" && mkdir -p "$(dirname "$BEFORE")" && git -C "$ROOT" worktree prune &&
    git -C "$ROOT" worktree add --detach "$tree" "$1" || return 1
  (cd "$tree" && CARGO_TARGET_DIR=$built CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
    cargo build --locked -p gateway -p workspace-agent) && mkdir "$BEFORE" &&
    cp "$built/debug/gateway" "$built/debug/workspace-agent" "$built/debug/workspace-agent-slim" "$BEFORE"
  status=$?
  git -C "$ROOT" worktree remove --force "$tree"
  rm -rf "$built"
  return "$status"
}
