//! Identifies callers about environments: a CI job by its `id_token`, the CI system's hook by its secret, or an
//! operator.
//!
//! The first two count for these paths and services alone, and are checked before the user is identified.

use std::ops::Deref;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use tokio::time::Instant;

use super::EnvironmentParts;
use super::job::facts_of;
use crate::problem::{ApiProblem, ProblemRow};
use crate::{ApiShared, Caller, PREFIX, admin};
use gateway_auth::jwt::{self, Moment};
use gateway_auth::request::foreign_bearer;
use gateway_environments::on_record::OnRecord;
use gateway_environments::refusal::RefusalCode;
use gateway_environments::request::{By, JobFacts};
use gateway_net::audit::Unrecordable;
use gateway_store::wall_clock;
use gateway_types::principal::Principal;
use gateway_types::{UnixSeconds, UserName};

/// Header in which GitLab's system hook shows the secret that was set for it (GitLab documentation, system hooks).
const HOOK_SECRET: HeaderName = HeaderName::from_static("x-gitlab-token");

/// Path of the hook.
const HOOK_PATH: &str = "/environments/hooks/gitlab";

/// A job, and the end of its proof.
#[derive(Clone, Debug)]
pub struct ProvenJob {
    /// The facts in its token.
    pub facts: JobFacts,
    /// The end of its token, as its issuer said.
    pub expires_at: UnixSeconds,
}

impl Deref for ProvenJob {
    type Target = JobFacts;

    fn deref(&self) -> &JobFacts {
        &self.facts
    }
}

/// Proof of a caller that is no user.
#[derive(Clone, Debug)]
pub enum VouchedCaller {
    /// A job, by a token that is good now.
    Job(Arc<ProvenJob>),
    /// The CI system.
    Hook,
    /// A job's token that is not good, by this name.
    BadJob(&'static str),
    /// A secret that is not the hook's.
    BadHook,
    /// A job's token that cannot be checked: its issuer does not answer.
    Unchecked,
    /// A credential of a kind that is not set up here.
    Off,
}

impl VouchedCaller {
    /// Returns whether it is good.
    pub fn is_good(&self) -> bool {
        match self {
            Self::Job(_) | Self::Hook => true,
            Self::BadJob(_) | Self::BadHook | Self::Unchecked | Self::Off => false,
        }
    }

    /// Returns whether it is bad, and its sender can help that.
    pub fn is_bad(&self) -> bool {
        match self {
            Self::BadJob(_) | Self::BadHook => true,
            Self::Job(_) | Self::Hook | Self::Unchecked | Self::Off => false,
        }
    }
}

impl EnvironmentParts {
    /// Checks the proof of a request that is no user's; `None` if it carries none.
    ///
    /// Cancel safety: safe.
    pub(crate) async fn vouch(&self, parts: &Parts, now: Instant) -> Option<VouchedCaller> {
        match way_in(parts.uri.path())? {
            CallerKind::Hook => Some(self.hook(&parts.headers)),
            CallerKind::Job => {
                let token = foreign_bearer(&parts.headers)?;
                let Some(jobs) = &self.jobs else { return Some(VouchedCaller::Off) };
                let now = Moment { wall: wall_clock(), clock: now };
                Some(match jobs.verify(token, now).await {
                    Ok(claims) => match (facts_of(&claims), claims.expires_at) {
                        (Ok(facts), Some(expires_at)) => VouchedCaller::Job(Arc::new(ProvenJob { facts, expires_at })),
                        (Ok(_), None) => VouchedCaller::BadJob(jwt::TokenRefused::Expired.code()),
                        (Err(reason), _) => VouchedCaller::BadJob(reason),
                    },
                    Err(jwt::TokenRefused::KeysUnavailable) => VouchedCaller::Unchecked,
                    Err(refused) => VouchedCaller::BadJob(refused.code()),
                })
            }
        }
    }

