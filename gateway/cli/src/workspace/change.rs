//! `gateway workspace create`, `start`, `stop`, `restart` and `terminate`.

use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use super::follow::{Lookout, WorkspaceWait, follow};
use super::found::{self, FoundDevfile};
use super::given::{self, BadFile};
use super::idle::wire;
use super::template;
use super::wish::{Accepted, Persistence, Wish, WorkspaceLook};
use super::{address, no_such};
use crate::client::{ClientError, GatewayClient, shown};
use crate::local::{Journal, operator};
use crate::place::complain;
use crate::token::default_owner;
use crate::{ChangeArgs, Console, CreateArgs, Exit, Output, RunsOn, WorkspaceCommand};
use gateway_ci::downloads::{DownloadError, Downloads};
use gateway_ci::settings::{CiSetupError, targets};
use gateway_config::Config;
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{CiProject, Executor, Store, Variable};
use gateway_types::{BadProviderName, ClusterName, NamedPort, UnixSeconds, UserName, WorkspaceName};
use gateway_workspaces::addresses::Addresses;
use gateway_workspaces::changes::Changes;
use gateway_workspaces::service::{
    NewInCluster, NewOn, NewOnCi, NewWorkspace, WorkspaceError, Workspaces, check_ports,
};
use gateway_workspaces::workspace_templates::WorkspaceTemplates;
use workspace_spec::project::Project;

/// A change that a command asks for.
#[derive(Clone, Copy)]
pub(super) struct DesiredChange<'a> {
    pub(super) wish: Wish,
    pub(super) args: &'a ChangeArgs,
    /// The user is not to be asked for confirmation.
    pub(super) is_sure: bool,
}

#[derive(Deserialize)]
struct WorkspaceRevision {
    executor: String,
}

#[derive(Deserialize)]
struct Agents {
    agents: Vec<AgentRow>,
}

#[derive(Deserialize)]
struct AgentRow {
    name: String,
    enabled: bool,
}

#[derive(Deserialize)]
struct ChangedWorkspace {
    url: String,
    #[serde(default)]
    executor: String,
    state: Option<WorkspaceLook>,
}

impl ChangedWorkspace {
    fn progress(self) -> Accepted {
        Accepted { look: self.state.unwrap_or_default(), persistence: Persistence::of(&self.executor) }
    }
}

impl<'a> DesiredChange<'a> {
    /// Returns the change of a command, if it is one.
    pub(super) fn of(command: &'a WorkspaceCommand) -> Option<Self> {
        let (wish, args, is_sure) = match command {
            WorkspaceCommand::Start(args) => (Wish::Start, args, true),
            WorkspaceCommand::Stop(args) => (Wish::Stop, args, true),
            WorkspaceCommand::Restart(args) => (Wish::Restart, args, true),
            WorkspaceCommand::Terminate(args) => (Wish::Terminate, &args.change, args.yes),
            WorkspaceCommand::Create(_)
            | WorkspaceCommand::Keep(_)
            | WorkspaceCommand::Idle(_)
            | WorkspaceCommand::Rename(_)
            | WorkspaceCommand::HandOver(_)
            | WorkspaceCommand::List(_)
            | WorkspaceCommand::Templates(_)
            | WorkspaceCommand::Show(_)
            | WorkspaceCommand::Open(_)
            | WorkspaceCommand::Share(_) => return None,
        };
        Some(Self { wish, args, is_sure })
    }

    /// Asks the user to confirm a change that cannot be taken back.
    fn is_wanted(self, console: &mut Console) -> bool {
        let name = &self.args.workspace;
        let is_wanted = self.is_sure
            || console.confirm(format_args!("Terminate {name}? Its storage is deleted, which cannot be taken back."));
        if !is_wanted {
            console.complain(format_args!("{name} was left as it is"));
        }
        is_wanted
    }

    /// Reports that an external workspace is deleted, which is so at once.
    fn deleted(self, console: &mut Console) -> Exit {
        let name = &self.args.workspace;
        match self.args.output {
            Output::Text => {
                console.hint(format_args!(
                    "{name} is deleted: its agent's tokens count no more, and you may use the name again"
                ));
                Exit::Success
            }
            Output::Json => console.finish_with(json!({"workspace": name.as_str(), "actual": "Terminated"})),
        }
    }

