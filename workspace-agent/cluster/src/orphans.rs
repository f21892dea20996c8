//! Reports objects in the log that are labelled as this agent's and were not named in a full round.

use std::collections::BTreeMap;

use tracing::{debug, warn};
use tunnel_proto::reconcile::{NamespaceMode, Terms};

use crate::api::CancelableApi;
use crate::conversation::ConversationShared;
use crate::object::{CLUSTER_LABEL, INVENTORY_LABEL, LiveObject, Resource, WORKSPACE_LABEL};

/// Orphans that are named in the log; the others are counted.
const NAMED: usize = 5;

/// Finds and logs orphans. They are never deleted: the gateway may have been restored from a backup.
pub(crate) async fn look(api: &CancelableApi, terms: &Terms, shared: &ConversationShared, round: u64) {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let ours = format!("{CLUSTER_LABEL}={}", terms.cluster);
    for live in list(api, terms, "", "ConfigMap", &format!("{ours},{INVENTORY_LABEL}")).await {
        if let Some(workspace) = live.labels.get(WORKSPACE_LABEL) {
            found.insert(workspace.clone(), live.namespace);
        }
    }
    // While the gateway has no workspace, there is no watch that has shown the Deployments.
    if !shared.change(|books| books.view.has_deployments()) {
        for live in list(api, terms, "apps", "Deployment", &ours).await {
            // A Deployment with its label and another name is an experiment of a user.
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

/// Lists objects in the namespaces of workspaces. A kind that may not be listed is looked for no further.
async fn list(api: &CancelableApi, terms: &Terms, group: &str, kind: &str, labels: &str) -> Vec<LiveObject> {
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