    fn hook(&self, headers: &HeaderMap) -> VouchedCaller {
        let Some(secret) = &self.hook else { return VouchedCaller::Off };
        let shown = headers.get(HOOK_SECRET).map(http::HeaderValue::as_bytes).unwrap_or_default();
        // Of equal length whatever was shown, so that nothing is learned of the secret's length.
        let (shown, secret) = (digest(&SHA256, shown), digest(&SHA256, secret.reveal().as_bytes()));
        match verify_slices_are_equal(shown.as_ref(), secret.as_ref()) {
            Ok(()) => VouchedCaller::Hook,
            Err(_) => VouchedCaller::BadHook,
        }
    }
}

/// Way in for a caller that is no user.
enum CallerKind {
    Job,
    Hook,
}

fn way_in(path: &str) -> Option<CallerKind> {
    if path.starts_with("/environments.v1.Prerequisites/") {
        return Some(CallerKind::Job);
    }
    let rest = path.strip_prefix(PREFIX)?;
    if rest == HOOK_PATH {
        return Some(CallerKind::Hook);
    }
    let below = rest.strip_prefix("/environments")?;
    (below.is_empty() || below.starts_with('/')).then_some(CallerKind::Job)
}

/// An authenticated caller.
#[derive(Clone, Debug)]
pub(crate) enum JobCaller {
    /// A job, of its own environment.
    Job(Arc<ProvenJob>),
    /// An operator, of any.
    Operator(UserName),
}

impl JobCaller {
    /// Identifies the caller.
    pub(crate) fn of(api: &ApiShared, caller: &Caller) -> Result<Self, ProblemRow> {
        match &caller.vouched {
            Some(VouchedCaller::Job(facts)) => return Ok(Self::Job(facts.clone())),
            Some(VouchedCaller::BadJob(reason)) => return Err(ApiProblem::NotSuchJob { reason }.into()),
            Some(VouchedCaller::Unchecked) => {
                return Err(ApiProblem::Overloaded { limit: "credential_unchecked" }.into());
            }
            Some(VouchedCaller::Off) => return Err(ApiProblem::Environment(RefusalCode::EnvironmentsOff).into()),
            Some(VouchedCaller::Hook | VouchedCaller::BadHook) | None => {}
        }
        let principal = caller.user()?;
        match is_operator(api, principal) {
            true => Ok(Self::Operator(principal.user.clone())),
            false => Err(ApiProblem::NotOperator.into()),
        }
    }

    /// Returns the author of a change.
    fn by(&self) -> By {
        match self {
            Self::Job(facts) => facts.by(),
            Self::Operator(user) => By::User(user.clone()),
        }
    }

    /// Takes the place in the audit log without which nothing is changed for this caller.
    pub(crate) async fn on_record(&self, api: &ApiShared) -> Result<OnRecord, Unrecordable> {
        Ok(OnRecord::new(self.by(), api.audit.slot().await?))
    }
}

/// Returns whether a user may do anything with every environment: one of their operators, or of the gateway's.
pub(crate) fn is_operator(api: &ApiShared, principal: &Principal) -> bool {
    api.environments.is_operator(&principal.user) || admin::operator(api, principal).is_ok()
}

/// Returns the operator who calls.
pub(crate) fn operator(api: &ApiShared, caller: &Caller) -> Result<UserName, ProblemRow> {
    match JobCaller::of(api, caller)? {
        JobCaller::Operator(user) => Ok(user),
        JobCaller::Job(_) => Err(ApiProblem::NotOperator.into()),
    }
}

/// Requires that the caller is the hook.
pub(crate) fn hook(caller: &Caller) -> Result<(), ProblemRow> {
    match &caller.vouched {
        Some(VouchedCaller::Hook) => Ok(()),
        Some(VouchedCaller::Off) => Err(ApiProblem::Environment(RefusalCode::EnvironmentsOff).into()),
        Some(VouchedCaller::Job(_) | VouchedCaller::BadJob(_) | VouchedCaller::BadHook | VouchedCaller::Unchecked)
        | None => Err(ApiProblem::NotTheHook.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_the_hook_come_in_by_their_own_ways_alone() {
        let way = |path: &str| match way_in(path) {
            Some(CallerKind::Job) => "job",
            Some(CallerKind::Hook) => "hook",
            None => "user",
        };
        for path in ["/api/v1/environments", "/api/v1/environments/7", "/environments.v1.Prerequisites/Unmet"] {
            assert_eq!(way(path), "job", "{path}");
        }
        assert_eq!(way("/api/v1/environments/hooks/gitlab"), "hook");
        for path in [
            "/api/v1/environmentsx",
            "/api/v1/environment-templates/default",
            "/api/v1/workspaces",
            "/environments.v1.Provisioner/EnsureEnvironment",
            "/environments",
            "/",
        ] {
            assert_eq!(way(path), "user", "{path}");
        }
    }
}
