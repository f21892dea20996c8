//! The page that makes workspaces: on a machine of the user's own, in a cluster, or as a job of a CI system.
//!
//! Forms are turned into the members that the API's body has, and read by the same code: what the API refuses, a form shows beside its
//! fields, a devfile's faults with their lines. A script sends the form with `check` while a devfile is typed; then nothing is made.

mod template;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{StatusCode, Uri};
use serde_json::{Map, Value, json};

use self::template::{Control, Offer, TemplateForm};
use super::frame::{Frame, Section, page};
use super::see_other;
use gateway_api::page::{browser, check_form, only};
use gateway_api::problem::{ApiProblem, Fault, ProblemRow};
use gateway_api::{ApiShared, Caller, body, lifecycle, tokens};
use gateway_auth::site::WORKSPACE_PAGES;
use gateway_workspaces::service::{ClusterPlace, Places};
use workspace_spec::devfile::DEFAULT_DEVFILE;
use workspace_spec::editor::{CODE_SERVER, NO_EDITOR};
use workspace_spec::project::Project;
use workspace_spec::workspace_template::ParameterValues;

/// Place in which a form has a workspace made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Machine,
    Cluster,
    /// A cluster, from one of its templates.
    Template,
    Ci,
}

impl Target {
    fn read(form: &[u8]) -> Option<Self> {
        match only(form, "on")?.as_str() {
            "machine" => Some(Self::Machine),
            "cluster" => Some(Self::Cluster),
            "template" => Some(Self::Template),
            "ci" => Some(Self::Ci),
            _ => None,
        }
    }
}

/// Texts of the fields of a form.
#[derive(Default)]
struct Fields {
    name: String,
    display_name: String,
    agent: String,
    projects: String,
    devfile: String,
    editor: String,
    idle_minutes: String,
    template: String,
    /// Values of the template's parameters, by their names.
    parameters: ParameterValues,
}

#[derive(Template)]
#[template(path = "create.html")]
struct CreatePage {
    frame: Frame,
    machine: FormState,
    cluster: FormState,
    template: FormState,
    ci: FormState,
    /// Templates of all clusters.
    offers: Vec<Offer>,
    /// The template that was chosen.
    chosen: Option<TemplateForm>,
    clusters: Vec<ClusterPlace>,
    editors: Vec<String>,
    providers: Vec<String>,
    default_devfile: &'static str,
}

/// One of the forms, and what is wrong in it.
#[derive(Default)]
struct FormState {
    fields: Fields,
    faults: Vec<Fault>,
    is_sent: bool,
}

#[derive(Template)]
#[template(path = "connect.html")]
struct ConnectPage {
    frame: Frame,
    name: String,
    token: String,
    agents_url: String,
}

impl Fields {
    fn read(form: &[u8]) -> Self {
        let field = |name: &str| only(form, name).unwrap_or_default();
        let line = |name: &str| field(name).trim().to_owned();
        Self {
            name: line("name"),
            display_name: line("display_name"),
            agent: line("agent"),
            projects: field("projects"),
            devfile: field("devfile").replace("\r\n", "\n"),
            editor: line("editor"),
            idle_minutes: line("idle_minutes"),
            template: line("template"),
            parameters: template::read(form),
        }
    }

    /// Returns the members of the API's body.
    fn members(&self, target: Target) -> Map<String, Value> {
        let mut members = Map::new();
        let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
        put("name", json!(self.name));
        if !self.display_name.is_empty() {
            put("display_name", json!(self.display_name));
        }
        let devfile = Some(&self.devfile).filter(|devfile| !devfile.trim().is_empty());
        if let (Some(devfile), Target::Cluster | Target::Ci) = (devfile, target) {
            put("devfile", json!(devfile));
        }
        // A text stays one, and is refused with the API's words.
        let minutes =
            self.idle_minutes.parse::<f64>().map_or_else(|_| json!(self.idle_minutes), |minutes| json!(minutes));
        if !self.idle_minutes.is_empty() && target != Target::Machine {
            put("idle_minutes", minutes);
        }
        let projects: Vec<Value> =
            self.projects.lines().map(str::trim).filter(|line| !line.is_empty()).map(project).collect();
        match target {
            Target::Machine => {
                put("executor", json!("external"));
            }
            Target::Cluster | Target::Template => {
                put("executor", json!("kubernetes"));
                put("agent", json!(self.agent));
                if target == Target::Template {
                    put("template", json!(self.template));
                    put("template_parameters", json!(self.parameters));
                }
                if !projects.is_empty() {
                    put("projects", projects.into());
                }
                if !self.editor.is_empty() {
                    put("editor", json!(self.editor));
                }
            }
            Target::Ci => {
                put("executor", json!("ci"));
                put("agent", json!(self.agent));
                if let Some(first) = projects.into_iter().next() {
                    put("project", first);
                }
            }
        }
        members
    }
}

/// Splits `URL[@ref]` as the command line does, and leaves mistakes to the API's words.
fn project(line: &str) -> Value {
    let Project { url, reference } = Project::split(line);
    match reference {
        Some(reference) => json!({"url": url, "ref": reference}),
        None => json!({"url": url}),
    }
}

/// Shows the forms.
///
/// Cancel safety: safe.
pub(super) async fn show(State(api): State<Arc<ApiShared>>, caller: Caller, uri: Uri) -> Result<Response, ProblemRow> {
    browser(&caller)?;
    // A link may fill in fields; nothing is made without a button.
    let fields = Fields::read(uri.query().unwrap_or_default().as_bytes());
    let target = if fields.template.is_empty() { Target::Machine } else { Target::Template };
    let mut state = FormState { fields, ..FormState::default() };
    let status = match template::problem(&api, target, &state.fields) {
        None => StatusCode::OK,
        Some(problem) => {
            state.faults = problem.faults();
            problem.status()
        }
    };
    answer(&api, &caller, status, target, state).await
}

