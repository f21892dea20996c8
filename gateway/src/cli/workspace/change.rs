//! `gateway workspace create`, `start`, `stop`, `restart` and `terminate`.

use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use super::follow::{Lookout, Waiting, follow};
use super::given::{self, BadFile};
use super::wish::{Look, Wish};
use super::{address, no_such};
use crate::audit::{Event, Text};
use crate::cli::client::{Client, ClientError, shown};
use crate::cli::local::{Journal, operator};
use crate::cli::place::complain;
use crate::cli::token::default_owner;
use crate::cli::{ChangeArgs, Console, CreateArgs, Exit, On, Output, WorkspaceCommand};
use crate::config::Config;
use crate::executors::ci::downloads::{DownloadError, Downloads};
use crate::executors::ci::settings::{CiSetupError, targets};
use crate::model::{BadProviderName, ClusterName, UnixSeconds, WorkspaceName};
use crate::store::{CiProject, Store, Variable};
use crate::workspaces::addresses::Addresses;
use crate::workspaces::changes::Changes;
use crate::workspaces::service::{NewOn, NewOnCi, NewWorkspace, WorkspaceError, Workspaces};

/// A change that a command asks for.
#[derive(Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) wish: Wish,
    pub(super) args: &'a ChangeArgs,
    /// Nobody is to be asked whether they are sure.
    pub(super) is_sure: bool,
}

#[derive(Deserialize)]
struct Detail {
    url: String,
    state: Option<Look>,
}

impl<'a> Change<'a> {
    /// Takes the commands that are one.
    pub(super) fn of(command: &'a WorkspaceCommand) -> Option<Self> {
        let (wish, args, is_sure) = match command {
            WorkspaceCommand::Start(args) => (Wish::Start, args, true),
            WorkspaceCommand::Stop(args) => (Wish::Stop, args, true),
            WorkspaceCommand::Restart(args) => (Wish::Restart, args, true),
            WorkspaceCommand::Terminate(args) => (Wish::Terminate, &args.change, args.yes),
            WorkspaceCommand::Create(_)
            | WorkspaceCommand::List(_)
            | WorkspaceCommand::Show(_)
            | WorkspaceCommand::Open(_)
            | WorkspaceCommand::Share(_) => return None,
        };
        Some(Self { wish, args, is_sure })
    }

    /// Asks whether somebody is sure where that cannot be taken back.
    fn is_wanted(self, console: &mut Console) -> bool {
        let name = &self.args.workspace;
        let is_wanted = self.is_sure
            || console.confirm(format_args!("Terminate {name}? Its storage is deleted, which cannot be taken back."));
        if !is_wanted {
            console.complain(format_args!("{name} was left as it is"));
        }
        is_wanted
    }

    async fn wait(self, lookout: Lookout<'_>, asked: Look, console: &mut Console) -> Exit {
        let Self { wish, args, .. } = self;
        if args.no_wait {
            return match args.output {
                Output::Text => Exit::Success,
                Output::Json => console.finish_with(line(&args.workspace.to_string(), None, &asked)),
            };
        }
        let (timeout, output) = (args.timeout, args.output);
        follow(lookout, Waiting { workspace: &args.workspace, wish, asked, timeout, output }, console).await
    }
}

/// Asks a gateway for a change.
pub(super) async fn change(client: &Client, change: Change<'_>, console: &mut Console) -> Result<Exit, ClientError> {
    if !change.is_wanted(console) {
        return Ok(Exit::Failed);
    }
    let path = format!("/workspaces/{}", change.args.workspace);
    let wanted = json!({"desired_state": change.wish.desired().as_str()});
    let detail: Detail = client.patch(&path, &wanted).await?;
    Ok(change.wait(Lookout::Gateway(client), detail.state.unwrap_or_default(), console).await)
}

