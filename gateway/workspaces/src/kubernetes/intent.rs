//! Builds the message to a cluster agent about one workspace from its stored state.

use bytes::Bytes;
use thiserror::Error;
use tunnel_proto::reconcile::{Intent, MESSAGE_BYTES_MAX, PULL_SECRETS_MAX, SecretRef, ToCluster};

use super::plan::{Why, WorkspaceState};
use crate::sending::{Cycle, LawBroken, check_law, config_for};
use gateway_store::{ManagedWorkspace, Variable};
use gateway_types::DesiredState;
use workspace_spec::cluster_config::ClusterConfig;
use workspace_spec::frozen::FrozenConfig;

/// Bytes reserved in a message for everything but the objects.
const ENVELOPE_BYTES: usize = 64 * 1024;

/// Reason for sending nothing about a workspace. Others are not affected. The texts reach its owner.
#[derive(Debug, Error)]
pub(super) enum Unsendable {
    /// The frozen config is invalid.
    #[error("its frozen config cannot be used: {0}")]
    Frozen(String),
    /// The configuration of the cluster that it was made with is invalid.
    #[error("the configuration of the cluster that it was made with cannot be used: {0}")]
    Config(String),
    /// The message would have deleted objects that are needed.
    #[error("its config was not sent: {0}")]
    Law(#[from] LawBroken),
    /// The message would be larger than a cluster agent reads.
    #[error("its objects and variables have {0} bytes together, which is too much to send")]
    TooLarge(usize),
    /// The stored state cannot be read.
    #[error("what is stored of it cannot be read: {0}")]
    Stored(String),
}

/// Stored state from which an intent is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntentParts<'a> {
    pub(super) managed: &'a ManagedWorkspace,
    pub(super) frozen: &'a FrozenConfig,
    pub(super) variables: &'a [Variable],
    pub(super) config: &'a ClusterConfig,
}

/// Returns the state of a workspace.
pub(super) fn state_of(managed: &ManagedWorkspace) -> WorkspaceState {
    let life = &managed.lifecycle;
    let is_ending = life.desired == DesiredState::Terminated && !life.is_over();
    WorkspaceState {
        generation: life.generation,
        is_over: life.is_over(),
        is_unsettled: !life.is_over() && (is_ending || life.generation > applied(managed)),
    }
}

/// Returns how much of a workspace is sent.
pub(super) fn cycle(managed: &ManagedWorkspace, why: Why) -> Cycle {
    let in_round = matches!(why, Why::Round(_));
    Cycle::of(in_round, applied(managed))
}

/// Returns the last generation that was applied. Only workspaces in clusters come here; for others it would be 0.
fn applied(managed: &ManagedWorkspace) -> u64 {
    managed.kubernetes().map_or(0, |state| state.applied_generation)
}

fn namespace(managed: &ManagedWorkspace) -> &str {
    managed.kubernetes().map_or("", |state| state.namespace.as_str())
}

/// Creates the message that a workspace is over, with which the agent forgets it.
pub(super) fn farewell(managed: &ManagedWorkspace) -> ToCluster {
    ToCluster::Intent(envelope(managed, 0))
}

/// Creates the intent of a workspace that is not over.
///
/// # Errors
/// [`Unsendable`].
pub(super) fn intent(parts: IntentParts<'_>, why: Why) -> Result<ToCluster, Unsendable> {
    let IntentParts { managed, frozen, variables, config } = parts;
    let life = &managed.lifecycle;
    let objects = config_for(frozen, cycle(managed, why), life, variables);
    check_law(&objects, frozen, life.desired)?;
    let encoded = serde_json::to_vec(&objects).map_err(|error| Unsendable::Frozen(error.to_string()))?;
    if encoded.len() > MESSAGE_BYTES_MAX - ENVELOPE_BYTES {
        return Err(Unsendable::TooLarge(encoded.len()));
    }
    let round = match why {
        Why::Round(round) => round,
        Why::Changed | Why::Repeat => 0,
    };
    Ok(ToCluster::Intent(Intent {
        config: Bytes::from(encoded),
        pull_secrets: pull_secrets(managed, config),
        ..envelope(managed, round)
    }))
}

fn envelope(managed: &ManagedWorkspace, round: u64) -> Intent {
    let life = &managed.lifecycle;
    Intent {
        workspace: managed.workspace.name.to_string(),
        namespace: namespace(managed).to_owned(),
        generation: life.generation,
        desired: life.desired,
        actual: life.actual,
        round,
        config: Bytes::new(),
        pull_secrets: Vec::new(),
    }
}

/// Secrets in the workspace's own namespace need not be copied there.
fn pull_secrets(managed: &ManagedWorkspace, config: &ClusterConfig) -> Vec<SecretRef> {
    let named = config.image_pull_secrets.iter().filter(|secret| secret.namespace != namespace(managed));
    named
        .take(PULL_SECRETS_MAX)
        .map(|secret| SecretRef { name: secret.name.clone(), namespace: secret.namespace.clone() })
        .collect()
}
