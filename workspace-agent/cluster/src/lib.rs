//! The cluster agent: reconciles a Kubernetes cluster with the desired state of a gateway's workspaces, and reports
//! what it observes (`docs/decisions/2026-11-21-the-clusters-inventories-are-the-state.md`).
//!
//! It is given a byte stream to a gateway and a client of the cluster. All of its memory is in the cluster, in the
//! inventories of its workspaces: it can be killed at any moment, and goes on from what it finds.
//!
//! * `conversation` speaks with the gateway. `controller` has a `worker` make each pass over a workspace, which is in
//!   `reconcile`; `books` has what is known and what was told, and `tracker` (pure) which reports are due
//! * a pass: `config` is the intent, `apply` makes an inventory be what was sent, in `order` and after `prune` judged
//!   what may go; `delete` and `terminate` remove. `inventory` is the format and `inventory_store` reads and writes it.
//!   `namespace`, `secrets` and `workload` are what a workspace needs beside its objects
//! * observation: `watch` goes on after every error, `observe` watches objects, `view` is what was seen, `reasons` puts
//!   it into words, and `orphans` logs what was not named
//! * the API server: `api` is the client, `resources` knows where kinds are, `retry` what an answer means, `object` the
//!   parts of an object that decide
//! * [`environments`] applies and removes objects of CI jobs' environments. [`orphan_calls`] lists and removes workspaces on an
//!   operator's word, as `marked` reads them; what calls have in common is in [`call`]. [`lease`] elects the one agent that leads
//!
//! Decisions are pure: `order`, `inventory`, `prune`, `terminate`, `tracker`, `reasons`, `election`, `retry` and their
//! neighbours take what was found and say what is to be done. The rest asks the API server and does it.

mod api;
mod apply;
mod books;
pub mod call;
mod config;
mod controller;
mod conversation;
mod delete;
mod election;
pub mod environments;
mod inventory;
mod inventory_store;
pub mod lease;
mod marked;
mod namespace;
mod object;
mod observe;
mod order;
pub mod orphan_calls;
mod orphans;
mod prune;
mod reasons;
mod reconcile;
mod resources;
mod retry;
pub mod rights;
mod secrets;
mod start;
mod terminate;
mod tracker;
mod view;
mod watch;
mod worker;
mod workload;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tunnel_proto::reconcile::MessageError;

pub use kube;

/// Field manager of the agent's fields (Kubernetes, "Server-Side Apply": field managers).
pub const FIELD_MANAGER: &str = "workspace-gateway";

/// Options of reconciling.
#[derive(Clone)]
pub struct Options {
    /// Client of the cluster.
    pub client: kube::Client,
    /// Field manager; [`FIELD_MANAGER`] but in tests.
    pub field_manager: String,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Options").field("field_manager", &self.field_manager).finish_non_exhaustive()
    }
}

/// Reason why a conversation ended.
#[derive(Debug, Error)]
pub enum ClusterConversationEnd {
    /// It was asked to.
    #[error("stopped")]
    Stopped,
    /// The gateway closed the channel.
    #[error("the gateway ended the conversation")]
    Closed,
    /// The channel broke.
    #[error("the channel to the gateway broke")]
    Broken(#[source] std::io::Error),
    /// The gateway sent a message that cannot be understood.
    #[error("the gateway sent an invalid message: {0}")]
    Protocol(MessageError),
}

/// Holds the conversation with a gateway over one channel: waits for its terms, carries out its intents, and reports
/// what it observes.
///
/// Cancel safety: dropping it, or `stop`, ends all work at once; requests that were sent may still be carried out by the API
/// server. A channel's own end waits for them.
pub async fn reconcile<C>(options: Options, channel: C, stop: CancellationToken) -> ClusterConversationEnd
where
    C: AsyncRead + AsyncWrite + Send,
{
    conversation::run(options, channel, stop).await
}
