//! What workspaces take in a cluster and how much they may; and orphans there, which operators list and remove.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{delete, get};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::environments::caller::is_operator;
use super::openapi::{failures, parameters};
use super::problem::{ApiProblem, ProblemRow};
use super::state::BlockerRow;
use super::{ApiShared, Caller, Route, actor, answer, lifecycle};
use gateway_environments::refusal::RefusalCode;
use gateway_net::audit::{Actor, AuditEvent, RecordPermit, Text};
use gateway_net::fetch::TIME_MAX;
use gateway_types::quota::{Quota, QuotaItem, Usage};
use gateway_types::{ClusterName, UnixSeconds};
use gateway_workspaces::orphans::{CallFailure, OrphanError, OrphanId, Removal};
use gateway_workspaces::service::WorkspaceError;
use tunnel_proto::orphans::Marked;

/// Longest wait of a request for an orphan to be gone: a client asks again.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(5);

// The command line gives up on a request after this time. Half of it is for the way and a slow store.
const _: () = assert!(REMOVAL_PATIENCE.as_secs() * 2 <= TIME_MAX.as_secs());

/// Amounts in use, and how much there may be.
#[derive(Serialize, ToSchema)]
#[schema(as = ClusterUsage)]
pub(super) struct UsageItem {
    agent: String,
    /// Of all users together.
    cluster: Vec<UsageRow>,
    /// Of the user who asks.
    user: Vec<UsageRow>,
}

/// One amount in use.
#[derive(Serialize, ToSchema)]
#[schema(as = QuotaUsage)]
pub(super) struct UsageRow {
    /// `workspaces` that are not to be terminated, those of them that are to run (`running`), `cpu_millis` and
    /// `memory_bytes` of these, `storage_bytes` of all.
    item: &'static str,
    used: u64,
    /// Null for any amount. It may be below `used` after the quota was lowered: nothing is stopped for that.
    #[schema(required)]
    allowed: Option<u64>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Orphans)]
pub(super) struct OrphanList {
    orphans: Vec<OrphanItem>,
    /// Workspaces with the marks of this agent and the hosts of another gateway, or of none: they are left alone.
    others: usize,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Orphan)]
pub(super) struct OrphanItem {
    /// `NAME.NAMESPACE`.
    id: String,
    name: String,
    namespace: String,
    /// Number of its objects in the cluster.
    objects: u32,
    /// Names of its persistent volume claims, at most 8: what is deleted with it.
    claims: Vec<String>,
    #[schema(required, format = DateTime)]
    created_at: Option<String>,
    /// When the agent last wrote its inventory: when a gateway that knew it last changed it.
    #[schema(required, format = DateTime)]
    changed_at: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = OrphanRemoval)]
pub(super) struct RemovalItem {
    /// Nothing is left of it. Otherwise ask again: the rest is being deleted.
    gone: bool,
    /// What is still there.
    left: Vec<BlockerRow>,
}

/// The paths.
pub(super) fn routes() -> Vec<Route> {
    vec![
        ("/agents/{name}/usage", &["get"], get(usage)),
        ("/agents/{name}/orphans", &["get"], get(orphans)),
        ("/agents/{name}/orphans/{id}", &["delete"], delete(remove_orphan)),
    ]
}

