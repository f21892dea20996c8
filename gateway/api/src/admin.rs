//! What operators see and change of all users. Each function takes the proof that its caller is an operator, and serves
//! the API and the pages alike.

pub mod agents;
pub mod audit;
pub mod health;
pub(crate) mod query;
pub mod refusals;
pub mod settings;
pub mod users;
pub mod workspaces;

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::routing::{get, post};

use super::problem::{ApiProblem, ProblemRow};
use super::{ApiParts, Route};
use gateway_auth::jwt::KeySetObserver;
use gateway_auth::policy::{OperatorGrant, Operators, operate};
use gateway_edge::service::Refusals;
use gateway_net::tls::Tls;
use gateway_types::principal::Principal;

/// Parts that only operators see.
pub struct AdminParts {
    /// Users who are operators.
    pub operators: ArcSwap<Operators>,
    /// The configuration in force, with masks for secrets.
    pub settings: ArcSwap<Vec<EffectiveSetting>>,
    /// Certificates of all listeners.
    pub certificates: Vec<Arc<Tls>>,
    /// The last refused requests.
    pub refusals: Arc<Refusals>,
    /// The provider that signs users in; `None` in dev mode.
    pub provider: Option<WatchedProvider>,
    /// Kind of the directory of sessions: `memory`, `host` or `store`.
    pub directory: &'static str,
    /// Kind of the database: `sqlite` or `postgres`.
    pub database: &'static str,
}

/// A key of the configuration, with its value as the file would spell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveSetting {
    /// The dotted key.
    pub key: String,
    /// The value, or the mask of a secret; `None` without one.
    pub value: Option<String>,
    /// Layer that it came from.
    pub origin: &'static str,
}

/// An identity provider, as operators see it.
#[derive(Clone, Debug)]
pub struct WatchedProvider {
    /// Its address.
    pub issuer: String,
    /// How the requests for its metadata and keys ended.
    pub observer: KeySetObserver,
}

/// Decides whether a user may act as operator: for pages, whose visitor is known as principal.
///
/// # Errors
/// `forbidden` for all others.
pub fn operator(api: &ApiParts, principal: &Principal) -> Result<OperatorGrant, ProblemRow> {
    operate(principal, &api.admin.operators.load()).ok_or_else(|| ApiProblem::NotOperator.into())
}

/// The paths.
pub(super) fn routes() -> Vec<Route> {
    vec![
        ("/admin/workspaces", &["get"], get(workspaces::show)),
        ("/admin/users", &["get"], get(users::show)),
        ("/admin/users/{name}/disable", &["post"], post(users::disable_user)),
        ("/admin/users/{name}/enable", &["post"], post(users::enable_user)),
        ("/admin/agents", &["get"], get(agents::show)),
        ("/admin/clusters", &["get"], get(agents::show_clusters)),
        ("/admin/audit", &["get"], get(audit::show)),
        ("/admin/refusals", &["get"], get(refusals::show)),
        ("/admin/limits", &["get"], get(refusals::show_limits)),
        ("/admin/config", &["get"], get(settings::show)),
        ("/admin/health", &["get"], get(health::show)),
    ]
}
