//! `gateway workspace rename` and `hand-over`: the name that people read, and the owner.

use serde_json::{Value, json};

use super::no_such;
use crate::client::{ClientError, GatewayClient};
use crate::local::{Journal, operator};
use crate::place::complain;
use crate::{Console, Exit, HandOverArgs, Output, RenameArgs, WorkspaceCommand};
use gateway_config::Config;
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{HandOver, Store};
use gateway_types::{DisplayName, UnixSeconds, WorkspaceName};

/// A change of name or owner.
#[derive(Clone, Copy)]
pub(super) enum NameChange<'a> {
    Rename(&'a RenameArgs),
    HandOver(&'a HandOverArgs),
}

impl<'a> NameChange<'a> {
    /// Returns the change of a command, if it is one.
    pub(super) fn of(command: &'a WorkspaceCommand) -> Option<Self> {
        match command {
            WorkspaceCommand::Rename(args) => Some(Self::Rename(args)),
            WorkspaceCommand::HandOver(args) => Some(Self::HandOver(args)),
            WorkspaceCommand::Create(_)
            | WorkspaceCommand::Start(_)
            | WorkspaceCommand::Stop(_)
            | WorkspaceCommand::Restart(_)
            | WorkspaceCommand::Terminate(_)
            | WorkspaceCommand::List(_)
            | WorkspaceCommand::Keep(_)
            | WorkspaceCommand::Idle(_)
            | WorkspaceCommand::Templates(_)
            | WorkspaceCommand::Show(_)
            | WorkspaceCommand::Open(_)
            | WorkspaceCommand::Share(_) => None,
        }
    }

    fn workspace(self) -> &'a WorkspaceName {
        match self {
            Self::Rename(args) => &args.workspace,
            Self::HandOver(args) => &args.workspace,
        }
    }

    /// Refuses what was not confirmed.
    fn check(self, console: &mut Console) -> Result<(), Exit> {
        match self {
            Self::HandOver(args) if !args.yes => {
                let HandOverArgs { workspace, to, .. } = args;
                console.complain(format_args!(
                    "{workspace} would be {to}'s, without its shares and tokens: confirm that with --yes"
                ));
                Err(Exit::Usage)
            }
            Self::Rename(_) | Self::HandOver(_) => Ok(()),
        }
    }

    fn done(self, console: &mut Console) -> Exit {
        match self {
            Self::Rename(RenameArgs { workspace, display_name, output: Output::Json, .. }) => {
                let name = display_name.as_ref().map(DisplayName::as_str);
                let changed = json!({"name": workspace.as_str(), "display_name": name});
                console.finish_with(format_args!("{changed:#}"))
            }
            Self::HandOver(HandOverArgs { workspace, to, output: Output::Json, .. }) => {
                let changed = json!({"name": workspace.as_str(), "owner": to.as_str()});
                console.finish_with(format_args!("{changed:#}"))
            }
            Self::Rename(RenameArgs { workspace, display_name: Some(name), .. }) => {
                console.finish_with(format_args!("{workspace} is called {name}"))
            }
            Self::Rename(args) => console.finish_with(format_args!("{} has no display name", args.workspace)),
            Self::HandOver(args) => console.finish_with(format_args!("{} is {}'s", args.workspace, args.to)),
        }
    }
}

/// Changes a workspace at a gateway.
pub(super) async fn change(
    client: &GatewayClient,
    change: NameChange<'_>,
    console: &mut Console,
) -> Result<Exit, ClientError> {
    if let Err(exit) = change.check(console) {
        return Ok(exit);
    }
    let path = format!("/workspaces/{}", change.workspace());
    match change {
        NameChange::Rename(args) => {
            let name = args.display_name.as_ref().map(DisplayName::as_str);
            let _changed: Value = client.patch(&path, &json!({ "display_name": name })).await?;
        }
        NameChange::HandOver(args) => {
            client.post_done(&format!("{path}/hand-over"), &json!({"to": args.to.as_str()})).await?;
        }
    }
    Ok(change.done(console))
}

/// Changes a workspace in this machine's database; a running gateway sees it within seconds.
pub(super) async fn change_here(
    store: &Store,
    config: &Config,
    change: NameChange<'_>,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, Exit> {
    change.check(console)?;
    let (journal, name) = (Journal::open(config, now, console)?, change.workspace());
    let found = store.workspace(name).await.map_err(|error| complain(&error, console))?;
    let Some(found) = found else { return Ok(no_such(name, console)) };
    let (by, workspace) = (operator(), Text::of(name));
    let event = match change {
        NameChange::Rename(args) => {
            let renamed = store.rename(name, &found.owner, args.display_name.as_ref()).await;
            renamed.map_err(|error| complain(&error, console))?;
            AuditEvent::WorkspaceRenamed { by, workspace, display_name: args.display_name.as_ref().map(Text::of) }
        }
        NameChange::HandOver(args) => {
            let done = store.hand_over(name, &found.owner, &args.to, u32::MAX).await;
            match done.map_err(|error| complain(&error, console))? {
                HandOver::Done => AuditEvent::WorkspaceHandedOver { by, workspace, to: Text::of(&args.to) },
                HandOver::NoSuchWorkspace | HandOver::TooMany => {
                    console.complain(format_args!("the gateway runs {name}: it stays with its owner"));
                    return Ok(Exit::Failed);
                }
            }
        }
    };
    journal.write(store, event, console).await;
    Ok(change.done(console))
}
