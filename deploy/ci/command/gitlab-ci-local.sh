#!/bin/sh
# Runs one workspace's pipeline with gitlab-ci-local (npm) on this machine, for a provider of kind `command`:
#
#   program = "/path/to/gitlab-ci-local.sh"
#
# The gateway runs it in the workspace's own folder, which holds the pipeline and its variables. Jobs run as the user of the
# gateway, with all that this user may do: for one's own machine. Needs git and rsync. Arguments are handed to gitlab-ci-local.
set -eu

# gitlab-ci-local takes the files of a Git repository into the job. Here there are none: the job clones for itself.
if [ ! -d .git ]; then
  git init --quiet --initial-branch main .
  git -c user.name=workspace -c user.email=workspace@localhost commit --quiet --allow-empty --message 'Nothing'
  git remote add origin https://localhost/workspace/job.git
  git symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/main
fi

# The end of a run signals all of its processes. This one stays until the others have ended.
trap : TERM INT
# --home: variables of the user's other projects are none of this job's business.
# --shell-isolation: the job has a folder of its own, and what it leaves is the cache.
gitlab-ci-local --home "$PWD/run" --force-shell-executor --shell-isolation --no-color "$@" &
job=$!
status=0
wait "$job" || status=$?
while kill -0 "$job" 2>/dev/null; do
  status=0
  wait "$job" || status=$?
done

# GitLab replaces a cache as a whole, gitlab-ci-local only adds to it: without this, what was deleted would come back.
if [ "$status" = 0 ]; then
  for kept in .gitlab-ci-local/cache/*/*/; do
    for left in .gitlab-ci-local/builds/*/"$(basename "$kept")"/; do
      if [ -d "$kept" ] && [ -d "$left" ]; then rsync -a --delete "$left" "$kept"; fi
    done
  done
fi
exit "$status"
