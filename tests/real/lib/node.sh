# shellcheck shell=bash
# A Kubernetes node that really runs pods: containerd, kubelet and kube-proxy beside a control plane with all of its controllers.
# Sourced after common.sh, kubernetes.sh and machine.sh:
#
#   own_machine "$@"         a node needs a machine of its own
#   start_node               everything, ready; volumes for workspaces among it
#   kc get pods -A           as with start_cluster, which starts a cluster in which pods are only played
#
# Pods have the addresses 10.64.0.0/24, services 10.0.0.0/16, and reach the API server and whatever else listens on NODE_ADDRESS.
# The images are those of tests/real/kubernetes/images.sh, and localhost/tools:1 with the agent under test.

VOLUMES=24

start_node() {
  NODE_TOKEN=$(openssl rand -hex 16)
  # shellcheck disable=SC2034
  MORE_TOKENS="$NODE_TOKEN,system:node:node-1,2,\"system:nodes\""$'\n'
  # shellcheck disable=SC2034
  API_ADDRESS=$NODE_ADDRESS
  start_containerd
  kubelet_authority
  # The second value of the mode is added to the first.
  APISERVER_MORE+=(--bind-address 0.0.0.0 --advertise-address "$NODE_ADDRESS" --authorization-mode Node --allow-privileged
    --enable-admission-plugins NodeRestriction --kubelet-preferred-address-types InternalIP
    --kubelet-client-certificate "$MACHINE/client.pem" --kubelet-client-key "$MACHINE/client.key")
  start_cluster identity
  start_controllers
  start_kubelet
  start_proxy
  make_volumes
  until_ok 60 kc wait --for condition=Ready node/node-1 --timeout 10s || give_up "the node does not become ready: $(tail -n 1 "$OUT/kubelet.log")"
  wait "$IMPORT" || give_up "the tools image is not taken: $(tail -n 1 "$OUT/import.log")"
}

# start_containerd : with the images, which were unpacked when they were made: what containerd writes is copied, the rest is mounted.
start_containerd() {
  local store=io.containerd.content.v1.content snapshots=io.containerd.snapshotter.v1.overlayfs folder file
  cd "$CACHE/pods/containerd" || give_up "no images"
  mkdir -p "$MACHINE/containerd/$snapshots/snapshots"
  cp -al "$store" "$MACHINE/containerd" 2>/dev/null || cp -a "$store" "$MACHINE/containerd"
  find . -name '*.db' | while read -r file; do
    mkdir -p "$MACHINE/containerd/$(dirname "$file")"
    cp "$file" "$MACHINE/containerd/$file"
  done
  for folder in "$snapshots"/snapshots/*; do
    mkdir "$MACHINE/containerd/$folder"
    mount --bind "$folder" "/var/lib/containerd/$folder"
    # A node that makes room throws images away, and would do so in the cache.
    mount -o remount,bind,ro "/var/lib/containerd/$folder"
  done
  cd - >/dev/null || return
  mkdir -p "$MACHINE/net.d"
  cat >"$MACHINE/net.d/10-pods.conflist" <<'JSON'
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.64.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
JSON
  # Where root may not make processes less likely to be killed for memory, every container that asks for it fails.
  cat >"$MACHINE/containerd.toml" <<TOML
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  enable_unprivileged_ports = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$MACHINE/net.d"
TOML
  spawn containerd containerd --config "$MACHINE/containerd.toml" --log-level warn
  tools_image >>"$OUT/import.log" 2>&1 &
  IMPORT=$!
}

# tools_image [TAG [AGENT]] : the agent under test, or that one, and the SSH server on top of the editor; with SMALL_TOOLS=1, of none.
tools_image() {
  local tag=${1:-1} folder=$MACHINE/tools-${1:-1} editor="held=$CACHE/pods/editor.tar"
  mkdir -p "$folder/workspace-tools/bin"
  strip -o "$folder/workspace-tools/bin/workspace-agent" "${2:-$REAL_AGENT_SLIM}" || return
  "$ROOT/deploy/images/ssh-tools.sh" "$folder/workspace-tools/ssh" || return
  tar --owner=0 --group=0 --numeric-owner -C "$folder" -cf "$folder.tar" workspace-tools
  until_ok 20 ctr version || return
  [ -z "${SMALL_TOOLS:-}" ] || editor=''
  python3 "$REAL/kubernetes/images.py" "localhost/tools:$tag" held="$CACHE/pods/base.tar" ${editor:+"$editor"} layer="$folder.tar" |
    ctr -n k8s.io images import -
}

# kubelet_authority : the kubelet answers only the API server, which has a certificate of this authority. Pods reach its port as well.
kubelet_authority() {
  (
    cd "$MACHINE" || exit
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=kubelets -keyout authority.key -out authority.pem
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj '/O=system:masters/CN=kube-apiserver' -keyout client.key -out client.csr
    openssl x509 -req -in client.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 30 -out client.pem
  ) 2>>"$OUT/openssl.log"
}

# start_kubelet [FREE] : starts it (again). Version 1 of control groups has to be allowed by name. Its disk is this machine's, on which
# nothing is thrown away for the node's sake; with FREE, as much of it shall be free, or the node ends pods.
start_kubelet() {
  cat >"$MACHINE/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
resolvConf: ""
volumePluginDir: /var/lib/kubelet/volume-plugins
authentication: {x509: {clientCAFile: $MACHINE/authority.pem}}
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "0%", nodefs.available: "${1:-0%}", nodefs.inodesFree: "0%", imagefs.available: "0%", imagefs.inodesFree: "0%"}
YAML
  kubeconfig "$KUBE/kubelet.kubeconfig" "$NODE_TOKEN"
  spawn kubelet "$PARTS/kubelet" --config "$MACHINE/kubelet.yaml" --kubeconfig "$KUBE/kubelet.kubeconfig" --hostname-override node-1 \
    --node-ip "$NODE_ADDRESS"
}

# start_proxy : services. Limits of connections are the whole kernel's, and stay as they are.
start_proxy() {
  kc apply -f - >/dev/null <<'YAML'
apiVersion: v1
kind: ServiceAccount
metadata: {name: kube-proxy, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kube-proxy}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-proxier}
subjects: [{kind: ServiceAccount, name: kube-proxy, namespace: kube-system}]
YAML
  account_kubeconfig kube-proxy kube-system kube-proxy >/dev/null || give_up "no token for kube-proxy: $(tail -n 1 "$OUT/shell.log")"
  spawn kube-proxy "$PARTS/kube-proxy" --kubeconfig "$KUBE/kube-proxy.kubeconfig" --proxy-mode nftables --hostname-override node-1 \
    --cluster-cidr 10.64.0.0/16 --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0s --conntrack-tcp-timeout-close-wait 0s
}

# make_volumes : local volumes. To those that a controller makes of folders, a pod's group would not be given.
make_volumes() {
  local number
  {
    cat <<'YAML'
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
YAML
    for number in $(seq "$VOLUMES"); do
      mkdir -p "$MACHINE/volumes/$number"
      cat <<YAML
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: local-$number}
spec:
  capacity: {storage: 100Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  local: {path: $MACHINE/volumes/$number}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-1]}]}]}}
YAML
    done
  } | kc apply -f - >/dev/null || give_up "no volumes: $(tail -n 1 "$OUT/shell.log")"
}
