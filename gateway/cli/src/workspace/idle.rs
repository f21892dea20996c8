//! `gateway workspace keep` and `idle`: when a workspace is stopped without use.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::change::service;
use super::no_such;
use crate::client::{ClientError, GatewayClient, shown};
use crate::local::{Journal, operator};
use crate::place::complain;
use crate::{Console, Exit, IdleArgs, KeepArgs, Output, WorkspaceCommand};
use gateway_config::Config;
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{ManagedWorkspace, Store};
use gateway_types::{IdleLimit, KEEP_TIME_MAX, UnixSeconds, WorkspaceName};

/// A change of the idle stop.
#[derive(Clone, Copy)]
pub(super) enum IdleChange<'a> {
    Keep(&'a KeepArgs),
    Limit(&'a IdleArgs),
}

/// Use of a workspace, as a gateway tells it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct IdleLook {
    stops_at: Option<String>,
    stage: String,
    kept_until: Option<String>,
    last_activity: Option<ActivityLook>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct ActivityLook {
    at: String,
    what: String,
    by: Option<String>,
}

#[derive(Deserialize)]
struct Changed {
    owner: String,
    #[serde(default)]
    idle: Option<IdleLook>,
}

impl IdleLook {
    /// Writes when the workspace stops, and what counted last, for a user; `None` if neither is known.
    pub(super) fn told(&self, reader: &str) -> Option<String> {
        let stops = self.stops_at.as_ref().map(|at| format!("stops {at}"));
        let kept = self.kept_until.as_ref().map(|until| format!("kept until {until}"));
        let last = self.last_activity.as_ref().map(|last| {
            let by = match &last.by {
                Some(by) if by == reader => " by you".to_owned(),
                Some(by) => format!(" by {by}"),
                None => String::new(),
            };
            format!("last activity {}: {}{by}", last.at, last.what)
        });
        let parts: Vec<String> = stops.into_iter().chain(kept).chain(last).collect();
        (!parts.is_empty()).then(|| shown(&parts.join("; ")))
    }

    /// Returns the warning for a user who is about to work in the workspace, if its stop is near.
    fn warning(&self, workspace: &str) -> Option<String> {
        let at = self.stops_at.as_ref().filter(|_| matches!(self.stage.as_str(), "announced" | "near" | "due"))?;
        Some(format!(
            "{workspace} is stopped at {} unless it is used: `gateway workspace keep {workspace}` puts that off",
            shown(at)
        ))
    }
}

impl<'a> IdleChange<'a> {
    /// Returns the change of a command, if it is one.
    pub(super) fn of(command: &'a WorkspaceCommand) -> Option<Self> {
        match command {
            WorkspaceCommand::Keep(args) => Some(Self::Keep(args)),
            WorkspaceCommand::Idle(args) => Some(Self::Limit(args)),
            WorkspaceCommand::Create(_)
            | WorkspaceCommand::Start(_)
            | WorkspaceCommand::Stop(_)
            | WorkspaceCommand::Restart(_)
            | WorkspaceCommand::Terminate(_)
            | WorkspaceCommand::List(_)
            | WorkspaceCommand::Rename(_)
            | WorkspaceCommand::HandOver(_)
            | WorkspaceCommand::Templates(_)
            | WorkspaceCommand::Show(_)
            | WorkspaceCommand::Open(_)
            | WorkspaceCommand::Share(_) => None,
        }
    }

    fn workspace(self) -> &'a WorkspaceName {
        match self {
            Self::Keep(args) => &args.workspace,
            Self::Limit(args) => &args.workspace,
        }
    }

    fn output(self) -> Output {
        match self {
            Self::Keep(args) => args.output,
            Self::Limit(args) => args.output,
        }
    }

    /// Refuses a time that no gateway takes.
    fn check(self, console: &mut Console) -> Result<(), Exit> {
        match self {
            Self::Keep(args) if args.time.as_secs() == 0 || args.time > KEEP_TIME_MAX => {
                console.complain(format_args!("--for has to be from 1s to {}h", KEEP_TIME_MAX.as_secs() / 3600));
                Err(Exit::Usage)
            }
            Self::Keep(_) | Self::Limit(_) => Ok(()),
        }
    }

    fn print(self, told: Option<String>, value: &Value, console: &mut Console) -> Exit {
        match self.output() {
            Output::Text => console.finish_with(told.unwrap_or_else(|| "it is not stopped for idleness".to_owned())),
            Output::Json => console.finish_with(format_args!("{value:#}")),
        }
    }
}

/// Asks a gateway whether a workspace is about to be stopped for idleness; returns the words for a user who is about to work in it.
pub(crate) async fn warning(client: &GatewayClient, workspace: &WorkspaceName) -> Option<String> {
    let found: Value = client.get(&format!("/workspaces/{workspace}")).await.ok()?;
    warning_in(found, workspace)
}

