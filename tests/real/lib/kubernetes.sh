# shellcheck shell=bash
# A Kubernetes cluster for a suite: etcd, API server, controllers, scheduler, and kwok, which plays the nodes and the pods on them.
# Sourced after common.sh:
#
#   start_cluster            everything, ready, with one node
#   kc get pods -A           kubectl as its administrator
#   account_kubeconfig agent workspace-gateway cluster-agent     what that service account may, and nothing else
#
# What is set: API (port), API_URL, CLUSTER_CA (file), ADMIN_TOKEN, KUBECONFIG_ADMIN (file). Everything of it is in $OUT/kube.
#
# How pods behave is in tests/real/kubernetes/stages.yaml: they run as soon as they have a node, with a few images that do not.

PARTS=$CACHE/kubernetes
# The address under which its parts reach the API server, and further lines of its file of tokens.
API_ADDRESS=127.0.0.1
MORE_TOKENS=''
ISSUER=https://kubernetes.default.svc.cluster.local

# start_cluster [IDENTITY] : with the argument, only what knows service accounts and objects: etcd and API server.
start_cluster() {
  [ -e "$PARTS/.ready" ] || give_up "Kubernetes is missing: tests/real/install.sh kubernetes"
  KUBE=$OUT/kube
  mkdir -p "$KUBE"
  ETCD=$(free_port)
  API=$(free_port)
  API_URL=https://$API_ADDRESS:$API
  ADMIN_TOKEN=$(openssl rand -hex 16)
  (umask 077 && openssl genrsa -out "$KUBE/sa.key" 2048 &&
    printf '%s,admin,1,"system:masters"\n%s' "$ADMIN_TOKEN" "$MORE_TOKENS" >"$KUBE/tokens.csv") 2>/dev/null
  openssl rsa -in "$KUBE/sa.key" -pubout -out "$KUBE/sa.pub" 2>/dev/null
  start_etcd
  start_apiserver
  # The server's own certificate is its authority.
  CLUSTER_CA=$KUBE/ca.pem
  cp "$KUBE/apiserver/apiserver.crt" "$CLUSTER_CA"
  KUBECONFIG_ADMIN=$KUBE/admin.kubeconfig
  kubeconfig "$KUBECONFIG_ADMIN" "$ADMIN_TOKEN"
  [ "${1:-}" = identity ] && return
  start_controllers --enable-hostpath-provisioner --controllers "$(tr -s ' \n' ',' <<<'namespace-controller deployment-controller
    replicaset-controller garbage-collector-controller pod-garbage-collector-controller serviceaccount-controller
    root-ca-certificate-publisher-controller resourcequota-controller endpointslice-controller
    persistentvolume-binder-controller persistentvolumeclaim-protection-controller persistentvolume-protection-controller
    clusterrole-aggregation-controller' | sed 's/,$//')"
  make_storage
  start_nodes
}

start_etcd() {
  spawn etcd "$PARTS/etcd" --data-dir "$KUBE/etcd" --listen-client-urls "http://127.0.0.1:$ETCD" --unsafe-no-fsync \
    --advertise-client-urls "http://127.0.0.1:$ETCD" --listen-peer-urls "http://127.0.0.1:$(free_port)" --log-level error
  wait_port etcd "$ETCD"
}

# start_apiserver : starts it (again), on the same port, with the same certificate and the same objects. Nodes begin without the
# taint that a controller, which is not here, takes away when they are ready. APISERVER_MORE has further flags.
APISERVER_MORE=()
start_apiserver() {
  spawn apiserver "$PARTS/kube-apiserver" --etcd-servers "http://127.0.0.1:$ETCD" --bind-address 127.0.0.1 --secure-port "$API" \
    --cert-dir "$KUBE/apiserver" --service-cluster-ip-range 10.0.0.0/16 --service-account-issuer "$ISSUER" \
    --service-account-key-file "$KUBE/sa.pub" --service-account-signing-key-file "$KUBE/sa.key" --authorization-mode RBAC \
    --token-auth-file "$KUBE/tokens.csv" --disable-admission-plugins TaintNodesByCondition "${APISERVER_MORE[@]}"
  wait_port apiserver "$API" 60
  until_ok 60 api -f /readyz >/dev/null || give_up "the API server does not become ready: $(tail -n 1 "$OUT/apiserver.log")"
}

