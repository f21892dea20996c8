//! Environments of CI jobs (design, section 6.5): what jobs, operators and the CI system's hook ask for. The HTTP API and the
//! services that are called over gRPC do the same with the same functions, which are in [`ops`].

pub(super) mod asker;
pub(super) mod given;
mod hook;
mod job;
pub(super) mod ops;
mod prepare;
mod records;
mod stream;
mod templates;
pub(super) mod view;

use std::sync::Arc;

use axum::routing::{delete, get, post};

pub(crate) use self::asker::Vouched;
use super::problem::Refused;
use super::seats::{Seat, Seats};
use super::{Route, Shared};
use crate::auth::issuer::programs::Programs;
use crate::config::Secret;
use crate::environments::service::Environments;
use crate::model::UserName;

use self::asker::Asker;

/// What the API needs for environments.
#[derive(Debug)]
pub(crate) struct EnvironmentParts {
    /// Does it all.
    pub(crate) service: Environments,
    /// Whose jobs may ask; `None` where none may.
    pub(crate) jobs: Option<Programs>,
    /// The user of dev mode, who may do everything there.
    pub(crate) dev: Option<UserName>,
    /// What the CI system's hook shows; `None` where there is none.
    pub(crate) hook: Option<Secret>,
}

impl EnvironmentParts {
    /// Returns whether a user may do with every environment what they want.
    fn is_operator(&self, user: &UserName) -> bool {
        self.dev.as_ref() == Some(user) || self.service.is_operator(user)
    }
}

/// What somebody has open: held for as long as it is.
#[derive(Debug)]
pub(super) enum Held {
    /// An operator's.
    User { _seat: Seat },
    /// A job's, of those that its project may have.
    Job { _seat: Seat<u64> },
}

impl Asker {
    /// Takes a seat for what takes long.
    pub(super) fn seat(&self, api: &Shared) -> Result<Held, Refused> {
        Ok(match self {
            Self::Operator(user) => Held::User { _seat: api.operator_followers.take(user)? },
            Self::Job(facts) => Held::Job { _seat: api.job_followers.take(&facts.project_id)? },
        })
    }
}

/// Makes the seats of jobs that wait or follow, by their projects.
pub(super) fn seats_of_jobs() -> Arc<Seats<u64>> {
    /// For one project, and for all: a job has one.
    const JOBS: (usize, usize) = (256, 2_000);
    Seats::new(JOBS.0, JOBS.1, ("event_streams_per_project", "event_streams"))
}

/// Makes the seats of operators: a CI system that waits for all its jobs is one of them.
pub(super) fn seats_of_operators() -> Arc<Seats> {
    /// For one operator, and for all.
    const WAITING: (usize, usize) = (1_000, 2_000);
    Seats::new(WAITING.0, WAITING.1, ("event_streams_per_user", "event_streams"))
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