#[utoipa::path(
    get,
    path = "/agents/{name}/usage",
    operation_id = "getClusterUsage",
    summary = "What workspaces take in a cluster, and how much they may",
    description = "Of all users together and of the user who asks. What counts is what workspaces request.",
    params(parameters::AgentPath),
    responses(
        (status = 200, description = "Each amount.", body = UsageItem),
        failures::SignedIn,
        (status = 404, description = "No such agent, or without a configuration (`not_found`)"),
    ),
)]
pub(super) async fn usage(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ProblemRow> {
    let principal = caller.user()?;
    let name = cluster_name(name)?;
    let cluster = api.store.cluster(&name).await?.ok_or(ApiProblem::NotFound)?;
    let report = api.lifecycles.quota_report(cluster.id, &principal.user).await;
    let report = report.map_err(|error| match matches!(error, WorkspaceError::NoSuchCluster) {
        true => ApiProblem::NotFound.into(),
        false => lifecycle::problem(error),
    })?;
    let shown = UsageItem {
        agent: name.to_string(),
        cluster: rows(&report.usage.cluster, &report.quotas.cluster),
        user: rows(&report.usage.user, &report.quotas.user),
    };
    Ok(answer::json(StatusCode::OK, &shown))
}

fn rows(used: &Usage, quota: &Quota) -> Vec<UsageRow> {
    let row = |item: QuotaItem| UsageRow { item: item.as_str(), used: used.of(item), allowed: quota.of(item) };
    QuotaItem::ALL.map(row).into()
}

#[utoipa::path(
    get,
    path = "/agents/{name}/orphans",
    operation_id = "listOrphans",
    summary = "Workspaces in a cluster of which the gateway has no record; for operators",
    description = "The cluster's agent is asked for everything that carries its marks. Nothing is removed by itself.",
    params(parameters::AgentPath),
    responses(
        (status = 200, description = "All of them, by namespace.", body = OrphanList),
        failures::SignedIn,
        (status = 403, description = "The user is no operator (`forbidden`)"),
        (status = 404, description = "No such agent (`not_found`)"),
        (status = 503, description = "`agent_absent`, `agent_too_old` or `overloaded`"),
        (status = 504, description = "The agent did not answer in time (`call_timeout`)"),
    ),
)]
pub(super) async fn orphans(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ProblemRow> {
    operator(&api, &caller)?;
    let list = api.orphans.list(&cluster_name(name)?).await.map_err(problem)?;
    let orphans = list.orphans.into_iter().map(item).collect();
    Ok(answer::json(StatusCode::OK, &OrphanList { orphans, others: list.others }))
}

#[utoipa::path(
    delete,
    path = "/agents/{name}/orphans/{id}",
    operation_id = "removeOrphan",
    summary = "Have an orphan removed from a cluster with its storage; for operators",
    description = "Waits up to 5 seconds for it to be gone; to ask again goes on. A workspace of which the gateway has a \
        record, or that another gateway made, is never removed.",
    params(parameters::OrphanPath),
    responses(
        (status = 200, description = "It is gone, or being deleted.", body = RemovalItem),
        failures::SignedIn,
        (status = 403, description = "The user is no operator (`forbidden`)"),
        (status = 404, description = "No such agent or orphan (`not_found`)"),
        (status = 409, description = "`conflict`; `reason` is `not_an_orphan` if the gateway has a record of it, or \
            `orphan_not_removed` with `object_errors`"),
        (status = 503, description = "`agent_absent`, `agent_too_old` or `overloaded`"),
        (status = 504, description = "The agent did not answer in time (`call_timeout`)"),
    ),
)]
pub(super) async fn remove_orphan(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, ProblemRow> {
    operator(&api, &caller)?;
    let Path((cluster, id)) = path.map_err(|_| ApiProblem::NotFound)?;
    let cluster = cluster.parse::<ClusterName>().map_err(|_| ApiProblem::NotFound)?;
    let orphan = OrphanId::parse(&id).ok_or(ApiProblem::NotFound)?;
    let mut record = RemovalRecord {
        slot: Some(api.audit.slot().await?),
        caller: &caller,
        by: actor(caller.user()?),
        cluster: Text::of(&cluster),
        orphan: Text::of(&id),
    };
    let removed = api.orphans.remove(&cluster, &orphan, REMOVAL_PATIENCE).await;
    match &removed {
        Ok(Removal { is_gone: true, .. }) => record.write("gone"),
        Ok(Removal { is_gone: false, .. }) => record.write("leaving"),
        // Nothing was asked of the cluster.
        Err(OrphanError::NoSuchCluster | OrphanError::NoSuchOrphan | OrphanError::Recorded | OrphanError::Store(_)) => {
            record.slot = None;
        }
        Err(OrphanError::Refused(_) | OrphanError::Call(_)) => record.write("failed"),
    }
    let Removal { is_gone, left } = removed.map_err(problem)?;
    let left = left.into_iter().map(BlockerRow::from).collect();
    Ok(answer::json(StatusCode::OK, &RemovalItem { gone: is_gone, left }))
}

/// Audit record of a removal, which is written also when the caller goes away before the cluster has answered: what was
/// asked of the cluster by then is carried out.
struct RemovalRecord<'a> {
    slot: Option<RecordPermit>,
    caller: &'a Caller,
    by: Actor,
    cluster: Text,
    orphan: Text,
}

impl RemovalRecord<'_> {
    fn write(&mut self, state: &'static str) {
        if let Some(slot) = self.slot.take() {
            let (by, cluster, orphan) = (self.by.clone(), self.cluster.clone(), self.orphan.clone());
            slot.record(self.caller.did(AuditEvent::OrphanRemoved { by, cluster, orphan, state }));
        }
    }
}

impl Drop for RemovalRecord<'_> {
    fn drop(&mut self) {
        self.write("called_off");
    }
}

/// Refuses a caller who is no operator.
fn operator(api: &ApiShared, caller: &Caller) -> Result<(), ProblemRow> {
    let is_operator = is_operator(api, caller.user()?);
    if is_operator { Ok(()) } else { Err(ApiProblem::NotOperator.into()) }
}

fn cluster_name(name: Result<Path<String>, PathRejection>) -> Result<ClusterName, ProblemRow> {
    name.ok().and_then(|Path(name)| name.parse().ok()).ok_or_else(|| ApiProblem::NotFound.into())
}

fn item(marked: Marked) -> OrphanItem {
    let time = |seconds: i64| (seconds > 0).then(|| UnixSeconds::new(seconds).to_string());
    OrphanItem {
        id: OrphanId::of(&marked),
        objects: marked.objects,
        created_at: time(marked.created),
        changed_at: time(marked.changed),
        name: marked.workspace,
        namespace: marked.namespace,
        claims: marked.claims,
    }
}

fn problem(error: OrphanError) -> ProblemRow {
    match error {
        OrphanError::NoSuchCluster | OrphanError::NoSuchOrphan => ApiProblem::NotFound.into(),
        OrphanError::Recorded => ApiProblem::Conflict { reason: "not_an_orphan" }.into(),
        OrphanError::Refused(message) => ProblemRow::not_removed(message),
        OrphanError::Call(CallFailure::Incomplete(message)) => ProblemRow::not_removed(message),
        OrphanError::Call(failure) => ApiProblem::Environment(code(&failure)).into(),
        OrphanError::Store(error) => error.into(),
    }
}

fn code(failure: &CallFailure) -> RefusalCode {
    match failure {
        CallFailure::Absent | CallFailure::Lost => RefusalCode::AgentAbsent,
        CallFailure::TooOld => RefusalCode::AgentTooOld,
        CallFailure::Late | CallFailure::NoAnswer | CallFailure::Incomplete(_) => RefusalCode::CallTimeout,
        CallFailure::Overloaded => RefusalCode::Overloaded,
    }
}
