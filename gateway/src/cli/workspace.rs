//! `gateway workspace`: list workspaces and share their ports, straight on the database. A running gateway sees the change
//! within seconds, and cuts what may no longer be open.

use std::collections::BTreeMap;

use serde_json::json;

use super::token::{fail, open_store};
use super::{Cli, Console, Exit, Output, ShareArgs, WorkspaceArgs, WorkspaceCommand, table};
use crate::model::{Audience, Port, Share, UnixSeconds, UserName};
use crate::store::{Store, StoreError, Workspace};

/// Whom the store names as the maker of what comes from the command line: whoever can write the database.
const OPERATOR: &str = "operator";

/// Runs `gateway workspace`.
pub async fn run_workspace(
    cli: &Cli,
    args: &WorkspaceArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
    now: UnixSeconds,
) -> Exit {
    let (_, store) = match open_store(cli, env, console).await {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    let done = match &args.command {
        WorkspaceCommand::List { output } => list(&store, *output, console).await,
        WorkspaceCommand::Share(share) => run_share(&store, share, console, now).await,
    };
    store.close().await;
    done.unwrap_or_else(|error| fail(console, &error))
}

async fn list(store: &Store, output: Output, console: &mut Console) -> Result<Exit, StoreError> {
    let workspaces = store.workspaces().await?;
    Ok(console.finish_with(match output {
        Output::Text => {
            let rows = workspaces.iter().map(|workspace| {
                let Workspace { name, owner, executor, created_at, .. } = workspace;
                [name.to_string(), owner.to_string(), executor.as_str().to_owned(), created_at.to_string()]
            });
            table::text(["NAME", "OWNER", "EXECUTOR", "CREATED"], rows)
        }
        Output::Json => {
            let rows = workspaces.iter().map(|workspace| {
                json!({
                    "id": workspace.id.to_string(),
                    "name": workspace.name.as_str(),
                    "owner": workspace.owner.as_str(),
                    "executor": workspace.executor.as_str(),
                    "created_at": workspace.created_at.to_string(),
                })
            });
            format!("{:#}", json!(rows.collect::<Vec<_>>()))
        }
    }))
}

async fn run_share(
    store: &Store,
    args: &ShareArgs,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, StoreError> {
    match (args.port, &args.with) {
        (Some(port), Some(audience)) if args.revoke => unshare(store, args, port, audience, console).await,
        (Some(port), Some(audience)) => open(store, args, port, audience, console, now).await,
        (None, None) => show(store, args, console, now).await,
        (Some(_), None) | (None, Some(_)) => {
            console.complain("give a port and --with, or neither");
            Ok(Exit::Usage)
        }
    }
}

async fn open(
    store: &Store,
    args: &ShareArgs,
    port: Port,
    audience: &Audience,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, StoreError> {
    let expires_at = args.lasting.map(|time| {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        UnixSeconds::new(now.get().saturating_add(seconds))
    });
    #[expect(clippy::expect_used, reason = "the text is a constant, and a test shares with it")]
    let by: UserName = OPERATOR.parse().expect("`operator` is a user name");
    let share = Share { port, audience: audience.clone(), expires_at };
    if !store.share(&args.workspace, &share, &by, now).await? {
        return Ok(no_such(args, console));
    }
    let until = expires_at.map_or_else(String::new, |time| format!(" until {time}"));
    console.hint(format_args!("port {port} of {} is open to {audience}{until}", args.workspace));
    Ok(Exit::Success)
}

async fn unshare(
    store: &Store,
    args: &ShareArgs,
    port: Port,
    audience: &Audience,
    console: &mut Console,
) -> Result<Exit, StoreError> {
    if store.unshare(&args.workspace, port, audience).await? {
        console.hint(format_args!("port {port} of {} is no longer open to {audience}", args.workspace));
        return Ok(Exit::Success);
    }
    console.complain(format_args!("port {port} of {} is not shared with {audience}", args.workspace));
    Ok(Exit::Failed)
}

async fn show(store: &Store, args: &ShareArgs, console: &mut Console, now: UnixSeconds) -> Result<Exit, StoreError> {
    let Some(workspace) = store.workspace(&args.workspace).await? else {
        return Ok(no_such(args, console));
    };
    let live = workspace.shares.iter().filter(|share| share.is_live(now));
    Ok(console.finish_with(match args.output {
        Output::Text => {
            let until = |share: &Share| share.expires_at.map_or_else(|| "-".to_owned(), |time| time.to_string());
            let rows = live.map(|share| [share.port.to_string(), share.audience.to_string(), until(share)]);
            table::text(["PORT", "AUDIENCE", "UNTIL"], rows)
        }
        Output::Json => {
            let rows = live.map(|share| {
                json!({
                    "port": share.port.get(),
                    "audience": share.audience.to_string(),
                    "expires_at": share.expires_at.map(|time| time.to_string()),
                })
            });
            format!("{:#}", json!(rows.collect::<Vec<_>>()))
        }
    }))
}

fn no_such(args: &ShareArgs, console: &mut Console) -> Exit {
    console.complain(format_args!("there is no workspace {}", args.workspace));
    Exit::Failed
}
