//! One call to a cluster's agent: applies or removes the environment's objects. Each call has a channel of its own in
//! the agent's session, and each wait a bound.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::de::IgnoredAny;
use thiserror::Error;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tunnel_link::channel_io::{ChannelError, ChannelIo};
use tunnel_proto::environments::{Call, CallAnswer, CallProgress, Decoder, Done, ENVIRONMENTS_PORT};
use tunnel_proto::reason::Reason;

use super::refusal::RefusalCode;
use gateway_agents::peers::MaybePeers;
use gateway_agents::registry::{LiveSession, Registry, Subject};
use gateway_types::ClusterName;

/// Longest time from the call to the agent's acceptance.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest silence of an agent that works: it has one request to the cluster's API server under way, or waits for
/// objects to be deleted and reports that.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(45);

/// Time limit of a whole call, whatever the agent reports meanwhile, and the time that each object adds: it is read and
/// written by requests that may each be answered slowly.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
const CALL_TIMEOUT_OF_OBJECT: Duration = Duration::from_secs(5);

/// Longest time limit of a call.
const CALL_TIMEOUT_MAX: Duration = Duration::from_secs(20 * 60);

/// Reason for a call without an answer. It is not known then whether the call had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum CallError {
    /// The agent has no session.
    #[error("the cluster's agent is not connected")]
    Absent,
    /// The agent does not know the port.
    #[error("the cluster's agent does not know environments")]
    TooOld,
    /// A newer session of the agent took over.
    #[error("the cluster's agent was displaced by a newer one")]
    Displaced,
    /// The agent's session ended.
    #[error("the session of the cluster's agent ended")]
    Lost,
    /// The agent did not accept the call in time, was silent for too long, or did not end.
    #[error("the cluster's agent did not {0} in time")]
    Late(&'static str),
    /// The agent has too many calls.
    #[error("the cluster's agent has too much to do")]
    Overloaded,
    /// The agent's answer is malformed, or missing.
    #[error("the cluster's agent gave no answer")]
    NoAnswer,
}

impl CallError {
    /// Returns the code that users are shown.
    pub(crate) fn code(self) -> RefusalCode {
        match self {
            Self::Absent | Self::Lost => RefusalCode::AgentAbsent,
            Self::TooOld => RefusalCode::AgentTooOld,
            Self::Displaced => RefusalCode::AgentDisplaced,
            Self::Late(_) | Self::NoAnswer => RefusalCode::CallTimeout,
            Self::Overloaded => RefusalCode::Overloaded,
        }
    }
}

/// Carries out calls. Tests have a cluster of their own.
pub(crate) trait Calls: Send + Sync {
    /// Has a call carried out, and hands its progress on. Dropping the future cancels the call.
    fn call<'a>(
        &'a self,
        cluster: &'a ClusterName,
        call: &'a Call,
        progress: &'a (dyn Fn(CallProgress) + Send + Sync),
    ) -> BoxFuture<'a, Result<Done, CallError>>;
}

/// Calls to agents that have a session with this gateway, here or at another of its replicas.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) registry: Arc<Registry>,
    pub(crate) peers: MaybePeers,
}

impl Calls for Sessions {
    fn call<'a>(
        &'a self,
        cluster: &'a ClusterName,
        call: &'a Call,
        progress: &'a (dyn Fn(CallProgress) + Send + Sync),
    ) -> BoxFuture<'a, Result<Done, CallError>> {
        Box::pin(async move {
            let session = self.session_of(cluster).await.ok_or(CallError::Absent)?;
            let mut line = CallLine::new(&session)?;
            let answer = tokio::time::timeout(timeout_of(call), line.call(call, progress)).await;
            let answer = answer.unwrap_or(Err(CallError::Late("end")));
            answer.map_err(|error| self.why(error, cluster, &session))
        })
    }
}

/// Returns the time limit of a call, by its number of objects.
fn timeout_of(call: &Call) -> Duration {
    let objects = match call {
        Call::Apply(apply) => {
            let wanted = serde_json::from_slice::<Vec<IgnoredAny>>(&apply.objects).map_or(0, |all| all.len());
            apply.tracked.len().saturating_add(wanted)
        }
        Call::Remove(remove) => remove.tracked.len(),
    };
    let more = CALL_TIMEOUT_OF_OBJECT.saturating_mul(u32::try_from(objects).unwrap_or(u32::MAX));
    CALL_TIMEOUT.saturating_add(more).min(CALL_TIMEOUT_MAX)
}

impl Sessions {
    /// Returns the session through which a cluster's agent is called: its own, or a lane to the replica that has it. No other
    /// place decides which session that is.
    async fn session_of(&self, cluster: &ClusterName) -> Option<Arc<LiveSession>> {
        if let Some(session) = self.registry.cluster(cluster) {
            return Some(session);
        }
        let subject = Subject::Cluster(cluster.clone());
        self.peers.as_ref()?.find(&subject).await.lane()
    }

    /// Distinguishes a session that was displaced from one that ended.
    fn why(&self, error: CallError, cluster: &ClusterName, session: &LiveSession) -> CallError {
        let is_other = |current: Arc<LiveSession>| current.id != session.id;
        if error == CallError::Lost && self.registry.cluster(cluster).is_some_and(is_other) {
            return CallError::Displaced;
        }
        error
    }
}

/// A channel with a call in it.
struct CallLine<'a> {
    session: &'a LiveSession,
    io: ChannelIo,
    accepted: Option<tokio::sync::oneshot::Receiver<Result<(), Reason>>>,
    decoder: Decoder<CallAnswer>,
    /// Lets a drain wait for the call, as for requests.
    _in_flight: OwnedSemaphorePermit,
}

