//! `gateway environment`: for CI jobs, which speak of their own environment with their `id_token`, and for operators,
//! who name one. Everything is done at a gateway, over its API.

mod follow;
mod patience;
mod speaker;
mod stop;

use std::collections::BTreeMap;

use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::follow::{Follow, FollowSource, Left};
use self::speaker::{Speaker, speaker};
use super::args::{EnsureArgs, EnvironmentArgs, EnvironmentCommand, ShowEnvironmentArgs, WhichArgs};
use super::client::{ClientError, shown};
use super::place::complain;
use super::{Console, Exit, Output};
use workspace_spec::environment::template::{DEFAULT_NAME, TemplateName};

/// An environment as a gateway's API has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Environment {
    id: u64,
    agent: String,
    project_id: u64,
    project_path: String,
    name: String,
    key: String,
    tier: Option<String>,
    url: Option<String>,
    state: String,
    since: String,
    template: Option<String>,
    deletion: Option<String>,
    objects: Vec<super::client::ClusterObject>,
    removal_due: bool,
    failure: Option<EnvironmentFailure>,
    left: Vec<Left>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct EnvironmentFailure {
    code: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EnvironmentList {
    environments: Vec<Value>,
}

/// Runs `gateway environment`.
pub async fn run_environment(args: &EnvironmentArgs, env: &BTreeMap<String, String>, console: &mut Console) -> Exit {
    let (which, remote) = match &args.command {
        EnvironmentCommand::Ensure(args) => (&args.which, &args.remote),
        EnvironmentCommand::Stop(args) => (&args.which, &args.remote),
        EnvironmentCommand::Show(args) => (&args.which, &args.remote),
    };
    let speaker = match speaker(which, remote, env, console) {
        Ok(speaker) => speaker,
        Err(exit) => return exit,
    };
    match &args.command {
        EnvironmentCommand::Ensure(args) => ensure(&speaker, args, console).await,
        EnvironmentCommand::Stop(args) => stop::stop(&speaker, args, console).await,
        EnvironmentCommand::Show(args) => show(&speaker, args, console).await,
    }
}

async fn ensure(speaker: &Speaker, args: &EnsureArgs, console: &mut Console) -> Exit {
    let (path, body) = match speaker {
        Speaker::Job(_) => ("/environments/complete", asked_by_job(args)),
        Speaker::Operator(_) => match asked_by_operator(args) {
            Ok(body) => ("/environments/ensure", body),
            Err(words) => {
                console.complain(words);
                return Exit::Usage;
            }
        },
    };
    let source =
        FollowSource { client: speaker.client(), method: Method::POST, path: path.to_owned(), body: Some(body) };
    let name = args.which.environment.as_deref().unwrap_or("the job's environment");
    let (done, done_but) = ("is ready", "is ready, and this was left in the cluster as not or no longer its own");
    Follow { source, name, done, done_but, timeout: args.timeout, output: args.output }.run(console).await
}

fn asked_by_job(args: &EnsureArgs) -> Value {
    let mut body = Map::new();
    body.insert("agent".to_owned(), args.which.agent.as_str().into());
    let template = args.template.as_ref().map(ToString::to_string);
    for (name, value) in [("template", &template), ("url", &args.url), ("environment", &args.which.environment)] {
        if let Some(value) = value {
            body.insert(name.to_owned(), value.as_str().into());
        }
    }
    Value::Object(body)
}

/// Writes the request of an operator; the gateway adds what it knows itself.
fn asked_by_operator(args: &EnsureArgs) -> Result<Value, &'static str> {
    let WhichArgs { agent, project, environment } = &args.which;
    let path = args.project_path.as_deref().ok_or("give --project-path: only a job's token speaks of its project")?;
    Ok(json!({
        "agent": agent.as_str(),
        "template": {"name": args.template.as_ref().map_or(DEFAULT_NAME, TemplateName::as_str)},
        "info": {
            "environment": {"name": environment, "url": args.url, "tier": args.tier},
            "project": {"id": project, "path": path},
        },
    }))
}

async fn show(speaker: &Speaker, args: &ShowEnvironmentArgs, console: &mut Console) -> Exit {
    let (environment, whole) = match find(speaker, &args.which).await {
        Ok(Some(found)) => found,
        Ok(None) => return no_such(console),
        Err(error) => return complain(&error, console),
    };
    match args.output {
        Output::Json => console.finish_with(format_args!("{whole:#}")),
        Output::Text => console.finish_with(environment.told()),
    }
}

fn no_such(console: &mut Console) -> Exit {
    console.complain("there is no such environment");
    Exit::Failed
}

/// Finds the environment that is meant; a job sees only its own.
async fn find(speaker: &Speaker, which: &WhichArgs) -> Result<Option<(Environment, Value)>, ClientError> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("agent", which.agent.as_str());
    if let Some(project) = which.project {
        query.append_pair("project_id", &project.to_string());
    }
    if let Some(name) = &which.environment {
        query.append_pair("name", name);
    }
    let page: EnvironmentList = speaker.client().get(&format!("/environments?{}", query.finish())).await?;
    let first = page.environments.into_iter().next();
    Ok(first.map(|whole| (Environment::deserialize(&whole).unwrap_or_default(), whole)))
}

impl Environment {
    /// Lays it out for people.
    fn told(&self) -> String {
        let dash = |value: &Option<String>| value.as_deref().map_or_else(|| "-".to_owned(), shown);
        let mut state = format!("{} since {}", shown(&self.state), shown(&self.since));
        if self.removal_due {
            state.push_str(", what was made for it is being deleted");
        }
        let mut rows = vec![
            ("environment", shown(&self.name)),
            ("number", self.id.to_string()),
            ("agent", shown(&self.agent)),
            ("project", format!("{} ({})", shown(&self.project_path), self.project_id)),
            ("key", shown(&self.key)),
            ("tier", dash(&self.tier)),
            ("url", dash(&self.url)),
            ("state", state),
            ("template", dash(&self.template)),
            ("deletion", dash(&self.deletion)),
            (
                "failure",
                dash(&self.failure.as_ref().map(|EnvironmentFailure { code, message }| format!("{message} ({code})"))),
            ),
        ];
        rows.extend(self.objects.iter().map(|object| ("object", object.to_string())));
        rows.extend(self.left.iter().map(|left| ("left", left.told())));
        let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:11}  {value}")).collect();
        lines.join("\n")
    }
}
