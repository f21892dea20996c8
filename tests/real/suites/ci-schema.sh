#!/usr/bin/env bash
# The recorded definitions of CI pipelines (gateway/spec/tests/pipelines) against what a CI system takes: GitLab's published schema of
# .gitlab-ci.yml, the YAML reader that JavaScript has, and gitlab-ci-local's own reading. The same for the templates of
# deploy/ci/gitlab, and the script with which a job fetches its definition. A real GitLab is not asked.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -n "$DIRECT" ] && { echo "ci-schema: nothing to check without the gateway"; finish; }
LOCAL=$REAL/node_modules/gitlab-ci-local/src/index.js
[ -e "$LOCAL" ] || give_up "gitlab-ci-local is missing: run tests/real/install.sh"

helper schema 60 node "$REAL/suites/ci-schema.mjs" --definitions "$ROOT/gateway/spec/tests/pipelines" --local "$LOCAL" --out "$OUT"
helper templates 240 node "$REAL/suites/ci-templates.mjs" --templates "$ROOT/deploy/ci/gitlab" --local "$LOCAL" --out "$OUT"

# Its own reading, in a repository of its own, as it wants to have it.
for definition in "$ROOT"/gateway/spec/tests/pipelines/*.yml; do
  name=$(basename -- "$definition" .yml)
  mkdir -p "$OUT/$name"
  cp "$definition" "$OUT/$name/.gitlab-ci.yml"
  git -C "$OUT/$name" init -q
  git -C "$OUT/$name" -c user.name=a -c user.email=a@example.com commit -q --allow-empty -m one
  git -C "$OUT/$name" remote add origin https://gitlab.example.com/group/project.git
  helper "list-$name" 60 env -C "$OUT/$name" HOME="$OUT" node "$LOCAL" --list-csv
  check "gitlab-ci-local finds one job in $name" grep -q '^workspace;' "$OUT/list-$name.log"
done
# What a person reads in the log is a script of a shell.
if command -v shellcheck >/dev/null; then
  # Sourced files, and variables that one of them sets for another.
  check "the fixed scripts are clean" shellcheck -s sh -e SC1090,SC1091,SC2016,SC2034,SC2154,SC2317 \
    "$ROOT"/gateway/spec/src/pipeline/scripts/*.sh
fi
finish
