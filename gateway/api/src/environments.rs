//! Environments of CI jobs: requests of jobs, operators and the CI system's hook. The HTTP API and the services that
//! are called over gRPC do the same with the same functions, which are in [`actions`].

pub(super) mod actions;
pub(super) mod caller;
pub(super) mod hook;
mod job;
pub(super) mod prepare;
pub(super) mod records;
pub(super) mod request;
mod stream;
pub(super) mod templates;
pub(super) mod view;

use std::sync::Arc;
use std::time::Duration;

use axum::routing::{delete, get, post};

pub use self::caller::VouchedCaller;
use super::permits::{ApiPermit, PermitPool};
use super::problem::ApiProblem;
use super::{ApiShared, Route};
use gateway_auth::issuer::programs::Programs;
use gateway_auth::jwt::LEEWAY_SECONDS;
use gateway_environments::request::{JobFacts, JobRequest};
use gateway_environments::service::Environments;
use gateway_store::wall_clock;
use gateway_types::Secret;
use gateway_types::{ClusterName, UnixSeconds, UserName};

use self::caller::JobCaller;

/// Interval at which a job's right to go on listening is checked.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Parts that the API needs for environments.
#[derive(Debug)]
pub struct EnvironmentParts {
    /// Service that does the work.
    pub service: Environments,
    /// Verifier of the jobs that may ask; `None` if none may.
    pub jobs: Option<Programs>,
    /// The user of dev mode, who may do everything there.
    pub dev: Option<UserName>,
    /// Secret that the CI system's hook shows; `None` if there is no hook.
    pub hook: Option<Secret>,
}

impl EnvironmentParts {
    /// Returns whether a user may do anything with every environment.
    pub(super) fn is_operator(&self, user: &UserName) -> bool {
        self.dev.as_ref() == Some(user) || self.service.is_operator(user)
    }
}

/// A caller's permit, held for as long as the wait or stream is open.
#[derive(Debug)]
pub(super) enum CallerPermit {
    /// An operator's.
    User { _permit: ApiPermit },
    /// A job's, of those that its project may have.
    Job { _permit: ApiPermit<u64>, right: Box<Right> },
}

impl CallerPermit {
    /// Waits until a job may listen no longer, because its token has ended or the agent's configuration has nothing for
    /// it any more. An operator's credential is checked with all others.
    ///
    /// Cancel safety: safe.
    pub(super) async fn ended(&self) {
        match self {
            Self::User { .. } => std::future::pending().await,
            Self::Job { right, .. } => {
                while right.holds(wall_clock()) {
                    tokio::time::sleep(ASK_INTERVAL).await;
                }
            }
        }
    }
}

/// Right by which a job listens.
#[derive(Debug)]
pub(super) struct Right {
    expires_at: UnixSeconds,
    /// A request that the agent's configuration has to allow; `None` if it did not when the job began to listen, which
    /// a job may all the same for its own environment.
    allowed: Option<(Environments, JobRequest)>,
}

impl Right {
    /// Returns whether the right still counts. Answered from memory.
    fn holds(&self, now: UnixSeconds) -> bool {
        let until = UnixSeconds::new(self.expires_at.get().saturating_add(LEEWAY_SECONDS));
        now <= until && self.allowed.as_ref().is_none_or(|(service, request)| service.check(request).is_ok())
    }
}

impl JobCaller {
    /// Takes a permit for a long operation.
    pub(super) fn permit(&self, api: &ApiShared) -> Result<CallerPermit, ApiProblem> {
        Ok(match self {
            Self::Operator(user) => CallerPermit::User { _permit: api.operator_followers.take(user)? },
            Self::Job(job) => CallerPermit::Job {
                _permit: api.job_followers.take(&job.project_id)?,
                right: Box::new(Right { expires_at: job.expires_at, allowed: None }),
            },
        })
    }

    /// Takes a permit for an operation that goes on only while this request is allowed.
    pub(super) fn permit_for(&self, api: &ApiShared, request: &JobRequest) -> Result<CallerPermit, ApiProblem> {
        let mut held = self.permit(api)?;
        if let CallerPermit::Job { right, .. } = &mut held {
            let service = &api.environments.service;
            right.allowed = service.check(request).is_ok().then(|| (service.clone(), request.clone()));
        }
        Ok(held)
    }

    /// Takes a permit for an operation that goes on only while a job's project may have its environment with this agent.
    pub(super) fn permit_at(&self, api: &ApiShared, agent: &ClusterName) -> Result<CallerPermit, ApiProblem> {
        match self {
            Self::Operator(_) => self.permit(api),
            Self::Job(own) => {
                let job = JobFacts { action: None, ..own.facts.clone() };
                let agent = agent.clone();
                self.permit_for(api, &JobRequest { agent, template: None, is_disabled: false, url: None, job })
            }
        }
    }
}

/// Makes the permits of jobs that wait or follow, by their projects.
pub(super) fn permits_of_jobs() -> Arc<PermitPool<u64>> {
    /// For one project, and for all: a job has one.
    const JOBS: (usize, usize) = (256, 2_000);
    PermitPool::new(JOBS.0, JOBS.1, "event_streams_per_project", "event_streams")
}

/// Makes the permits of operators: a CI system that waits for all its jobs is one of them.
pub(super) fn permits_of_operators() -> Arc<PermitPool> {
    /// For one operator, and for all.
    const WAITING: (usize, usize) = (1_000, 2_000);
    PermitPool::new(WAITING.0, WAITING.1, "event_streams_per_user", "event_streams")
}

/// The paths.
pub(super) fn routes() -> Vec<Route> {
    vec![
        ("/environments", &["get"], get(records::list)),
        ("/environments/unmet", &["post"], post(prepare::unmet)),
        ("/environments/complete", &["post"], post(prepare::complete)),
        ("/environments/ensure", &["post"], post(prepare::ensure)),
        ("/environments/render", &["post"], post(templates::render)),
        ("/environments/hooks/gitlab", &["post"], post(hook::gitlab)),
        (
            "/environments/{id}",
            &["delete", "get", "patch"],
            get(records::show).patch(records::change).delete(records::remove),
        ),
        ("/environments/{id}/events", &["get"], get(records::follow)),
        ("/agents/{name}/environment-templates", &["get"], get(templates::list)),
        ("/agents/{name}/environment-templates/{template}", &["get"], get(templates::show)),
        ("/environment-templates/default", &["get"], get(templates::default)),
        ("/projects/{id}/environments", &["delete"], delete(hook::sweep)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn right_of_a_job_ends_with_its_token() {
        let right = Right { expires_at: UnixSeconds::new(1_000), allowed: None };
        assert!(right.holds(UnixSeconds::new(1_000 + LEEWAY_SECONDS)));
        assert!(!right.holds(UnixSeconds::new(1_001 + LEEWAY_SECONDS)));
        let right = Right { expires_at: UnixSeconds::new(i64::MAX), allowed: None };
        assert!(right.holds(UnixSeconds::new(i64::MAX)));
    }
}
