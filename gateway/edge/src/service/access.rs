//! Decides which caller may use which port, at a request and for as long as what it opened stays open.

mod changed;
mod revocation;

use std::sync::Arc;

use tokio::time::Instant;

use super::visitors::Visitors;
use crate::address::Address;
use crate::event_streams::EventStreams;
use crate::watches::Watches;
use gateway_auth::cache::{Cache, Unavailable};
use gateway_auth::policy::{Decision, Exposure, RequestShape, Target, decide};
use gateway_auth::public_ports::PublicPorts;
use gateway_auth::request::{OfferedAt, OfferedCredential};
use gateway_http::respond::Failure;
use gateway_store::{Store, Workspace, wall_clock};
use gateway_types::{Lifecycle, Port, UserName, WorkspaceName};

/// Callers, the records that decide on them, and what they have open.
#[derive(Debug)]
pub struct Access {
    /// Finds the user of a request.
    pub visitors: Arc<Visitors>,
    /// Owners and shares of workspaces, as the store had them.
    pub workspaces: Arc<Cache<WorkspaceName, Workspace>>,
    /// Desired and actual state of workspaces without a session; only loaded once a request has failed.
    pub lives: Cache<WorkspaceName, Lifecycle>,
    /// Ports that are open without a sign-in.
    pub public_ports: Arc<PublicPorts>,
    /// Watches of requests and streams under way.
    pub watches: Arc<Watches>,
    /// Event streams that are open.
    pub followers: Arc<EventStreams>,
    /// The database, for what no cache has.
    pub store: Store,
}

/// Returns what of a workspace may be reached at an address: by path, nothing is shared.
pub(super) fn exposure<'a>(record: &'a Workspace, address: &Address) -> Exposure<'a> {
    let shares = if address.is_by_path() { &[][..] } else { &record.shares };
    Exposure { owner: &record.owner, ports: None, shares }
}

/// A decision, and the user of the request, if it proved one.
pub(super) struct Judged {
    pub(super) decision: Decision,
    pub(super) user: Option<UserName>,
}

impl Access {
    /// Finds the principal and the workspace, and asks the policy.
    ///
    /// # Errors
    /// [`Failure::Overloaded`] when the store does not answer and nothing is remembered.
    pub(super) async fn decide(
        &self,
        offered: &OfferedCredential,
        address: &Address,
        port: Port,
        shape: RequestShape,
        now: Instant,
    ) -> Result<Judged, Failure> {
        let name = &address.name;
        let principal = self.visitors.principal(offered, OfferedAt::Workspace(&address.host), now).await?;
        // Without a principal the store is not asked: neither the answer nor its time must tell whether there is a
        // workspace.
        let record = match &principal {
            Some(_) => self.workspace(name, now).await?,
            None if !address.is_by_path() && self.public_ports.contains(name, port) => {
                self.workspace(name, now).await?
            }
            None => None,
        };
        let exposure = record.as_ref().map(|record| exposure(record, address));
        let target = Target { workspace: name, port, record: exposure };
        let decision = decide(principal.as_ref(), &target, shape, wall_clock());
        Ok(Judged { decision, user: principal.map(|principal| principal.user) })
    }

    /// Reads the record of a workspace; `None` if there is no such workspace.
    ///
    /// # Errors
    /// [`Failure::Overloaded`] when the store does not answer and nothing is remembered.
    pub(super) async fn workspace(&self, name: &WorkspaceName, now: Instant) -> Result<Option<Workspace>, Failure> {
        let found = self.workspaces.get(name, now, || self.store.workspace(name)).await;
        found.map_err(|Unavailable| Failure::Overloaded { limit: "store" })
    }
}