    async fn wait(self, lookout: Lookout<'_>, asked: Accepted, console: &mut Console) -> Exit {
        let Self { wish, args, .. } = self;
        if args.no_wait {
            return match args.output {
                Output::Text => Exit::Success,
                Output::Json => console.finish_with(line(&args.workspace.to_string(), None, &asked.look)),
            };
        }
        let (timeout, output) = (args.timeout, args.output);
        follow(lookout, WorkspaceWait { workspace: &args.workspace, wish, asked, timeout, output }, console).await
    }
}

/// Asks a gateway for a change.
pub(super) async fn change(
    client: &GatewayClient,
    change: DesiredChange<'_>,
    console: &mut Console,
) -> Result<Exit, ClientError> {
    if !change.is_wanted(console) {
        return Ok(Exit::Failed);
    }
    let path = format!("/workspaces/{}", change.args.workspace);
    if change.wish == Wish::Terminate {
        let found: WorkspaceRevision = client.get(&path).await?;
        if found.executor == Executor::External.as_str() {
            client.delete(&path).await?;
            return Ok(change.deleted(console));
        }
    }
    let wanted = json!({"desired_state": change.wish.desired().as_str()});
    let detail: ChangedWorkspace = client.patch(&path, &wanted).await?;
    Ok(change.wait(Lookout::Gateway(client), detail.progress(), console).await)
}

/// Changes a workspace in this machine's database; a running gateway sees it within seconds.
pub(super) async fn change_here(
    store: &Store,
    config: &Config,
    change: DesiredChange<'_>,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, Exit> {
    if !change.is_wanted(console) {
        return Ok(Exit::Failed);
    }
    let journal = Journal::open(config, now, console)?;
    let workspaces = service(store, config);
    let name = &change.args.workspace;
    if change.wish == Wish::Terminate {
        let deleted = store.delete_external(name, None, now).await.map_err(|error| complain(&error, console))?;
        if deleted {
            journal
                .write(store, AuditEvent::WorkspaceForgotten { by: operator(), workspace: Text::of(name) }, console)
                .await;
            return Ok(change.deleted(console));
        }
    }
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
    journal
        .write(
            store,
            AuditEvent::WorkspaceRequested { by: operator(), workspace: Text::of(name), how, generation },
            console,
        )
        .await;
    Ok(change.wait(Lookout::Here(store), Accepted::of(&changed), console).await)
}

async fn unmanaged(store: &Store, name: &WorkspaceName, console: &mut Console) -> Exit {
    if matches!(store.workspace(name).await, Ok(Some(_))) {
        console.complain(format_args!("{name} is not run by the gateway: start and stop it where it was made"));
        return Exit::Failed;
    }
    no_such(name, console)
}

/// Makes a workspace at a gateway.
pub(super) async fn create(
    client: &GatewayClient,
    args: &CreateArgs,
    console: &mut Console,
) -> Result<Exit, ClientError> {
    if args.owner.is_some() {
        console.complain("--owner is for the gateway's own machine: over the API, what you make is yours");
        return Ok(Exit::Usage);
    }
    let (given, variables) = match read(args) {
        Ok(given) => given,
        Err(error) => return Ok(complain(&error, console)),
    };
    let variables: Vec<Value> = variables.iter().map(variable).collect();
    let projects = match projects(args) {
        Ok(projects) => projects,
        Err(error) => return Ok(complain(&error, console)),
    };
    let devfile = match (given, projects.first()) {
        (None, Some(first)) if looks_for_devfile(args) => found_devfile(first, console).await,
        (given, _) => given,
    };
    let (name, mut agent) = (args.workspace.as_str(), args.agent.as_ref().map(ToString::to_string));
    let wanted = match args.executor {
        RunsOn::Kubernetes => {
            if agent.is_none() {
                agent = match the_only(enabled_agents(client).await?) {
                    Ok(name) => Some(name),
                    Err(error) => return Ok(complain(&error, console)),
                };
            }
            let mut wanted = json!({
                "name": name, "executor": "kubernetes", "agent": agent, "devfile": devfile, "variables": variables,
            });
            // A gateway of before knows no such members.
            if let Value::Object(members) = &mut wanted {
                if !projects.is_empty() {
                    members.insert("projects".to_owned(), projects.iter().map(project).collect());
                }
                members.extend(args.editor.as_ref().map(|editor| ("editor".to_owned(), json!(editor))));
            }
            match template::with_template(with_idle(wanted, args), args) {
                Ok(wanted) => wanted,
                Err(error) => return Ok(complain(&error, console)),
            }
        }
        RunsOn::Ci => {
            let project = match in_no_cluster(args).and_then(|()| only_project(&projects)) {
                Ok(only) => only.map(project),
                Err(error) => return Ok(complain(&error, console)),
            };
            let wanted = json!({
                "name": name, "executor": "ci", "agent": agent, "devfile": devfile, "variables": variables,
                "project": project, "tags": args.tags,
            });
            with_idle(wanted, args)
        }
        RunsOn::External => {
            if let Err(error) = external(args) {
                return Ok(complain(&error, console));
            }
            json!({"name": name, "executor": "external"})
        }
    };
    let wanted = with_ports(wanted, &args.ports);
    let detail: ChangedWorkspace = client.post("/workspaces", &wanted).await?;
    let made = PrintedWorkspace { url: shown(&detail.url), asked: detail.progress() };
    let exit = present(Lookout::Gateway(client), args, made, console).await;
    if args.executor == RunsOn::External {
        next_steps(args, console);
    }
    Ok(exit)
}

