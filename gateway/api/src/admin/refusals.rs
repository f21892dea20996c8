//! The last requests that were refused at this replica, and the limits among the reasons.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{StatusCode, Uri};
use serde::Serialize;
use utoipa::ToSchema;

use super::query::Filters;
use crate::list::PageRequest;
use crate::openapi::{failures, parameters, values};
use crate::problem::ProblemRow;
use crate::{ApiParts, ApiShared, Caller, answer};
use gateway_auth::policy::OperatorGrant;
use gateway_edge::service::{REFUSALS_MAX, Refusal};
use gateway_types::{UnixSeconds, UserName, WorkspaceName};

/// Keeps cursors of other lists away: this one has none.
const CURSOR: &str = "ar";

/// Code of a refusal by a limit, or by a part of the gateway that does not answer.
const OVERLOADED: &str = "overloaded";

/// Refusals that are asked for.
#[derive(Debug)]
pub struct RefusalQuery {
    code: String,
    user: Option<UserName>,
    workspace: Option<WorkspaceName>,
    trace: String,
    limit: usize,
}

impl RefusalQuery {
    /// Reads `code`, `user`, `workspace`, `trace` and `limit`.
    ///
    /// # Errors
    /// `invalid` with all mistakes of the query.
    pub fn read(uri: &Uri) -> Result<Self, ProblemRow> {
        let known = ["code", "user", "workspace", "trace"];
        let (page, narrowed) = PageRequest::<NoCursor>::read_filtered(uri, CURSOR, &known)?;
        let mut filters = Filters::new(narrowed);
        let read = Self {
            code: filters.part("code"),
            user: filters.value("user"),
            workspace: filters.value("workspace"),
            trace: filters.part("trace"),
            limit: usize::try_from(page.limit).unwrap_or(REFUSALS_MAX),
        };
        filters.finish()?;
        Ok(read)
    }

    fn is_meant(&self, refusal: &Refusal) -> bool {
        (self.code.is_empty() || self.code == refusal.code)
            && (self.trace.is_empty() || self.trace == refusal.trace)
            && self.user.as_ref().is_none_or(|user| refusal.user.as_ref() == Some(user))
            && self.workspace.as_ref().is_none_or(|workspace| refusal.workspace.as_ref() == Some(workspace))
    }
}

/// The key of a list without pages: no text is one.
struct NoCursor;

impl std::str::FromStr for NoCursor {
    type Err = ();

    fn from_str(_: &str) -> Result<Self, ()> {
        Err(())
    }
}

/// The last refusals, the newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminRefusals)]
pub struct RefusalList {
    /// The newest first.
    pub refusals: Vec<RefusalRow>,
    /// The replica that answers, which knows of its own alone; null for one gateway alone.
    #[schema(required)]
    pub(crate) replica: Option<u64>,
}

/// A refused request, or several within a second that are alike.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AdminRefusal)]
pub struct RefusalRow {
    #[schema(format = DateTime)]
    pub(crate) at: String,
    pub(crate) code: &'static str,
    /// What exactly failed; of `overloaded`, the limit.
    #[schema(required)]
    pub(crate) detail: Option<&'static str>,
    #[schema(required)]
    pub(crate) user: Option<String>,
    #[schema(required)]
    pub(crate) workspace: Option<String>,
    /// Address of the client; null for a connection that was not let in.
    #[schema(required)]
    pub(crate) address: Option<String>,
    /// Trace id of the last of them.
    pub(crate) trace_id: String,
    /// Number of them.
    pub(crate) count: u32,
}

/// The limits among the last refusals.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminLimits)]
pub struct LimitList {
    /// The most often hit first.
    pub limits: Vec<LimitRow>,
    /// The replica that answers, which knows of its own alone; null for one gateway alone.
    #[schema(required)]
    pub(crate) replica: Option<u64>,
}

/// A limit that was hit, by a user, or by an address without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AdminLimit)]
pub struct LimitRow {
    /// The limit, or the part of the gateway that did not answer.
    pub(crate) limit: &'static str,
    #[schema(required)]
    pub(crate) user: Option<String>,
    /// Address of a client without a user.
    #[schema(required)]
    pub(crate) address: Option<String>,
    /// Number of refusals.
    #[schema(schema_with = values::count)]
    pub(crate) count: u64,
    /// Time of the last of them.
    #[schema(format = DateTime)]
    pub(crate) last_at: String,
    /// The workspace that was asked for last.
    #[schema(required)]
    pub(crate) workspace: Option<String>,
}

/// Returns the last refusals that fit, the newest first.
pub fn list(api: &ApiParts, _grant: &OperatorGrant, query: &RefusalQuery) -> RefusalList {
    let found = api.admin.refusals.newest(query.limit, |refusal| query.is_meant(refusal));
    RefusalList { refusals: found.iter().map(row).collect(), replica: replica(api) }
}