impl<'a> CallLine<'a> {
    fn new(session: &'a LiveSession) -> Result<Self, CallError> {
        let permit = session.requests.clone().try_acquire_owned().map_err(|_| CallError::Overloaded)?;
        let (io, accepted) = session.tunnel.channel(ENVIRONMENTS_PORT);
        Ok(Self { session, io, accepted: Some(accepted), decoder: Decoder::default(), _in_flight: permit })
    }

    async fn call(&mut self, call: &Call, progress: &(dyn Fn(CallProgress) + Send + Sync)) -> Result<Done, CallError> {
        let mut unwritten = call.encode();
        let accept_by = Instant::now() + ACCEPT_TIMEOUT;
        let mut silent_until = Instant::now() + SILENCE_TIMEOUT;
        loop {
            let (deadline, what) = match self.accepted {
                Some(_) => (accept_by, "take the call"),
                None => (silent_until, "say anything"),
            };
            tokio::select! {
                // The end of the session resets the channel too, but only this says so for sure.
                () = self.session.tunnel.ended() => return Err(CallError::Lost),
                () = tokio::time::sleep_until(deadline) => return Err(CallError::Late(what)),
                accepted = heard(&mut self.accepted) => {
                    accepted.map_err(error_of)?;
                    self.accepted = None;
                    silent_until = Instant::now() + SILENCE_TIMEOUT;
                }
                turn = turn(&mut self.io, &mut self.decoder, &mut unwritten) => {
                    silent_until = Instant::now() + SILENCE_TIMEOUT;
                    match turn? {
                        CallAnswer::Progress(said) => progress(said),
                        CallAnswer::Done(done) => return Ok(done),
                    }
                }
            }
        }
    }
}

/// Waits for the agent's acceptance of the call; for ever once it has arrived.
async fn heard(accepted: &mut Option<tokio::sync::oneshot::Receiver<Result<(), Reason>>>) -> Result<(), Reason> {
    match accepted {
        Some(accepted) => accepted.await.unwrap_or(Err(Reason::SessionLost)),
        None => std::future::pending().await,
    }
}

/// Writes the rest of the call, and waits for the next answer.
///
/// Cancel safety: safe; what was written or received so far is kept.
async fn turn(
    io: &mut ChannelIo,
    decoder: &mut Decoder<CallAnswer>,
    unwritten: &mut Bytes,
) -> Result<CallAnswer, CallError> {
    poll_fn(|context| poll_turn(io, decoder, unwritten, context)).await
}

fn poll_turn(
    io: &mut ChannelIo,
    decoder: &mut Decoder<CallAnswer>,
    unwritten: &mut Bytes,
    context: &Context<'_>,
) -> Poll<Result<CallAnswer, CallError>> {
    while !unwritten.is_empty() {
        match io.poll_write_bytes(context, unwritten) {
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error_in(&error))),
            Poll::Pending => break,
        }
    }
    loop {
        match decoder.next_message() {
            Ok(Some(answer)) => return Poll::Ready(Ok(answer)),
            Ok(None) => {}
            Err(_) => return Poll::Ready(Err(CallError::NoAnswer)),
        }
        match io.poll_bytes(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(Some(bytes))) => decoder.push(&bytes),
            Poll::Ready(Ok(None)) => return Poll::Ready(Err(CallError::NoAnswer)),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error_in(&error))),
        }
    }
}

fn error_in(error: &io::Error) -> CallError {
    match ChannelError::find(error) {
        Some(ChannelError::Reset(reason)) => error_of(reason),
        Some(ChannelError::Open(_) | ChannelError::Finished) | None => CallError::Lost,
    }
}

fn error_of(reason: Reason) -> CallError {
    match reason {
        Reason::PortNotAllowed | Reason::PortClosed => CallError::TooOld,
        Reason::Overloaded => CallError::Overloaded,
        Reason::Displaced => CallError::Displaced,
        Reason::TimedOut => CallError::Late("end"),
        Reason::Shutdown | Reason::SessionLost | Reason::Revoked | Reason::WorkspaceStopped => CallError::Lost,
        Reason::Unknown | Reason::Cancelled | Reason::AppReset | Reason::AppTls | Reason::Protocol => {
            CallError::NoAnswer
        }
    }
}

#[cfg(test)]
mod tests {
    use tunnel_proto::environments::{Apply, ObjectRef, Remove, Scope};

    use super::*;

    #[test]
    fn call_about_many_objects_may_take_longer_than_one_about_few_and_none_takes_for_ever() {
        let nothing = String::new;
        let scope = Scope {
            cluster: nothing(),
            environment: nothing(),
            inventory: nothing(),
            identity: None,
            kept_namespaces: Vec::new(),
        };
        let tracked = |count| vec![ObjectRef::default(); count];
        let apply = |wanted, recorded| {
            let objects = serde_json::Value::from(vec![serde_json::json!({"kind": "X"}); wanted]).to_string();
            timeout_of(&Call::Apply(Apply {
                objects: objects.into(),
                tracked: tracked(recorded),
                scope: scope.clone(),
            }))
        };
        assert_eq!(apply(0, 0), CALL_TIMEOUT);
        assert_eq!(apply(100, 20), CALL_TIMEOUT + Duration::from_secs(600));
        let remove = |count| timeout_of(&Call::Remove(Remove { tracked: tracked(count), scope: scope.clone() }));
        assert_eq!(remove(12), CALL_TIMEOUT + Duration::from_secs(60));
        assert_eq!(remove(512), CALL_TIMEOUT_MAX);
    }
}
