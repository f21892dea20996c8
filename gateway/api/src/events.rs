//! Server-sent events of a workspace for its owner (HTML Living Standard, section 9.2).
//!
//! `state` comes first and with every change, `progress` says what holds a termination up, `failure` why something went
//! wrong (an event called `error` would be taken for one of the browser's own), `end` that nothing more will come. The
//! id of an event is the revision that it reports. Missed changes are covered by the next state, so nothing is sent
//! again.

mod words;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use futures_util::stream;
use http::{HeaderMap, HeaderName};
use tokio::time::Instant;

use self::words::{LastState, WorkspaceView};
use super::lifecycle::owned;
use super::openapi::{failures, parameters};
use super::permits::ApiPermit;
use super::presence::{is_connected, is_here};
use super::problem::ProblemRow;
use super::state::StateRow;
use super::{ApiShared, Caller, answer};
use gateway_store::{ManagedWorkspace, StoreError, WorkspaceId, wall_clock};
use gateway_types::DesiredState;
use gateway_workspaces::changes::{ChangeNews, Subscriber};
use gateway_workspaces::starts::steps;

/// Interval at which the agent's presence is checked, because no event reports it.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The same while the workspace starts.
const START_LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Interval at which the store is read without a notification: changes of other processes send none.
const STORE_INTERVAL: Duration = Duration::from_secs(5);

/// Longest silence of a stream, so that no proxy takes it for dead.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[utoipa::path(
    get,
    path = "/workspaces/{name}/events",
    operation_id = "followWorkspace",
    summary = "Live events of a workspace; for the owner",
    description = "Server-sent events. `state` comes at once and with every change (a `WorkspaceState` and \
        `connected`), `idle` when a stop for idleness comes \
        nearer or is put off (`stage`), `progress` when what holds a termination up changes (`blockers`), `failure` when something \
        went wrong (`actual`, `reason`), `end` when nothing more will come (`why`: `terminated` or `forgotten`). \
        The id of an event is the state's `revision`. A comment comes every 15 s. The stream ends without a word \
        when the gateway restarts, and within 5 s when you may no longer: connect again.",
    params(
        parameters::WorkspacePath,
        ("Last-Event-ID" = Option<String>, Header, description = "The last id that was received: 204 answers a client \
            that has received the end."),
    ),
    responses(
        (status = 200, description = "The stream.", body = String, content_type = "text/event-stream"),
        (status = 204, description = "You have received the end."),
        failures::SignedIn,
        failures::OwnerOnly,
        (status = 409, description = "`conflict`; `reason` is `not_managed` for an external workspace"),
        (status = 429, description = "`too_many_requests`; `limit` is `event_streams_per_user`"),
    ),
)]
pub(super) async fn follow(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ProblemRow> {
    // Listens first: a change between the look and the listening would be missed.
    let listener = api.lifecycles.listen();
    let managed = owned(&api, &caller, name, wall_clock()).await?;
    let last = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()?.parse::<i64>().ok());
    if managed.lifecycle.is_over() && last == Some(managed.lifecycle.revision) {
        // A client that has heard the end and comes again is told to stay away: a browser does not try again after
        // this.
        return Ok(answer::done());
    }
    let permit = api.followers.take(&caller.user()?.user)?;
    let now = Instant::now();
    let following = Following {
        id: managed.workspace.id,
        found: Some(managed),
        told: LastState::default(),
        listener,
        read_at: now,
        sent_at: now,
        _permit: permit,
        api,
    };
    Ok(answer::events(stream::unfold(following, Following::next)))
}

/// A reader of one workspace's events.
struct Following {
    api: Arc<ApiShared>,
    id: WorkspaceId,
    /// Latest record read; `None` once the workspace is forgotten.
    found: Option<ManagedWorkspace>,
    told: LastState,
    listener: Subscriber,
    read_at: Instant,
    sent_at: Instant,
    _permit: ApiPermit,
}

impl Following {
    /// Waits for something to tell. A drain ends it without an event, so that the reader comes again, elsewhere.
    async fn next(mut self) -> Option<(Result<String, Infallible>, Self)> {
        loop {
            if self.told.is_end() {
                return None;
            }
            let connected = self.is_connected().await;
            let view = self.found.as_ref().map(|managed| WorkspaceView {
                state: StateRow::new(managed),
                actual: managed.lifecycle.actual,
                is_over: managed.lifecycle.is_over(),
                revision: managed.lifecycle.revision,
                connected,
                idle: managed.idle.stage(&managed.lifecycle, wall_clock()),
            });
            let mut text = self.told.tell(view);
            if text.is_empty() && self.sent_at.elapsed() >= HEARTBEAT_INTERVAL {
                text.push_str(words::HEARTBEAT);
            }
            if !text.is_empty() {
                self.sent_at = Instant::now();
                return Some((Ok(text), self));
            }
            if !self.wait().await {
                return None;
            }
        }
    }

    /// Waits until it is time to look again, and reads the store if that is due; false when the reader is to be told no
    /// more.
    async fn wait(&mut self) -> bool {
        let draining = self.api.drain.draining().clone();
        let interval = self.look_interval();
        let is_about_this = tokio::select! {
            biased;
            () = draining.cancelled() => return false,
            heard = self.listener.next() => match heard {
                ChangeNews::Change(change) => change.workspace == self.id,
                ChangeNews::Missed => true,
            },
            () = tokio::time::sleep(interval) => false,
        };
        if is_about_this || self.read_at.elapsed() >= STORE_INTERVAL {
            self.read_at = Instant::now();
            match self.read().await {
                Ok(found) => self.found = found,
                // The last state stays true enough until the store answers again.
                Err(error) => tracing::warn!(%error, "the store did not answer a reader of a workspace's events"),
            }
        }
        true
    }

    /// Returns whether the agent can be reached. That of a workspace that is not to run is not searched at other replicas.
    async fn is_connected(&self) -> bool {
        let Some(managed) = &self.found else { return false };
        let name = &managed.workspace.name;
        match managed.lifecycle.desired {
            DesiredState::Running | DesiredState::RestartRequested => is_connected(&self.api, name).await,
            DesiredState::Stopped | DesiredState::Terminated => is_here(&self.api.registry, name),
        }
    }

    /// Returns the time until the agent's presence is checked again: shorter while people wait for it.
    fn look_interval(&self) -> Duration {
        let starts = self.found.as_ref().is_some_and(|managed| !steps(managed).is_empty());
        if starts { START_LOOK_INTERVAL } else { LOOK_INTERVAL }
    }

    async fn read(&self) -> Result<Option<ManagedWorkspace>, StoreError> {
        self.api.store.managed_by_id(self.id).await
    }
}
