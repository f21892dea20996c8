# The first container of a workspace: puts agent and editor where the others find them, and makes the folders of the volume as the
# user of the others, since git trusts no folder of another user. What it writes last is the reason of its failure.
set -e
cp -Rf /workspace-tools/. /workspace-gateway/tools/
cd /workspace-gateway/volume
for folder in projects home logs; do
  [ -d "$folder" ] || mkdir "$folder"
done
# What a clone left that was killed with the pod of before.
rm -rf projects/.cloning-*
