//! Workspaces of a cluster, as their inventories show them: everything with this agent's marks, whether the gateway knows it or
//! not.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tunnel_proto::orphans::{CLAIMS_MAX, HOST_TEMPLATE_BYTES_MAX, Marked};

use crate::config::Scope;
use crate::inventory;
use crate::object::{CLUSTER_LABEL, INVENTORY_LABEL, LiveObject, WORKSPACE_LABEL};

/// Annotation of every object of a workspace: its hosts, and so the gateway that made it.
const HOST_TEMPLATE_ANNOTATION: &str = "workspace-gateway.dev/host-template";

/// Returns the workspaces of these inventories, by namespace and name. An inventory without the marks of this cluster is left
/// out, whatever the API server returned it for.
pub(crate) fn marked(inventories: &[Value], cluster: &str, manager: &str) -> Vec<Marked> {
    let mut found: BTreeMap<(String, String), Vec<(&Value, LiveObject)>> = BTreeMap::new();
    for value in inventories {
        let live = LiveObject::read(value);
        let Some(workspace) = live.labels.get(WORKSPACE_LABEL).cloned() else { continue };
        if live.is_of(&workspace, cluster) && is_inventory(&live) {
            found.entry((live.namespace.clone(), workspace)).or_default().push((value, live));
        }
    }
    found.into_iter().map(|((namespace, workspace), of_it)| one(workspace, namespace, &of_it, manager)).collect()
}

fn is_inventory(live: &LiveObject) -> bool {
    live.labels.get(INVENTORY_LABEL) == Some(&live.name)
}

fn one(workspace: String, namespace: String, inventories: &[(&Value, LiveObject)], manager: &str) -> Marked {
    let mut claims = Vec::new();
    let mut objects = 0_u32;
    for (value, _) in inventories {
        // An inventory that cannot be read is removed by nothing, and told when that is tried.
        let tracked = inventory::tracked(value).unwrap_or_default();
        objects = objects.saturating_add(u32::try_from(tracked.len()).unwrap_or(u32::MAX));
        claims.extend(tracked.into_iter().filter(|key| key.kind == "PersistentVolumeClaim").map(|key| key.name));
    }
    claims.truncate(CLAIMS_MAX);
    let created = inventories.iter().filter_map(|(value, _)| time(value.pointer("/metadata/creationTimestamp")));
    let changed = inventories.iter().filter_map(|(value, _)| changed(value, manager));
    Marked {
        workspace,
        namespace,
        host_template: host_template(inventories.iter().map(|(_, live)| live)),
        objects,
        claims,
        created: created.min().unwrap_or_default(),
        changed: changed.max().unwrap_or_default(),
    }
}

/// Returns the host template that all inventories have; empty if they differ or one has none.
pub(crate) fn host_template<'a>(inventories: impl Iterator<Item = &'a LiveObject>) -> String {
    let all: BTreeSet<_> = inventories.map(|live| live.annotations.get(HOST_TEMPLATE_ANNOTATION)).collect();
    let mut all = all.into_iter();
    match (all.next().flatten(), all.next()) {
        (Some(template), None) if template.len() <= HOST_TEMPLATE_BYTES_MAX => template.clone(),
        (Some(_) | None, _) => String::new(),
    }
}

/// Returns the time of the agent's last write (Kubernetes, "Server-Side Apply": managed fields).
fn changed(value: &Value, manager: &str) -> Option<i64> {
    let fields = value.pointer("/metadata/managedFields").and_then(Value::as_array)?.iter();
    let own = fields.filter(|entry| entry.get("manager").and_then(Value::as_str) == Some(manager));
    own.filter_map(|entry| time(entry.get("time"))).max()
}

fn time(value: Option<&Value>) -> Option<i64> {
    value?.as_str()?.parse().ok().map(|time: Timestamp| time.as_second())
}

/// Makes the configuration with which a workspace is terminated: its inventories alone, by their names.
pub(crate) fn farewell(scope: &Scope, inventories: &[LiveObject]) -> Vec<Value> {
    let bare = |live: &LiveObject| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": live.name,
                "namespace": scope.namespace,
                "labels": {
                    WORKSPACE_LABEL: scope.workspace,
                    CLUSTER_LABEL: scope.cluster,
                    INVENTORY_LABEL: live.name,
                },
            },
        })
    };
    inventories.iter().map(bare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(name: &str, cluster: &str, template: Option<&str>, data: &[&str]) -> Value {
        let data: BTreeMap<_, _> = data.iter().map(|key| (*key, "")).collect();
        let mut value = json!({
            "metadata": {
                "name": name,
                "namespace": "ws-app",
                "creationTimestamp": "1970-01-01T00:01:40Z",
                "labels": {WORKSPACE_LABEL: "app", CLUSTER_LABEL: cluster, INVENTORY_LABEL: name},
                "managedFields": [
                    {"manager": "workspace-gateway", "time": "1970-01-01T00:03:20Z"},
                    {"manager": "a-person", "time": "1970-01-01T01:00:00Z"},
                ],
            },
            "data": data,
        });
        if let Some(template) = template {
            value["metadata"]["annotations"] = json!({HOST_TEMPLATE_ANNOTATION: template});
        }
        value
    }

    #[test]
    fn workspace_is_the_sum_of_its_inventories() {
        let ours = Some("{port}-app.ws.example");
        let core = inventory(
            "app-workspace-inventory",
            "prod",
            ours,
            &["ws-app_app_apps_Deployment", "ws-app_app-data__PersistentVolumeClaim"],
        );
        let secrets = inventory("app-secrets-inventory", "prod", ours, &["ws-app_app-env__Secret"]);
        let other = inventory("app-workspace-inventory", "staging", ours, &["ws-app_app__Service"]);
        let found = marked(&[core.clone(), secrets, other], "prod", "workspace-gateway");
        let expected = Marked {
            workspace: "app".to_owned(),
            namespace: "ws-app".to_owned(),
            host_template: "{port}-app.ws.example".to_owned(),
            objects: 3,
            claims: vec!["app-data".to_owned()],
            created: 100,
            changed: 200,
        };
        assert_eq!(found, [expected]);
        // A ConfigMap that a user copied is no inventory.
        let mut copy = core;
        copy["metadata"]["name"] = "copy".into();
        assert_eq!(marked(&[copy, Value::Null], "prod", "workspace-gateway"), []);
    }

    #[test]
    fn inventories_that_differ_about_their_gateway_or_do_not_say_it_belong_to_none() {
        let template = |templates: &[Option<&str>]| {
            let values = templates.iter().map(|one| LiveObject::read(&inventory("i", "prod", *one, &[])));
            let lives: Vec<LiveObject> = values.collect();
            host_template(lives.iter())
        };
        assert_eq!(template(&[Some("a"), Some("a")]), "a");
        assert_eq!(template(&[Some("a"), Some("b")]), "");
        assert_eq!(template(&[Some("a"), None]), "");
        assert_eq!(template(&[None]), "");
        assert_eq!(template(&[]), "");
    }
}
