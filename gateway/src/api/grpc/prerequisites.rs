//! The service `Prerequisites`: for jobs, and for operators who say of which job.

use std::sync::Arc;

use super::Answerer;
use super::called::{many, one};
use super::told::events;
use super::wire;
use crate::api::Shared;
use crate::api::environments::asker::Asker;
use crate::api::environments::ops::{self, Asked, Which};
use crate::api::environments::view::EnvironmentRow;
use crate::api::problem::{Mistake, Problem};
use crate::environments::request::{JobFacts, Unmet};
use crate::environments::service::Wanted;

pub(super) fn find(method: &str) -> Option<Answerer> {
    Some(match method {
        "Unmet" => |api, caller, request| {
            Box::pin(one(request, move |message: wire::UnmetRequest| {
                Box::pin(async move {
                    let (is_unmet, reason) = match ops::unmet(&api, &caller, asked(message.request)?)? {
                        Unmet::Unmet => (true, String::new()),
                        Unmet::Met(met) => (false, met.as_str().to_owned()),
                    };
                    Ok(wire::UnmetResponse { is_unmet, reason })
                })
            }))
        },
        "Complete" => |api, caller, request| {
            Box::pin(many(request, move |message: wire::CompleteRequest| {
                Box::pin(async move {
                    let asker = Asker::of(&api, &caller)?;
                    let (following, held) = ops::complete(&api, &asker, asked(message.request)?).await?;
                    Ok(events(api, following, held))
                })
            }))
        },
        "SetState" => |api, caller, request| {
            Box::pin(one(request, move |message: wire::SetStateRequest| {
                Box::pin(async move {
                    let asker = Asker::of(&api, &caller)?;
                    let wanted: Wanted = parsed(&message.state, "/state")?;
                    let changed = ops::set_state(&api, &asker, which(message.which)?, wanted).await?;
                    Ok(wire::SetStateResponse { environment: Some(EnvironmentRow::from(changed).into()) })
                })
            }))
        },
        "Show" => |api: Arc<Shared>, caller, request| {
            Box::pin(one(request, move |message: wire::ShowRequest| {
                Box::pin(async move {
                    let asker = Asker::of(&api, &caller)?;
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

fn asked(request: Option<wire::JobRequest>) -> Result<Asked, Problem> {
    let request = request.ok_or_else(|| ops::missing("/request"))?;
    let template = request.template_name.map(|name| parsed(&name, "/request/template_name")).transpose()?;
    Ok(Asked {
        agent: parsed(&request.agent_name, "/request/agent_name")?,
        template,
        is_disabled: request.is_disabled,
        url: request.url,
        environment: request.environment,
        job: request.job.map(|job| JobFacts {
            project_id: job.project_id,
            project_path: job.project_path,
            environment: job.environment,
            tier: job.tier,
            action: job.action,
            is_ref_protected: job.is_ref_protected,
            pipeline_id: job.pipeline_id,
            job_id: job.job_id,
            user_id: job.user_id,
            username: job.username,
        }),
    })
}

/// Reads which environment is meant: proto3 has zero and nothing for what is not said.
fn which(which: Option<wire::Which>) -> Result<Which, Problem> {
    let which = which.ok_or_else(|| ops::missing("/which"))?;
    if which.id != 0 {
        return Ok(Which::Id(which.id));
    }
    Ok(Which::Named {
        agent: parsed(&which.agent_name, "/which/agent_name")?,
        project_id: Some(which.project_id).filter(|id| *id != 0),
        name: Some(which.environment).filter(|name| !name.is_empty()),
    })
}
