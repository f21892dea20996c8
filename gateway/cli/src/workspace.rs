//! `gateway workspace`: make, start and stop, list, show and open workspaces, and share their ports, straight on the
//! database or over a gateway's API. A running gateway sees a change within seconds, and cuts everything that may no
//! longer be open.

mod change;
mod follow;
mod found;
mod given;
pub(crate) mod idle;
mod naming;
mod remote;
mod row;
mod template;
mod wish;

use std::collections::BTreeMap;

use serde_json::json;

use self::change::DesiredChange;
pub(super) use self::change::service;
use self::idle::IdleChange;
use self::naming::NameChange;
use self::row::WorkspaceItem;
use self::wish::WorkspaceLook;
use super::local::{Journal, operator};
use super::token::{Use, fail, open_store};
use super::{Cli, Console, Exit, OpenArgs, Output, ShareArgs, ShowArgs, WorkspaceArgs, WorkspaceCommand, place, table};
use gateway_config::Config;
use gateway_net::audit::{AuditEvent, Items, Text};
use gateway_store::{ManagedWorkspace, Store, StoreError, UsedTemplate};
use gateway_types::{Audience, Port, Share, UnixSeconds, UserName, WorkspaceName};

/// Maker that the store names for everything from the command line: any user who can write the database.
const OPERATOR: &str = "operator";

/// Runs `gateway workspace`.
pub async fn run_workspace(
    cli: &Cli,
    args: &WorkspaceArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    now: UnixSeconds,
) -> Exit {
    let remote = match &args.command {
        WorkspaceCommand::Create(create) => &create.remote,
        WorkspaceCommand::Start(change) | WorkspaceCommand::Stop(change) | WorkspaceCommand::Restart(change) => {
            &change.remote
        }
        WorkspaceCommand::Terminate(terminate) => &terminate.change.remote,
        WorkspaceCommand::Keep(keep) => &keep.remote,
        WorkspaceCommand::Idle(idle) => &idle.remote,
        WorkspaceCommand::Rename(rename) => &rename.remote,
        WorkspaceCommand::HandOver(hand_over) => &hand_over.remote,
        WorkspaceCommand::List(list) => &list.remote,
        WorkspaceCommand::Templates(templates) => &templates.remote,
        WorkspaceCommand::Show(show) => &show.remote,
        WorkspaceCommand::Open(open) => &open.remote,
        WorkspaceCommand::Share(share) => &share.remote,
    };
    match place::client(cli, remote, env, console) {
        Ok(Some(client)) => remote::run(&client, args, console, now).await,
        Ok(None) => run_here(cli, args, env, console, now).await.unwrap_or_else(|exit| exit),
        Err(exit) => exit,
    }
}

