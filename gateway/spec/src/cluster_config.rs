//! The configuration of a cluster agent (`agents_dir/NAME/config.yaml`): permissions and settings of the workspaces in
//! its cluster.
//!
//! A file with one mistake is refused as a whole, with all its mistakes; the configuration that was in force stays in
//! force. The store keeps not the file but its meaning, as canonical JSON: each workspace keeps the version that it was
//! made with, and comments or another order of keys are no new version.

mod access;
mod amounts;
mod lists;
mod network;
mod settings;
mod totals;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::document::{self, Problem, Problems, ValueAt};
use super::editor::Editor;
use gateway_types::{IdleRules, TimeLimits};

pub use access::ACCESS_ENTRIES_MAX;
pub use access::{AccessAs, AccessEntry, CiAccess};
pub use amounts::{Amounts, Resources};
pub use lists::{RESERVED_PREFIXES, SecretRef, reserved_prefix};
pub use network::{Egress, NetworkPolicy};
pub use totals::ResourceTotals;

/// The largest configuration, in bytes.
pub const CONFIG_BYTES_MAX: usize = 256 * 1024;

/// The greatest age of a workspace, in hours: about a year.
pub const AGE_HOURS_MAX: u32 = 8760;

/// Prefix of the keys of our own labels and annotations.
pub const OWN_PREFIX: &str = "workspace-gateway.dev";

/// Permissions and settings of the workspaces in a cluster. Without a file, workspaces are not enabled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Whether workspaces may be made; existing ones go on.
    pub enabled: bool,
    /// Prefix of the names of namespaces, if each workspace has its own; the workspace's name follows.
    pub namespace_prefix: String,
    /// The one namespace that all workspaces are in, if they are.
    pub shared_namespace: Option<String>,
    /// Network access of containers.
    pub network_policy: NetworkPolicy,
    /// Resources of a container whose devfile names none.
    pub default_resources: Option<Resources>,
    /// Most resources of all containers of a workspace together; `None` with a shared namespace.
    pub max_resources: Option<Resources>,
    /// Most workspaces; `None` for any number.
    pub quota: Option<u32>,
    /// Most workspaces of each user; `None` for any number.
    pub quota_per_user: Option<u32>,
    /// Most workspaces that are to run; `None` for any number. Left out of the JSON then, as the four below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_quota: Option<u32>,
    /// Most workspaces of each user that are to run; `None` for any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_quota_per_user: Option<u32>,
    /// Most that all workspaces may take together; `None` for any amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_quota: Option<ResourceTotals>,
    /// Most that the workspaces of each user may take together; `None` for any amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_quota_per_user: Option<ResourceTotals>,
    /// Hours from its creation until a workspace is terminated, whatever it does; `None` for [`AGE_HOURS_MAX`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age_hours: Option<u32>,
    /// Whether pods get a user namespace: `hostUsers` is then **false**.
    pub user_namespaces: bool,
    /// `runtimeClassName` of pods.
    pub runtime_class: Option<String>,
    /// Whether processes may gain privileges; only with a runtime class or user namespaces.
    pub allow_privilege_escalation: bool,
    /// `imagePullPolicy` of containers; `None` leaves it to Kubernetes, which asks the registry anew for `latest` alone. Left out of
    /// the JSON then, so that configurations stored before this field existed stay the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Editors that users choose among, the default one first; no name is there twice. Empty for the tools image's alone, and left out of
    /// the JSON then, so that configurations stored before this field existed stay the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub editors: Vec<Editor>,
    /// Secrets with which images are pulled; no name is there twice, and all are in the shared namespace, if any.
    pub image_pull_secrets: Vec<SecretRef>,
    /// Annotations of all objects.
    pub annotations: BTreeMap<String, String>,
    /// Labels of all objects.
    pub labels: BTreeMap<String, String>,
    /// Hours from the last change of the desired state until a workspace stops.
    pub max_active_hours: u32,
    /// Hours until a stopped workspace is terminated.
    pub max_stopped_hours: u32,
    /// Minutes without use after which a workspace whose owner says nothing is stopped; 0 for never. Left out of the JSON then, as
    /// the next one, so that configurations stored before these fields existed stay the same.
    #[serde(skip_serializing_if = "is_zero")]
    pub idle_minutes: u32,
    /// Largest number of those minutes that an owner can ask for, and a limit for all workspaces; 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_idle_minutes: u32,
    /// The image that carries the workspace agent and the editor; empty only if workspaces are not enabled.
    pub tools_image: String,
    /// URL that agents in workspaces dial; `None` for the gateway's own address.
    pub gateway_url: Option<String>,
    /// Projects whose jobs may have environments in the cluster. Left out of the JSON if there are none, so that
    /// configurations stored before this field existed stay the same.
    #[serde(skip_serializing_if = "CiAccess::is_empty")]
    pub ci_access: CiAccess,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(minutes: &u32) -> bool {
    *minutes == 0
}

