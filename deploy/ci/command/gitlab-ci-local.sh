#!/bin/sh
# Runs one workspace's pipeline with gitlab-ci-local (npm) on this machine, for a provider of kind `command`:
#
#   program = ["/path/to/gitlab-ci-local.sh"]
#
# The gateway runs it in the workspace's own folder, which holds the pipeline and its variables. Jobs run as the user of the
# gateway, with all that this user may do: for one's own machine. Other arguments are handed to gitlab-ci-local.
set -eu

# gitlab-ci-local takes the files of a Git repository into the job. Here there are none: the job clones for itself.
if [ ! -d .git ]; then
  git init --quiet .
fi

# --home: variables of the user's other projects are none of this job's business.
# --shell-isolation: the job has a folder of its own, and the cache is what is left of it.
exec gitlab-ci-local --home "$PWD/run" --force-shell-executor --shell-isolation --no-color "$@"
