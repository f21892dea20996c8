#!/usr/bin/env bash
# Agents that prove themselves with the projected token of a pod, made and vouched for by a real API server: etcd and
# kube-apiserver run here, pods exist in them, and nobody has to run those.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/kubernetes.sh"

[ -n "$DIRECT" ] && { echo "kubernetes-identity: nothing to check without the gateway"; finish; }

AUDIENCE=https://gateway.example.net

field() { python3 -c 'import json, sys
value = json.load(sys.stdin)
for name in sys.argv[1].split("."): value = value[name]
print(value)' "$1"; }

# make_pod NAME : prints its uid.
make_pod() {
  make /api/v1/namespaces/ws/pods "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"$1\"},
    \"spec\": {\"serviceAccountName\": \"agent\", \"containers\": [{\"name\": \"main\", \"image\": \"none\"}]}}" | field metadata.uid
}

delete_pod() { api -f -o /dev/null -X DELETE -d '{"gracePeriodSeconds": 0}' "/api/v1/namespaces/ws/pods/$1"; }

# token FILE NAMESPACE ACCOUNT AUDIENCE [POD UID] : a token as a kubelet gets it, bound to a pod if one is named.
token() {
  local bound=''
  [ -n "${5:-}" ] && bound=", \"boundObjectRef\": {\"kind\": \"Pod\", \"apiVersion\": \"v1\", \"name\": \"$5\", \"uid\": \"$6\"}"
  (umask 077 && make "/api/v1/namespaces/$2/serviceaccounts/$3/token" "{\"apiVersion\": \"authentication.k8s.io/v1\",
    \"kind\": \"TokenRequest\", \"spec\": {\"audiences\": [\"$4\"], \"expirationSeconds\": 600$bound}}" | field status.token >"$OUT/$1")
}

start_cluster identity
for namespace in ws gateway; do
  make /api/v1/namespaces "{\"apiVersion\": \"v1\", \"kind\": \"Namespace\", \"metadata\": {\"name\": \"$namespace\"}}" >/dev/null
done
for account in ws/agent ws/other gateway/reviewer; do
  make "/api/v1/namespaces/${account%/*}/serviceaccounts" \
    "{\"apiVersion\": \"v1\", \"kind\": \"ServiceAccount\", \"metadata\": {\"name\": \"${account#*/}\"}}" >/dev/null
done
make /apis/rbac.authorization.k8s.io/v1/clusterrolebindings '{"apiVersion": "rbac.authorization.k8s.io/v1",
  "kind": "ClusterRoleBinding", "metadata": {"name": "gateway-asks"},
  "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"},
  "subjects": [{"kind": "ServiceAccount", "namespace": "gateway", "name": "reviewer"}]}' >/dev/null
token reviewer.token gateway reviewer "$ISSUER"
UID_OF_POD=$(make_pod "$WORKSPACE")
check "the cluster made a token that is bound to a pod" token pod.token ws agent "$AUDIENCE" "$WORKSPACE" "$UID_OF_POD"

# --- a gateway that knows the cluster ---------------------------------------------------------------------------------
# configure LINES… : how it checks tokens.
configure() {
  [ -n "${PUBLIC:-}" ] || choose_ports
  {
    printf 'zone = "localhost"\npublic_url = "http://localhost:%s"\n[[auth.agents.kubernetes]]\n' "$PUBLIC"
    printf 'issuer = "%s"\naudience = "%s"\nca_file = "%s"\ntoken_file = "%s"\n' \
      "$ISSUER" "$AUDIENCE" "$CLUSTER_CA" "$OUT/reviewer.token"
    printf '%s\n' "$@"
    printf '[[auth.agents.kubernetes.rules]]\nnamespace = "ws"\nservice_account = "agent"\nworkspace = "{pod}"\n'
  } >"$OUT/gateway.toml"
}
asks="api_server = \"$API_URL\""
checks="jwks_url = \"$API_URL/openid/v1/jwks\""

# pod_agent NAME TOKEN : an agent with this token.
pod_agent() { spawn "$1" env NO_COLOR=1 "$REAL_AGENT" run --gateway "http://127.0.0.1:$AGENTS" --token-file "$OUT/$2"; }
says() { grep -qE -- "$2" "$OUT/$1.log" || { tail -n 2 "$OUT/$1.log"; return 1; }; }
# turned_away NAME TOKEN CODE TEXT : the agent hears this code, and goes on trying.
turned_away() {
  pod_agent "$1" "$2"
  check "$4 is refused by name" until_ok 10 says "$1" "$3"
  check "whose agent goes on trying, slowly" alive "$1"
  stop "$1"
}