/// When a node asks the registry for an image (Kubernetes, "Images", imagePullPolicy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PullPolicy {
    /// At each start of a container: a registry that is away stops every start.
    Always,
    /// Where the node does not have it.
    IfNotPresent,
    /// Never: images are on the nodes.
    Never,
}

impl PullPolicy {
    const ALL: [Self; 3] = [Self::Always, Self::IfNotPresent, Self::Never];

    /// Finds a policy by its name in Kubernetes.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == name)
    }

    /// Returns its name in Kubernetes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            namespace_prefix: "ws-".to_owned(),
            shared_namespace: None,
            network_policy: NetworkPolicy::default(),
            default_resources: None,
            max_resources: None,
            quota: None,
            quota_per_user: None,
            running_quota: None,
            running_quota_per_user: None,
            resource_quota: None,
            resource_quota_per_user: None,
            max_age_hours: None,
            user_namespaces: false,
            runtime_class: None,
            allow_privilege_escalation: false,
            image_pull_policy: None,
            editors: Vec::new(),
            image_pull_secrets: Vec::new(),
            annotations: BTreeMap::new(),
            labels: BTreeMap::new(),
            max_active_hours: 36,
            max_stopped_hours: 744,
            idle_minutes: 0,
            max_idle_minutes: 0,
            tools_image: String::new(),
            gateway_url: None,
            ci_access: CiAccess::default(),
        }
    }
}

impl ClusterConfig {
    /// Returns the time limits of a workspace.
    #[must_use]
    pub fn time_limits(&self) -> TimeLimits {
        let hours = |hours: u32| Duration::from_secs(u64::from(hours) * 3600);
        TimeLimits {
            active: hours(self.max_active_hours),
            stopped: hours(self.max_stopped_hours),
            age: hours(self.max_age_hours.unwrap_or(AGE_HOURS_MAX)),
        }
    }

    /// Returns the rules for workspaces without use.
    #[must_use]
    pub fn idle_rules(&self) -> IdleRules {
        IdleRules::of_minutes(self.idle_minutes, self.max_idle_minutes)
    }

    /// Returns its meaning as JSON: keys in order at every depth and no spaces, so that the same meaning is always the
    /// same bytes.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Only maps with keys that are not text cannot be written, and there are none.
        serde_json::to_value(self).map(|value| canonical(&value)).unwrap_or_default()
    }

    /// Reads the output of [`ClusterConfig::to_json`], also of an earlier version: a missing field has its default.
    ///
    /// # Errors
    /// It is something else, or was written by a later version that knows more.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        // By way of a map: a list would do for a struct otherwise.
        let fields: serde_json::Map<String, Json> = serde_json::from_str(text)?;
        serde_json::from_value(Json::Object(fields))
    }
}

/// Reads a configuration file.
///
/// # Errors
/// All problems, from the first line to the last; never empty.
pub fn parse(text: &[u8]) -> Result<ClusterConfig, Vec<Problem>> {
    let mut problems = Problems::default();
    let root = document::parse(text, CONFIG_BYTES_MAX, &mut problems);
    let config = root.map(|root| settings::read_file(&ValueAt::root(&root), &mut problems));
    let problems = problems.finish();
    match config {
        Some(config) if problems.is_empty() => Ok(config),
        Some(_) | None => Err(problems),
    }
}

/// Writes JSON with the keys of each object in order, whatever order the library keeps them in.
fn canonical(value: &Json) -> String {
    match value {
        Json::Object(fields) => {
            let fields: BTreeMap<&String, &Json> = fields.iter().collect();
            let field = |(key, value): (&&String, &&Json)| format!("{}:{}", Json::from(key.as_str()), canonical(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
        }
        Json::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests;
