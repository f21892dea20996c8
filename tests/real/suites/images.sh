#!/usr/bin/env bash
# The images of gateway and agent, as `cargo xtask image` writes them from the programs under test: the same twice, imported into
# containerd and started there, as their own user, with a root that cannot be written to. Needs root, control groups, and what
# `install.sh pods` makes; and static programs, from .ci/static-programs.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/machine.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/node.sh"

[ -n "$DIRECT" ] && { echo "images: nothing to check without the gateway"; finish; }
REAL_STATIC=${REAL_STATIC:-$(dirname "$REAL_GATEWAY")/static}
REAL_XTASK=${REAL_XTASK:-$(dirname "$REAL_GATEWAY")/xtask}
own_machine "$@"
for program in "$REAL_STATIC"/{gateway,workspace-agent,workspace-agent-slim} "$REAL_XTASK"; do
  [ -x "$program" ] || give_up "build first: cargo build -p packaging; .ci/static-programs ($program is missing)"
done

# --- written twice ----------------------------------------------------------------------------------------------------

# write FOLDER ARGUMENTS… : images in that folder of the machine.
write() {
  local folder=$MACHINE/$1
  shift
  (cd "$ROOT" && "$REAL_XTASK" image --out "$folder" "$@")
}

# The agent's image that is started is a compressed one, the gateway's is not.
spawn compressed bash -c 'cd "$1" && "$2" image agent --programs "$3" --out "$4"' - "$ROOT" "$REAL_XTASK" "$REAL_STATIC" "$MACHINE/compressed"
check "images are written" write one gateway agent --programs "$REAL_STATIC" --uncompressed
check "and once more" write two gateway agent --programs "$REAL_STATIC" --uncompressed
for image in gateway workspace-agent; do
  check "the image $image is the same from two runs" cmp "$MACHINE/one/$image.tar" "$MACHINE/two/$image.tar"
  for kind in oci-archive docker-archive; do
    same "skopeo reads $image as one image ($kind)" amd64 "$(skopeo inspect "$kind:$MACHINE/one/$image.tar" 2>>"$OUT/skopeo.log" | jq -r .Architecture)"
  done
  check "and so is its list of parts" cmp "$MACHINE/one/$image.cdx.json" "$MACHINE/two/$image.cdx.json"
done

# blob IMAGE FILTER : the blob that jq finds in the manifest of the image.
blob() {
  local layout=$MACHINE/one/$1 manifest
  manifest=$layout/blobs/sha256/$(jq -r '.manifests[0].digest | ltrimstr("sha256:")' "$layout/index.json")
  printf '%s\n' "$layout/blobs/sha256/$(jq -r "$2 | ltrimstr(\"sha256:\")" "$manifest")"
}
# root_of IMAGE : rights, owner and path of all that is in it.
root_of() { tar --numeric-owner -tvf "$(blob "$1" .layers[0].digest)" | awk '{ print $1, $2, $6 }'; }

same "the gateway's root has these files and no others" "drwxr-xr-x 0/0 etc/
drwxr-xr-x 0/0 etc/gateway/
-rw-r--r-- 0/0 etc/gateway/gateway.toml
-rw-r--r-- 0/0 etc/group
-rw-r--r-- 0/0 etc/nsswitch.conf
-rw-r--r-- 0/0 etc/passwd
drwxr-xr-x 0/0 etc/ssl/
drwxr-xr-x 0/0 etc/ssl/certs/
-rw-r--r-- 0/0 etc/ssl/certs/ca-certificates.crt
drwxrwxrwt 0/0 tmp/
drwxr-xr-x 0/0 usr/
drwxr-xr-x 0/0 usr/local/
drwxr-xr-x 0/0 usr/local/bin/
-rwxr-xr-x 0/0 usr/local/bin/gateway
drwxr-xr-x 0/0 var/
drwxr-xr-x 0/0 var/lib/
drwx------ 65532/65532 var/lib/gateway/" "$(root_of gateway)"
same "the agent's root has these" "etc/ etc/group etc/nsswitch.conf etc/passwd etc/ssl/ etc/ssl/certs/ etc/ssl/certs/ca-certificates.crt tmp/ usr/ \
usr/local/ usr/local/bin/ usr/local/bin/workspace-agent" "$(root_of workspace-agent | awk '{ print $3 }' | xargs)"
authorities() { tar -xOf "$(blob gateway .layers[0].digest)" etc/ssl/certs/ca-certificates.crt; }
check "its authorities are read by OpenSSL" bash -c '[ "$(openssl storeutl -noout -certs /dev/stdin | sed -n "s/^Total found: //p")" -gt 100 ]' \
  < <(authorities)
