//! What happens to an environment, told to those who wait for it. What is told on the way may be missed by who reads slowly;
//! how it ended is read from the store, so nobody misses that, whoever ended it and after however many restarts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tunnel_proto::environments::Step;

use super::facts::ObjectRef;
use super::record::{Environment, Failure};
use super::request::Met;
use super::service::Environments;
use crate::model::UnixSeconds;
use crate::store::{EnvironmentId, PreparationId};

/// Events that wait for a reader; older ones are missed.
const EVENTS_KEPT: usize = 256;

/// How often the store is asked without a word: other processes end things too.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing yet, because of this.
    Waiting {
        /// `queued`: others are before it; `removal`: what was there has to go first.
        why: &'static str,
    },
    /// Something became of an object.
    Object(ObjectProgress),
    /// It failed, and is tried again.
    Retrying {
        /// Why, as a code.
        code: String,
        /// Why, for people.
        message: String,
        /// When.
        at: UnixSeconds,
    },
    /// The end: nothing comes after it.
    Done(Outcome),
}

/// What became of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectProgress {
    /// Which.
    pub object: ObjectRef,
    /// What.
    pub step: Step,
    /// For people; may be empty.
    pub message: String,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why it failed, if it has.
    pub failure: Option<Failure>,
    /// Why there was nothing to do, if there was not.
    pub met: Option<Met>,
    /// The environment as it is then, if there is one.
    pub environment: Option<Box<Environment>>,
}

impl Outcome {
    /// There was nothing to do.
    pub(super) fn nothing(met: Met) -> Self {
        Self { failure: None, met: Some(met), environment: None }
    }
}

/// What is told to everybody who follows an environment.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// This happened.
    Event(Event),
    /// Something ended: who waits for an end looks whether it is theirs.
    Settled,
}

/// Who follows which environment. Bounded by those who follow.
#[derive(Debug, Default)]
pub(super) struct Hub {
    streams: Mutex<HashMap<EnvironmentId, broadcast::Sender<Arc<Told>>>>,
}

impl Hub {
    fn listen(&self, id: EnvironmentId) -> broadcast::Receiver<Arc<Told>> {
        let mut streams = self.streams.lock();
        streams.retain(|_, stream| stream.receiver_count() > 0);
        streams.entry(id).or_insert_with(|| broadcast::Sender::new(EVENTS_KEPT)).subscribe()
    }

    /// Tells everybody who follows an environment.
    pub(super) fn tell(&self, id: EnvironmentId, told: Told) {
        let stream = self.streams.lock().get(&id).cloned();
        if let Some(stream) = stream {
            // That nobody listens any more is no failure.
            stream.send(Arc::new(told)).ok();
        }
    }
}

/// Whose end is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// A preparation's, for this job; also if that is asked for anew meanwhile, which is another one.
    Preparation(PreparationId, Option<u64>),
    /// A removal's.
    Removal,
    /// Of all that is under way.
    Everything,
}

/// Follows an environment to an end.
///
/// Cancel safety: dropping it changes nothing; what is under way goes on.
#[derive(Debug)]
pub struct Following {
    of: Option<(Environments, EnvironmentId, Awaited, broadcast::Receiver<Arc<Told>>)>,
    /// What is told first.
    first: Option<Event>,
    /// The store is asked before anything is waited for.
    is_to_look: bool,
    /// It ended so; what was told before comes before it.
    end: Option<Outcome>,
}

impl Following {
    /// Follows nothing: this is the end.
    pub(super) fn ended(outcome: Outcome) -> Self {
        Self { of: None, first: Some(Event::Done(outcome)), is_to_look: false, end: None }
    }

    /// Follows an environment.
    pub(super) fn new(environments: &Environments, id: EnvironmentId, awaited: Awaited) -> Self {
        // Before the store is asked: what happens after that is heard.
        let receiver = environments.hub().listen(id);
        Self { of: Some((environments.clone(), id, awaited, receiver)), first: None, is_to_look: true, end: None }
    }

    /// Returns the environment, if there is one.
    #[must_use]
    pub fn environment(&self) -> Option<u64> {
        self.of.as_ref().map(|(_, id, ..)| id.get())
    }

    /// Tells something first.
    pub(super) fn beginning(mut self, event: Option<Event>) -> Self {
        self.first = event;
        self
    }

    /// Waits for what happens next. `None` after [`Event::Done`].
    ///
    /// Cancel safety: safe; no event is lost by it.
    pub async fn next(&mut self) -> Option<Event> {
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
                return self.end.take().map(Event::Done);
            }
            tokio::select! {
                told = receiver.recv() => match told.as_deref() {
                    Ok(Told::Event(event)) => return Some(event.clone()),
                    Ok(Told::Settled) | Err(RecvError::Lagged(_)) => self.is_to_look = true,
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
    pub async fn outcome(mut self) -> Outcome {
        loop {
            match self.next().await {
                Some(Event::Done(outcome)) => return outcome,
                Some(Event::Waiting { .. } | Event::Object(_) | Event::Retrying { .. }) => {}
                // It never ends without one.
                None => return Outcome { failure: None, met: None, environment: None },
            }
        }
    }

    /// Returns it as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Event> + Send + 'static {
        futures_util::stream::unfold(self, async |mut following| {
            let event = following.next().await?;
            Some((event, following))
        })
    }
}

/// Returns the next event that was told and not read, if there is one.
fn waiting(receiver: &mut broadcast::Receiver<Arc<Told>>) -> Option<Event> {
    loop {
        match receiver.try_recv().as_deref() {
            Ok(Told::Event(event)) => return Some(event.clone()),
            Ok(Told::Settled) | Err(TryRecvError::Lagged(_)) => {}
            Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
        }
    }
}
