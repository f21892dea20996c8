# The first process of a container that has nothing of its own to do.
. /workspace-gateway/scripts/common.sh

stopping=''
trap 'stopping=1' TERM INT QUIT
while [ -z "$stopping" ]; do
  sleep 3600 &
  wait "$!"
done
end_others
exit 0