configure "$asks" 'recheck = "1s"'
start_gateway
user_token
workspace_token "$WORKSPACE" >/dev/null || give_up "no workspace"
start_echo
pod_agent pod pod.token
check "the pod's agent is in by a question to the API server" until_ok 20 attached "$WORKSPACE"
check "a request to it is answered" visit -f --max-time 10 "http://$(host_of "$ECHO_PORT")/" -o /dev/null
check "the log names the pod" says gateway "credential=pod ws/$WORKSPACE $UID_OF_POD"

token audience.token ws agent https://other.example.net "$WORKSPACE" "$UID_OF_POD"
token unbound.token ws agent "$AUDIENCE"
token account.token ws other "$AUDIENCE"
turned_away audience audience.token credential_audience "a token for another audience"
turned_away unbound unbound.token credential_not_of_pod "a token without a pod"
turned_away account account.token credential_not_of_pod "a token of another account without a pod"
sed 's/\(.*\)\..*/\1.AAAA/' "$OUT/pod.token" >"$OUT/forged.token"
turned_away forged forged.token credential_not_vouched "a forged token"
check "the pod's agent is unharmed" attached "$WORKSPACE"

# not_vouched FILE : the API server itself says that a token is none. It remembers for 10 s that one was good.
not_vouched() {
  kc create -o jsonpath='{.status.authenticated}{.status.error}' -f - <<YAML | grep -v '^true'
apiVersion: authentication.k8s.io/v1
kind: TokenReview
spec: {token: '$(cat "$OUT/$1")', audiences: ['$AUDIENCE']}
YAML
}
delete_pod "$WORKSPACE"
until_ok 30 not_vouched pod.token || fail "the API server vouches for a deleted pod"
began=$(now_ms)
if ends_within 20 pod; then
  took=$(($(now_ms) - began))
  same "a deleted pod ends its agent with status 1" 1 "$STATUS"
  check "within 5 s of when the API server says no ($took ms)" test "$took" -lt 5000
  check "and says why" says pod 'does not vouch'
else
  fail "the agent of a deleted pod is still there"
  stop pod
fi
UID_OF_POD=$(make_pod "$WORKSPACE")
turned_away late pod.token credential_not_vouched "the token of an earlier pod of that name"
token pod.token ws agent "$AUDIENCE" "$WORKSPACE" "$UID_OF_POD"
pod_agent again pod.token
check "the new pod's agent is in with its own token" until_ok 20 attached "$WORKSPACE"

# The cluster goes away: who is in stays in, who is not waits.
token fresh.token ws agent "$AUDIENCE" "$WORKSPACE" "$UID_OF_POD"
signal STOP apiserver
pod_agent waiting fresh.token
check "without an API server, a new agent is told to wait" until_ok 20 says waiting 'credential_unchecked|credential_checks_busy'
stop waiting
check "and the one that is in stays in" attached "$WORKSPACE"
signal CONT apiserver
stop again
stop gateway

# --- keys instead of questions ----------------------------------------------------------------------------------------
configure "$checks"
start_gateway
pod_agent keys pod.token
check "the pod's agent is in by the cluster's keys" until_ok 20 attached "$WORKSPACE"
turned_away forged2 forged.token credential_signature "a forged token"
stop keys
stop gateway
configure "$checks" "$asks" 'recheck = "1s"'
start_gateway
pod_agent both pod.token
check "the pod's agent is in by both" until_ok 20 attached "$WORKSPACE"
turned_away forged3 forged.token credential_signature "a forged token, before anybody is asked,"
delete_pod "$WORKSPACE"
check "and out with its pod" ends_within 20 both

check "no token is in a log of ours" sh -c "! cat '$OUT'/*.token | grep -E '.{40}' | cut -c 1-300 | grep -rFf - '$OUT'/gateway.log '$OUT'/pod.log '$OUT'/again.log '$OUT'/both.log"
check "neither program panicked" sh -c "! grep -n 'panicked at' '$OUT'/*.log"
finish
