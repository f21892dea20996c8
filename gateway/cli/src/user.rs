//! `gateway user`: list users and decide who may not come in, straight on the database. A running gateway sees the
//! change within seconds, and cuts everything that may no longer be open.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::local::{Journal, operator};
use super::token::{fail, open_as_operator};
use super::{Cli, Console, Exit, NamedUser, Output, UserArgs, UserCommand, table};
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{Store, StoreError, User};
use gateway_types::UnixSeconds;

/// Runs `gateway user`.
pub async fn run_user(
    cli: &Cli,
    args: &UserArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    now: UnixSeconds,
) -> Exit {
    let (config, store) = match open_as_operator(cli, env, console).await {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    let done = match &args.command {
        UserCommand::List { output } => list(&store, *output, console).await,
        UserCommand::Disable(named) | UserCommand::Enable(named) => match Journal::open(&config, now, console) {
            Ok(journal) => {
                let is_enabled = matches!(args.command, UserCommand::Enable(_));
                let found = match is_enabled {
                    true => store.enable_user(&named.name).await,
                    false => store.disable_user(&named.name, now).await,
                };
                let state = if is_enabled { "enabled" } else { "disabled" };
                found.map(|found| say(named, found, state, &journal, console))
            }
            Err(exit) => Ok(exit),
        },
    };
    store.close().await;
    done.unwrap_or_else(|error| fail(console, &error))
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

fn say(named: &NamedUser, found: bool, state: &'static str, journal: &Journal, console: &mut Console) -> Exit {
    let name = &named.name;
    if !found {
        console.complain(format_args!("there is no user {name}"));
        return Exit::Failed;
    }
    journal.write(AuditEvent::UserChanged { by: operator(), user: Text::of(name), how: state }, console);
    match named.output {
        Output::Text => {
            console.hint(format_args!("{name} is {state}"));
            Exit::Success
        }
        Output::Json => console.finish_with(format_args!("{:#}", json!({"name": name.as_str(), "state": state}))),
    }
}