# start_controllers FLAGS… : the controllers, and the scheduler.
start_controllers() {
  spawn controllers "$PARTS/kube-controller-manager" --kubeconfig "$KUBECONFIG_ADMIN" --leader-elect=false --secure-port 0 \
    --kube-api-qps 500 --kube-api-burst 1000 --concurrent-deployment-syncs 10 --concurrent-replicaset-syncs 10 \
    --concurrent-namespace-syncs 20 --concurrent-gc-syncs 20 --root-ca-file "$CLUSTER_CA" "$@"
  cat >"$KUBE/scheduler.yaml" <<YAML
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: $KUBECONFIG_ADMIN, qps: 500, burst: 1000}
YAML
  spawn scheduler "$PARTS/kube-scheduler" --config "$KUBE/scheduler.yaml" --secure-port 0
}

# make_storage : volumes are folders, which a controller makes.
make_storage() {
  kc apply -f - >/dev/null <<'YAML' || give_up "no storage class: $(tail -n 1 "$OUT/shell.log")"
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: folders
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: kubernetes.io/host-path
volumeBindingMode: Immediate
YAML
}

# start_nodes : one node.
start_nodes() {
  spawn kwok "$PARTS/kwok" --kubeconfig "$KUBECONFIG_ADMIN" --config "$REAL/kubernetes/stages.yaml" --manage-all-nodes --cidr 10.64.0.1/10 \
    --node-lease-duration-seconds 40
  kc apply -f - >/dev/null <<'YAML' || give_up "no node: $(tail -n 1 "$OUT/shell.log")"
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {kubernetes.io/os: linux, kubernetes.io/hostname: node-1}}
YAML
  until_ok 60 kc wait --for condition=Ready node/node-1 --timeout 10s || give_up "the node does not become ready: $(tail -n 1 "$OUT/kwok.log")"
}

# --- asking it --------------------------------------------------------------------------------------------------------

# api CURL-ARGUMENTS… PATH : asks the API server as its administrator.
api() {
  local path=${*: -1}
  curl -sS --max-time 20 --cacert "$KUBE/apiserver/apiserver.crt" -H "authorization: Bearer $ADMIN_TOKEN" \
    -H 'content-type: application/json' "${@:1:$#-1}" "$API_URL$path"
}

# make PATH JSON : creates an object; prints it.
make() { api -f -d "$2" "$1"; }

# kc ARGUMENTS… : kubectl as administrator. kc_as NAME ARGUMENTS… : with the rights of account_kubeconfig NAME.
kc() { "$PARTS/kubectl" --kubeconfig "$KUBECONFIG_ADMIN" --cache-dir "$KUBE/kubectl-cache" "$@"; }
kc_as() { "$PARTS/kubectl" --kubeconfig "$KUBE/$1.kubeconfig" --cache-dir "$KUBE/kubectl-cache" "${@:2}"; }

# kubeconfig FILE TOKEN [NAMESPACE]
kubeconfig() {
  (umask 077 && cat >"$1" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: "$API_URL", certificate-authority: "$CLUSTER_CA"}}]
users: [{name: user, user: {token: "$2"}}]
contexts: [{name: context, context: {cluster: cluster, user: user, namespace: "${3:-default}"}}]
current-context: context
YAML
  )
}

# account_kubeconfig NAME NAMESPACE ACCOUNT : what a service account may, as $KUBE/NAME.kubeconfig; prints its path.
account_kubeconfig() {
  local token
  token=$(kc -n "$2" create token "$3" --duration 8h) || return 1
  kubeconfig "$KUBE/$1.kubeconfig" "$token" "$2"
  printf '%s\n' "$KUBE/$1.kubeconfig"
}

# objects NAMESPACE [SELECTOR] : everything there, one `kind/name` per line, but what a cluster puts into each namespace by itself.
objects() {
  kc -n "$1" get "$(kinds)" ${2:+-l "$2"} -o name --ignore-not-found 2>/dev/null |
    grep -vE '^(configmap/kube-root-ca.crt|serviceaccount/default|event.*)$' | sort
}

# The namespaced kinds that can be listed, with commas; but what only tells of others.
kinds() {
  [ -n "${KINDS:-}" ] || KINDS=$(kc api-resources --namespaced --verbs list -o name | grep -vE '^events|^endpoints$' | paste -sd ,)
  printf '%s\n' "$KINDS"
}

# versions NAMESPACE… : each object there with its uid and resource version; the same text twice: nobody touched anything.
versions() {
  local namespace
  for namespace in "$@"; do
    kc -n "$namespace" get "$(kinds)" -o jsonpath='{range .items[*]}{.kind}/{.metadata.name} {.metadata.uid} {.metadata.resourceVersion}{"\n"}{end}' |
      grep -vE '^(Lease|EndpointSlice|Event)/' | sort | sed "s|^|$namespace |"
  done
}
