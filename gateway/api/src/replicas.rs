//! Lists the replicas of this gateway. All users who are signed in may see them: whether a new version is on its way, or a
//! replica drains. Their addresses are not shown.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::openapi::failures;
use super::problem::ProblemRow;
use super::{ApiShared, Caller, answer};
use gateway_store::StoredReplica;

#[derive(Serialize, ToSchema)]
#[schema(as = Replicas)]
pub(super) struct ReplicaList {
    replicas: Vec<ReplicaItem>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Replica)]
pub(super) struct ReplicaItem {
    /// Number of its process start.
    id: u64,
    /// `serving` or `draining`.
    state: &'static str,
    /// Of the program.
    version: String,
    /// Sessions of agents that dialed it.
    agents: u64,
    /// Relay lanes to agents of other replicas.
    lanes_ended: u64,
    /// Relay lanes of other replicas that pass through it.
    lanes_carried: u64,
    up_seconds: u64,
    /// Rest of its lease, which it renews every three seconds.
    lease_seconds: u64,
}

#[utoipa::path(
    get,
    path = "/replicas",
    operation_id = "listReplicas",
    summary = "The replicas of this gateway",
    description = "The processes that share one database, the oldest first; empty for one gateway alone. Each of them \
        reports every three seconds.",
    responses(
        (status = 200, description = "Those that live.", body = ReplicaList),
        failures::SignedIn,
    ),
)]
pub(super) async fn list(State(api): State<Arc<ApiShared>>, caller: Caller) -> Result<Response, ProblemRow> {
    caller.user()?;
    let replicas = api.store.replicas().await?.iter().map(item).collect();
    Ok(answer::json(StatusCode::OK, &ReplicaList { replicas }))
}

/// Returns all replicas, for the page of operators.
///
/// # Errors
/// The directory cannot be read.
pub async fn all(api: &ApiShared) -> Result<Vec<impl Serialize + use<>>, ProblemRow> {
    Ok(api.store.replicas().await?.iter().map(item).collect())
}

fn item(replica: &StoredReplica) -> ReplicaItem {
    ReplicaItem {
        id: replica.incarnation.get(),
        state: replica.state.as_str(),
        version: replica.version.clone(),
        agents: replica.report.agents,
        lanes_ended: replica.report.lanes_ended,
        lanes_carried: replica.report.lanes_carried,
        up_seconds: replica.age.as_secs(),
        lease_seconds: replica.lives_for.as_secs(),
    }
}
