//! The frozen config: a workspace's Kubernetes objects, generated once when it is created and never again.
//!
//! An existing workspace keeps its objects, whatever a later version of the gateway would generate, so that no upgrade
//! restarts it (`docs/decisions/2026-11-21-frozen-at-creation.md`). Only the data of Secrets and the number of replicas
//! are filled in when sending. There are therefore two ways to get a [`FrozenConfig`], and both end in the same
//! validation: [`freeze`] for a new workspace, and [`FrozenConfig::from_json`] for a stored one.

mod canonical;
mod expansion;
mod generate;
mod names;
mod needs;
mod problem;
mod role;
mod scripts;
mod validate;

use std::sync::Arc;

use serde_json::Value;

pub use self::names::{
    AGENT_TOKEN_FILE, CLUSTER_LABEL, FILES_DIR, GATEWAY_DIR, HOST_TEMPLATE_ANNOTATION, INVENTORY_ID_LABEL, KEY_PREFIX,
    KUBERNETES_NAME_BYTES_MAX, LOGS_DIR, OWNING_INVENTORY_ANNOTATION, SCRIPTS_DIR, TOOLS_DIR, TOOLS_IMAGE_DIR,
    WORKSPACE_LABEL, unfit_for_kubernetes,
};
pub use self::problem::FrozenProblem;
pub use self::role::{FrozenObject, Inventory, Owner, Role};
use super::cluster_config::ClusterConfig;
use super::devfile::Devfile;
use super::editor::Chosen;
use super::project::Project;
use gateway_types::{ClusterName, UserName, WorkspaceName, Zone};

/// The largest frozen config, in bytes of its canonical JSON: a message carries it whole, and etcd takes objects of 1.5 MiB.
pub const FROZEN_BYTES_MAX: usize = 256 * 1024;

/// The longest text that is read as one, in bytes: databases write the same JSON with spaces in it.
const TEXT_BYTES_MAX: usize = 2 * FROZEN_BYTES_MAX;

/// Input of generation besides a devfile and a cluster's configuration.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The workspace.
    pub workspace: &'a WorkspaceName,
    /// The cluster whose agent reconciles it.
    pub cluster: &'a ClusterName,
    /// The namespace that its objects are in.
    pub namespace: &'a str,
    /// Its owner, who is the author of commits in it unless they say another one.
    pub owner: &'a UserName,
    /// The domain under which workspaces live.
    pub zone: &'a Zone,
    /// The gateway's own address for people; hosts of workspaces have the same scheme and port.
    pub public_url: &'a str,
    /// URL that agents dial, if the cluster's configuration has none.
    pub agents_url: &'a str,
    /// Projects to clone before the editor starts, at most [`PROJECTS_MAX`](crate::project::PROJECTS_MAX).
    pub projects: &'a [Project],
    /// The editor, chosen among those of `config`.
    pub editor: Chosen<'a>,
}

/// A workspace's Kubernetes objects.
///
/// # Invariants
///
/// Valid by kind, in the order of [`Role`], all of one workspace and namespace, each with its owner, none twice, no data in
/// Secrets, and no larger than [`FROZEN_BYTES_MAX`].
#[derive(Clone, Debug, PartialEq)]
pub struct FrozenConfig(Arc<[FrozenObject]>);

/// Generates the objects of a new workspace. The same input makes the same bytes.
///
/// # Errors
/// All problems: contradictions of the inputs, or objects that Kubernetes would refuse.
pub fn freeze(
    devfile: &Devfile,
    config: &ClusterConfig,
    facts: &Facts<'_>,
) -> Result<FrozenConfig, Vec<FrozenProblem>> {
    let mut values = generate::objects(devfile, config, facts)?;
    values.iter_mut().for_each(canonical::without_nothing);
    FrozenConfig::from_values(values)
}

impl FrozenConfig {
    /// Reads stored objects: a JSON array, in any spelling.
    ///
    /// # Errors
    /// All their problems.
    pub fn from_json(text: &str) -> Result<Self, Vec<FrozenProblem>> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(vec![FrozenProblem::too_large()]);
        }
        match serde_json::from_str(text) {
            Ok(values) => Self::from_values(values),
            Err(error) => Err(vec![FrozenProblem::new(String::new(), format!("is no JSON array: {error}"))]),
        }
    }

    fn from_values(values: Vec<Value>) -> Result<Self, Vec<FrozenProblem>> {
        let objects = validate::objects(values)?;
        let frozen = Self(objects.into());
        if frozen.to_json().len() > FROZEN_BYTES_MAX {
            return Err(vec![FrozenProblem::too_large()]);
        }
        Ok(frozen)
    }

    /// Returns the objects as a JSON array in one spelling: keys sorted at every depth, no spaces.
    #[must_use]
    pub fn to_json(&self) -> String {
        canonical::list(self.0.iter().map(|object| &object.value))
    }

    /// Returns the objects, in the order of their roles.
    #[must_use]
    pub fn objects(&self) -> &[FrozenObject] {
        &self.0
    }
}

#[cfg(test)]
mod tests;
