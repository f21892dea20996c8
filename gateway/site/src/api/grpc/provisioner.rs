//! The service `Provisioner`: templates, and environments made of them. For operators.

use std::sync::Arc;

use super::Answerer;
use super::called::Unread;
use super::prerequisites::{parsed, said};
use super::told::events;
use super::wire;
use crate::api::Shared;
use crate::api::environments::asker::{Asker, operator};
use crate::api::environments::given::{AskedAgent, AskedEnvironment, AskedInfo, AskedProject};
use crate::api::environments::ops::{self, Given, Wish};
use crate::api::problem::{Place, Problem};
use gateway_types::ClusterName;
use workspace_spec::environment::template::{Template, TemplateName};

pub(super) fn find(method: &str) -> Option<Answerer> {
    Some(match method {
        "GetEnvironmentTemplate" => |api, caller, request| {
            let call = Unread::of(request, operator(&api, &caller));
            Box::pin(call.one(move |_operator, message: wire::GetEnvironmentTemplateRequest| {
                Box::pin(async move {
                    let agent: ClusterName = parsed(&message.agent_name, "/agent_name")?;
                    let name: TemplateName = parsed(&message.template_name, "/template_name")?;
                    let found = ops::template(&api, &caller, &agent, &name)?;
                    let problems = lines(&ops::template_problems(&api, &agent, &name));
                    Ok(wire::GetEnvironmentTemplateResponse { template: Some(shown(&found)), problems })
                })
            }))
        },
        "GetDefaultEnvironmentTemplate" => |api, caller, request| {
            let call = Unread::of(request, caller.user().map(|_| ()));
            Box::pin(call.one(move |(), _message: wire::GetDefaultEnvironmentTemplateRequest| {
                Box::pin(async move {
                    let template = Some(shown(&api.environments.service.default_template()));
                    Ok(wire::GetDefaultEnvironmentTemplateResponse { template })
                })
            }))
        },
        "RenderEnvironmentTemplate" => |api, caller, request| {
            let who = operator(&api, &caller).and_then(|user| Ok(api.uploads.take(&user)?));
            Box::pin(Unread::large(request, who).one(move |seat, message: wire::RenderEnvironmentTemplateRequest| {
                Box::pin(async move {
                    let wish = wish(message.template, message.info)?;
                    let (rendered, problems) = ops::render(&api, &caller, wish).await?;
                    drop(seat);
                    let template = wire::Template { name: rendered.template.to_string(), data: rendered.to_yaml() };
                    Ok(wire::RenderEnvironmentTemplateResponse { template: Some(template), problems: lines(&problems) })
                })
            }))
        },
        "EnsureEnvironment" => |api, caller, request| {
            let who = operator(&api, &caller).and_then(|user| {
                let asker = Asker::Operator(user.clone());
                Ok((asker.seat(&api)?, api.uploads.take(&user)?, asker))
            });
            let call = Unread::large(request, who);
            Box::pin(call.many(move |(held, seat, asker), message: wire::EnsureEnvironmentRequest| {
                Box::pin(async move {
                    let following = ops::ensure(&api, &asker, wish(message.template, message.info)?).await?;
                    drop(seat);
                    Ok(events(api, following, held))
                })
            }))
        },
        "DeleteEnvironment" => |api: Arc<Shared>, caller, request| {
            let call = Unread::of(request, operator(&api, &caller).map(Asker::Operator));
            Box::pin(call.many(move |asker, message: wire::DeleteEnvironmentRequest| {
                Box::pin(async move {
                    let held = asker.seat(&api)?;
                    let following = ops::remove(&api, &asker, message.environment_id).await?;
                    Ok(events(api, following, held))
                })
            }))
        },
        _ => return None,
    })
}

/// Writes the faults of a template's file, a line for each.
fn lines(problems: &[Place]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn shown(template: &Template) -> wire::Template {
    wire::Template { name: template.name().to_string(), data: template.text().to_owned() }
}

/// Reads a template and facts. Facts that the gateway knows itself, or makes of a name, are zero or empty if left out.
fn wish(template: Option<wire::Template>, info: Option<wire::Info>) -> Result<Wish, Problem> {
    let template = said(template, "/template")?;
    let info = said(info, "/info")?;
    let agent = said(info.agent, "/info/agent")?;
    let environment = said(info.environment, "/info/environment")?;
    let project = said(info.project, "/info/project")?;
    let own = |text: String| Some(text).filter(|text| !text.is_empty());
    let id = |numbered: wire::info::Numbered, pointer: &str| said(numbered.id, pointer);
    let ci_pipeline = info.ci_pipeline.map(|numbered| id(numbered, "/info/ci_pipeline/id")).transpose()?;
    let ci_job = info.ci_job.map(|numbered| id(numbered, "/info/ci_job/id")).transpose()?;
    let user = info.user.map(|user| Ok::<_, Problem>((said(user.id, "/info/user/id")?, user.username))).transpose()?;
    let name: TemplateName = parsed(&template.name, "/template/name")?;
    Ok(Wish {
        agent: parsed(&agent.name, "/info/agent/name")?,
        template: Given { name, data: own(template.data) },
        info: AskedInfo {
            agent: Some(AskedAgent { name: agent.name }),
            environment: AskedEnvironment {
                id: Some(environment.id).filter(|id| *id != 0),
                name: environment.name,
                slug: own(environment.slug),
                page_url: own(environment.page_url),
                url: environment.url,
                tier: environment.tier,
            },
            project: AskedProject {
                id: said(project.id, "/info/project/id")?,
                slug: own(project.slug),
                path: project.path,
                url: own(project.url),
            },
            ci_pipeline,
            ci_job,
            user,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is done to facts that are whole.
    type Change = fn(&mut wire::Info);

    fn whole() -> wire::Info {
        let agent = wire::info::Agent { name: "prod".to_owned(), ..wire::info::Agent::default() };
        let environment = wire::info::Environment { name: "review/1".to_owned(), ..wire::info::Environment::default() };
        let project = wire::info::Project { id: Some(42), path: "a/b".to_owned(), ..wire::info::Project::default() };
        wire::Info {
            agent: Some(agent),
            environment: Some(environment),
            project: Some(project),
            ci_pipeline: Some(wire::info::Numbered { id: Some(0) }),
            ci_job: None,
            user: Some(wire::info::User { id: Some(7), username: "ann".to_owned() }),
        }
    }

    fn read(info: wire::Info) -> Result<AskedInfo, Problem> {
        let template = wire::Template { name: "default".to_owned(), data: String::new() };
        wish(Some(template), Some(info)).map(|wish| wish.info)
    }

    #[test]
    fn number_that_the_gateway_cannot_know_is_missing_where_it_is_not_said() {
        let info = read(whole()).unwrap();
        assert_eq!((info.project.id, info.ci_pipeline, info.ci_job), (42, Some(0), None));
        assert_eq!((info.user, info.environment.id), (Some((7, "ann".to_owned())), None));
        let without: [(Change, &str); 4] = [
            (|info| info.project.as_mut().unwrap().id = None, "/info/project/id"),
            (|info| info.ci_pipeline = Some(wire::info::Numbered::default()), "/info/ci_pipeline/id"),
            (|info| info.ci_job = Some(wire::info::Numbered::default()), "/info/ci_job/id"),
            (|info| info.user.as_mut().unwrap().id = None, "/info/user/id"),
        ];
        for (change, pointer) in without {
            let mut info = whole();
            change(&mut info);
            assert_eq!(read(info).unwrap_err(), ops::missing(pointer));
        }
    }
}
