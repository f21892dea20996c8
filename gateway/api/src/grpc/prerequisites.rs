//! The service `Prerequisites`: for jobs, and for operators who name the job.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::events::{Events, events};
use super::wire;
use super::wire::prerequisites_server::Prerequisites;
use crate::ApiShared;
use crate::environments::actions::{self, CallerJobRequest, Which};
use crate::environments::caller::JobCaller;
use crate::environments::view::EnvironmentRow;
use crate::problem::ProblemRow;
use gateway_environments::request::{JobFacts, Unmet};

/// A call of a job, or of an operator who names one.
pub(super) struct OfJob {
    pub(super) api: Arc<ApiShared>,
    pub(super) asker: JobCaller,
}

#[tonic::async_trait]
impl Prerequisites for OfJob {
    type CompleteStream = Events;

    async fn unmet(&self, request: Request<wire::UnmetRequest>) -> Result<Response<wire::UnmetResponse>, Status> {
        let asked = asked(request.into_inner().request)?;
        let (is_unmet, reason) = match actions::unmet(&self.api, &self.asker, asked)? {
            Unmet::Unmet => (true, String::new()),
            Unmet::Met(met) => (false, met.as_str().to_owned()),
        };
        Ok(Response::new(wire::UnmetResponse { is_unmet, reason }))
    }

    async fn complete(&self, request: Request<wire::CompleteRequest>) -> Result<Response<Events>, Status> {
        let asked = asked(request.into_inner().request)?;
        let (following, held) = actions::complete(&self.api, &self.asker, asked).await?;
        Ok(Response::new(events(self.api.clone(), following, held)))
    }

    async fn set_state(
        &self,
        request: Request<wire::SetStateRequest>,
    ) -> Result<Response<wire::SetStateResponse>, Status> {
        let message = request.into_inner();
        let wanted = parsed(&message.state, "/state")?;
        let changed = actions::set_state(&self.api, &self.asker, which(message.which)?, wanted).await?;
        Ok(Response::new(wire::SetStateResponse { environment: Some(EnvironmentRow::from(changed).into()) }))
    }

    async fn show(&self, request: Request<wire::ShowRequest>) -> Result<Response<wire::ShowResponse>, Status> {
        let found = actions::find(&self.api, &self.asker, which(request.into_inner().which)?).await?;
        Ok(Response::new(wire::ShowResponse { environment: Some(EnvironmentRow::from(found).into()) }))
    }
}

/// Reads a text with a parser of the domain, whose errors repeat nothing.
pub(super) fn parsed<T>(text: &str, pointer: &str) -> Result<T, ProblemRow>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| ProblemRow::mistake(pointer, error.to_string()))
}

/// Reads a required field. The default of proto3 is a valid value too: 0 is a number.
pub(super) fn said<T>(value: Option<T>, pointer: &str) -> Result<T, ProblemRow> {
    value.ok_or_else(|| actions::missing(pointer))
}

fn asked(request: Option<wire::JobRequest>) -> Result<CallerJobRequest, ProblemRow> {
    let request = said(request, "/request")?;
    let template = request.template_name.map(|name| parsed(&name, "/request/template_name")).transpose()?;
    Ok(CallerJobRequest {
        agent: parsed(&request.agent_name, "/request/agent_name")?,
        template,
        is_disabled: request.is_disabled,
        url: request.url,
        environment: request.environment,
        job: request.job.map(job).transpose()?,
    })
}

fn job(job: wire::Job) -> Result<JobFacts, ProblemRow> {
    Ok(JobFacts {
        project_id: said(job.project_id, "/request/job/project_id")?,
        project_path: job.project_path,
        environment: job.environment,
        tier: job.tier,
        action: job.action,
        is_ref_protected: job.is_ref_protected,
        pipeline_id: job.pipeline_id,
        job_id: said(job.job_id, "/request/job/job_id")?,
        user_id: said(job.user_id, "/request/job/user_id")?,
        username: job.username,
    })
}

/// Reads the choice of an environment: proto3 has zero and nothing for fields that are left out.
fn which(which: Option<wire::Which>) -> Result<Which, ProblemRow> {
    let which = said(which, "/which")?;
    if which.id != 0 {
        return Ok(Which::Id(which.id));
    }
    Ok(Which::Named {
        agent: parsed(&which.agent_name, "/which/agent_name")?,
        project_id: Some(which.project_id).filter(|id| *id != 0),
        name: Some(which.environment).filter(|name| !name.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads what an operator tells of a job that is as said.
    fn told(job: wire::Job) -> Result<JobFacts, ProblemRow> {
        let request = wire::JobRequest { agent_name: "prod".to_owned(), job: Some(job), ..wire::JobRequest::default() };
        asked(Some(request)).map(|asked| asked.job.unwrap())
    }

    #[test]
    fn number_of_a_job_that_is_not_said_is_missing_and_one_that_is_said_counts() {
        let whole = || wire::Job { project_id: Some(42), job_id: Some(7), user_id: Some(0), ..wire::Job::default() };
        let facts = told(whole()).unwrap();
        assert_eq!((facts.project_id, facts.job_id, facts.user_id), (42, 7, 0));
        for (without, pointer) in [
            (wire::Job { project_id: None, ..whole() }, "/request/job/project_id"),
            (wire::Job { job_id: None, ..whole() }, "/request/job/job_id"),
            (wire::Job { user_id: None, ..whole() }, "/request/job/user_id"),
        ] {
            assert_eq!(told(without).unwrap_err(), actions::missing(pointer));
        }
    }
}
