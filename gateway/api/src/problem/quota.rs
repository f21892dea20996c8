//! Refusals by quotas: each limit that a request would break, and what its owner may stop or terminate to make room.

use gateway_store::OverQuota;
use gateway_types::quota::QuotaScope;
use serde::Serialize;
use utoipa::ToSchema;

use super::{ApiProblem, ProblemRow};

/// A refusal by quotas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = QuotaRefusal)]
pub(crate) struct QuotaRow {
    /// Every limit that the request would break.
    exceeded: Vec<ExceededRow>,
    /// Workspaces of the owner that count there, the longest running first, at most 16: to stop one frees its processors
    /// and memory, to terminate one its storage too.
    owned: Vec<CountedRow>,
}

/// A limit that a request would break.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ExceededQuota)]
pub(crate) struct ExceededRow {
    /// `user` or `cluster`.
    scope: &'static str,
    /// `workspaces`, `running`, `cpu_millis`, `memory_bytes` or `storage_bytes`.
    item: &'static str,
    /// Amount in use without the request; above `allowed` after the quota was lowered.
    used: u64,
    allowed: u64,
    /// Amount that the request adds.
    asked: u64,
    /// The same for people.
    message: String,
}

/// A workspace as it counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = CountedWorkspace)]
pub(crate) struct CountedRow {
    name: String,
    /// It is to run.
    running: bool,
    cpu_millis: u64,
    memory_bytes: u64,
    storage_bytes: u64,
}

impl QuotaRow {
    /// Says which limits it is about, and what could make room.
    pub(super) fn told(&self) -> String {
        let limits: Vec<&str> = self.exceeded.iter().map(|row| row.message.as_str()).collect();
        let owned: Vec<&str> = self.owned.iter().map(|row| row.name.as_str()).collect();
        match owned.is_empty() {
            true => limits.join("; "),
            false => format!("{}. Yours that count there: {}", limits.join("; "), owned.join(", ")),
        }
    }
}

impl ProblemRow {
    /// Lists the limits that a request would break.
    pub(crate) fn quota(over: &OverQuota) -> Self {
        let is_users = over.broken.iter().any(|excess| excess.scope == QuotaScope::User);
        let reason = if is_users { "user_quota" } else { "cluster_quota" };
        let exceeded = over.broken.iter().map(|excess| ExceededRow {
            scope: excess.scope.as_str(),
            item: excess.item.as_str(),
            used: excess.used,
            allowed: excess.allowed,
            asked: excess.asked,
            message: excess.to_string(),
        });
        let owned = over.owned.iter().map(|counted| CountedRow {
            name: counted.name.to_string(),
            running: counted.is_running,
            cpu_millis: counted.needs.cpu_millis,
            memory_bytes: counted.needs.memory_bytes,
            storage_bytes: counted.needs.storage_bytes,
        });
        let row = QuotaRow { exceeded: exceeded.collect(), owned: owned.collect() };
        Self { quota: Some(Box::new(row)), ..Self::from(ApiProblem::QuotaExceeded { reason }) }
    }
}
