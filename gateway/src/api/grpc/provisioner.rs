//! The service `Provisioner`: templates, and environments made of them. For operators.

use std::sync::Arc;

use super::Answerer;
use super::called::{many, one};
use super::prerequisites::parsed;
use super::told::events;
use super::wire;
use crate::api::Shared;
use crate::api::environments::asker::{Asker, operator};
use crate::api::environments::given::{AskedAgent, AskedEnvironment, AskedInfo, AskedProject};
use crate::api::environments::ops::{self, Given, Wish};
use crate::api::problem::Problem;
use crate::environments::template::{Template, TemplateName};
use crate::model::ClusterName;

pub(super) fn find(method: &str) -> Option<Answerer> {
    Some(match method {
        "GetEnvironmentTemplate" => |api, caller, request| {
            Box::pin(one(request, move |message: wire::GetEnvironmentTemplateRequest| {
                Box::pin(async move {
                    let agent: ClusterName = parsed(&message.agent_name, "/agent_name")?;
                    let name: TemplateName = parsed(&message.template_name, "/template_name")?;
                    let found = ops::template(&api, &caller, &agent, &name)?;
                    Ok(wire::GetEnvironmentTemplateResponse { template: Some(shown(&found)) })
                })
            }))
        },
        "GetDefaultEnvironmentTemplate" => |api, caller, request| {
            Box::pin(one(request, move |_message: wire::GetDefaultEnvironmentTemplateRequest| {
                Box::pin(async move {
                    caller.user()?;
                    let template = Some(shown(&api.environments.service.default_template()));
                    Ok(wire::GetDefaultEnvironmentTemplateResponse { template })
                })
            }))
        },
        "RenderEnvironmentTemplate" => |api, caller, request| {
            Box::pin(one(request, move |message: wire::RenderEnvironmentTemplateRequest| {
                Box::pin(async move {
                    operator(&api, &caller)?;
                    let rendered = ops::render(&api, &caller, wish(message.template, message.info)?).await?;
                    let (name, data) = (rendered.template.to_string(), rendered.to_yaml());
                    Ok(wire::RenderEnvironmentTemplateResponse { template: Some(wire::Template { name, data }) })
                })
            }))
        },
        "EnsureEnvironment" => |api, caller, request| {
            Box::pin(many(request, move |message: wire::EnsureEnvironmentRequest| {
                Box::pin(async move {
                    let asker = Asker::Operator(operator(&api, &caller)?);
                    let held = asker.seat(&api)?;
                    let following = ops::ensure(&api, &asker, wish(message.template, message.info)?).await?;
                    Ok(events(api, following, held))
                })
            }))
        },
        "DeleteEnvironment" => |api: Arc<Shared>, caller, request| {
            Box::pin(many(request, move |message: wire::DeleteEnvironmentRequest| {
                Box::pin(async move {
                    let asker = Asker::Operator(operator(&api, &caller)?);
                    let held = asker.seat(&api)?;
                    let following = ops::remove(&api, &asker, message.environment_id).await?;
                    Ok(events(api, following, held))
                })
            }))
        },
        _ => return None,
    })
}

fn shown(template: &Template) -> wire::Template {
    wire::Template { name: template.name().to_string(), data: template.text().to_owned() }
}

/// Reads a template and facts. proto3 has zero and nothing for what is not said.
fn wish(template: Option<wire::Template>, info: Option<wire::Info>) -> Result<Wish, Problem> {
    let template = template.ok_or_else(|| ops::missing("/template"))?;
    let info = info.ok_or_else(|| ops::missing("/info"))?;
    let agent = info.agent.ok_or_else(|| ops::missing("/info/agent"))?;
    let environment = info.environment.ok_or_else(|| ops::missing("/info/environment"))?;
    let project = info.project.ok_or_else(|| ops::missing("/info/project"))?;
    let said = |text: String| Some(text).filter(|text| !text.is_empty());
    let number = |number: u64| Some(number).filter(|number| *number != 0);
    let name: TemplateName = parsed(&template.name, "/template/name")?;
    Ok(Wish {
        agent: parsed(&agent.name, "/info/agent/name")?,
        template: Given { name, data: said(template.data) },
        info: AskedInfo {
            agent: Some(AskedAgent { name: agent.name }),
            environment: AskedEnvironment {
                id: number(environment.id),
                name: environment.name,
                slug: said(environment.slug),
                page_url: said(environment.page_url),
                url: environment.url,
                tier: environment.tier,
            },
            project: AskedProject {
                id: project.id,
                slug: said(project.slug),
                path: project.path,
                url: said(project.url),
            },
            ci_pipeline: info.ci_pipeline.map(|numbered| numbered.id),
            ci_job: info.ci_job.map(|numbered| numbered.id),
            user: info.user.map(|user| (user.id, user.username)),
        },
    })
}