/// Changes a workspace in this machine's database; a running gateway sees it within seconds.
pub(super) async fn change_here(
    (store, config): (&Store, &Config),
    change: Change<'_>,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, Exit> {
    if !change.is_wanted(console) {
        return Ok(Exit::Failed);
    }
    let journal = Journal::open(config, now, console)?;
    let workspaces = service(store, config);
    let name = &change.args.workspace;
    let changed = match workspaces.request(name, change.wish.desired(), now).await {
        Ok(changed) => changed,
        Err(WorkspaceError::NoSuchWorkspace) => return Ok(unmanaged(store, name, console).await),
        Err(error) => return Err(complain(&error, console)),
    };
    let how = match change.wish {
        Wish::Start => "start",
        Wish::Stop => "stop",
        Wish::Restart => "restart",
        Wish::Terminate => "terminate",
    };
    let generation = changed.lifecycle.generation;
    journal.write(Event::WorkspaceRequested { by: operator(), workspace: Text::of(name), how, generation }, console);
    Ok(change.wait(Lookout::Here(store), Look::of(&changed), console).await)
}

async fn unmanaged(store: &Store, name: &WorkspaceName, console: &mut Console) -> Exit {
    if matches!(store.workspace(name).await, Ok(Some(_))) {
        console.complain(format_args!("{name} is not run by the gateway: start and stop it where it was made"));
        return Exit::Failed;
    }
    no_such(name, console)
}

/// Makes a workspace at a gateway.
pub(super) async fn create(client: &Client, args: &CreateArgs, console: &mut Console) -> Result<Exit, ClientError> {
    if args.owner.is_some() {
        console.complain("--owner is for the gateway's own machine: over the API, what you make is yours");
        return Ok(Exit::Usage);
    }
    let (devfile, variables) = match read(args) {
        Ok(given) => given,
        Err(error) => return Ok(complain(&error, console)),
    };
    let variables: Vec<Value> = variables.iter().map(variable).collect();
    let (name, agent) = (args.workspace.as_str(), args.agent.as_ref().map(ClusterName::as_str));
    let wanted = match args.executor {
        On::Kubernetes => {
            json!({"name": name, "executor": "kubernetes", "agent": agent, "devfile": devfile, "variables": variables})
        }
        On::Ci => {
            let project = args.project.as_ref().map(|url| json!({"url": url, "ref": args.reference}));
            json!({
                "name": name, "executor": "ci", "agent": agent, "devfile": devfile, "variables": variables,
                "project": project, "tags": args.tags,
            })
        }
    };
    let detail: Detail = client.post("/workspaces", &wanted).await?;
    let made = Made { url: shown(&detail.url), look: detail.state.unwrap_or_default() };
    Ok(present(Lookout::Gateway(client), args, made, console).await)
}