/// Returns the limits that were hit among the last refusals, those that were hit most often first.
pub fn limits(api: &ApiParts, _grant: &OperatorGrant) -> LimitList {
    let found = api.admin.refusals.newest(REFUSALS_MAX, |refusal| refusal.code == OVERLOADED);
    LimitList { limits: by_limit(&found), replica: replica(api) }
}

/// Sums refusals, the newest first, by limit and by who hit it.
fn by_limit(refusals: &[Refusal]) -> Vec<LimitRow> {
    let mut rows: HashMap<(&'static str, Option<&UserName>, Option<std::net::IpAddr>), LimitRow> = HashMap::new();
    for refusal in refusals {
        let Some(limit) = refusal.detail else { continue };
        let peer = if refusal.user.is_some() { None } else { refusal.peer };
        let row = rows.entry((limit, refusal.user.as_ref(), peer)).or_insert_with(|| LimitRow {
            limit,
            user: refusal.user.as_ref().map(ToString::to_string),
            address: peer.map(|peer| peer.to_canonical().to_string()),
            count: 0,
            last_at: time(refusal.at_ms),
            workspace: None,
        });
        row.count += u64::from(refusal.count);
        if row.workspace.is_none() {
            row.workspace = refusal.workspace.as_ref().map(ToString::to_string);
        }
    }
    let mut rows: Vec<LimitRow> = rows.into_values().collect();
    rows.sort_by(|left, right| {
        (right.count, left.limit, &left.user, &left.address).cmp(&(
            left.count,
            right.limit,
            &right.user,
            &right.address,
        ))
    });
    rows
}

fn row(refusal: &Refusal) -> RefusalRow {
    RefusalRow {
        at: time(refusal.at_ms),
        code: refusal.code,
        detail: refusal.detail,
        user: refusal.user.as_ref().map(ToString::to_string),
        workspace: refusal.workspace.as_ref().map(ToString::to_string),
        address: refusal.peer.map(|peer| peer.to_canonical().to_string()),
        trace_id: refusal.trace.clone(),
        count: refusal.count,
    }
}

fn time(at_ms: u64) -> String {
    UnixSeconds::of_milliseconds(at_ms).to_string()
}

fn replica(api: &ApiParts) -> Option<u64> {
    api.peers.as_ref().map(|peers| peers.incarnation())
}

#[utoipa::path(
    get,
    path = "/admin/refusals",
    operation_id = "listRefusals",
    summary = "The last requests that were refused at this replica; for operators",
    description = "The last 1,000, in memory: they are forgotten when the process ends. Requests of clients without a \
        user are bounded in number as in the log.",
    params(parameters::RefusalFilters),
    responses(
        (status = 200, description = "The newest first.", body = RefusalList),
        failures::SignedIn,
        failures::Operators,
        failures::Mistaken,
    ),
)]
pub(crate) async fn show(State(api): State<Arc<ApiShared>>, caller: Caller, uri: Uri) -> Result<Response, ProblemRow> {
    let grant = caller.operator(&api)?;
    let query = RefusalQuery::read(&uri)?;
    Ok(answer::json(StatusCode::OK, &list(&api, &grant, &query)))
}

#[utoipa::path(
    get,
    path = "/admin/limits",
    operation_id = "listLimitsHit",
    summary = "The limits that were hit among the last refusals at this replica, with their users; for operators",
    responses(
        (status = 200, description = "Those that were hit most often first.", body = LimitList),
        failures::SignedIn,
        failures::Operators,
    ),
)]
pub(crate) async fn show_limits(State(api): State<Arc<ApiShared>>, caller: Caller) -> Result<Response, ProblemRow> {
    let grant = caller.operator(&api)?;
    Ok(answer::json(StatusCode::OK, &limits(&api, &grant)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(at_ms: u64, limit: &'static str, user: &str, count: u32) -> Refusal {
        Refusal {
            at_ms,
            code: OVERLOADED,
            detail: Some(limit),
            user: user.parse().ok(),
            workspace: Some("app".parse().unwrap()),
            peer: Some([192, 0, 2, 1].into()),
            trace: String::new(),
            count,
        }
    }

    #[test]
    fn limits_are_summed_by_user_and_strangers_by_address() {
        let newest = [
            refusal(3_000, "limits.requests_per_user", "ann", 1),
            refusal(2_000, "limits.requests_per_address", "", 9),
            refusal(1_500, "limits.requests_per_user", "bob", 1),
            refusal(1_000, "limits.requests_per_user", "ann", 3),
        ];
        let rows = by_limit(&newest);
        let shown: Vec<_> = rows.iter().map(|row| (row.limit, row.user.as_deref(), row.count)).collect();
        let expected = [
            ("limits.requests_per_address", None, 9),
            ("limits.requests_per_user", Some("ann"), 4),
            ("limits.requests_per_user", Some("bob"), 1),
        ];
        assert_eq!(shown, expected);
        assert_eq!(rows[0].address.as_deref(), Some("192.0.2.1"));
        assert_eq!((rows[1].address.as_deref(), &*rows[1].last_at), (None, "1970-01-01T00:00:03Z"));
    }
}
