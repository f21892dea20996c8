# shellcheck shell=bash
# Environments of CI jobs on a cluster, for a suite: an API server that writes down who did what, an issuer of tokens for jobs, cluster
# agents under exactly the rights of deploy/rbac. Sourced after common.sh, kubernetes.sh and workspaces.sh:
#
#   start_environments && agent_rights as-job environments-ci-job && ci_access as-job ci_job && start_gateway && user_token
#   cluster_agent agent as-job
#   token=$(job_token 1001 review/one) && as_job "$token" POST /environments/complete '{"agent": "as-job"}'

PROJECT_ID=42
PROJECT_PATH=group/shop
AUDIT=$OUT/audit.jsonl
TEMPLATES=$CACHE/templates/templates
GRPCURL=$CACHE/grpcurl/grpcurl

# start_environments : the cluster and the issuer, and the gateway's configuration.
start_environments() {
  [ -x "$TEMPLATES" ] && [ -x "$GRPCURL" ] || give_up "programs are missing: tests/real/install.sh templates grpcurl"
  cat >"$OUT/audit-policy.yaml" <<'YAML'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, verbs: [create, update, patch, delete]}
YAML
  APISERVER_MORE=(--audit-policy-file "$OUT/audit-policy.yaml" --audit-log-path "$AUDIT")
  start_cluster identity
  # Namespaces have to go, and nothing has to run.
  start_controllers
  flux_kinds
  mkdir -p "$OUT/issuer"
  node "$APPS/id_token.mjs" key "$OUT/issuer.key" "$OUT/issuer/jwks.json" || give_up "no key for tokens: $(tail -n 1 "$OUT/shell.log")"
  ISSUER_PORT=$(free_port)
  spawn issuer python3 -m http.server --bind 127.0.0.1 --directory "$OUT/issuer" "$ISSUER_PORT"
  wait_port issuer "$ISSUER_PORT"
  choose_ports
  printf 'a-hook-secret-that-no-log-has\n' >"$OUT/hook.token"
  cat >"$OUT/gateway.toml" <<TOML
zone = "localhost"
public_url = "http://localhost:$PUBLIC"

[environments]
issuer = "http://127.0.0.1:$ISSUER_PORT"
jwks_url = "http://127.0.0.1:$ISSUER_PORT/jwks.json"
operators = "dev"
hook_token_file = "$OUT/hook.token"
TOML
  GATEWAY_ENV+=("GATEWAY_AGENTS_DIR=$OUT/agents" "GATEWAY_AUDIT__PATH=$OUT/gateway-audit.jsonl")
}

# flux_kinds : two of Flux's kinds, as far as an API server has to know them.
flux_kinds() {
  local group plural kind
  while read -r group plural kind; do
    cat <<YAML
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: $plural.$group}
spec:
  group: $group
  scope: Namespaced
  names: {plural: $plural, singular: ${kind,,}, kind: $kind}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
YAML
  done <<'KINDS' | kc apply -f - >/dev/null || give_up "no kinds of Flux: $(tail -n 1 "$OUT/shell.log")"
source.toolkit.fluxcd.io gitrepositories GitRepository
kustomize.toolkit.fluxcd.io kustomizations Kustomization
KINDS
  kc wait --for condition=Established crd --all --timeout 30s >/dev/null || give_up "the kinds of Flux are not established"
}

# agent_rights CLUSTER MANIFEST… : an account with exactly the rights of these manifests of deploy/rbac, and of `shared`.
agent_rights() {
  local name
  for name in shared "${@:2}"; do
    sed "s/: workspace-gateway\$/: $(home "$1")/" "$ROOT/deploy/rbac/$name.yaml" | kc apply -f - >>"$OUT/rights.log" ||
      give_up "the rights of $name cannot be applied: $(tail -n 1 "$OUT/shell.log")"
  done
  account_kubeconfig "$1" "$(home "$1")" cluster-agent >/dev/null || give_up "no token for the cluster agent: $(tail -n 1 "$OUT/shell.log")"
}

