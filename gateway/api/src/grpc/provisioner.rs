//! The service `Provisioner`: templates, and environments made of them. For operators.

use std::sync::Arc;

use parking_lot::Mutex;
use tonic::{Request, Response, Status};

use super::events::{Events, events};
use super::prerequisites::{parsed, said};
use super::wire;
use super::wire::provisioner_server::Provisioner;
use crate::environments::CallerPermit;
use crate::environments::actions::{self, EnsureRequest, TemplateSource};
use crate::environments::caller::{JobCaller, operator};
use crate::environments::request::{AskedAgent, AskedEnvironment, AskedInfo, AskedProject};
use crate::permits::ApiPermit;
use crate::problem::{FaultLocation, ProblemRow};
use crate::{ApiShared, Caller};
use gateway_types::ClusterName;
use workspace_spec::environment::template::{Template, TemplateName};

/// Permits that a call takes before its message is read.
#[derive(Default)]
pub(super) struct Room {
    /// For the stream of events.
    pub(super) stream: Option<CallerPermit>,
    /// For the message, until the call is answered.
    pub(super) upload: Option<ApiPermit>,
}

/// A call of an operator; of the built-in template, of any user.
pub(super) struct OfOperator {
    api: Arc<ApiShared>,
    caller: Caller,
    stream: Mutex<Option<CallerPermit>>,
    _upload: Option<ApiPermit>,
}

impl OfOperator {
    pub(super) fn new(api: Arc<ApiShared>, caller: Caller, room: Room) -> Self {
        Self { api, caller, stream: Mutex::new(room.stream), _upload: room.upload }
    }

    /// Returns the caller, who is an operator, with the permit for a stream: the one that was taken before, or a new one.
    fn permitted(&self) -> Result<(JobCaller, CallerPermit), ProblemRow> {
        let asker = JobCaller::Operator(operator(&self.api, &self.caller)?);
        let taken = self.stream.lock().take();
        let held = taken.map_or_else(|| asker.permit(&self.api), Ok)?;
        Ok((asker, held))
    }
}

#[tonic::async_trait]
impl Provisioner for OfOperator {
    type EnsureEnvironmentStream = Events;
    type DeleteEnvironmentStream = Events;

    async fn get_environment_template(
        &self,
        request: Request<wire::GetEnvironmentTemplateRequest>,
    ) -> Result<Response<wire::GetEnvironmentTemplateResponse>, Status> {
        let message = request.into_inner();
        let agent: ClusterName = parsed(&message.agent_name, "/agent_name")?;
        let name: TemplateName = parsed(&message.template_name, "/template_name")?;
        let found = actions::template(&self.api, &self.caller, &agent, &name)?;
        let problems = lines(&actions::template_problems(&self.api, &agent, &name));
        Ok(Response::new(wire::GetEnvironmentTemplateResponse { template: Some(shown(&found)), problems }))
    }

    async fn get_default_environment_template(
        &self,
        _request: Request<wire::GetDefaultEnvironmentTemplateRequest>,
    ) -> Result<Response<wire::GetDefaultEnvironmentTemplateResponse>, Status> {
        let template = Some(shown(&self.api.environments.service.default_template()));
        Ok(Response::new(wire::GetDefaultEnvironmentTemplateResponse { template }))
    }

    async fn render_environment_template(
        &self,
        request: Request<wire::RenderEnvironmentTemplateRequest>,
    ) -> Result<Response<wire::RenderEnvironmentTemplateResponse>, Status> {
        let message = request.into_inner();
        let wish = wish(message.template, message.info)?;
        let (rendered, problems) = actions::render(&self.api, &self.caller, wish).await?;
        let template = wire::Template { name: rendered.template.to_string(), data: rendered.to_yaml() };
        let (template, problems) = (Some(template), lines(&problems));
        Ok(Response::new(wire::RenderEnvironmentTemplateResponse { template, problems }))
    }

    async fn ensure_environment(
        &self,
        request: Request<wire::EnsureEnvironmentRequest>,
    ) -> Result<Response<Events>, Status> {
        let message = request.into_inner();
        let (asker, held) = self.permitted()?;
        let following = actions::ensure(&self.api, &asker, wish(message.template, message.info)?).await?;
        Ok(Response::new(events(self.api.clone(), following, held)))
    }

    async fn delete_environment(
        &self,
        request: Request<wire::DeleteEnvironmentRequest>,
    ) -> Result<Response<Events>, Status> {
        let (asker, held) = self.permitted()?;
        let following = actions::remove(&self.api, &asker, request.into_inner().environment_id).await?;
        Ok(Response::new(events(self.api.clone(), following, held)))
    }
}

/// Writes the faults of a template's file, a line for each.
fn lines(problems: &[FaultLocation]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn shown(template: &Template) -> wire::Template {
    wire::Template { name: template.name().to_string(), data: template.text().to_owned() }
}

/// Reads a template and facts. Facts that the gateway knows itself, or makes of a name, are zero or empty if left out.
fn wish(template: Option<wire::Template>, info: Option<wire::Info>) -> Result<EnsureRequest, ProblemRow> {
    let template = said(template, "/template")?;
    let info = said(info, "/info")?;
    let agent = said(info.agent, "/info/agent")?;
    let environment = said(info.environment, "/info/environment")?;
    let project = said(info.project, "/info/project")?;
    let own = |text: String| Some(text).filter(|text| !text.is_empty());
    let id = |numbered: wire::info::Numbered, pointer: &str| said(numbered.id, pointer);
    let ci_pipeline = info.ci_pipeline.map(|numbered| id(numbered, "/info/ci_pipeline/id")).transpose()?;
    let ci_job = info.ci_job.map(|numbered| id(numbered, "/info/ci_job/id")).transpose()?;
    let user =
        info.user.map(|user| Ok::<_, ProblemRow>((said(user.id, "/info/user/id")?, user.username))).transpose()?;
    let name: TemplateName = parsed(&template.name, "/template/name")?;
    Ok(EnsureRequest {
        agent: parsed(&agent.name, "/info/agent/name")?,
        template: TemplateSource { name, data: own(template.data) },
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

    fn read(info: wire::Info) -> Result<AskedInfo, ProblemRow> {
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
            assert_eq!(read(info).unwrap_err(), actions::missing(pointer));
        }
    }
}
