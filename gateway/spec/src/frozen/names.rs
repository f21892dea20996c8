//! Names of objects, labels and annotations, and paths in a container.

use gateway_types::WorkspaceName;

/// Label with the workspace that an object belongs to.
pub const WORKSPACE_LABEL: &str = "workspace-gateway.dev/workspace";

/// Label with the cluster whose agent reconciles an object.
pub const CLUSTER_LABEL: &str = "workspace-gateway.dev/cluster";

/// Prefix of the keys of our own labels and annotations.
pub const KEY_PREFIX: &str = "workspace-gateway.dev/";

/// Annotation with the host of each port, for programs in the cluster: `{port}-NAME.ZONE`.
pub const HOST_TEMPLATE_ANNOTATION: &str = "workspace-gateway.dev/host-template";

/// Label that makes a `ConfigMap` an inventory; its value is the inventory's name (cli-utils).
pub const INVENTORY_ID_LABEL: &str = "cli-utils.sigs.k8s.io/inventory-id";

/// Annotation with the inventory that owns an object (cli-utils).
pub const OWNING_INVENTORY_ANNOTATION: &str = "config.k8s.io/owning-inventory";

/// Key of the agent's token in the file Secret.
pub const AGENT_TOKEN_FILE: &str = "agent-token";

/// Our own folder in each container. No volume of a devfile may be there.
pub const GATEWAY_DIR: &str = "/workspace-gateway";

/// Folder of the programs from the tools image.
pub const TOOLS_DIR: &str = "/workspace-gateway/tools";

/// Folder of the scripts.
pub const SCRIPTS_DIR: &str = "/workspace-gateway/scripts";

/// Folder of the file variables and the agent's token.
pub const FILES_DIR: &str = "/workspace-gateway/files";

/// Folder of the programs in the tools image: `bin/workspace-agent`, `bin/code-server` and what they need.
pub const TOOLS_IMAGE_DIR: &str = "/workspace-tools";

/// Folder of the logs: a folder for each container, on the workspace's own volume, and not where an app may serve files.
pub const LOGS_DIR: &str = "/workspace-gateway/logs";

/// Home of the user in each container, on the workspace's own volume.
pub(super) const HOME_DIR: &str = "/home/workspace";

/// The user's name, where one is asked for.
pub(super) const USER_NAME: &str = "workspace";

/// The workspace's own volume as a whole, for the container that makes its folders.
pub(super) const VOLUME_DIR: &str = "/workspace-gateway/volume";

/// File by which the agent says that it has been connected: in the container's own files, so that each start is a new one, and no
/// volume that cannot be written to is in the way.
pub(super) const READY_FILE: &str = "/tmp/workspace-agent.ready";

/// Names of the users in a container.
pub(super) const PASSWD_FILE: &str = "/etc/passwd";

/// Longest name of a workspace on Kubernetes: the name of an inventory is a label's value too, which has 63 characters at most.
pub const KUBERNETES_NAME_BYTES_MAX: usize = 63 - "-workspace-inventory".len();

/// Names that a cluster gives to objects of its own.
const CLUSTERS_OWN: [&str; 2] = ["default", "kubernetes"];

/// Returns the reason why a workspace's name cannot be the name of Kubernetes objects, if there is one.
#[must_use]
pub fn unfit_for_kubernetes(name: &WorkspaceName) -> Option<String> {
    let text = name.as_str();
    if text.len() > KUBERNETES_NAME_BYTES_MAX {
        return Some(format!("on Kubernetes, a workspace's name has at most {KUBERNETES_NAME_BYTES_MAX} characters"));
    }
    // Services are named by RFC 1035.
    if !text.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Some("on Kubernetes, a workspace's name begins with a letter".to_owned());
    }
    CLUSTERS_OWN.contains(&text).then(|| format!("{text} is the name of an object that each cluster has of its own"))
}

/// The names of one workspace's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectNames {
    /// Deployment, Service, service account, network policy, quota.
    pub(super) workspace: String,
}

impl ObjectNames {
    pub(super) fn new(workspace: &str) -> Self {
        Self { workspace: workspace.to_owned() }
    }

    fn with(&self, ending: &str) -> String {
        format!("{}{ending}", self.workspace)
    }

    pub(super) fn core_inventory(&self) -> String {
        self.with("-workspace-inventory")
    }

    pub(super) fn secrets_inventory(&self) -> String {
        self.with("-secrets-inventory")
    }

    pub(super) fn data(&self) -> String {
        self.with("-data")
    }

    /// Names a devfile's volume. No workspace's name has a dot, so no other workspace's volume in the namespace is called so.
    pub(super) fn volume(&self, name: &str) -> String {
        self.with(&format!(".{name}"))
    }

    pub(super) fn scripts(&self) -> String {
        self.with("-scripts")
    }

    pub(super) fn env(&self) -> String {
        self.with("-env")
    }

    pub(super) fn file(&self) -> String {
        self.with("-file")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, wrong: Option<&str>) {
        let said = unfit_for_kubernetes(&name.parse().expect("a workspace's name"));
        assert_eq!(said.is_some(), wrong.is_some(), "{name}: {said:?}");
        if let (Some(said), Some(wrong)) = (said, wrong) {
            assert!(said.contains(wrong), "{name}: {said}");
        }
    }

    #[test]
    fn workspace_name_that_kubernetes_would_refuse_is_told() {
        check("a", None);
        check(&"a".repeat(43), None);
        check(&"a".repeat(44), Some("at most 43"));
        check("3d-printer", Some("begins with a letter"));
        check("default", Some("of its own"));
    }

    #[test]
    fn longest_name_still_makes_label_values() {
        let names = ObjectNames::new(&"a".repeat(KUBERNETES_NAME_BYTES_MAX));
        assert_eq!(names.core_inventory().len(), 63);
        assert!(names.secrets_inventory().len() <= 63);
    }
}
