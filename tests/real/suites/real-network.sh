#!/usr/bin/env bash
# Reach of each pod over the network, seen from inside real pods: the network policy that each workspace has, enforced by kube-router
# beside the bridge plugin. Needs what real-pod.sh needs, and what `install.sh network` makes.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/workspaces.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/machine.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/node.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/real-pod.sh"

[ -n "$DIRECT" ] && { echo "real-network: nothing to check without the gateway"; finish; }
if [ ! -x "$CACHE/network/kube-router" ] || ! command -v ipset >/dev/null; then
  not_run "what enforces network policies is missing: tests/real/install.sh network"
fi
own_machine "$@"
real_cluster unique
spawn enforcer env NODE_NAME=node-1 "$CACHE/network/kube-router" --kubeconfig "$KUBECONFIG_ADMIN" --run-router=false --run-service-proxy=false \
  --run-loadbalancer=false --run-firewall=true --hostname-override node-1 --service-cluster-ip-range 10.0.0.0/16 --enable-ipv6=false --health-port 0

# What clouds have at an address of their own is played on the node.
ip address add 169.254.169.254/32 dev lo
spawn metadata python3 -m http.server --bind 169.254.169.254 --directory "$OUT" 80
until_ok 10 curl -s -o /dev/null --noproxy "*" --max-time 2 http://169.254.169.254/ || give_up "nothing answers there: $(tail -n 1 "$OUT/metadata.log")"
kc run other --image localhost/small:1 --image-pull-policy Never --command -- httpd -f -p 8080 >>"$OUT/made.log"
kc run visitor --image localhost/dev:1 --image-pull-policy Never --command -- sleep 3600 >>"$OUT/made.log"
check "pods of others run beside the workspaces" kc wait --for condition=Ready pod/other pod/visitor --timeout 60s
other=$(kc get pod other -o jsonpath='{.status.podIP}')
for name in mine yours; do
  create unique "$name" "$(devfile localhost/dev:1)" >>"$OUT/created.json" || give_up "the workspace is not taken: $(tail -n 1 "$OUT/created.json")"
done
check "a workspace reaches a gateway at a private address, under the default policy" state_within 90 mine Running
check "and another one" state_within 60 yours Running
for name in mine yours; do in_pod_sh "$name" 'python3 -m http.server 3000 >/dev/null 2>&1 &'; done
mine=$(kc -n ws-mine get pod -o jsonpath='{.items[0].status.podIP}')
yours=$(kc -n ws-yours get pod -o jsonpath='{.items[0].status.podIP}')
check "its owner reaches a port of it through the tunnel" until_ok 20 visit -f "http://$(host_of 3000 mine)/"

# reached COMMAND… URL : curl gets an answer there. refused COMMAND… URL : it gets none, within some seconds.
answer_of() { "${@:1:$#-1}" curl -sk -o /dev/null --max-time 4 -w '%{http_code}' "${*: -1}" | tail -n 1; }
reached() { [ "$(answer_of "$@")" != 000 ]; }
refused() { [ "$(answer_of "$@")" = 000 ]; }
# Rules follow the pods by a moment; what is reached shows that a refusal is one.
check "a pod of others reaches another one" until_ok 10 reached kc exec visitor -- "http://$other:8080/"
check "and the address at which clouds give out credentials" until_ok 10 reached kc exec visitor -- http://169.254.169.254/
check "but no port of a workspace" until_ok 20 refused kc exec visitor -- "http://$mine:3000/"
check "the workspace itself has it open" reached in_pod mine http://127.0.0.1:3000/
check "another workspace does not reach it either" refused in_pod yours "http://$mine:3000/"
check "nor the other way round" refused in_pod mine "http://$yours:3000/"
check "a workspace reaches no pod of others" refused in_pod mine "http://$other:8080/"
check "not the API server, by its Service" refused in_pod mine https://10.0.0.1/
check "nor by the node's address, on which the gateway is" refused in_pod mine "https://$NODE_ADDRESS:$API/"
check "not the address of those credentials" refused in_pod mine http://169.254.169.254/
check "the gateway, on its port for agents alone" reached in_pod mine "http://$NODE_ADDRESS:$AGENTS/"

for name in mine yours; do desire "$name" Terminated >/dev/null; done
check "the workspaces terminate" state_within 90 mine Terminated
quiet_logs
finish