labels=$(jq -r '.config.Labels | to_entries[] | "\(.key)=\(.value)"' "$(blob gateway .config.digest)" | sed 's/^org.opencontainers.image.//')
check "labels say what it is" has_text '^version=[0-9]+\.[0-9]+\.[0-9]+$' echo "$labels"
check "of which commit" has_text "^revision=$(git -C "$ROOT" rev-parse HEAD)(-changed)?\$" echo "$labels"
same "and of which time" "created=$(date -u -d "@$(git -C "$ROOT" show -s --format=%ct HEAD)" +%FT%TZ)" "$(grep '^created=' <<<"$labels")"

# The list of parts, which hangs on the image.
list=$MACHINE/one/gateway.cdx.json
same "the list of parts is that of this program" "$(sha256sum <"$REAL_STATIC/gateway" | cut -d ' ' -f 1)" \
  "$(jq -r .metadata.component.hashes[0].content "$list")"
same "it has no part twice, and names none that it does not have" '[]' \
  "$(jq -c '([.components[]."bom-ref"] + [.metadata.component."bom-ref"]) as $all | ($all - ($all | unique)) + ([.dependencies[].dependsOn[]] - $all)' "$list")"
for part in tokio rustls sqlx-sqlite gateway-store; do
  check "$part is in it" jq -e --arg name "$part" '.components[] | select(.name == $name)' "$list"
done
same "what is for tests alone is not" '' "$(jq -r '.components[] | select(.name == "proptest" or .name == "turmoil") | .name' "$list")"
licensed() { jq -e '[.components[] | select(.licenses == null)] == []' "$list"; }
check "each part has a license" licensed
refers() {
  local layout=$MACHINE/one/gateway artifact
  artifact=$layout/blobs/sha256/$(jq -r '.manifests[1].digest | ltrimstr("sha256:")' "$layout/index.json")
  [ "$(jq -r .subject.digest "$artifact")" = "$(jq -r '.manifests[0].digest' "$layout/index.json")" ] &&
    cmp "$layout/blobs/sha256/$(jq -r '.layers[0].digest | ltrimstr("sha256:")' "$artifact")" "$list"
}
check "the layout has it as an artifact that refers to the image" refers

# refused PATTERN ARGUMENTS… : the tool ends badly, with a reason.
refused() {
  local pattern=$1 said
  shift
  if said=$(write refused "$@" 2>&1); then echo "not refused: $*"; return 1; fi
  grep -qE -- "$pattern" <<<"$said" || { echo "$said"; return 1; }
}
check "programs that are not static are refused" refused 'is not static' gateway --programs "$(dirname "$REAL_GATEWAY")"
check "a target that this machine cannot build for is named" refused 'workspace-agent was not built for aarch64.*: this machine lacks' agent \
  --target aarch64-unknown-linux-gnu
check "and so are programs for another one" refused 'for another processor' agent --target aarch64-unknown-linux-gnu --programs "$REAL_STATIC"
check "a target that there is not is refused with those that there are" refused 'programs are made for x86_64' gateway --target mips

# --- started ----------------------------------------------------------------------------------------------------------

# The suite has no pods, so no tools for them.
tools_image() { :; }
start_containerd
check "containerd runs" until_ok 20 ctr version
ends_within 60 compressed >/dev/null
same "the agent's image is written compressed" 0 "$STATUS"
for image in one/gateway compressed/workspace-agent; do
  check "containerd takes $image" ctr -n k8s.io images import "$MACHINE/$image.tar"
done
check "under its name" has_text '^localhost/gateway:0\.1\.0 ' ctr -n k8s.io images list

# Two names, one in a file, one at a server. The machine has no other server of names.
cat /etc/hosts >"$MACHINE/hosts"
echo "$NODE_ADDRESS gateway.in-a-file.test" >>"$MACHINE/hosts"
mount --bind "$MACHINE/hosts" /etc/hosts
echo "nameserver 127.0.53.1" >"$MACHINE/resolv.conf"
mkdir "$MACHINE/names"
echo "gateway.at-a-server.test $NODE_ADDRESS" >"$MACHINE/names/1"
spawn names python3 "$APPS/doctor_dns.py" "$MACHINE/names"

# start NAME IMAGE OPTIONS… -- ARGUMENTS… : a container, on the network of the machine, whose root cannot be written to.
start() {
  local name=$1 image=$2 options=()
  shift 2
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  spawn "$name" ctr -n k8s.io run --rm --read-only --net-host "${options[@]}" "localhost/$image" "$name" "$@"
}
# within NAME COMMAND… : runs a program in the container.
within() {
  local name=$1
  shift
  ctr -n k8s.io task exec --exec-id "run-$RANDOM$RANDOM" "$name" "$@"
}
process() { ctr -n k8s.io task list | awk -v name="$1" '$1 == name { print $2 }'; }