/// Makes a workspace, or says what is wrong.
///
/// Cancel safety: a workspace is made or not, as a whole.
pub(super) async fn make(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    request: Request,
) -> Result<Response, ProblemRow> {
    browser(&caller)?;
    check_form(request.headers())?;
    let (form, _permit) = body::read_large_form(request, &api.uploads, &caller.user()?.user).await?;
    let target = Target::read(&form).ok_or(ApiProblem::BadRequest { reason: "no_action" })?;
    let mut fields = Fields::read(&form);
    if target == Target::Template {
        template::add_unchecked(&api, &mut fields);
    }
    if only(&form, "check").is_some() {
        let faults = match lifecycle::check_of(&api, &caller, fields.members(target)).await {
            Ok(()) => Vec::new(),
            // A name that is not typed yet is no mistake of the devfile.
            Err(problem) => problem.faults().into_iter().filter(|fault| fault.field == "devfile").collect(),
        };
        return answer(&api, &caller, StatusCode::OK, target, FormState { fields, faults, is_sent: true }).await;
    }
    let made = match target {
        Target::Machine => match connect(&api, &caller, &fields).await {
            Ok(page) => return Ok(page),
            Err(problem) => Err(problem),
        },
        Target::Cluster | Target::Template | Target::Ci => {
            lifecycle::make_of(&api, &caller, fields.members(target)).await
        }
    };
    match made {
        Ok(name) => Ok(see_other(&format!("{WORKSPACE_PAGES}{name}?follow=1"))),
        Err(problem) => {
            let state = FormState { faults: problem.faults(), fields, is_sent: true };
            answer(&api, &caller, problem.status(), target, state).await
        }
    }
}

/// Makes a workspace for a machine of the user's, with a token for its agent that is shown this once.
async fn connect(api: &ApiShared, caller: &Caller, fields: &Fields) -> Result<Response, ProblemRow> {
    let mut members = Map::new();
    members.insert("kind".to_owned(), json!("agent"));
    members.insert("workspace".to_owned(), json!(fields.name));
    let token =
        tokens::make_of(api, caller, members).await.map_err(|problem| match problem.is(ApiProblem::NotFound) {
            // Another user has it.
            true => ApiProblem::Conflict { reason: "name_taken" }.into(),
            false => problem,
        })?;
    let frame = Frame::new(api, caller.user()?, Section::Create);
    let (name, agents_url) = (fields.name.clone(), api.lifecycles.agents_url().to_owned());
    Ok(page(StatusCode::OK, &ConnectPage { frame, name, token, agents_url }))
}

async fn answer(
    api: &ApiShared,
    caller: &Caller,
    status: StatusCode,
    target: Target,
    state: FormState,
) -> Result<Response, ProblemRow> {
    let Places { clusters, providers } = api.lifecycles.places().await?;
    let mut editors: Vec<String> = clusters.iter().flat_map(|cluster| cluster.editors.iter().cloned()).collect();
    editors.push(CODE_SERVER.to_owned());
    editors.sort_unstable();
    editors.dedup();
    editors.push(NO_EDITOR.to_owned());
    let providers = providers.iter().map(ToString::to_string).collect();
    let frame = Frame::new(api, caller.user()?, Section::Create);
    let offers = template::offers(api, &clusters, &state.fields);
    let chosen = if target == Target::Template { TemplateForm::new(api, &state) } else { None };
    let mut content = CreatePage {
        frame,
        machine: FormState::default(),
        cluster: FormState::default(),
        template: FormState::default(),
        ci: FormState::default(),
        offers,
        chosen,
        clusters,
        editors,
        providers,
        default_devfile: DEFAULT_DEVFILE,
    };
    *(match target {
        Target::Machine => &mut content.machine,
        Target::Cluster => &mut content.cluster,
        Target::Template => &mut content.template,
        Target::Ci => &mut content.ci,
    }) = state;
    Ok(page(status, &content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_has_its_ref_behind_the_path() {
        assert_eq!(
            project("https://git.example/a/b.git@main"),
            json!({"url": "https://git.example/a/b.git", "ref": "main"})
        );
        assert_eq!(project("https://ann@git.example/a.git"), json!({"url": "https://ann@git.example/a.git"}));
        assert_eq!(project("https://g/a.git@fix@2"), json!({"url": "https://g/a.git", "ref": "fix@2"}));
        assert_eq!(project("x"), json!({"url": "x"}));
    }

    #[test]
    fn form_has_the_members_of_the_api() {
        let form = b"name=app&agent=one&projects=https%3A%2F%2Fg%2Fa.git%0D%0A%0D%0A&devfile=++&editor=&idle_minutes=5";
        let members = Fields::read(form).members(Target::Cluster);
        let expected = json!({"name": "app", "executor": "kubernetes", "agent": "one", "idle_minutes": 5.0,
            "projects": [{"url": "https://g/a.git"}]});
        assert_eq!(Value::from(members), expected);
    }

    #[test]
    fn form_of_a_template_has_its_parameters() {
        let form =
            b"name=app&agent=one&template=node&parameter.a=x%0D%0Ay&parameter.b=&parameter.b=2&parameter.=1&devfile=x";
        let members = Fields::read(form).members(Target::Template);
        let expected = json!({"name": "app", "executor": "kubernetes", "agent": "one", "template": "node",
            "template_parameters": {"a": "x\ny"}});
        assert_eq!(Value::from(members), expected, "what is there twice counts for nothing");
    }
}