/// Returns the names of the clusters that take workspaces.
pub(super) async fn enabled_agents(client: &GatewayClient) -> Result<Vec<String>, ClientError> {
    let Agents { agents } = client.get("/agents").await?;
    Ok(agents.into_iter().filter(|agent| agent.enabled).map(|agent| shown(&agent.name)).collect())
}

/// Adds the time limit for an idle workspace, if one is said: a gateway of before knows no such member.
fn with_idle(mut wanted: Value, args: &CreateArgs) -> Value {
    if let (Value::Object(members), Some(limit)) = (&mut wanted, args.idle_minutes) {
        members.insert("idle_minutes".to_owned(), wire(limit));
    }
    wanted
}

/// Adds named ports to a request, if there are any: a gateway of before takes none.
fn with_ports(mut wanted: Value, ports: &[NamedPort]) -> Value {
    let port = |named: &NamedPort| {
        json!({
            "port": named.port.get(), "name": named.name.as_ref().map(|name| name.as_str()),
            "protocol": named.protocol.as_str(), "host": named.host.as_str(),
        })
    };
    if let (Value::Object(members), [_, ..]) = (&mut wanted, ports) {
        members.insert("ports".to_owned(), ports.iter().map(port).collect());
    }
    wanted
}

/// Makes a workspace in this machine's database.
pub(super) async fn create_here(
    store: &Store,
    config: &Config,
    args: &CreateArgs,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, Exit> {
    let Some(owner) = args.owner.clone().or_else(|| default_owner(config.auth.mode)) else {
        console.complain(format_args!("{} is new: name its owner with --owner", args.workspace));
        return Err(Exit::Usage);
    };
    if args.executor == RunsOn::External {
        return create_external_here(store, config, args, &owner, console, now).await;
    }
    let (devfile, variables) = read(args).map_err(|error| complain(&error, console))?;
    let journal = Journal::open(config, now, console)?;
    let only = match (args.executor, &args.agent) {
        (RunsOn::Kubernetes, None) => {
            let clusters = store.clusters().await.map_err(|error| complain(&error, console))?;
            let names = clusters.iter().map(|cluster| cluster.name.to_string()).collect();
            let name = the_only(names).map_err(|error| complain(&error, console))?;
            name.parse().ok()
        }
        (RunsOn::Kubernetes, Some(_)) | (RunsOn::Ci | RunsOn::External, _) => None,
    };
    let on = on(args, only).map_err(|error| complain(&error, console))?;
    let new = NewWorkspace {
        name: args.workspace.clone(),
        on,
        devfile: devfile.map(Into::into),
        variables,
        idle: args.idle_minutes.unwrap_or_default(),
        ports: args.ports.clone(),
    };
    let service = service_with_ci(store, config).map_err(|error| complain(&error, console))?;
    let service = match &args.template {
        Some(_) => service.with_templates(WorkspaceTemplates::open(config.agents_dir.clone()).await),
        None => service,
    };
    let managed = match service.create(&owner, new, now).await {
        Ok(managed) => managed,
        Err(error) => return Err(refused(&error, console)),
    };
    let workspace = Text::of(&args.workspace);
    let cluster = managed.kubernetes().map(|state| Text::of(&state.cluster_name));
    let provider = managed.ci().map(|state| Text::of(&state.provider));
    journal.write(store, AuditEvent::WorkspaceCreated { by: operator(), workspace, cluster, provider }, console).await;
    let made = PrintedWorkspace { url: address(config, &args.workspace, None), asked: Accepted::of(&managed) };
    Ok(present(Lookout::Here(store), args, made, console).await)
}

/// Looks for the devfile of the first project, and says what came of it; `None` for the built-in one.
async fn found_devfile(project: &Project, console: &mut Console) -> Option<String> {
    let (of, url) = (project.clone(), shown(&project.url));
    // Git is another program, which takes its time.
    let found = tokio::task::spawn_blocking(move || found::devfile(&of)).await;
    let found = found.unwrap_or_else(|_| FoundDevfile::Unknown("it was interrupted".to_owned()));
    match found {
        FoundDevfile::Found(name, text) => {
            console.hint(format_args!("the devfile is {name} of {url}; --built-in-devfile takes the built-in one"));
            Some(text)
        }
        FoundDevfile::None => {
            console.hint(format_args!("{url} has no .devfile.yaml: the built-in devfile is taken"));
            None
        }
        FoundDevfile::Unknown(why) => {
            let why = shown(&why);
            console.hint(format_args!(
                "{url} was not searched for a .devfile.yaml, so the built-in devfile is taken: {why}"
            ));
            None
        }
    }
}

/// Makes an external workspace in this machine's database. The operator makes as many as they like.
async fn create_external_here(
    store: &Store,
    config: &Config,
    args: &CreateArgs,
    owner: &UserName,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, Exit> {
    external(args).map_err(|error| complain(&error, console))?;
    let journal = Journal::open(config, now, console)?;
    check_ports(&args.ports).map_err(|error| complain(&error, console))?;
    let made = store.create_external(&args.workspace, owner, None, &args.ports, now).await;
    made.map_err(|error| complain(&error, console))?;
    let workspace = Text::of(&args.workspace);
    journal
        .write(
            store,
            AuditEvent::WorkspaceCreated { by: operator(), workspace, cluster: None, provider: None },
            console,
        )
        .await;
    let made = PrintedWorkspace {
        url: address(config, &args.workspace, None),
        asked: Accepted { look: WorkspaceLook::default(), persistence: Persistence::GivesUp },
    };
    let exit = present(Lookout::Here(store), args, made, console).await;
    next_steps(args, console);
    Ok(exit)
}

/// Tells how an external workspace gets its agent.
fn next_steps(args: &CreateArgs, console: &mut Console) {
    console.hint(format_args!(
        "next: gateway token create --workspace {}, and workspace-agent run with that token where your code is",
        args.workspace
    ));
}

/// Refuses flags about how a workspace is run, for one that is not run here.
fn external(args: &CreateArgs) -> Result<(), BadOn> {
    let says_how = args.agent.is_some()
        || args.editor.is_some()
        || !args.projects.is_empty()
        || args.devfile.is_some()
        || args.template.is_some()
        || args.wait
        || args.idle_minutes.is_some()
        || !(args.tags.is_empty() && args.env_file.is_empty() && args.secret_file.is_empty());
    if says_how { Err(BadOn::External) } else { Ok(()) }
}

/// Reports why a workspace was not made: of a devfile, each problem on a line of its own.
fn refused(error: &WorkspaceError, console: &mut Console) -> Exit {
    let WorkspaceError::Devfile(problems) = error else { return complain(error, console) };
    let lines: Vec<String> = problems.iter().map(|problem| format!("\n  {}", shown(&problem.to_string()))).collect();
    console.complain(format_args!("the devfile cannot be used:{}", lines.concat()));
    Exit::Failed
}

fn read(args: &CreateArgs) -> Result<(Option<String>, Vec<Variable>), BadFile> {
    Ok((given::devfile(args)?, given::variables(args)?))
}

/// Returns the projects to clone, the only one with the reference that is said apart.
fn projects(args: &CreateArgs) -> Result<Vec<Project>, BadOn> {
    let mut projects = args.projects.clone();
    if let Some(reference) = &args.reference {
        let [Project { reference: none @ None, .. }] = projects.as_mut_slice() else { return Err(BadOn::Reference) };
        *none = Some(reference.clone());
    }
    Ok(projects)
}

/// Returns whether the devfile of the first project is looked for.
fn looks_for_devfile(args: &CreateArgs) -> bool {
    args.executor == RunsOn::Kubernetes && !args.built_in_devfile && args.template.is_none()
}

/// Refuses for a CI system what only clusters have: templates, and a choice of the editor, which its configuration makes for all jobs.
fn in_no_cluster(args: &CreateArgs) -> Result<(), BadOn> {
    match (&args.editor, &args.template) {
        (Some(_), _) => Err(BadOn::Editor),
        (None, Some(_)) => Err(BadOn::Template),
        (None, None) => Ok(()),
    }
}

fn only_project(projects: &[Project]) -> Result<Option<&Project>, BadOn> {
    match projects {
        [] => Ok(None),
        [only] => Ok(Some(only)),
        [_, _, ..] => Err(BadOn::OneProject),
    }
}

fn project(project: &Project) -> Value {
    json!({"url": project.url, "ref": project.reference})
}

fn variable(variable: &Variable) -> Value {
    json!({"name": variable.name, "value": variable.value.reveal(), "kind": variable.kind.as_str()})
}

/// Returns the only cluster, for requests that name none.
pub(super) fn the_only(mut names: Vec<String>) -> Result<String, BadOn> {
    match (names.pop(), names.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(last), false) => {
            names.push(last);
            Err(BadOn::Several(names.join(", ")))
        }
        (None, _) => Err(BadOn::NoCluster),
    }
}

/// Returns the executor of a workspace; `only` is the one cluster that there is.
fn on(args: &CreateArgs, only: Option<ClusterName>) -> Result<NewOn, BadOn> {
    match (args.executor, args.agent.as_ref().or(only.as_ref())) {
        (RunsOn::External, _) => Err(BadOn::External),
        (RunsOn::Kubernetes, _) if !args.tags.is_empty() => Err(BadOn::Kubernetes),
        (RunsOn::Kubernetes, Some(cluster)) => {
            let (projects, editor, template) = (projects(args)?, args.editor.clone(), template::request(args)?);
            Ok(NewOn::Kubernetes(NewInCluster { cluster: cluster.clone(), projects, editor, template }))
        }
        (RunsOn::Kubernetes, None) => Err(BadOn::Agent),
        (RunsOn::Ci, provider) => {
            let provider = provider.as_ref().map(|name| name.as_str().parse()).transpose()?;
            in_no_cluster(args)?;
            let projects = projects(args)?;
            let project = only_project(&projects)?.cloned();
            let project = project.map(|Project { url, reference }| CiProject { url, reference });
            Ok(NewOn::Ci(NewOnCi { provider, project, tags: args.tags.clone() }))
        }
    }
}

/// Flags that do not go together.
#[derive(Debug, Error)]
pub(super) enum BadOn {
    #[error("--tag is for --executor ci")]
    Kubernetes,
    #[error("--editor is for --executor kubernetes: jobs of a CI system have the editor of its configuration")]
    Editor,
    #[error("--template is for --executor kubernetes: templates are a cluster's")]
    Template,
    #[error("--parameter {0} is there twice")]
    ParameterTwice(String),
    #[error("--ref is for one --project that has no reference of its own")]
    Reference,
    #[error("a workspace in a CI system is made for one --project")]
    OneProject,
    #[error(
        "you run an external workspace yourself: --executor external takes no --agent, --devfile, --template, --project, --editor, \
         --tag, --wait, --idle-minutes and no variables"
    )]
    External,
    #[error("name the cluster with --agent")]
    Agent,
    #[error("name the cluster with --agent: there are {0}")]
    Several(String),
    #[error(
        "there is no cluster that takes workspaces: an operator sets one up with gateway token create --cluster NAME"
    )]
    NoCluster,
    #[error(transparent)]
    Provider(#[from] BadProviderName),
}

