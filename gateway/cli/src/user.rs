//! `gateway user`: list users and decide who may not come in, over a gateway's API as one of its operators, or straight on
//! the database. A running gateway sees the change within seconds, and cuts everything that may no longer be open.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{ClientError, GatewayClient, shown};
use super::local::{Journal, operator};
use super::place::{complain, operators_client};
use super::token::{fail, open_as_operator};
use super::workspace::service;
use super::{Cli, Console, DisableArgs, Exit, NamedUser, Output, UserArgs, UserCommand, table};
use gateway_config::Config;
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{Store, StoreError, User};
use gateway_types::{DesiredState, UnixSeconds, UserName};
use gateway_workspaces::service::WorkspaceError;

/// Most pages of a list that are asked for: a gateway that never ends is not one.
const PAGES_MAX: usize = 1000;

#[derive(Deserialize)]
struct UserPage {
    users: Vec<UserItem>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct UserItem {
    name: String,
    groups: Vec<String>,
    state: String,
    last_sign_in: Option<String>,
    disabled_at: Option<String>,
    workspaces: u64,
}

/// What was stopped for a user, as the API and the database give it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StoppedOnes {
    stopped: Vec<String>,
    not_stopped: Vec<String>,
}

/// Runs `gateway user`.
pub async fn run_user(
    cli: &Cli,
    args: &UserArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    now: UnixSeconds,
) -> Exit {
    let remote = match &args.command {
        UserCommand::List(list) => &list.remote,
        UserCommand::Disable(disable) => &disable.user.remote,
        UserCommand::Enable(enable) => &enable.remote,
    };
    match operators_client(cli, remote, env, console) {
        Ok(Some(client)) => match run_there(&client, &args.command, console).await {
            Ok(exit) => exit,
            Err(error) => complain(&error, console),
        },
        Ok(None) => run_here(cli, &args.command, env, console, now).await,
        Err(exit) => exit,
    }
}

async fn run_there(client: &GatewayClient, command: &UserCommand, console: &mut Console) -> Result<Exit, ClientError> {
    let (named, how, stop) = match command {
        UserCommand::List(args) => return list_there(client, args.output, console).await,
        UserCommand::Disable(args) => (&args.user, "disable", args.stop),
        UserCommand::Enable(named) => (named, "enable", false),
    };
    let body = if stop { json!({"stop": true}) } else { json!({}) };
    let changed: StoppedOnes = client.post(&format!("/admin/users/{}/{how}", in_path(&named.name)), &body).await?;
    Ok(say(named, &format!("{how}d"), stop.then_some(&changed), console))
}

/// Writes a name as a part of a path (RFC 3986, section 2.1).
fn in_path(name: &UserName) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    name.as_str().bytes().map(byte).collect()
}

async fn list_there(client: &GatewayClient, output: Output, console: &mut Console) -> Result<Exit, ClientError> {
    let (mut users, mut path) = (Vec::new(), "/admin/users?limit=200".to_owned());
    for _ in 0..PAGES_MAX {
        let page: UserPage = client.get(&path).await?;
        users.extend(page.users);
        let Some(cursor) = page.next_cursor else { break };
        path = format!("/admin/users?limit=200&cursor={}", shown(&cursor));
    }
    Ok(console.finish_with(match output {
        Output::Text => {
            let rows = users.iter().map(|user| {
                let last_seen = user.last_sign_in.as_deref().map_or_else(|| "-".to_owned(), shown);
                [
                    shown(&user.name),
                    shown(&user.state),
                    last_seen,
                    user.workspaces.to_string(),
                    shown(&user.groups.join(" ")),
                ]
            });
            table::text(["NAME", "STATE", "LAST SIGN-IN", "WORKSPACES", "GROUPS"], rows)
        }
        Output::Json => {
            let row = |user: &UserItem| {
                json!({
                    "name": user.name,
                    "state": user.state,
                    "groups": user.groups,
                    "last_seen": user.last_sign_in,
                    "disabled_at": user.disabled_at,
                    "workspaces": user.workspaces,
                })
            };
            format!("{:#}", Value::from_iter(users.iter().map(row)))
        }
    }))
}

async fn run_here(
    cli: &Cli,
    command: &UserCommand,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    now: UnixSeconds,
) -> Exit {
    let (config, store) = match open_as_operator(cli, env, console).await {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    let done = match command {
        UserCommand::List(args) => list(&store, args.output, console).await,
        UserCommand::Disable(args) => match Journal::open(&config, now, console) {
            Ok(journal) => {
                disable(&Operated { store: &store, config: &config, journal: &journal, now }, args, console).await
            }
            Err(exit) => Ok(exit),
        },
        UserCommand::Enable(named) => match Journal::open(&config, now, console) {
            Ok(journal) => enable(&store, &journal, named, console).await,
            Err(exit) => Ok(exit),
        },
    };
    store.close().await;
    done.unwrap_or_else(|error| fail(console, &error))
}

/// The database that a command works on.
struct Operated<'a> {
    store: &'a Store,
    config: &'a Config,
    journal: &'a Journal,
    now: UnixSeconds,
}

