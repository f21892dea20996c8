//! The service `Prerequisites`: for jobs, and for operators who name the job.

use std::sync::Arc;

use super::Answerer;
use super::called::Unread;
use super::told::events;
use super::wire;
use crate::api::Shared;
use crate::api::environments::asker::Asker;
use crate::api::environments::ops::{self, Asked, Which};
use crate::api::environments::view::EnvironmentRow;
use crate::api::problem::{Mistake, Problem};
use gateway_environments::request::{JobFacts, Unmet};
use gateway_environments::service::Wanted;

pub(super) fn find(method: &str) -> Option<Answerer> {
    Some(match method {
        "Unmet" => |api, caller, request| {
            let call = Unread::of(request, Asker::of(&api, &caller));
            Box::pin(call.one(move |asker, message: wire::UnmetRequest| {
                Box::pin(async move {
                    let (is_unmet, reason) = match ops::unmet(&api, &asker, asked(message.request)?)? {
                        Unmet::Unmet => (true, String::new()),
                        Unmet::Met(met) => (false, met.as_str().to_owned()),
                    };
                    Ok(wire::UnmetResponse { is_unmet, reason })
                })
            }))
        },
        "Complete" => |api, caller, request| {
            let call = Unread::of(request, Asker::of(&api, &caller));
            Box::pin(call.many(move |asker, message: wire::CompleteRequest| {
                Box::pin(async move {
                    let (following, held) = ops::complete(&api, &asker, asked(message.request)?).await?;
                    Ok(events(api, following, held))
                })
            }))
        },
        "SetState" => |api, caller, request| {
            let call = Unread::of(request, Asker::of(&api, &caller));
            Box::pin(call.one(move |asker, message: wire::SetStateRequest| {
                Box::pin(async move {
                    let wanted: Wanted = parsed(&message.state, "/state")?;
                    let changed = ops::set_state(&api, &asker, which(message.which)?, wanted).await?;
                    Ok(wire::SetStateResponse { environment: Some(EnvironmentRow::from(changed).into()) })
                })
            }))
        },
        "Show" => |api: Arc<Shared>, caller, request| {
            let call = Unread::of(request, Asker::of(&api, &caller));
            Box::pin(call.one(move |asker, message: wire::ShowRequest| {
                Box::pin(async move {
                    let found = ops::find(&api, &asker, which(message.which)?).await?;
                    Ok(wire::ShowResponse { environment: Some(EnvironmentRow::from(found).into()) })
                })
            }))
        },
        _ => return None,
    })
}

/// Reads a text with a parser of the domain, whose errors repeat nothing.
pub(super) fn parsed<T>(text: &str, pointer: &str) -> Result<T, Problem>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| {
        Problem::invalid(vec![Mistake { pointer: pointer.to_owned(), detail: error.to_string() }])
    })
}

/// Reads a required field. The default of proto3 is a valid value too: 0 is a number.
pub(super) fn said<T>(value: Option<T>, pointer: &str) -> Result<T, Problem> {
    value.ok_or_else(|| ops::missing(pointer))
}

fn asked(request: Option<wire::JobRequest>) -> Result<Asked, Problem> {
    let request = said(request, "/request")?;
    let template = request.template_name.map(|name| parsed(&name, "/request/template_name")).transpose()?;
    Ok(Asked {
        agent: parsed(&request.agent_name, "/request/agent_name")?,
        template,
        is_disabled: request.is_disabled,
        url: request.url,
        environment: request.environment,
        job: request.job.map(job).transpose()?,
    })
}

fn job(job: wire::Job) -> Result<JobFacts, Problem> {
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
fn which(which: Option<wire::Which>) -> Result<Which, Problem> {
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
    fn told(job: wire::Job) -> Result<JobFacts, Problem> {
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
            assert_eq!(told(without).unwrap_err(), ops::missing(pointer));
        }
    }
}