/// Makes a service that makes workspaces in CI systems too, if those are configured.
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

pub(crate) fn service(store: &Store, config: &Config) -> Workspaces {
    Workspaces::new(store.clone(), Changes::default(), Addresses::of(config, config.listen.agents.port()))
}

/// A workspace that was just made.
struct PrintedWorkspace {
    url: String,
    asked: Accepted,
}

async fn present(lookout: Lookout<'_>, args: &CreateArgs, made: PrintedWorkspace, console: &mut Console) -> Exit {
    let PrintedWorkspace { url, asked } = made;
    let printed = match args.output {
        Output::Text => console.finish_with(&url),
        Output::Json => console.finish_with(line(args.workspace.as_str(), Some(&url), &asked.look)),
    };
    if printed != Exit::Success || !args.wait {
        return printed;
    }
    let (timeout, output) = (args.timeout, args.output);
    let waiting = WorkspaceWait { workspace: &args.workspace, wish: Wish::Start, asked, timeout, output };
    follow(lookout, waiting, console).await
}

/// Writes the answer to the request, for programs.
fn line(workspace: &str, url: Option<&str>, look: &WorkspaceLook) -> Value {
    json!({
        "workspace": workspace,
        "url": url,
        "desired": look.desired,
        "actual": look.actual,
        "reason": look.reason,
        "generation": look.generation,
    })
}
