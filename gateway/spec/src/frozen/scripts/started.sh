# Whether the agent has been connected since its container started. What it says otherwise is shown to the owner of the workspace.
tries=10
while [ "$tries" -gt 0 ]; do
  [ ! -e "${GW_READY_FILE:-/}" ] || exit 0
  tries=$((tries - 1))
  sleep 0.2 2>/dev/null || tries=0
done
. /workspace-gateway/scripts/common.sh
said=$(grep -E ' (WARN|ERROR) ' "$logs/agent.log" 2>/dev/null | tail -n 1 | sed 's/^[^ ]* *[A-Z]* *//; s/.*cause="\([^"]*\)".*/\1/')
echo "the agent is not connected: ${said:-it says nothing, and may be too old for this gateway (tools_image)}"
exit 1
