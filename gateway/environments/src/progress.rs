//! Streams events of an environment to callers that wait for it. A slow reader may miss events on the way; the outcome
//! is read from the store, so no caller misses that, whichever process ended it and after however many restarts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tunnel_proto::environments::ObjectStep;

use super::record::{Environment, FinalFailure};
use super::request::Met;
use super::service::Environments;
use gateway_store::{EnvironmentId, PreparationId};
use gateway_types::UnixSeconds;
use workspace_spec::environment::facts::ObjectRef;

/// Events that wait for a reader; older ones are missed.
const EVENTS_KEPT: usize = 256;

/// Interval at which the store is read without a notification: other processes end things too.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Event of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvironmentEvent {
    /// Nothing has begun yet, for this reason.
    Waiting {
        /// `queued`: others are before it; `removal`: earlier objects have to be removed first.
        why: &'static str,
    },
    /// Progress of an object.
    Object(ObjectProgress),
    /// The try failed, and another one follows.
    Retrying {
        /// Reason, as a code.
        code: String,
        /// Reason, for people.
        message: String,
        /// Time of the next try.
        at: UnixSeconds,
    },
    /// Outcome; the last event.
    Done(PreparationOutcome),
}

/// Progress of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectProgress {
    /// The object.
    pub object: ObjectRef,
    /// Step that it has reached.
    pub step: ObjectStep,
    /// Message for people; may be empty.
    pub message: String,
}

/// Final result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparationOutcome {
    /// Reason of the failure, if it failed.
    pub failure: Option<FinalFailure>,
    /// Reason for there being nothing to do, if so.
    pub met: Option<Met>,
    /// Environment at the end, if there is one.
    pub environment: Option<Box<Environment>>,
}

impl PreparationOutcome {
    /// Creates the outcome of a request with nothing to do.
    pub(super) fn nothing(met: Met) -> Self {
        Self { failure: None, met: Some(met), environment: None }
    }
}

/// Notification to all followers of an environment.
#[derive(Clone, Debug)]
pub(super) enum Notification {
    /// An event.
    Event(EnvironmentEvent),
    /// Something ended: waiting followers check whether it is theirs.
    Settled,
}

/// Followers of each environment. Bounded by the number of followers.
#[derive(Debug, Default)]
pub(super) struct Broadcaster {
    streams: Mutex<HashMap<EnvironmentId, broadcast::Sender<Arc<Notification>>>>,
}

impl Broadcaster {
    fn listen(&self, id: EnvironmentId) -> broadcast::Receiver<Arc<Notification>> {
        let mut streams = self.streams.lock();
        streams.retain(|_, stream| stream.receiver_count() > 0);
        streams.entry(id).or_insert_with(|| broadcast::Sender::new(EVENTS_KEPT)).subscribe()
    }

    /// Returns whether an environment has followers.
    pub(super) fn is_followed(&self, id: EnvironmentId) -> bool {
        self.streams.lock().get(&id).is_some_and(|stream| stream.receiver_count() > 0)
    }

    /// Has the followers of all environments read the store.
    pub(super) fn tell_all(&self) {
        let settled = Arc::new(Notification::Settled);
        for stream in self.streams.lock().values() {
            stream.send(settled.clone()).ok();
        }
    }

    /// Notifies all followers of an environment in this process.
    pub(super) fn tell(&self, id: EnvironmentId, told: Notification) {
        let stream = self.streams.lock().get(&id).cloned();
        if let Some(stream) = stream {
            // No listener any more is no failure.
            stream.send(Arc::new(told)).ok();
        }
    }
}

/// End that a follower waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AwaitedEnd {
    /// End of a preparation for this job; also if a newer request replaces it meanwhile, which has another id.
    Preparation(PreparationId, Option<u64>),
    /// End of a removal.
    Removal,
    /// End of everything under way.
    Everything,
}

/// Follows an environment to an end.
///
/// Cancel safety: dropping it changes nothing; what is under way goes on.
#[derive(Debug)]
pub struct ProgressStream {
    of: Option<(Environments, EnvironmentId, AwaitedEnd, broadcast::Receiver<Arc<Notification>>)>,
    /// Event to deliver first.
    first: Option<EnvironmentEvent>,
    /// Whether to ask the store before waiting.
    is_to_look: bool,
    /// Outcome, delivered after the remaining events.
    end: Option<PreparationOutcome>,
}

impl ProgressStream {
    /// Creates one that delivers only this outcome.
    pub(super) fn ended(outcome: PreparationOutcome) -> Self {
        Self { of: None, first: Some(EnvironmentEvent::Done(outcome)), is_to_look: false, end: None }
    }

    /// Follows an environment.
    pub(super) fn new(environments: &Environments, id: EnvironmentId, awaited: AwaitedEnd) -> Self {
        // Subscribe before the store is asked, so that later events are not missed.
        let receiver = environments.hub().listen(id);
        Self { of: Some((environments.clone(), id, awaited, receiver)), first: None, is_to_look: true, end: None }
    }

    /// Returns the environment, if there is one.
    #[must_use]
    pub fn environment(&self) -> Option<u64> {
        self.of.as_ref().map(|(_, id, ..)| id.get())
    }

    /// Delivers an event first.
    pub(super) fn beginning(mut self, event: Option<EnvironmentEvent>) -> Self {
        self.first = event;
        self
    }

    /// Waits for the next event. `None` after [`EnvironmentEvent::Done`].
    ///
    /// Cancel safety: safe; no event is lost by it.
    pub async fn next(&mut self) -> Option<EnvironmentEvent> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            let (environments, id, awaited, receiver) = self.of.as_mut()?;
            if self.is_to_look && self.end.is_none() {
                self.end = environments.outcome(*id, *awaited).await;
                self.is_to_look = false;
            }
            if self.end.is_some() {
                if let Some(event) = waiting(receiver) {
                    return Some(event);
                }
                self.of = None;
                return self.end.take().map(EnvironmentEvent::Done);
            }
            tokio::select! {
                told = receiver.recv() => match told.as_deref() {
                    Ok(Notification::Event(event)) => return Some(event.clone()),
                    Ok(Notification::Settled) | Err(RecvError::Lagged(_)) => self.is_to_look = true,
                    Err(RecvError::Closed) => {
                        *receiver = environments.hub().listen(*id);
                        self.is_to_look = true;
                    }
                },
                () = tokio::time::sleep(LOOK_INTERVAL) => self.is_to_look = true,
            }
        }
    }

    /// Waits for the end and returns it.
    pub async fn outcome(mut self) -> PreparationOutcome {
        loop {
            match self.next().await {
                Some(EnvironmentEvent::Done(outcome)) => return outcome,
                Some(
                    EnvironmentEvent::Waiting { .. } | EnvironmentEvent::Object(_) | EnvironmentEvent::Retrying { .. },
                ) => {}
                // The stream never ends without an outcome.
                None => return PreparationOutcome { failure: None, met: None, environment: None },
            }
        }
    }

    /// Returns the events as a stream.
    pub fn into_stream(self) -> impl Stream<Item = EnvironmentEvent> + Send + 'static {
        futures_util::stream::unfold(self, async |mut following| {
            let event = following.next().await?;
            Some((event, following))
        })
    }
}

/// Returns the next unread event, if there is one.
fn waiting(receiver: &mut broadcast::Receiver<Arc<Notification>>) -> Option<EnvironmentEvent> {
    loop {
        match receiver.try_recv().as_deref() {
            Ok(Notification::Event(event)) => return Some(event.clone()),
            Ok(Notification::Settled) | Err(TryRecvError::Lagged(_)) => {}
            Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
        }
    }
}
