//! Whether the agent of a workspace can be reached, whichever replica it dialed.

use std::collections::HashSet;
use std::sync::Arc;

use super::ApiParts;
use super::audited::{HANDED_OVER, newest};
use gateway_agents::registry::{LiveSession, Registry, Subject};
use gateway_store::{StoreError, Workspace};
use gateway_types::{UnixSeconds, WorkspaceName};

/// Returns the session of a workspace: here, or by a lane to the replica that its agent dialed. That of a workspace without an agent
/// is searched once a second at most, however many want it.
///
/// Cancel safety: safe. Waits until a lane is up, or cannot be.
pub async fn session(parts: &ApiParts, name: &WorkspaceName) -> Option<Arc<LiveSession>> {
    match (parts.registry.current(name), &parts.peers) {
        (Some(session), _) => Some(session),
        (None, Some(peers)) => peers.find(&Subject::Workspace(name.clone())).await.lane(),
        (None, None) => None,
    }
}

/// Returns whether the agent of a workspace can be reached now.
///
/// Cancel safety: as [`session`].
pub(super) async fn is_connected(parts: &ApiParts, name: &WorkspaceName) -> bool {
    session(parts, name).await.is_some_and(|session| !session.tunnel.is_detached())
}

/// End of the last session of a workspace's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastDisconnect {
    /// When it ended.
    pub at: UnixSeconds,
    /// Reason in words, as the audit log has it.
    pub reason: String,
}

/// Reads when and why a workspace's agent was disconnected last, at any replica, as the audit records in the database have it. What was
/// before the workspace was made, or was handed over, is another's.
///
/// # Errors
/// [`StoreError`].
///
/// Cancel safety: safe.
pub async fn last_disconnect(parts: &ApiParts, workspace: &Workspace) -> Result<Option<LastDisconnect>, StoreError> {
    let Some(ended) = newest(parts, workspace, "agent_ended").await? else { return Ok(None) };
    if newest(parts, workspace, HANDED_OVER).await?.is_some_and(|handed| handed.id > ended.id) {
        return Ok(None);
    }
    let line: serde_json::Value = serde_json::from_str(&ended.record.line).unwrap_or_default();
    let reason = line.get("reason").and_then(serde_json::Value::as_str).unwrap_or("unknown").to_owned();
    let at = UnixSeconds::of_milliseconds(ended.record.at_ms);
    Ok(Some(LastDisconnect { at, reason }))
}

/// Returns whether the agent of a workspace is connected to this replica.
pub fn is_here(registry: &Registry, name: &WorkspaceName) -> bool {
    registry.current(name).is_some_and(|session| !session.tunnel.is_detached())
}

/// Workspaces of a list whose agents can be reached. A list makes no lanes: what the store says of other replicas is enough.
pub struct ListPresence<'a> {
    registry: &'a Registry,
    elsewhere: HashSet<WorkspaceName>,
}

impl<'a> ListPresence<'a> {
    /// Reads which of these have an agent at another replica.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read<'b>(
        parts: &'a ApiParts,
        names: impl Iterator<Item = &'b WorkspaceName>,
    ) -> Result<Self, StoreError> {
        let registry = &parts.registry;
        let away: Vec<_> = names.filter(|name| registry.current(name).is_none()).collect();
        let elsewhere = match parts.peers.is_some() && !away.is_empty() {
            true => parts.store.connected_workspaces(&away).await?,
            false => HashSet::new(),
        };
        Ok(Self { registry, elsewhere })
    }

    /// Returns whether the agent of one of them can be reached.
    pub fn has(&self, name: &WorkspaceName) -> bool {
        let here = self.registry.current(name);
        here.map_or_else(|| self.elsewhere.contains(name), |session| !session.tunnel.is_detached())
    }
}
