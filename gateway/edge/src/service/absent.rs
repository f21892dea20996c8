//! Answers requests to a workspace without a session: it is stopped, or its agent is away.
//!
//! This is the only place of the edge that reads the desired state of a workspace: a request that finds a session does
//! not come here.

use tokio::time::Instant;

use super::{Edge, EdgeAnswer};
use crate::address::Address;
use gateway_auth::site::WORKSPACE_PAGES;
use gateway_http::respond::Failure;
use gateway_types::{ActualState, DesiredState, Lifecycle};

impl Edge {
    /// Finds the reason. The caller may use the workspace; only its owner is offered to start it.
    pub(super) async fn absent(&self, address: &Address, is_owner: bool, now: Instant) -> EdgeAnswer {
        let name = &address.name;
        let is_managed = match self.access.workspace(name, now).await {
            Ok(Some(workspace)) => workspace.executor.is_managed(),
            Ok(None) | Err(_) => false,
        };
        if !is_managed {
            return Failure::AgentAbsent.into();
        }
        let load = async || {
            Ok::<_, gateway_store::StoreError>(self.access.store.managed(name).await?.map(|found| found.lifecycle))
        };
        match self.access.lives.get(name, now, load).await {
            Ok(Some(life)) if !is_running(&life) => EdgeAnswer::Stopped(is_owner.then(|| self.start_address(address))),
            // It runs, so its agent is about to come; or its state is unknown.
            Ok(Some(_) | None) | Err(_) => Failure::AgentAbsent.into(),
        }
    }

    /// Writes the address of the page that can start a workspace, and leads back to this host.
    fn start_address(&self, address: &Address) -> String {
        // A prefix has letters, digits, dashes and slashes: nothing to escape in a query.
        let back = address.prefix.as_ref().map(|prefix| format!("&return={prefix}/")).unwrap_or_default();
        self.hosts.site.public(&format!("{WORKSPACE_PAGES}{}?host={}{back}", address.name, address.host))
    }
}

fn is_running(life: &Lifecycle) -> bool {
    life.desired == DesiredState::Running && life.actual == ActualState::Running
}