/// Makes a workspace in this machine's database.
pub(super) async fn create_here(
    (store, config): (&Store, &Config),
    args: &CreateArgs,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, Exit> {
    let Some(owner) = args.owner.clone().or_else(|| default_owner(config.auth.mode)) else {
        console.complain(format_args!("{} is new: name its owner with --owner", args.workspace));
        return Err(Exit::Usage);
    };
    let (devfile, variables) = read(args).map_err(|error| complain(&error, console))?;
    let journal = Journal::open(config, now, console)?;
    let on = on(args).map_err(|error| complain(&error, console))?;
    let new = NewWorkspace { name: args.workspace.clone(), on, devfile: devfile.map(Into::into), variables };
    let service = service_with_ci(store, config).map_err(|error| complain(&error, console))?;
    let managed = match service.create(&owner, new, now).await {
        Ok(managed) => managed,
        Err(error) => return Err(refused(&error, console)),
    };
    let workspace = Text::of(&args.workspace);
    let cluster = managed.kubernetes().map(|state| Text::of(&state.cluster_name));
    let provider = managed.ci().map(|state| Text::of(&state.provider));
    journal.write(Event::WorkspaceCreated { by: operator(), workspace, cluster, provider }, console);
    let made = Made { url: address(config, &args.workspace, None), look: Look::of(&managed) };
    Ok(present(Lookout::Here(store), args, made, console).await)
}

/// Says why a workspace was not made: of a devfile, each problem on a line of its own.
fn refused(error: &WorkspaceError, console: &mut Console) -> Exit {
    let WorkspaceError::Devfile(problems) = error else { return complain(error, console) };
    let lines: Vec<String> = problems.iter().map(|problem| format!("\n  {}", shown(&problem.to_string()))).collect();
    console.complain(format_args!("the devfile cannot be used:{}", lines.concat()));
    Exit::Failed
}

fn read(args: &CreateArgs) -> Result<(Option<String>, Vec<Variable>), BadFile> {
    Ok((given::devfile(args)?, given::variables(args)?))
}

fn variable(variable: &Variable) -> Value {
    json!({"name": variable.name, "value": variable.value.reveal(), "kind": variable.kind.as_str()})
}

/// Says what is to run a workspace.
fn on(args: &CreateArgs) -> Result<NewOn, BadOn> {
    match (args.executor, &args.agent) {
        (On::Kubernetes, _) if args.project.is_some() || !args.tags.is_empty() => Err(BadOn::Kubernetes),
        (On::Kubernetes, Some(cluster)) => Ok(NewOn::Kubernetes { cluster: cluster.clone() }),
        (On::Kubernetes, None) => Err(BadOn::Agent),
        (On::Ci, provider) => {
            let provider = provider.as_ref().map(|name| name.as_str().parse()).transpose()?;
            let project = args.project.clone().map(|url| CiProject { url, reference: args.reference.clone() });
            Ok(NewOn::Ci(NewOnCi { provider, project, tags: args.tags.clone() }))
        }
    }
}

/// Flags that do not go together.
#[derive(Debug, Error)]
enum BadOn {
    #[error("--project and --tag are for --executor ci")]
    Kubernetes,
    #[error("name the cluster with --agent")]
    Agent,
    #[error(transparent)]
    Provider(#[from] BadProviderName),
}

/// Makes a service that makes workspaces in CI systems too, where those are configured.
fn service_with_ci(store: &Store, config: &Config) -> Result<Workspaces, BadCi> {
    let made = service(store, config);
    if !config.ci.enabled {
        return Ok(made);
    }
    let addresses = Addresses::of(config, config.listen.agents.port());
    let agents = Downloads::open(&config.ci.agent_files)?.agents(&addresses.public_url);
    Ok(made.with_ci(targets(&config.ci, addresses, &agents)?.into()))
}

/// CI systems are configured and cannot be used.
#[derive(Debug, Error)]
enum BadCi {
    #[error(transparent)]
    Downloads(#[from] DownloadError),
    #[error(transparent)]
    Setup(#[from] CiSetupError),
}

fn service(store: &Store, config: &Config) -> Workspaces {
    Workspaces::new(store.clone(), Changes::default(), Addresses::of(config, config.listen.agents.port()))
}

/// A workspace that was just made.
struct Made {
    url: String,
    look: Look,
}

async fn present(lookout: Lookout<'_>, args: &CreateArgs, made: Made, console: &mut Console) -> Exit {
    let Made { url, look } = made;
    let printed = match args.output {
        Output::Text => console.finish_with(&url),
        Output::Json => console.finish_with(line(args.workspace.as_str(), Some(&url), &look)),
    };
    if printed != Exit::Success || !args.wait {
        return printed;
    }
    let (timeout, output) = (args.timeout, args.output);
    let waiting = Waiting { workspace: &args.workspace, wish: Wish::Start, asked: look, timeout, output };
    follow(lookout, waiting, console).await
}

/// Writes what was asked for, for programs.
fn line(workspace: &str, url: Option<&str>, look: &Look) -> Value {
    json!({
        "workspace": workspace,
        "url": url,
        "desired": look.desired,
        "actual": look.actual,
        "reason": look.reason,
        "generation": look.generation,
    })
}
