//! What is labelled as this agent's and was not named in a full round: told to those who read the log.

use std::collections::BTreeMap;

use tracing::{debug, warn};
use tunnel_proto::reconcile::{NamespaceMode, Terms};

use crate::api::Api;
use crate::conversation::Shared;
use crate::object::{CLUSTER_LABEL, INVENTORY_LABEL, Live, Resource, WORKSPACE_LABEL};

/// Orphans that are named in the log; the others are counted.
const NAMED: usize = 5;

/// Finds them. They are never deleted: the gateway may have been restored from a backup.
pub(crate) async fn look(api: &Api, terms: &Terms, shared: &Shared, round: u64) {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let ours = format!("{CLUSTER_LABEL}={}", terms.cluster);
    for live in list(api, terms, "", "ConfigMap", &format!("{ours},{INVENTORY_LABEL}")).await {
        if let Some(workspace) = live.labels.get(WORKSPACE_LABEL) {
            found.insert(workspace.clone(), live.namespace);
        }
    }
    // No watch has shown them, where the gateway has no workspace: then there is none.
    if !shared.change(|books| books.view.has_deployments()) {
        for live in list(api, terms, "apps", "Deployment", &ours).await {
            // Another one with its label is somebody's experiment.
            if live.labels.get(WORKSPACE_LABEL) == Some(&live.name) {
                found.insert(live.name, live.namespace);
            }
        }
    }
    shared.change(|books| {
        let deployed = books.view.deployed().map(|(name, namespace)| (name.to_owned(), namespace.to_owned()));
        found.extend(deployed.collect::<Vec<_>>());
        found.retain(|name, _| !books.is_named(name, round));
    });
    if !found.is_empty() {
        let named: Vec<_> = found.iter().map(|(name, namespace)| format!("{namespace}/{name}")).collect();
        let some = named.get(..NAMED).unwrap_or(&named).join(", ");
        warn!(
            count = found.len(),
            some, "workspaces are in the cluster that the gateway does not know; they are left alone"
        );
    }
}

/// Lists objects where workspaces are. What may not be listed is looked for no further.
async fn list(api: &Api, terms: &Terms, group: &str, kind: &str, labels: &str) -> Vec<Live> {
    let Some(resource) = Resource::known(group, None, kind) else { return Vec::new() };
    let namespace = match &terms.namespaces {
        NamespaceMode::Unique => "",
        NamespaceMode::Shared(namespace) => namespace,
    };
    match api.list_metadata(&resource.collection(namespace), labels).await {
        Ok(listed) => listed,
        Err(error) => {
            debug!(%error, kind, "cannot be listed, looking for orphans without");
            Vec::new()
        }
    }
}
