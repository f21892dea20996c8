//! Actions behind the buttons and forms of a workspace's page, and of its row in the list; for its owner.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;

use super::way_back::WayBack;
use super::{Shown, again, owned};
use crate::see_other;
use crate::words::capitalised;
use gateway_api::etag::Condition;
use gateway_api::page::{browser, check_form, only};
use gateway_api::problem::{ApiProblem, ProblemRow};
use gateway_api::{ApiShared, Caller, actor, body, external, idle, lifecycle, shares};
use gateway_auth::site::WORKSPACE_PAGES;
use gateway_net::audit::{AuditEvent, Text};
use gateway_store::{ManagedWorkspace, wall_clock};
use gateway_types::{Audience, DesiredState, DisplayName, IdleLimit, KEEP_TIME, Port, Share};

/// Longest share that a form makes, in hours: a year.
const SHARE_HOURS_MAX: u64 = 24 * 366;

/// Carries out the action of a button.
///
/// Cancel safety: a change that was begun is made or not made, as a whole.
pub(crate) async fn act(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ProblemRow> {
    browser(&caller)?;
    check_form(request.headers())?;
    let shown = owned(&api, &caller, name).await?;
    let form = body::read(request.into_body()).await?;
    let deed = Deed { api: &api, caller: &caller, shown: &shown, form: &form };
    match deed.carry_out().await {
        Ok(next) => Ok(see_other(&next)),
        // A form with a mistake comes back with what is wrong; what no form of ours sends does not.
        Err(problem) if problem.is_malformed() => Err(problem),
        Err(problem) => again(&api, &caller, &shown, &problem).await,
    }
}

/// A form, and the workspace that it is about.
struct Deed<'a> {
    api: &'a ApiShared,
    caller: &'a Caller,
    shown: &'a Shown,
    form: &'a Bytes,
}