/// Likewise, of a workspace as a gateway has told it.
pub(crate) fn warning_in(found: Value, workspace: &WorkspaceName) -> Option<String> {
    let found: Changed = serde_json::from_value(found).ok()?;
    found.idle?.warning(workspace.as_str())
}

/// Writes a limit as the API takes it.
pub(super) fn wire(limit: IdleLimit) -> Value {
    match limit {
        IdleLimit::Inherited => Value::Null,
        IdleLimit::Off => json!(0),
        IdleLimit::After(time) => json!(time.as_secs_f64() / 60.0),
    }
}

/// Changes a workspace at a gateway.
pub(super) async fn change(
    client: &GatewayClient,
    change: IdleChange<'_>,
    console: &mut Console,
) -> Result<Exit, ClientError> {
    if let Err(exit) = change.check(console) {
        return Ok(exit);
    }
    let path = format!("/workspaces/{}", change.workspace());
    let detail: Value = match change {
        IdleChange::Keep(args) => {
            client.post(&format!("{path}/keep"), &json!({"seconds": args.time.as_secs()})).await?
        }
        IdleChange::Limit(args) => client.patch(&path, &json!({"idle_minutes": wire(args.limit)})).await?,
    };
    let changed: Changed = serde_json::from_value(detail).unwrap_or(Changed { owner: String::new(), idle: None });
    let idle = changed.idle.unwrap_or_default();
    Ok(change.print(idle.told(&changed.owner), &json!(idle), console))
}

/// Changes a workspace in this machine's database; a running gateway sees it within seconds.
pub(super) async fn change_here(
    store: &Store,
    config: &Config,
    change: IdleChange<'_>,
    console: &mut Console,
    now: UnixSeconds,
) -> Result<Exit, Exit> {
    change.check(console)?;
    let (journal, name) = (Journal::open(config, now, console)?, change.workspace());
    let found = store.managed(name).await.map_err(|error| complain(&error, console))?;
    let Some(found) = found else { return Ok(no_such(name, console)) };
    let (workspaces, workspace) = (service(store, config), Text::of(name));
    let (changed, event) = match change {
        IdleChange::Keep(args) => {
            let until = now.later(args.time);
            let event = AuditEvent::WorkspaceKept { by: operator(), workspace, until: Text::of(until) };
            (workspaces.keep(&found, until).await, event)
        }
        IdleChange::Limit(args) => {
            let event = AuditEvent::WorkspaceIdleLimit { by: operator(), workspace, limit: Text::of(args.limit) };
            (workspaces.limit_idle(&found, args.limit).await, event)
        }
    };
    let changed = changed.map_err(|error| complain(&error, console))?;
    journal.write(store, event, console).await;
    Ok(change.print(told_here(&changed), &look_here(&changed, now), console))
}

/// Writes when a workspace stops, and what counted last.
pub(super) fn told_here(managed: &ManagedWorkspace) -> Option<String> {
    managed.idle.told(&managed.lifecycle, &managed.workspace.owner)
}

/// Returns the same for programs.
pub(super) fn look_here(managed: &ManagedWorkspace, now: UnixSeconds) -> Value {
    let (idle, life) = (&managed.idle, &managed.lifecycle);
    json!(IdleLook {
        stops_at: idle.stops_at(life).map(|at| at.to_string()),
        stage: idle.stage(life, now).as_str().to_owned(),
        kept_until: idle.is_kept_until(now).map(|until| until.to_string()),
        last_activity: idle.last.as_ref().map(|last| ActivityLook {
            at: last.at.to_string(),
            what: last.kind.words().to_owned(),
            by: last.user.as_ref().map(ToString::to_string),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_and_last_activity_are_told_and_a_near_stop_is_warned_of() {
        let look = IdleLook {
            stops_at: Some("2026-01-01T18:40:00Z".to_owned()),
            stage: "near".to_owned(),
            kept_until: None,
            last_activity: Some(ActivityLook {
                at: "2026-01-01T17:10:00Z".to_owned(),
                what: "terminal input".to_owned(),
                by: Some("ann".to_owned()),
            }),
        };
        let told = "stops 2026-01-01T18:40:00Z; last activity 2026-01-01T17:10:00Z: terminal input by you";
        assert_eq!(look.told("ann").as_deref(), Some(told));
        assert!(look.told("bob").is_some_and(|told| told.ends_with(" by ann")));
        assert!(look.warning("app").is_some_and(|text| text.contains("gateway workspace keep app")));
        assert_eq!(IdleLook { stage: "awake".to_owned(), ..look }.warning("app"), None);
        assert_eq!(IdleLook::default().told("ann"), None);
    }

    #[test]
    fn limit_is_written_as_the_api_takes_it() {
        assert_eq!(wire(IdleLimit::Inherited), Value::Null);
        assert_eq!(wire(IdleLimit::Off), json!(0));
        assert_eq!(wire(IdleLimit::After(std::time::Duration::from_secs(90))), json!(1.5));
    }
}
