# shellcheck shell=bash
# Helm charts, for a suite. Sourced after common.sh and kubernetes.sh.

# Helm compiled by itself does not know which Kubernetes it is for.
KUBERNETES=$(sed -n 's|^\tk8s.io/kubernetes v||p' "$REAL/kubernetes/go.mod")

helm() { env "HELM_CACHE_HOME=$OUT/helm" "HELM_CONFIG_HOME=$OUT/helm" "HELM_DATA_HOME=$OUT/helm" "$CACHE/helm/helm" "$@"; }

# render RELEASE CHART NAMESPACE FILE ARGUMENTS…
render() { helm template "$1" "$2" -n "$3" --kube-version "$KUBERNETES" "${@:5}" >"$4"; }

# golden RENDERED GOLDEN : they are equal but for what is random.
golden() {
  local plain=$1.plain
  sed -E 's/^(  (gateway\.key|ca\.crt|ca\.key): ).*/\1RANDOM/' "$1" >"$plain"
  if [ -n "${UPDATE_CHART:-}" ]; then
    mkdir -p "$(dirname "$2")"
    cp "$plain" "$2"
  fi
  check "as its golden file" diff -U 0 "$2" "$plain"
}

# accepted CHART FILE : by the API server, with unknown fields refused. The agent's objects name their namespaces.
accepted() { kc apply --server-side --force-conflicts --dry-run=server --validate=strict --warnings-as-errors $([ "$1" = "$AGENT" ] || echo "-n gateways") -f "$2"; }

# json_of FILE : its objects as the API server reads them, without making them.
json_of() { kc create --dry-run=client --validate=false -o json -f "$1" | jq -s '[.[] | if .kind == "List" then .items[] else . end]'; }

# config_of RENDERED : gateway.toml.
config_of() { json_of "$1" | jq -r '[.[] | select(.kind == "ConfigMap") | .data["gateway.toml"] // empty][0]'; }

# env_of RENDERED : the gateway's variables in the pod, one a line; what Kubernetes fills in has a made-up value.
env_of() {
  json_of "$1" | jq -r '.[] | select(.kind == "Deployment") | .spec.template.spec.containers[0].env[] | select(.name | test("^GATEWAY_")) |
    "\(.name)=\(.value // "postgres://gateway@db.example.net/gateway" | gsub("\\$\\(POD_IP\\)"; "10.0.0.1"))"' |
    sed "s/\[10\.0\.0\.1\]/[fd00::1]/; /^GATEWAY_CONFIG=/d"
}

# shown FOLDER : the configuration with its variables.
shown() { env -C "$1" $(cat "$1/env") "$REAL_GATEWAY" config show --config gateway.toml -o json; }

# reads FOLDER : nothing in it is a mistake but that the files are not here.
reads() { shown "$1" >"$1/shown.json"; }

# clusters_of RENDERED FOLDER : the folder of clusters' files, as the pod sees it: made of links, like every volume of a ConfigMap.
clusters_of() {
  local key path
  mkdir -p "$2/..data"
  json_of "$1" | jq -r '.[] | select(.kind == "Deployment") | .spec.template.spec.volumes[] | select(.name == "clusters").configMap.items[] | "\(.key) \(.path)"' |
    while read -r key path; do
      mkdir -p "$2/..data/$(dirname "$path")"
      json_of "$1" | jq -r --arg key "$key" '.[] | select(.kind == "ConfigMap" and (.metadata.name | endswith("-clusters"))).data[$key]' >"$2/..data/$path"
      ln -sfn "..data/${path%%/*}" "$2/${path%%/*}"
    done
  [ -e "$2/prod/config.yaml" ]
}

# clusters_read FOLDER : the gateway finds no mistake in it.
clusters_read() { env -C "$OUT" "GATEWAY_AGENTS_DIR=$1" "$REAL_GATEWAY" config check; }

# setting SET KEY : the value in effect.
setting() { jq -r --arg key "$2" '.[] | select(.key == $key) | .value // empty' "$OUT/$1/shown.json"; }

# grace SET : seconds that the pod gets to end.
grace() { json_of "$OUT/$1.yaml" | jq '.[] | select(.kind == "Deployment") | .spec.template.spec.terminationGracePeriodSeconds'; }

# refused CHART TEXT ARGUMENTS… : the chart does not render, and says this.
refused() {
  local said
  if said=$(helm template gw "$1" -n gateways --kube-version "$KUBERNETES" "${@:3}" 2>&1 >/dev/null); then
    fail "refused: $2: it rendered"
  elif grep -qF -- "$2" <<<"$said"; then
    ok "refused: $2"
  else
    fail "refused: $2: $(tail -n 1 <<<"$said" | cut -c 1-300)"
  fi
}

# objects_of FILE : its objects as the API server would keep them; without namespaces, labels, versions of images,
# and how these are pulled, which follows from the version.
objects_of() {
  kc apply --server-side --force-conflicts --dry-run=server -o json -f "$1" | jq -S '
    [if .kind == "List" then .items[] else . end | select(.kind != "Namespace")
      | del(.status, .metadata.labels, .metadata.annotations, .metadata.uid, .metadata.creationTimestamp, .metadata.generation,
        .metadata.resourceVersion, .metadata.managedFields)
      | del(.spec.template.metadata.labels) | del(.spec.template.spec.containers[]?.imagePullPolicy)
      | (.spec.template.spec.containers[]?.image) |= sub(":[0-9.]+$"; "")] | sort_by(.kind, .metadata.name)'
}

note() { printf 'note  %s: %s\n' "$SUITE" "$*"; }
seconds() { awk -v ms="$1" 'BEGIN { printf "%.1f", ms / 1000 }'; }