impl Deed<'_> {
    /// Does what the form says. Returns the address to go on at.
    async fn carry_out(&self) -> Result<String, ProblemRow> {
        let Self { api, caller, shown: Shown { workspace, managed }, .. } = self;
        let name = &workspace.name;
        let here = format!("{WORKSPACE_PAGES}{name}");
        if self.field("action").is_none() && self.field("share").is_some() {
            shares::open_proposed(api, caller, workspace, self.parsed("share")?).await?;
            return Ok(here);
        }
        let action = self.field("action").unwrap_or_default();
        match (action.as_str(), managed.as_deref()) {
            ("pin" | "unpin", _) => {
                api.store.pin(workspace.id, &workspace.owner, action == "pin").await?;
                Ok("/".to_owned())
            }
            ("rename", _) => self.rename().await.map(|()| here),
            ("share", _) => self.share().await.map(|()| here),
            ("revoke", _) => {
                let (port, audience) = (self.parsed("port")?, self.parsed("audience")?);
                shares::end(api, caller, workspace, &Share { port, audience, expires_at: None }).await?;
                Ok(here)
            }
            ("end-access", _) => {
                self.end_access().await?;
                Ok(here)
            }
            ("hand-over", None) => {
                let to = self.field("to").unwrap_or_default();
                let to = to.trim().parse().map_err(|error| mistake("to", sentence(&error)))?;
                external::hand_over(api, caller, workspace, &to).await.map(|()| "/".to_owned())
            }
            ("delete", None) => external::delete(api, caller, name).await.map(|()| "/".to_owned()),
            ("delete", Some(managed)) => self.delete(managed).await,
            ("keep", Some(managed)) => {
                idle::keep_for(api, caller, managed, KEEP_TIME, wall_clock()).await?;
                Ok(WayBack::read(api, name, self.form).address(name, false))
            }
            ("idle", Some(managed)) => {
                idle::limit_idle(api, caller, managed, self.idle_limit()?).await?;
                Ok(here)
            }
            ("start", Some(managed)) => self.request(managed, DesiredState::Running).await,
            ("stop", Some(managed)) => self.request(managed, DesiredState::Stopped).await,
            ("restart", Some(managed)) => self.request(managed, DesiredState::RestartRequested).await,
            _ => Err(ApiProblem::BadRequest { reason: "no_action" }.into()),
        }
    }

    fn field(&self, name: &str) -> Option<String> {
        only(self.form, name)
    }

    /// Reads a field that a page of ours fills in.
    fn parsed<T: FromStr>(&self, name: &str) -> Result<T, ProblemRow> {
        let text = self.field(name).unwrap_or_default();
        text.parse().map_err(|_| ApiProblem::BadRequest { reason: "no_action" }.into())
    }

    async fn request(&self, managed: &ManagedWorkspace, desired: DesiredState) -> Result<String, ProblemRow> {
        let follows = match desired {
            DesiredState::Running | DesiredState::RestartRequested => true,
            DesiredState::Stopped | DesiredState::Terminated => false,
        };
        let changed = lifecycle::request(self.api, self.caller, managed.clone(), desired, &Condition::Absent).await?;
        // A page that is loaded again must not press the button again.
        let name = &changed.workspace.name;
        Ok(WayBack::read(self.api, name, self.form).address(name, follows))
    }

    /// Deletes a workspace with its storage, or forgets one that is gone, if its name was typed.
    async fn delete(&self, managed: &ManagedWorkspace) -> Result<String, ProblemRow> {
        let name = &managed.workspace.name;
        if managed.lifecycle.is_over() {
            lifecycle::forget(self.api, self.caller, managed).await?;
            return Ok("/".to_owned());
        }
        if self.field("confirm").as_deref().map(str::trim) != Some(name.as_str()) {
            return Err(mistake("confirm", format!("Type {name} to delete it with its storage.")));
        }
        self.request(managed, DesiredState::Terminated).await
    }

    /// Ends what a user has open. One that is over is no mistake.
    async fn end_access(&self) -> Result<(), ProblemRow> {
        let Self { api, caller, shown: Shown { workspace, .. }, .. } = self;
        let number = self.parsed("number")?;
        let slot = api.audit.slot().await?;
        let open = api.accesses.open_at(&workspace.name).into_iter().find(|open| open.number == number);
        if let Some(open) = open.filter(|_| api.accesses.end_one(&workspace.name, number)) {
            slot.record(caller.did(AuditEvent::AccessEndedByOwner {
                by: actor(caller.user()?),
                workspace: Text::of(&workspace.name),
                port: open.port.get(),
                user: open.user.as_ref().map(Text::of),
            }));
        }
        Ok(())
    }

    async fn rename(&self) -> Result<(), ProblemRow> {
        let workspace = &self.shown.workspace;
        let text = self.field("display_name").unwrap_or_default();
        let display_name = match text.trim() {
            "" => None,
            text => Some(text.parse::<DisplayName>().map_err(|error| mistake("display_name", sentence(&error)))?),
        };
        lifecycle::rename(self.api, self.caller, workspace, display_name.as_ref()).await
    }

    fn idle_limit(&self) -> Result<IdleLimit, ProblemRow> {
        let text = self.field("minutes").unwrap_or_default();
        let limit = match text.trim() {
            "" => return Ok(IdleLimit::Inherited),
            text => text.parse::<f64>().ok().and_then(|minutes| IdleLimit::of_minutes(minutes).ok()),
        };
        limit.ok_or_else(|| mistake("minutes", sentence(&gateway_types::BadIdleLimit)))
    }

    /// Shares a port with those that the form names.
    async fn share(&self) -> Result<(), ProblemRow> {
        let port = self.field("port").unwrap_or_default();
        let port: Port = port.trim().parse().map_err(|error| mistake("port", sentence(&error)))?;
        let (kind, subject) = (self.field("kind").unwrap_or_default(), self.field("subject").unwrap_or_default());
        let audience = match (kind.as_str(), subject.trim()) {
            ("user" | "group", "") => return Err(mistake("subject", format!("Say which {kind}."))),
            ("user" | "group", subject) => format!("{kind}:{subject}"),
            _ => kind,
        };
        let audience: Audience = audience.parse().map_err(|error| mistake("subject", sentence(&error)))?;
        let hours = self.field("hours").unwrap_or_default();
        let expires_at = match hours.trim() {
            "" => None,
            hours => match hours.parse::<u64>() {
                Ok(hours) if (1..=SHARE_HOURS_MAX).contains(&hours) => {
                    Some(wall_clock().later(Duration::from_secs(hours * 3600)))
                }
                Ok(_) | Err(_) => {
                    return Err(mistake("hours", format!("Hours are a number from 1 to {SHARE_HOURS_MAX}.")));
                }
            },
        };
        let is_unknown_meant = self.field("unknown_user").is_some();
        let share = Share { port, audience, expires_at };
        shares::add(self.api, self.caller, &self.shown.workspace, share, is_unknown_meant).await
    }
}

fn mistake(field: &str, detail: String) -> ProblemRow {
    ProblemRow::mistake(&format!("/{field}"), detail)
}

/// Writes an error as a sentence.
fn sentence(error: &impl ToString) -> String {
    format!("{}.", capitalised(&error.to_string()))
}
