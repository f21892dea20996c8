//! Waits until a request has come true, and shows the progress: on a terminal in one line that changes, elsewhere in a
//! line for each change, and for programs as JSON, one object to a line.
//!
//! A gateway sends events as they happen. Without them, or once they break off, it is polled.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::wish::{Accepted, Wish, WishVerdict, WorkspaceLook};
use crate::client::{ClientError, EventSource, GatewayClient, shown};
use crate::{Console, Exit, Output};
use gateway_store::{Store, StoreError};
use gateway_types::WorkspaceName;

/// Poll interval without events, and time for which a terminal shows the same seconds.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Interval between attempts to listen to events.
const LISTEN_INTERVAL: Duration = Duration::from_secs(5);

/// Source of the present state.
#[derive(Clone, Copy)]
pub(super) enum Lookout<'a> {
    /// At a gateway.
    Gateway(&'a GatewayClient),
    /// In this machine's database.
    Here(&'a Store),
}

/// Reason why the present state is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The request that a command waits for, and for how long.
pub(super) struct WorkspaceWait<'a> {
    pub(super) workspace: &'a WorkspaceName,
    pub(super) wish: Wish,
    /// Answer to the request.
    pub(super) asked: Accepted,
    pub(super) timeout: Duration,
    pub(super) output: Output,
}

#[derive(Deserialize)]
struct FollowedWorkspace {
    state: Option<WorkspaceLook>,
}

impl Lookout<'_> {
    async fn look(self, workspace: &WorkspaceName) -> Result<Option<WorkspaceLook>, LookError> {
        match self {
            Self::Here(store) => Ok(store.managed(workspace).await?.as_ref().map(WorkspaceLook::of)),
            Self::Gateway(client) => match client.get::<FollowedWorkspace>(&format!("/workspaces/{workspace}")).await {
                Ok(detail) => Ok(detail.state),
                Err(error) if error.code() == Some("not_found") => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }
}

/// Outcome of waiting for news.
enum News {
    /// The present state; `None` for a workspace that is gone.
    Seen(Option<WorkspaceLook>),
    /// No news.
    Nothing,
}

/// Source of news: events, or polls without them.
struct NewsSource<'a> {
    lookout: Lookout<'a>,
    workspace: &'a WorkspaceName,
    /// Events of a gateway, while they come.
    events: Option<EventSource>,
    listen_at: Instant,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FollowEnd {
    why: String,
}

impl NewsSource<'_> {
    /// Waits for news, but not longer than until the next poll would be due.
    async fn next(&mut self) -> Result<News, LookError> {
        self.listen().await;
        let Some(events) = &mut self.events else {
            tokio::time::sleep(LOOK_INTERVAL).await;
            return self.lookout.look(self.workspace).await.map(News::Seen);
        };
        match tokio::time::timeout(LOOK_INTERVAL, events.next()).await {
            Err(_elapsed) => Ok(News::Nothing),
            Ok(Some(event)) if event.kind == "state" => match serde_json::from_str(&event.data) {
                Ok(look) => Ok(News::Seen(Some(look))),
                // A state of another version: a poll tells what it means.
                Err(_) => self.deaf(),
            },
            Ok(Some(event)) if event.kind == "end" => {
                let FollowEnd { why } = serde_json::from_str(&event.data).unwrap_or_default();
                // A termination was reported as a state before.
                Ok(if why == "forgotten" { News::Seen(None) } else { News::Nothing })
            }
            Ok(Some(_)) => Ok(News::Nothing),
            Ok(None) => self.deaf(),
        }
    }

    /// Begins to listen if that is possible and not done yet.
    async fn listen(&mut self) {
        let Lookout::Gateway(client) = self.lookout else { return };
        if self.events.is_some() || Instant::now() < self.listen_at {
            return;
        }
        self.listen_at = Instant::now() + LISTEN_INTERVAL;
        // The next poll reports the reason, if that fails too.
        self.events = client.events(self.workspace).await.ok();
    }

    /// Gives up listening for a while.
    fn deaf(&mut self) -> Result<News, LookError> {
        self.events = None;
        self.listen_at = Instant::now() + LISTEN_INTERVAL;
        Ok(News::Nothing)
    }
}

impl LookError {
    fn is_passing(&self) -> bool {
        match self {
            Self::Client(error) => error.is_passing() || error.code() == Some("too_many_requests"),
            Self::Store(_) => true,
        }
    }
}