mkdir -p "$MACHINE/data" "$MACHINE/etc"
chown 65532:65532 "$MACHINE/data" && chmod 700 "$MACHINE/data"
printf 'zone = "localhost"\npublic_url = "http://localhost:8080"\n[auth]\nmode = "dev"\n' >"$MACHINE/etc/gateway.toml"
start gateway gateway:0.1.0 --env GATEWAY_LIMITS__CONNECTIONS=100 --env GATEWAY_LIMITS__SESSIONS=100 --env GATEWAY_LIMITS__HANDSHAKES=16 --mount "type=bind,src=$MACHINE/data,dst=/var/lib/gateway,options=rbind:rw" \
  --mount "type=bind,src=$MACHINE/etc,dst=/etc/gateway,options=rbind:ro" --
check "the gateway is ready" until_ok 20 curl -sf http://127.0.0.1:8082/readyz
process=$(process gateway)
same "it runs as its user" '65532 65532' "$(awk '/^(Uid|Gid):/ { printf "%s%s", between, $2; between = " " }' "/proc/$process/status")"
check "its root cannot be written to" has_text 'Read-only file system' bash -c "! touch /proc/$process/root/tmp/new 2>&1"
check "there is nothing else in it to run" has_text 'no such file or directory' bash -c "! ctr -n k8s.io task exec --exec-id shell gateway /bin/sh 2>&1"
token() { within gateway /usr/local/bin/gateway token create "$@" 2>>"$OUT/token.log"; }
USER_TOKEN=$(token --user dev) || give_up "no user token: $(tail -n 1 "$OUT/token.log")"
mkdir -p "$MACHINE/tokens"
token --workspace w >"$MACHINE/tokens/agent" || give_up "no agent token: $(tail -n 1 "$OUT/token.log")"
echo "$USER_TOKEN" >"$MACHINE/tokens/user"
chown 65532 "$MACHINE"/tokens/* && chmod 600 "$MACHINE"/tokens/*

AGENT=/usr/local/bin/workspace-agent
tokens=(--mount "type=bind,src=$MACHINE/tokens,dst=/run/tokens,options=rbind:ro")
start agent workspace-agent:0.1.0 -- "$AGENT" --version
ends_within 20 agent >/dev/null
check "the agent's image says its version" has_text '^workspace-agent [0-9]+\.' cat "$OUT/agent.log"
# attaches NAME : an agent that dials the gateway by this name gets through.
attaches() {
  start "by-$1" workspace-agent:0.1.0 "${tokens[@]}" -- "$AGENT" run --gateway "http://gateway.$1.test:8081" --token-file /run/tokens/agent
  until_ok 20 has_text 'connected' cat "$OUT/by-$1.log" && until_ok 20 test "$(failure_of 1-w.localhost:8080 /)" = port_closed
}
start_echo
check "an agent finds the gateway by a name that a server knows" attaches at-a-server
check "a request reaches an app through both containers" has_text '^127\.0\.0\.1$' visit -f "http://$ECHO_PORT-w.localhost:8080/who"
process=$(process by-at-a-server)
same "the agent runs as its user" 65532 "$(awk '/^Uid:/ { print $2 }' "/proc/$process/status")"
stop by-at-a-server
ctr -n k8s.io task kill --signal KILL by-at-a-server >/dev/null 2>&1
check "and by one in the file of hosts" attaches in-a-file
# asks NAME : what the gateway's program says when it looks for a gateway at this name, in a container.
asks() {
  ctr -n k8s.io run --rm --read-only --net-host "${tokens[@]}" localhost/gateway:0.1.0 "asks-$1" \
    /usr/local/bin/gateway whoami --gateway "https://gateway.$1.test:8080" --token-file /run/tokens/user >"$OUT/asks-$1.log" 2>&1
  cat "$OUT/asks-$1.log"
}
# Nothing speaks TLS there: it was found when that is what is said.
for name in in-a-file at-a-server; do
  check "the gateway's program finds the name that is $name" has_text '[Cc]orrupt|TLS|handshake' asks "$name"
done
check "and no other" has_text 'lookup|resolve|Name or service' asks nowhere

ctr -n k8s.io task kill --signal TERM gateway
check "the gateway ends when it is asked to" ends_within 20 gateway
same "well" 0 "$STATUS"
quiet_logs
finish
