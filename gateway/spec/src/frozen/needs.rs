//! Amounts that a workspace asks of its cluster, as its objects have them.

use gateway_types::quota::{NEED_MAX, Needs};
use serde_json::Value;

use super::{FrozenConfig, Role};
use crate::syntax::Quantity;

impl FrozenConfig {
    /// Returns what the workspace asks of its cluster: the requests of its pod with all containers, those that the gateway adds
    /// too, and the sizes of its claims. A container that has a limit and no request asks for its limit (Kubernetes,
    /// "Resource Management for Pods and Containers").
    ///
    /// Requests, because they are what a node keeps free for the pod and no other pod can have. Limits may add up to several times
    /// the cluster, and cost nothing while they are not used.
    #[must_use]
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        for object in self.objects() {
            match object.role {
                Role::Deployment => {
                    let pod = object.value.pointer("/spec/template/spec");
                    needs.cpu_millis = pod.map_or(0, |pod| of_pod(pod, "cpu").millis()).min(NEED_MAX);
                    needs.memory_bytes = pod.map_or(0, |pod| of_pod(pod, "memory").whole()).min(NEED_MAX);
                }
                Role::Volume => {
                    let size = amount(object.value.pointer("/spec/resources/requests/storage"));
                    let size = size.unwrap_or_default().whole();
                    needs.storage_bytes = needs.storage_bytes.saturating_add(size).min(NEED_MAX);
                }
                Role::CoreInventory
                | Role::Service
                | Role::ServiceAccount
                | Role::NetworkPolicy
                | Role::Scripts
                | Role::SecretsInventory
                | Role::ResourceQuota
                | Role::EnvSecret
                | Role::FileSecret => {}
            }
        }
        needs
    }
}

/// Returns a pod's effective request of a resource (Kubernetes, "Init Containers": resource sharing within containers): that of
/// all containers that run together, or of the largest step before them if that is more.
fn of_pod(pod: &Value, resource: &str) -> Quantity {
    let containers = |name: &str| pod.get(name).and_then(Value::as_array).into_iter().flatten();
    let (mut beside, mut most) = (Quantity::default(), Quantity::default());
    for container in containers("initContainers") {
        let asked = of_container(container, resource);
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            beside = beside.saturating_add(asked);
            most = most.max(beside);
        } else {
            most = most.max(beside.saturating_add(asked));
        }
    }
    let together = containers("containers").map(|container| of_container(container, resource));
    most.max(together.fold(beside, Quantity::saturating_add))
}

fn of_container(container: &Value, resource: &str) -> Quantity {
    let of = |what: &str| amount(container.get("resources")?.get(what)?.get(resource));
    of("requests").or_else(|| of("limits")).unwrap_or_default()
}

fn amount(value: Option<&Value>) -> Option<Quantity> {
    value?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster_config::{Amounts, ClusterConfig, Resources};
    use crate::devfile;
    use crate::editor::Chosen;
    use crate::frozen::{Facts, freeze};

    #[test]
    fn pod_asks_for_what_runs_together_or_for_its_largest_step_before() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": "9"}}});
        let millis = |pod: &Value| of_pod(pod, "cpu").millis();
        let two = json!({"containers": [container("500m"), container("250m")]});
        assert_eq!(millis(&two), 750);
        let step = json!({"containers": [container("500m")], "initContainers": [container("2"), container("1")]});
        assert_eq!(millis(&step), 2000);
        let mut sidecar = container("100m");
        sidecar["restartPolicy"] = "Always".into();
        let beside = json!({"containers": [container("1")], "initContainers": [sidecar, container("950m")]});
        assert_eq!(millis(&beside), 1100);
        assert_eq!(millis(&json!({"containers": [{"resources": {"limits": {"cpu": "3"}}}, {}]})), 3000);
        assert_eq!(millis(&json!({"containers": "none"})), 0);
    }

    #[test]
    fn workspace_counts_with_its_containers_and_all_its_claims() {
        let amounts = |cpu: &str, memory: &str| Amounts { cpu: cpu.to_owned(), memory: memory.to_owned() };
        let config = ClusterConfig {
            enabled: true,
            tools_image: "registry.test/tools:1".to_owned(),
            default_resources: Some(Resources { requests: amounts("250m", "128Mi"), limits: amounts("1", "1Gi") }),
            ..ClusterConfig::default()
        };
        let (name, cluster, owner) = ("app".parse().unwrap(), "one".parse().unwrap(), "ann".parse().unwrap());
        let zone = "localhost".parse().unwrap();
        let facts = Facts {
            workspace: &name,
            cluster: &cluster,
            namespace: "ws-app",
            zone: &zone,
            public_url: "http://localhost:8080",
            agents_url: "http://localhost:8081",
            owner: &owner,
            projects: &[],
            editor: Chosen::CodeServer,
        };
        let text = "schemaVersion: 2.2.0\ncomponents:\n- name: dev\n  attributes: {gl/inject-editor: true}\n  \
            container: {image: 'debian:12', memoryRequest: 100Mi}\n- name: big\n  volume: {size: 3Gi}\n- name: gone\n  \
            volume: {size: 9Gi, ephemeral: true}\n";
        let Ok(devfile) = devfile::parse(text.as_bytes()) else {
            panic!("{:?}", devfile::parse(text.as_bytes()).err());
        };
        let needs = freeze(&devfile, &config, &facts).unwrap().needs();
        // The step that copies the tools asks for no more than the container.
        let expected = Needs { cpu_millis: 250, memory_bytes: 100 << 20, storage_bytes: 53 << 30 };
        assert_eq!(needs, expected);
    }
}