/// Waits, and reports the outcome.
pub(super) async fn follow(lookout: Lookout<'_>, waiting: WorkspaceWait<'_>, console: &mut Console) -> Exit {
    let began = Instant::now();
    let mut watch = NewsSource { lookout, workspace: waiting.workspace, events: None, listen_at: began };
    let mut teller = Teller { waiting, began, told: None };
    let mut seen = Some(teller.waiting.asked.look.clone());
    loop {
        teller.tell(seen.as_ref(), console);
        let WorkspaceWait { wish, asked, timeout, .. } = &teller.waiting;
        match wish.judge(&asked.look, seen.as_ref(), asked.persistence) {
            WishVerdict::Reached => return teller.reached(console),
            WishVerdict::Failed(reason) => return teller.failed("failed", &reason, console),
            WishVerdict::Waiting if began.elapsed() >= *timeout => {
                let last = seen.as_ref().map(WorkspaceLook::told).unwrap_or_default();
                return teller.failed("timeout", &format!("not within {timeout:?}; it is {last}"), console);
            }
            WishVerdict::Waiting => {}
        }
        match watch.next().await {
            Ok(News::Seen(look)) => seen = look,
            Ok(News::Nothing) => {}
            // A gateway that restarts, or a network that is gone for a moment.
            Err(error) if error.is_passing() && began.elapsed() < teller.waiting.timeout => {}
            Err(error) => {
                console.complain_of(&error);
                return Exit::Failed;
            }
        }
    }
}

/// Outcome in the last line for programs.
#[derive(Clone, Copy)]
struct LineOutcome<'a> {
    /// Stable word for it.
    outcome: &'a str,
    why: Option<&'a str>,
}

struct Teller<'a> {
    waiting: WorkspaceWait<'a>,
    began: Instant,
    told: Option<WorkspaceLook>,
}

impl Teller<'_> {
    fn tell(&mut self, look: Option<&WorkspaceLook>, console: &mut Console) {
        let Some(look) = look else { return };
        let name = self.waiting.workspace;
        let is_news = self.told.as_ref() != Some(look);
        match self.waiting.output {
            Output::Json if is_news => self.line(look, None, console),
            Output::Text if console.is_attended() => {
                let seconds = self.began.elapsed().as_secs();
                console.status(format_args!("{name}: {} ({seconds} s)", shown(&look.told())));
            }
            Output::Text if self.told.as_ref().map(WorkspaceLook::told) != Some(look.told()) => {
                console.complain(format_args!("{name}: {}", shown(&look.told())));
            }
            Output::Json | Output::Text => {}
        }
        self.told = Some(look.clone());
    }

    /// Writes a line for programs. A reader that is gone ends nothing: the request has been made.
    fn line(&self, look: &WorkspaceLook, outcome: Option<LineOutcome<'_>>, console: &mut Console) {
        let mut line = json!({
            "workspace": self.waiting.workspace.as_str(),
            "desired": look.desired,
            "actual": look.actual,
            "reason": look.reason,
            "generation": look.generation,
            "blockers": look.blockers,
            "start": look.start,
            "elapsed_seconds": self.began.elapsed().as_secs(),
        });
        if let (Some(LineOutcome { outcome, why }), Some(members)) = (outcome, line.as_object_mut()) {
            members.insert("outcome".to_owned(), outcome.into());
            members.insert("why".to_owned(), why.into());
        }
        console.data(line).unwrap_or_default();
    }

    fn reached(&self, console: &mut Console) -> Exit {
        let last = self.told.clone().unwrap_or_default();
        let seconds = self.began.elapsed().as_secs();
        match (self.waiting.output, self.waiting.wish) {
            (Output::Json, _) => self.line(&last, Some(LineOutcome { outcome: "reached", why: None }), console),
            (Output::Text, Wish::Terminate) => {
                console.complain(format_args!("{} is gone, after {seconds} s", self.waiting.workspace));
            }
            (Output::Text, Wish::Start | Wish::Stop | Wish::Restart) => {
                console.complain(format_args!("{} is {}, after {seconds} s", self.waiting.workspace, last.actual));
            }
        }
        Exit::Success
    }

    fn failed(&self, outcome: &str, reason: &str, console: &mut Console) -> Exit {
        let last = self.told.clone().unwrap_or_default();
        match self.waiting.output {
            Output::Json => self.line(&last, Some(LineOutcome { outcome, why: Some(reason) }), console),
            Output::Text => console.complain(format_args!("{}: {}", self.waiting.workspace, shown(reason))),
        }
        Exit::Failed
    }
}