async fn run_here(
    cli: &Cli,
    args: &WorkspaceArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, Exit> {
    let purpose = if matches!(args.command, WorkspaceCommand::Create(_)) { Use::New } else { Use::Present };
    let (config, store) = open_store(cli, env, purpose, &mut *console).await?;
    if let Some(change) = DesiredChange::of(&args.command) {
        let done = change::change_here(&store, &config, change, console, now).await;
        store.close().await;
        return done;
    }
    if let Some(change) = IdleChange::of(&args.command) {
        let done = idle::change_here(&store, &config, change, console, now).await;
        store.close().await;
        return done;
    }
    if let Some(change) = NameChange::of(&args.command) {
        let done = naming::change_here(&store, &config, change, console, now).await;
        store.close().await;
        return done;
    }
    let done = match &args.command {
        WorkspaceCommand::Create(args) => {
            let done = change::create_here(&store, &config, args, console, now).await;
            Ok(done.unwrap_or_else(|exit| exit))
        }
        // Changes were made above.
        WorkspaceCommand::Start(_)
        | WorkspaceCommand::Stop(_)
        | WorkspaceCommand::Restart(_)
        | WorkspaceCommand::Keep(_)
        | WorkspaceCommand::Idle(_)
        | WorkspaceCommand::Rename(_)
        | WorkspaceCommand::HandOver(_)
        | WorkspaceCommand::Terminate(_) => Ok(Exit::Usage),
        WorkspaceCommand::List(args) => list(&store, &config, args.output, console).await,
        WorkspaceCommand::Templates(args) => template::list_here(&store, &config, args, console).await,
        WorkspaceCommand::Show(args) => show_one(&store, &config, args, console, now).await,
        WorkspaceCommand::Open(args) => open_port(&store, &config, args, console).await,
        WorkspaceCommand::Share(args) if args.port.is_none() => show(&store, args, console, now).await,
        WorkspaceCommand::Share(args) => match Journal::open(&config, now, console) {
            Ok(journal) => run_share(&store, &config, &journal, args, console, now).await,
            Err(exit) => Ok(exit),
        },
    };
    store.close().await;
    done.map_err(|error| fail(console, &error))
}

/// Writes the address of a workspace, or of a port of it.
fn address(config: &Config, workspace: &WorkspaceName, port: Option<&str>) -> String {
    let public = &config.public_url;
    let label = port.map_or_else(|| workspace.to_string(), |port| format!("{port}-{workspace}"));
    let suffix =
        if public.port() == public.scheme().default_port() { String::new() } else { format!(":{}", public.port()) };
    format!("{}://{label}.{}{suffix}/", public.scheme().as_str(), config.zone)
}

/// Prints an address, and opens it if a person sits at a desktop.
fn present(address: &str, args: &OpenArgs, console: &mut Console) -> Exit {
    let exit = match args.output {
        Output::Text => console.finish_with(address),
        Output::Json => console.finish_with(format_args!("{:#}", json!({"url": address}))),
    };
    if !args.print && args.output == Output::Text && console.is_attended() {
        super::login::open_browser(address);
    }
    exit
}

async fn open_port(store: &Store, config: &Config, args: &OpenArgs, console: &mut Console) -> Result<Exit, StoreError> {
    if store.workspace(&args.workspace).await?.is_none() {
        return Ok(no_such(&args.workspace, console));
    }
    let port = args.port.map(|port| port.to_string());
    Ok(present(&address(config, &args.workspace, port.as_deref()), args, console))
}

async fn show_one(
    store: &Store,
    config: &Config,
    args: &ShowArgs,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, StoreError> {
    let Some(workspace) = store.workspace(&args.workspace).await? else {
        return Ok(no_such(&args.workspace, console));
    };
    let managed = store.managed(&args.workspace).await?;
    let cluster = managed.as_ref().and_then(ManagedWorkspace::kubernetes).map(|state| state.cluster_name.to_string());
    let provider = managed.as_ref().and_then(ManagedWorkspace::ci).map(|state| state.provider.to_string());
    let template = managed.as_ref().and_then(ManagedWorkspace::kubernetes).and_then(|state| state.template.clone());
    let look = managed.as_ref().map(WorkspaceLook::of);
    let live: Vec<&Share> = workspace.shares.iter().filter(|share| share.is_live(now)).collect();
    let (url, port_url) = (address(config, &workspace.name, None), address(config, &workspace.name, Some("{port}")));
    Ok(console.finish_with(match args.output {
        Output::Text => {
            let shared: Vec<String> = live.iter().map(|share| told(share)).collect();
            let shared = if shared.is_empty() { "no other user".to_owned() } else { shared.join(", ") };
            let mut rows = vec![
                ("name", workspace.name.to_string()),
                ("owner", workspace.owner.to_string()),
                ("executor", workspace.executor.as_str().to_owned()),
                match provider {
                    Some(provider) => ("provider", provider),
                    None => ("cluster", cluster.unwrap_or_else(|| "-".to_owned())),
                },
                ("state", look.as_ref().map_or_else(|| "-".to_owned(), WorkspaceLook::told)),
                ("wanted", look.map_or_else(|| "-".to_owned(), |look| look.desired)),
                ("idle stop", managed.as_ref().and_then(idle::told_here).unwrap_or_else(|| "-".to_owned())),
                ("created", workspace.created_at.to_string()),
                ("address", url),
                ("ports", port_url),
                ("shared with", shared),
            ];
            if let Some(UsedTemplate { name, parameters }) = &template {
                rows.push(("template", template::words(name, Some(parameters))));
            }
            details(&rows)
        }
        Output::Json => {
            let shares: Vec<_> = live.iter().map(|share| share_json(share)).collect();
            let shown = json!({
                "id": workspace.id.to_string(),
                "name": workspace.name.as_str(),
                "owner": workspace.owner.as_str(),
                "executor": workspace.executor.as_str(),
                "cluster": cluster,
                "template": template.as_ref().map(|template| &template.name),
                "template_parameters": template.as_ref().map(|template| &template.parameters),
                "provider": provider,
                "state": look,
                "idle": managed.as_ref().map(|managed| idle::look_here(managed, now)),
                "created_at": workspace.created_at.to_string(),
                "url": url,
                "port_url": port_url,
                "shares": shares,
            });
            format!("{shown:#}")
        }
    }))
}

/// Lays out names and values.
fn details(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:width$}  {value}")).collect();
    lines.join("\n")
}

fn share_json(share: &Share) -> serde_json::Value {
    json!({
        "port": share.port.get(),
        "audience": share.audience.to_string(),
        "expires_at": share.expires_at.map(|time| time.to_string()),
    })
}

/// Writes a share as the audit log has it.
fn told(share: &Share) -> String {
    let until = share.expires_at.map(|time| format!(" until {time}")).unwrap_or_default();
    format!("{} {}{until}", share.port, share.audience)
}

async fn list(store: &Store, config: &Config, output: Output, console: &mut Console) -> Result<Exit, StoreError> {
    let mut rows = Vec::new();
    for workspace in store.workspaces().await? {
        let managed = match workspace.executor.is_managed() {
            false => None,
            true => store.managed(&workspace.name).await?,
        };
        rows.push(WorkspaceItem::here(config, &workspace, managed.as_ref()));
    }
    Ok(console.finish_with(row::show(&rows, output)))
}

async fn run_share(
    store: &Store,
    config: &Config,
    journal: &Journal,
    args: &ShareArgs,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, StoreError> {
    match (args.port, &args.with) {
        (Some(port), Some(audience)) if args.revoke => unshare(store, journal, args, port, audience, console).await,
        (Some(port), Some(audience)) => {
            open(&Operator { store, config, journal }, args, port, audience, console, now).await
        }
        (_, None) | (None, Some(_)) => {
            console.complain("give a port and --with, or neither");
            Ok(Exit::Usage)
        }
    }
}

/// The operator's side of a command: database, configuration and audit log.
struct Operator<'a> {
    store: &'a Store,
    config: &'a Config,
    journal: &'a Journal,
}

async fn open(
    operator: &Operator<'_>,
    args: &ShareArgs,
    port: Port,
    audience: &Audience,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, StoreError> {
    let &Operator { store, config, journal } = operator;
    let expires_at = args.lasting.map(|time| now.later(time));
    #[expect(clippy::expect_used, reason = "the text is a constant, and a test shares with it")]
    let by: UserName = OPERATOR.parse().expect("`operator` is a user name");
    let share = Share { port, audience: audience.clone(), expires_at };
    if !store.share(&args.workspace, &share, &by, now).await? {
        return Ok(no_such(&args.workspace, console));
    }
    let added = [told(&share)].into_iter().collect();
    journal.write(store, changed(&args.workspace, added, Items::default()), console).await;
    let until = expires_at.map_or_else(String::new, |time| format!(" until {time}"));
    console.hint(format_args!(
        "port {port} of {} is open to {audience}{until}; a gateway that runs sees it within 3 s",
        args.workspace
    ));
    let url = address(config, &args.workspace, Some(&port.to_string()));
    Ok(console.finish_with(opened(&share_json(&share), &url, args.output)))
}

/// Shows a port that was just opened: the link alone, so that it can be handed on as it is.
fn opened(share: &serde_json::Value, url: &str, output: Output) -> String {
    match output {
        Output::Text => url.to_owned(),
        Output::Json => {
            let mut shown = share.clone();
            if let Some(members) = shown.as_object_mut() {
                members.insert("url".to_owned(), url.into());
            }
            format!("{shown:#}")
        }
    }
}

async fn unshare(
    store: &Store,
    journal: &Journal,
    args: &ShareArgs,
    port: Port,
    audience: &Audience,
    console: &mut Console,
) -> Result<Exit, StoreError> {
    if store.unshare(&args.workspace, port, audience).await? {
        let removed = [format!("{port} {audience}")].into_iter().collect();
        journal.write(store, changed(&args.workspace, Items::default(), removed), console).await;
        console.hint(format_args!("port {port} of {} is no longer open to {audience}", args.workspace));
        return Ok(Exit::Success);
    }
    console.complain(format_args!("port {port} of {} is not shared with {audience}", args.workspace));
    Ok(Exit::Failed)
}

async fn show(store: &Store, args: &ShareArgs, console: &mut Console, now: UnixSeconds) -> Result<Exit, StoreError> {
    let Some(workspace) = store.workspace(&args.workspace).await? else {
        return Ok(no_such(&args.workspace, console));
    };
    let live = workspace.shares.iter().filter(|share| share.is_live(now));
    Ok(console.finish_with(match args.output {
        Output::Text => {
            let until = |share: &Share| share.expires_at.map_or_else(|| "-".to_owned(), |time| time.to_string());
            let rows = live.map(|share| [share.port.to_string(), share.audience.to_string(), until(share)]);
            table::text(["PORT", "AUDIENCE", "UNTIL"], rows)
        }
        Output::Json => {
            let rows = live.map(share_json);
            format!("{:#}", json!(rows.collect::<Vec<_>>()))
        }
    }))
}

fn changed(workspace: &WorkspaceName, added: Items, removed: Items) -> AuditEvent {
    AuditEvent::SharesChanged { by: operator(), workspace: Text::of(workspace), added, removed }
}

fn no_such(workspace: &WorkspaceName, console: &mut Console) -> Exit {
    console.complain(format_args!("there is no workspace {workspace}"));
    Exit::Failed
}
