//! Part of the table for environments.

use http::StatusCode;

use super::{ApiProblem, FaultLocation, Objects, ProblemRow};
use gateway_environments::refusal::{EnvironmentRefusal, RefusalCode, RefusalProblem};
use workspace_spec::document;

/// Seconds after which an agent that is away may have come back.
const AGENT_RETRY_AFTER: u16 = 5;

pub(super) fn status(code: RefusalCode) -> StatusCode {
    match code {
        RefusalCode::NoSuchAgent | RefusalCode::NoSuchTemplate | RefusalCode::NoSuchEnvironment => {
            StatusCode::NOT_FOUND
        }
        RefusalCode::ProjectNotAllowed
        | RefusalCode::EnvironmentNotAllowed
        | RefusalCode::RefNotProtected
        | RefusalCode::ActionNotAllowed => StatusCode::FORBIDDEN,
        RefusalCode::EnvironmentsOff
        | RefusalCode::NotEnabled
        | RefusalCode::NoEnvironment
        | RefusalCode::EnvironmentBusy
        | RefusalCode::EnvironmentStopped
        | RefusalCode::ProjectDeleted
        | RefusalCode::ConfigChanged
        | RefusalCode::ObjectsFailed
        | RefusalCode::TooManyObjects => StatusCode::CONFLICT,
        RefusalCode::TemplateInvalid | RefusalCode::FactsInvalid | RefusalCode::ObjectsRefused => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        RefusalCode::AgentAbsent
        | RefusalCode::AgentTooOld
        | RefusalCode::AgentDisplaced
        | RefusalCode::Overloaded
        | RefusalCode::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        RefusalCode::CallTimeout => StatusCode::GATEWAY_TIMEOUT,
    }
}

pub(super) fn title(code: RefusalCode) -> &'static str {
    match status(code) {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::UNPROCESSABLE_ENTITY => "Cannot be used",
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => "Not now",
        _ => "Conflict",
    }
}

pub(super) fn retry_after(code: RefusalCode) -> Option<u16> {
    match code {
        RefusalCode::AgentAbsent | RefusalCode::AgentDisplaced | RefusalCode::CallTimeout => Some(AGENT_RETRY_AFTER),
        RefusalCode::Overloaded | RefusalCode::StoreUnavailable | RefusalCode::ConfigChanged => Some(1),
        RefusalCode::EnvironmentsOff
        | RefusalCode::NoSuchAgent
        | RefusalCode::NotEnabled
        | RefusalCode::ProjectNotAllowed
        | RefusalCode::EnvironmentNotAllowed
        | RefusalCode::RefNotProtected
        | RefusalCode::ActionNotAllowed
        | RefusalCode::ProjectDeleted
        | RefusalCode::NoEnvironment
        | RefusalCode::NoSuchTemplate
        | RefusalCode::TemplateInvalid
        | RefusalCode::FactsInvalid
        | RefusalCode::ObjectsRefused
        | RefusalCode::ObjectsFailed
        | RefusalCode::TooManyObjects
        | RefusalCode::AgentTooOld
        | RefusalCode::NoSuchEnvironment
        | RefusalCode::EnvironmentBusy
        | RefusalCode::EnvironmentStopped => None,
    }
}

impl From<EnvironmentRefusal> for ProblemRow {
    fn from(refusal: EnvironmentRefusal) -> Self {
        let places = refusal.problems.into_iter().take(super::PLACES_MAX).map(FaultLocation::from).collect();
        Self { places, ..Self::from(ApiProblem::Environment(refusal.code)) }
    }
}

impl From<RefusalProblem> for FaultLocation {
    fn from(problem: RefusalProblem) -> Self {
        let RefusalProblem { code, place, line, column, message } = problem;
        Self { code, path: place, line, column, message }
    }
}

impl From<document::Problem> for FaultLocation {
    fn from(problem: document::Problem) -> Self {
        let document::Problem { path, line, column, message } = problem;
        Self { code: "", path, line, column, message }
    }
}

impl ProblemRow {
    /// Lists the faults of a template that a caller brought.
    pub(crate) fn template(problems: Vec<document::Problem>) -> Self {
        let places = problems.into_iter().take(super::PLACES_MAX).map(FaultLocation::from).collect();
        Self { places, ..Self::from(ApiProblem::Environment(RefusalCode::TemplateInvalid)) }
    }

    /// Returns whether it is this refusal.
    pub fn is(&self, refused: ApiProblem) -> bool {
        self.refused == refused
    }

    /// Reports the end of an operation that has failed.
    pub(crate) fn ended(code: RefusalCode, objects: Objects) -> Self {
        Self { objects: Box::new(objects), ..Self::from(ApiProblem::Environment(code)) }
    }
}
