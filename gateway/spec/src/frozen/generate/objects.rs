//! Everything but the Deployment.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ObjectPlan, pod};
use crate::devfile::Exposure;
use crate::frozen::names::WORKSPACE_LABEL;
use crate::frozen::role::Role;
use crate::frozen::scripts as files;

/// Size of the workspace's own volume.
const DATA_SIZE: &str = "50Gi";

/// Size of a devfile's volume without a size (devfile 2.2.0).
const VOLUME_SIZE: &str = "1Gi";

/// Namespace of the cluster's name servers.
const NAME_SERVERS: &str = "kube-system";

/// The endpoints' name and ports in the cluster. Headless: it needs no address, of which a cluster has few, and no port, of
/// which there may be none.
pub(super) fn service(plan: &ObjectPlan<'_>) -> Value {
    let endpoints = plan.containers.iter().flat_map(|component| &component.endpoints);
    let open = endpoints.filter(|endpoint| endpoint.exposure != Exposure::None);
    let ports: BTreeMap<_, _> = open
        .map(|endpoint| {
            let number = endpoint.target_port;
            let (name, protocol) = pod::port_name(number, &endpoint.protocol);
            let port = json!({"name": name, "port": number, "targetPort": number, "protocol": protocol});
            ((number, protocol), port)
        })
        .collect();
    let ports: Vec<_> = ports.into_values().collect();
    let spec = json!({"clusterIP": "None", "selector": plan.selector(), "ports": ports});
    plan.object(Role::Service, plan.names.workspace.clone(), json!({"spec": spec}))
}

/// The workspace's own volume, then those of the devfile that outlive the pod.
pub(super) fn volumes(plan: &ObjectPlan<'_>) -> Vec<Value> {
    let claim = |name: String, size: &str| {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
        plan.object(Role::Volume, name, json!({"spec": spec}))
    };
    let own = std::iter::once(claim(plan.names.data(), DATA_SIZE));
    let lasting = plan.devfile.volumes.iter().filter(|volume| !volume.ephemeral);
    let size = |volume: &crate::devfile::Volume| volume.size.clone().unwrap_or_else(|| VOLUME_SIZE.to_owned());
    own.chain(lasting.map(|volume| claim(plan.names.volume(&volume.name), &size(volume)))).collect()
}

pub(super) fn service_account(plan: &ObjectPlan<'_>) -> Value {
    let secrets: Vec<_> = plan.config.image_pull_secrets.iter().map(|secret| json!({"name": secret.name})).collect();
    let rest = json!({"automountServiceAccountToken": false, "imagePullSecrets": secrets});
    plan.object(Role::ServiceAccount, plan.names.workspace.clone(), rest)
}

/// Denies all connections to the pod: users come through the agent's own connection. Allows the configured
/// destinations, and questions to the name servers.
pub(super) fn network_policy(plan: &ObjectPlan<'_>) -> Option<Value> {
    let policy = &plan.config.network_policy;
    if !policy.enabled {
        return None;
    }
    let mut egress = vec![json!({
        "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAME_SERVERS}}}],
        "ports": [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}],
    })];
    egress.extend(to_gateway(plan.gateway_url()));
    let allow = |rule: &crate::cluster_config::Egress| json!({"to": [{"ipBlock": {"cidr": rule.allow, "except": rule.except}}]});
    egress.extend(policy.egress.iter().map(allow));
    let spec = json!({
        "podSelector": {"matchLabels": {WORKSPACE_LABEL: plan.names.workspace}},
        // A policy of the type ingress without a rule for it lets nothing in.
        "policyTypes": ["Ingress", "Egress"],
        "egress": egress,
    });
    Some(plan.object(Role::NetworkPolicy, plan.names.workspace.clone(), json!({"spec": spec})))
}

/// Allows the gateway by its address, if its URL has one: a gateway in a private network is in none of the usual destinations.
fn to_gateway(url: &str) -> Option<Value> {
    let url = url::Url::parse(url).ok()?;
    let cidr = match url.host()? {
        url::Host::Ipv4(address) => format!("{address}/32"),
        url::Host::Ipv6(address) => format!("{address}/128"),
        url::Host::Domain(_) => return None,
    };
    let port = json!({"port": url.port_or_known_default()?, "protocol": "TCP"});
    Some(json!({"to": [{"ipBlock": {"cidr": cidr}}], "ports": [port]}))
}

/// Scripts that the pod runs. Kubelets need not watch an immutable object.
pub(super) fn scripts(plan: &ObjectPlan<'_>) -> Value {
    let rest = json!({"immutable": true, "data": files::files(plan)});
    plan.object(Role::Scripts, plan.names.scripts(), rest)
}

/// Quota of a workspace with a namespace of its own.
pub(super) fn resource_quota(plan: &ObjectPlan<'_>) -> Option<Value> {
    let most = plan.config.max_resources.as_ref().filter(|_| plan.config.shared_namespace.is_none())?;
    let hard = json!({
        "requests.cpu": most.requests.cpu,
        "requests.memory": most.requests.memory,
        "limits.cpu": most.limits.cpu,
        "limits.memory": most.limits.memory,
    });
    Some(plan.object(Role::ResourceQuota, plan.names.workspace.clone(), json!({"spec": {"hard": hard}})))
}

/// A Secret without data, which is filled in when sending and never stored here.
pub(super) fn secret(plan: &ObjectPlan<'_>, role: Role, name: String) -> Value {
    plan.object(role, name, json!({"type": "Opaque"}))
}