async fn disable(on: &Operated<'_>, args: &DisableArgs, console: &mut Console) -> Result<Exit, StoreError> {
    let name = &args.user.name;
    if !on.store.disable_user(name, on.now).await? {
        return Ok(no_such(name, console));
    }
    let event = AuditEvent::UserChanged { by: operator(), user: Text::of(name), how: "disabled" };
    on.journal.write(on.store, event, console).await;
    let mut changed = StoppedOnes::default();
    if args.stop {
        for id in on.store.running_of(name).await? {
            stop(on, id, &mut changed, console).await?;
        }
    }
    Ok(say(&args.user, "disabled", args.stop.then_some(&changed), console))
}

/// Stops a workspace of a disabled user, and notes it.
async fn stop(
    on: &Operated<'_>,
    id: gateway_store::WorkspaceId,
    changed: &mut StoppedOnes,
    console: &mut Console,
) -> Result<(), StoreError> {
    let Some(found) = on.store.managed_by_id(id).await? else { return Ok(()) };
    let name = found.workspace.name.clone();
    match service(on.store, on.config).change(found, DesiredState::Stopped, |_| true, on.now).await {
        Ok(managed) => {
            let (workspace, generation) = (Text::of(&name), managed.lifecycle.generation);
            let event = AuditEvent::WorkspaceRequested { by: operator(), workspace, how: "stop", generation };
            on.journal.write(on.store, event, console).await;
            changed.stopped.push(name.to_string());
        }
        // It is gone, or is to be terminated: then it does not run on.
        Err(WorkspaceError::NoSuchWorkspace | WorkspaceError::Refused(_)) => {}
        Err(error) => {
            console.complain(format_args!("{name} is not stopped: {error}"));
            changed.not_stopped.push(name.to_string());
        }
    }
    Ok(())
}

async fn enable(
    store: &Store,
    journal: &Journal,
    named: &NamedUser,
    console: &mut Console,
) -> Result<Exit, StoreError> {
    if !store.enable_user(&named.name).await? {
        return Ok(no_such(&named.name, console));
    }
    let event = AuditEvent::UserChanged { by: operator(), user: Text::of(&named.name), how: "enabled" };
    journal.write(store, event, console).await;
    Ok(say(named, "enabled", None, console))
}

async fn list(store: &Store, output: Output, console: &mut Console) -> Result<Exit, StoreError> {
    let users = store.users().await?;
    Ok(console.finish_with(match output {
        Output::Text => {
            let rows = users.iter().map(|user| {
                let last_seen = user.last_seen.map_or_else(|| "-".to_owned(), |time| time.to_string());
                [user.name.to_string(), state(user).to_owned(), last_seen, groups(user).join(" ")]
            });
            table::text(["NAME", "STATE", "LAST SIGN-IN", "GROUPS"], rows)
        }
        Output::Json => {
            let rows: Vec<Value> = users.iter().map(show).collect();
            format!("{:#}", json!(rows))
        }
    }))
}

fn show(user: &User) -> Value {
    let time = |time: Option<UnixSeconds>| time.map(|time| time.to_string());
    json!({
        "name": user.name.as_str(),
        "state": state(user),
        "issuer": user.subject.as_ref().map(|(issuer, _)| issuer),
        "subject": user.subject.as_ref().map(|(_, subject)| subject),
        "groups": groups(user),
        "created_at": user.created_at.to_string(),
        "last_seen": time(user.last_seen),
        "disabled_at": time(user.disabled_at),
    })
}

fn state(user: &User) -> &'static str {
    if user.disabled_at.is_some() { "disabled" } else { "enabled" }
}

fn groups(user: &User) -> Vec<&str> {
    user.groups.iter().map(|group| group.as_str()).collect()
}

fn no_such(name: &UserName, console: &mut Console) -> Exit {
    console.complain(format_args!("there is no user {name}"));
    Exit::Failed
}

/// Says what was done, and what was stopped if that was asked for. A workspace that runs on is a failure, which a repetition
/// may mend.
fn say(named: &NamedUser, state: &str, stopped: Option<&StoppedOnes>, console: &mut Console) -> Exit {
    let name = &named.name;
    let exit = match named.output {
        Output::Text => {
            console.hint(format_args!("{name} is {state}"));
            for workspace in stopped.iter().flat_map(|stopped| &stopped.stopped) {
                console.hint(format_args!("{} is to stop", shown(workspace)));
            }
            Exit::Success
        }
        Output::Json => {
            let mut told = json!({"name": name.as_str(), "state": state});
            if let (Some(stopped), Some(members)) = (stopped, told.as_object_mut()) {
                members.insert("stopped".to_owned(), json!(stopped.stopped));
                members.insert("not_stopped".to_owned(), json!(stopped.not_stopped));
            }
            console.finish_with(format_args!("{told:#}"))
        }
    };
    let Some(left) = stopped.map(|stopped| &stopped.not_stopped).filter(|left| !left.is_empty()) else { return exit };
    console.complain(format_args!("these run on, try again: {}", shown(&left.join(" "))));
    Exit::Failed
}