# ci_access CLUSTER ACCESS_AS : the configuration of that cluster's agent.
ci_access() {
  mkdir -p "$OUT/agents/$1/environment_templates"
  cat >"$OUT/agents/$1/config.yaml" <<YAML
ci_access:
  projects:
    - id: $PROJECT_PATH
      access_as: {$2: {}}
      resource_management: {enabled: true}
    - id: group/limited
      access_as: {$2: {}}
      environments: [review/*]
      protected_branches_only: true
      resource_management: {enabled: true}
    - id: group/unmanaged
      access_as: {$2: {}}
    - id: group/lodger
      access_as: {agent: {}}
      default_namespace: lodge
      resource_management: {enabled: true}
  groups:
    - id: team
      access_as: {$2: {}}
      resource_management: {enabled: true}
YAML
}

# template CLUSTER NAME : takes a template from the standard input, and waits until the gateway has it.
template() {
  cat >"$OUT/agents/$1/environment_templates/$2.yaml.new"
  mv "$OUT/agents/$1/environment_templates/$2.yaml.new" "$OUT/agents/$1/environment_templates/$2.yaml"
  until_ok 15 has_template "$1" "$2" >/dev/null || fail "the gateway does not take the template $2: $(ask GET "/agents/$1/environment-templates/$2")"
}
has_template() { [ "$(ask GET "/agents/$1/environment-templates/$2" | value data)" = "$(cat "$OUT/agents/$1/environment_templates/$2.yaml")" ]; }

# accounts NAMESPACE NAME… : a template with that namespace, a role binding for the job, and these service accounts.
accounts() {
  local name
  cat <<YAML
objects:
  - {apiVersion: v1, kind: Namespace, metadata: {name: '$1'}}
  - apiVersion: rbac.authorization.k8s.io/v1
    kind: RoleBinding
    metadata: {name: of-job, namespace: '$1'}
    subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: 'gitlab:project_env:{{ .project.id }}:{{ .environment.slug }}'}]
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
YAML
  for name in "${@:2}"; do printf "  - {apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: '%s'}}\n" "$name" "$1"; done
}

agent_is_here() { [ "$(ask GET "/agents/$1" | value connected)" = True ]; }

# --- jobs -------------------------------------------------------------------------------------------------------------

# job_token JOB ENVIRONMENT [NAME=VALUE…] : the token of a job; claims as texts, an empty value takes one away.
job_token() {
  local claims
  claims=$(ISSUER_URL="http://127.0.0.1:$ISSUER_PORT" AUDIENCE="http://localhost:$PUBLIC" PROJECT_ID=$PROJECT_ID PROJECT_PATH=$PROJECT_PATH python3 -c 'import json, os, sys
claims = {"iss": os.environ["ISSUER_URL"], "aud": os.environ["AUDIENCE"], "project_id": os.environ["PROJECT_ID"],
  "project_path": os.environ["PROJECT_PATH"], "job_id": sys.argv[1], "environment": sys.argv[2] or None, "environment_protected": "false",
  "deployment_tier": "development", "environment_action": "start"}
for one in sys.argv[3:]:
    name, value = one.split("=", 1)
    claims[name] = int(value) if name in ("exp", "nbf", "iat") else value or None
print(json.dumps(claims))' "$@")
  node "$APPS/id_token.mjs" sign "$OUT/issuer.key" "$claims"
}

# as_job TOKEN METHOD PATH [JSON] : what the gateway answers a job; fails if it refuses. A long one: jobs wait.
as_job() { ask_as "$1" 120 "${@:2}"; }

# complete TOKEN CLUSTER [TEMPLATE] : has its prerequisites completed. What is answered is kept in ANSWER.
complete() {
  ANSWER=$OUT/answer.json
  as_job "$1" POST /environments/complete "{\"agent\": \"$2\"${3:+, \"template\": \"$3\"}}" | tee "$ANSWER"
  return "${PIPESTATUS[0]}"
}
# prepared JOB ENVIRONMENT CLUSTER [TEMPLATE] : a job of the project, prepared; fails if it is not.
prepared() { complete "$(job_token "$1" "$2")" "$3" "${4:-}"; }
# not_prepared CODE JOB ENVIRONMENT CLUSTER [TEMPLATE] : it is refused, and the answer has this word.
not_prepared() {
  if prepared "${@:2}"; then echo "it is not refused"; return 1; fi
  says_code "$1" || { cat "$ANSWER"; return 1; }
}
# says_code CODE : one of the codes of the last answer, whatever it is about.
says_code() {
  python3 -c 'import json, sys
def codes(value):
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("code", "reason") and isinstance(inner, str): yield inner
            yield from codes(inner)
    elif isinstance(value, list):
        for inner in value: yield from codes(inner)
found = list(codes(json.load(open(sys.argv[1]))))
sys.exit(0 if sys.argv[2] in found else f"{sys.argv[2]} is not among {found}")' "$ANSWER" "$1"
}

# refused_with CODE COMMAND… : it is refused, and the answer has this code.
refused_with() {
  local said
  if said=$("${@:2}"); then echo "it is not refused"; return 1; fi
  [ "$(value code <<<"$said")" = "$1" ] || { echo "$said"; return 1; }
}

# unmet TOKEN CLUSTER : `true`, or `false` with the reason.
unmet() { as_job "$1" POST /environments/unmet "{\"agent\": \"$2\"}" | value unmet reason | paste -sd ' ' | sed 's/ $//' | tr '[:upper:]' '[:lower:]'; }

# environment CLUSTER NAME [MEMBER…] : what the gateway shows an operator of it, or members of that.
environment() {
  ask GET "/environments?agent=$1&limit=100" | python3 -c 'import json, sys
found = [one for one in json.load(sys.stdin)["environments"] if one["name"] == sys.argv[1]]
print(json.dumps(found[0] if found else {}))' "$2" | if [ $# -gt 2 ]; then value "${@:3}"; else cat; fi
}
environment_is() { [ "$(environment "$1" "$2" state removal_due | paste -sd ' ')" = "$3" ] || { environment "$1" "$2"; return 1; }; }
gone_within() { until_ok "$1" environment_is "$2" "$3" 'stopped False' || { environment "$2" "$3"; return 1; }; }
set_state() { ask PATCH "/environments/$(environment "$1" "$2" id)" "{\"state\": \"$3\"}"; }

# job_command TOKEN ARGUMENTS… : `gateway environment …` as in that job.
job_command() { env NO_COLOR=1 GATEWAY_JOB_TOKEN="$1" GATEWAY_URL="http://localhost:$PUBLIC" "$REAL_GATEWAY" environment "${@:2}"; }

# --- what is in the cluster -------------------------------------------------------------------------------------------

KINDS_OF_ENVIRONMENTS=namespaces,serviceaccounts,rolebindings.rbac.authorization.k8s.io,gitrepositories.source.toolkit.fluxcd.io,kustomizations.kustomize.toolkit.fluxcd.io
# made_for CLUSTER NAME : its objects, as KIND NAMESPACE/NAME. What cannot be found out is not nothing.
made_for() {
  local key found
  key=$(environment "$1" "$2" key)
  [ -n "$key" ] || { echo "there is no environment $2"; return 1; }
  found=$(kc get -A "$KINDS_OF_ENVIRONMENTS" -l "agent.gitlab.com/env-$key" \
    -o jsonpath='{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}') || { echo "the cluster does not say"; return 1; }
  [ -z "$found" ] || sort <<<"$found"
}
# made_for_is CLUSTER NAME LINE… : exactly these.
made_for_is() { diff <(printf '%s\n' "${@:3}" | grep . | sort) <(made_for "$1" "$2"); }
# versions_for CLUSTER NAME : each with uid and resource version: the same text twice, and nobody wrote anything.
versions_for() {
  kc get -A "$KINDS_OF_ENVIRONMENTS" -l "agent.gitlab.com/env-$(environment "$1" "$2" key)" \
    -o jsonpath='{range .items[*]}{.kind} {.metadata.name} {.metadata.uid} {.metadata.resourceVersion}{"\n"}{end}' | sort
}

# writes [NAME=VALUE…] : requests that the API server did, one line each: verb, resource, namespace/name, status, who, and as whom. Only
# those of cluster agents, for kinds of environments. Filters: verb, resource, namespace, name, as, status.
writes() { python3 "$APPS/audit.py" "$AUDIT" "$@"; }
# count_writes [NAME=VALUE…] : how many; nothing where that cannot be read.
count_writes() {
  local found
  found=$(writes "$@") || return 1
  if [ -n "$found" ]; then wc -l <<<"$found"; else echo 0; fi
}
# mark_audit : from here on, `writes` shows only what is new.
mark_audit() { export AUDIT_FROM=$(($(wc -l <"$AUDIT") + 1)); }
nothing_written() {
  local found
  found=$(writes) || { echo "the audit log cannot be read"; return 1; }
  [ -z "$found" ] || { head -n 5 <<<"$found"; return 1; }
}

# --- PostgreSQL -------------------------------------------------------------------------------------------------------

# on_postgres : the next gateway has its store in a server of this suite.
on_postgres() {
  local server=()
  PG=$(command -v postgres) || PG=$(compgen -G '/usr/lib/postgresql/*/bin/postgres' | sort -V | tail -n 1)
  [ -n "$PG" ] || give_up "PostgreSQL is missing: tests/real/install.sh debian"
  PG=$(dirname "$(readlink -f "$PG")")
  # Not below OUT: the server's user has to get there. The server ends first: it waits for nobody then.
  PG_DATA=$(mktemp -d)
  trap 'status=$?; stop postgres; rm -rf "$PG_DATA"; (exit "$status"); cleanup' EXIT
  if [ "$(id -u)" = 0 ]; then
    server=(setpriv --reuid postgres --regid postgres --init-groups --)
    chown postgres: "$PG_DATA"
  fi
  (umask 077 && openssl rand -hex 16 | tee "$OUT/postgres.password" >"$PG_DATA/password")
  chmod 644 "$PG_DATA/password"
  (cd "$PG_DATA" && "${server[@]}" "$PG/initdb" -D "$PG_DATA/data" -U gateway --pwfile="$PG_DATA/password" --auth=scram-sha-256 -E UTF8 \
    --locale=C.UTF-8 --no-sync) >"$OUT/initdb.log" 2>&1 || give_up "initdb: $(tail -n 1 "$OUT/initdb.log")"
  PG_PORT=$(free_port)
  spawn postgres "${server[@]}" "$PG/postgres" -D "$PG_DATA/data" -c listen_addresses=localhost -c "port=$PG_PORT" \
    -c "unix_socket_directories=$PG_DATA" -c fsync=off -c max_connections=300
  until_ok 30 on_server 'SELECT 1' postgres >/dev/null || give_up "PostgreSQL does not start: $(tail -n 1 "$OUT/postgres.log")"
  on_server 'CREATE DATABASE gateway' postgres || give_up "no database: $(tail -n 1 "$OUT/postgres.log")"
  GATEWAY_ENV+=("GATEWAY_STORE__URL=postgres://gateway@localhost:$PG_PORT/gateway" "GATEWAY_STORE__PASSWORD_FILE=$OUT/postgres.password"
    "GATEWAY_STORE__KEY_FILE=$OUT/postgres.key")
}
on_server() { PGPASSWORD=$(cat "$OUT/postgres.password") "$PG/psql" -h "$PG_DATA" -p "$PG_PORT" -U gateway -d "${2:-gateway}" -qAt -v ON_ERROR_STOP=1 -c "$1"; }
