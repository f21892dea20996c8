//! Session: the pure machine behind a short lock, wakers for waiting tasks, and the loop that feeds it.
//!
//! The lock is held for one call into the machine, never across an await, and wakers run after it is released. The
//! link's outgoing half polls the machine itself (`grpc::Outgoing`), so a written byte passes no queue but the
//! machine's own.

mod link;
mod state;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tunnel_proto::hello::RelayTicket;
use tunnel_proto::id::ChannelId;
use tunnel_proto::mux::{Mux, OpenError, Read, Room, SessionError, Settings, Stats};
use tunnel_proto::reason::Reason;
use tunnel_proto::target::{AppTls, Target};

pub(crate) use self::link::Taken;
pub use self::link::{LinkEnd, LinkHold};

pub(crate) use self::state::register;
use self::state::{ChannelWaiters, SessionState, Wakes};
use crate::channel_io::ChannelIo;

/// A cheap handle to one session. It ends with its link, or a grace after it; not when handles are dropped.
#[derive(Clone)]
pub struct Session {
    shared: Arc<SessionShared>,
}

struct SessionShared {
    state: Mutex<SessionState>,
    /// Whether the session waits for a link, for callers that ask often.
    detached: AtomicBool,
    ended: CancellationToken,
    /// Tells that the link has taken all frames of an ended session.
    said: CancellationToken,
}

/// The gateway asks to attach elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainRequest {
    /// Until the link ends.
    pub deadline: Duration,
    /// Earliest redial.
    pub redial_after: Duration,
    /// A new session first: this one lives on beside it.
    pub moves: bool,
}

/// The gateway asks the agent for one more link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkRequest {
    /// A relay lane.
    Lane(RelayTicket),
    /// A new session of its own, at another replica.
    Move {
        /// Time over which agents that are asked at once spread their dials.
        within: Duration,
    },
}

/// Frames handled under one hold of the lock, so that a flood of small ones keeps no channel waiting for long.
const FRAMES_PER_LOCK: usize = 64;

/// Reads the clock: the machine's time comes from the shell.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Longest piece that is not worth an owner of its own; libraries bound how many of them they gather.
const PIECE_BYTES_SMALL: usize = 4 * 1024;

/// Bytes of a channel that a consumer holds.
struct Lent {
    bytes: Bytes,
    channel: ChannelId,
    session: Session,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.session.with(|state| state.mux.give_back(self.channel, self.bytes.len()));
    }
}

impl Session {
    /// Starts a session after its handshake.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let state = SessionState::new(Mux::new(settings, now()));
        Self {
            shared: Arc::new(SessionShared {
                state: Mutex::new(state),
                detached: AtomicBool::new(false),
                ended: CancellationToken::new(),
                said: CancellationToken::new(),
            }),
        }
    }

    /// Makes a channel to `target` that opens with its first written bytes, so that opening costs no round trip. The
    /// receiver hears when the port answered, or why it did not.
    #[must_use]
    pub fn channel(&self, target: impl Into<Target>) -> (ChannelIo, oneshot::Receiver<Result<(), Reason>>) {
        let (sender, receiver) = oneshot::channel();
        (ChannelIo::unopened(self.clone(), target.into(), sender), receiver)
    }

    /// Opens a channel at once, for apps that speak first.
    ///
    /// # Errors
    /// [`OpenError`] when a bound is reached or the session is over.
    pub fn open(
        &self,
        target: impl Into<Target>,
    ) -> Result<(ChannelIo, oneshot::Receiver<Result<(), Reason>>), OpenError> {
        let (sender, receiver) = oneshot::channel();
        let channel = self.open_with(target.into(), &mut Bytes::new(), sender)?;
        Ok((ChannelIo::open(self.clone(), channel), receiver))
    }

    pub(crate) fn open_with(
        &self,
        target: Target,
        first: &mut Bytes,
        accepted: oneshot::Sender<Result<(), Reason>>,
    ) -> Result<ChannelId, OpenError> {
        // On failure the sender is dropped, which wakes its receiver, after the lock is released.
        let mut accepted = Some(accepted);
        self.with(|state| {
            let channel = state.mux.open(now(), target, first)?;
            state.channels.insert(channel, ChannelWaiters { accepted: accepted.take(), ..ChannelWaiters::default() });
            Ok(channel)
        })
    }

    /// Waits for the next channel that the peer opens. `None` when the session is over.
    ///
    /// Cancel safety: safe; a channel is taken only by the call that returns it.
    pub async fn accept(&self) -> Option<Incoming> {
        std::future::poll_fn(|context| self.poll_accept(context)).await
    }

    fn poll_accept(&self, context: &Context<'_>) -> Poll<Option<Incoming>> {
        self.with(|state| match state.incoming.pop_front() {
            Some(open) => Poll::Ready(Some(Incoming {
                port: open.port,
                tls: open.tls,
                io: ChannelIo::open(self.clone(), open.channel),
                channel: open.channel,
            })),
            None if state.end.is_some() => Poll::Ready(None),
            None => {
                register(&mut state.accept, context);
                Poll::Pending
            }
        })
    }

    /// Asks the agent to attach elsewhere.
    pub fn drain(&self, deadline: Duration, redial_after: Duration) {
        self.with(|state| state.mux.drain(deadline, redial_after));
    }

    /// Asks the agent for one more link, which ends at another replica. Returns whether the agent may hear of it: a
    /// session without a link cannot ask.
    #[must_use]
    pub fn want_lane(&self, wanted: RelayTicket) -> bool {
        self.with(|state| state.mux.want_lane(wanted))
    }

    /// Asks the agent to have a new session elsewhere first, within `redial_after`, while this one lives on beside it.
    pub fn ask_to_move(&self, deadline: Duration, redial_after: Duration) {
        self.with(|state| state.mux.ask_to_move(deadline, redial_after));
    }

    /// Waits for the next link that the gateway asks for. `None` when the session is over.
    ///
    /// Cancel safety: safe; a request is taken only by the call that returns it.
    pub async fn link_request(&self) -> Option<LinkRequest> {
        std::future::poll_fn(|context| {
            self.with(|state| match state.link_requests.pop_front() {
                None if state.end.is_none() => {
                    register(&mut state.link_requests_waker, context);
                    Poll::Pending
                }
                request => Poll::Ready(request),
            })
        })
        .await
    }

    /// Gives the agent a newer seal of its generation, if it has a link.
    pub fn renew_seal(&self, seal: Bytes) {
        self.with(|state| state.mux.renew_seal(seal));
    }

    /// Waits for the next seal of the gateway, by the task that waits for links. `None` when the session is over.
    ///
    /// Cancel safety: safe; a seal is taken only by the call that returns it.
    pub async fn seal_renewed(&self) -> Option<Bytes> {
        std::future::poll_fn(|context| {
            self.with(|state| match state.seal.take() {
                None if state.end.is_none() => {
                    register(&mut state.link_requests_waker, context);
                    Poll::Pending
                }
                seal => Poll::Ready(seal.map(|seal| *seal)),
            })
        })
        .await
    }

    /// Returns the gateway's request to attach elsewhere, once there is one.
    #[must_use]
    pub fn drain_request(&self) -> Option<DrainRequest> {
        self.shared.state.lock().draining
    }

    /// Ends the session: every channel is reset and the peer is told the reason.
    pub fn close(&self, reason: Reason, detail: &str) {
        let error = SessionError::Closed { reason, detail: detail.to_owned() };
        let is_said = self.with(|state| state.close(reason, detail, error));
        self.tell_end(is_said);
    }

    /// Tells all waiting tasks that the session is over, and that no frame about it is still to be sent if `is_said`.
    fn tell_end(&self, is_said: bool) {
        if is_said {
            self.shared.said.cancel();
        }
        self.shared.ended.cancel();
    }

    /// Returns the reason of the end, once the session has ended.
    #[must_use]
    pub fn end(&self) -> Option<SessionError> {
        self.shared.state.lock().end.clone()
    }

    /// Completes when the session has ended.
    ///
    /// Cancel safety: safe.
    pub async fn ended(&self) {
        self.shared.ended.cancelled().await;
    }

    /// Returns whether the session has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.shared.ended.is_cancelled()
    }

    /// Completes when an ended session has handed its last frame, which says why, to its link.
    ///
    /// Cancel safety: safe.
    pub async fn said(&self) {
        self.shared.said.cancelled().await;
    }

    /// Returns counters for people and metrics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.state.lock().mux.stats()
    }

    /// Returns the round trip of the link, the smaller of the latest two; `None` before the first measurement.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.shared.state.lock().mux.round_trip()
    }

    /// Returns the first broken invariant of the machine, if any; for tests.
    #[must_use]
    pub fn broken_invariant(&self) -> Option<&'static str> {
        self.shared.state.lock().mux.broken_invariant()
    }

    pub(crate) fn accept_channel(&self, channel: ChannelId) {
        self.with(|state| state.mux.accept(channel));
    }

    pub(crate) fn poll_read(&self, channel: ChannelId, context: &Context<'_>) -> Poll<Read> {
        self.with(|state| match state.mux.read(channel) {
            Read::Pending => {
                register(&mut state.channels.entry(channel).or_default().read, context);
                Poll::Pending
            }
            read @ (Read::Bytes(_) | Read::End | Read::Reset(_)) => Poll::Ready(read),
        })
    }

    /// Like [`Session::poll_read`], but a piece larger than [`PIECE_BYTES_SMALL`] counts in the channel's window until
    /// the bytes, and all parts of them, are dropped.
    pub(crate) fn poll_lend(&self, channel: ChannelId, context: &Context<'_>) -> Poll<Read> {
        let read = self.with(|state| {
            let read = state.mux.lend(channel);
            match &read {
                Read::Pending => register(&mut state.channels.entry(channel).or_default().read, context),
                Read::Bytes(bytes) if bytes.len() <= PIECE_BYTES_SMALL => state.mux.give_back(channel, bytes.len()),
                Read::Bytes(_) | Read::End | Read::Reset(_) => {}
            }
            read
        });
        match read {
            Read::Pending => Poll::Pending,
            Read::Bytes(bytes) if bytes.len() > PIECE_BYTES_SMALL => {
                let lent = Lent { bytes, channel, session: self.clone() };
                Poll::Ready(Read::Bytes(Bytes::from_owner(lent)))
            }
            read @ (Read::Bytes(_) | Read::End | Read::Reset(_)) => Poll::Ready(read),
        }
    }

    /// Writes as much of `bytes` as there is room for, without copying; the rest stays in `bytes`.
    pub(crate) fn poll_write(&self, channel: ChannelId, context: &Context<'_>, bytes: &mut Bytes) -> Poll<Room> {
        self.with(|state| {
            let room = state.mux.write(channel, bytes);
            state.or_wait_to_write(channel, context, room)
        })
    }

    /// Waits for room without writing.
    pub(crate) fn poll_room(&self, channel: ChannelId, context: &Context<'_>) -> Poll<Room> {
        self.with(|state| {
            let room = state.mux.room(channel);
            state.or_wait_to_write(channel, context, room)
        })
    }

    /// Waits for the end of a channel by a reset, even if it could be read or written. Waits in the writer's place.
    pub(crate) fn poll_reset(&self, channel: ChannelId, context: &Context<'_>) -> Poll<Reason> {
        self.with(|state| match state.mux.room(channel) {
            Room::Reset(reason) => Poll::Ready(reason),
            Room::Bytes(_) | Room::Finished | Room::Pending => {
                register(&mut state.channels.entry(channel).or_default().write, context);
                Poll::Pending
            }
        })
    }

    pub(crate) fn finish(&self, channel: ChannelId) {
        self.with(|state| state.mux.finish(channel));
    }

    pub(crate) fn reset(&self, channel: ChannelId, reason: Reason) {
        self.with(|state| state.mux.reset(channel, reason));
    }

    pub(crate) fn release(&self, channel: ChannelId) {
        // The wakers of the channel are dropped after the lock is released.
        drop(self.with(|state| {
            state.mux.release(channel);
            state.channels.remove(&channel)
        }));
    }

    /// Runs one call under the lock, then wakes the tasks that it concerns.
    fn with<R>(&self, call: impl FnOnce(&mut SessionState) -> R) -> R {
        let mut wakes = Wakes::default();
        let result = {
            let mut state = self.shared.state.lock();
            let result = call(&mut state);
            state.collect(&mut wakes);
            let detached = state.mux.is_detached();
            // It is read for each request and hardly ever changes: a store would take the cache line from its readers.
            if self.shared.detached.load(Ordering::Relaxed) != detached {
                self.shared.detached.store(detached, Ordering::Relaxed);
            }
            result
        };
        wakes.run();
        result
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Session").field("ended", &self.is_ended()).finish_non_exhaustive()
    }
}

/// A channel that the peer opened.
#[derive(Debug)]
pub struct Incoming {
    /// The port it is for.
    pub port: u16,
    /// The TLS to the app there.
    pub tls: AppTls,
    io: ChannelIo,
    channel: ChannelId,
}

impl Incoming {
    /// Tells the peer that the port answered.
    #[must_use]
    pub fn accept(self) -> ChannelIo {
        self.io.session().accept_channel(self.channel);
        self.io
    }

    /// Takes the bytes that have come with the channel; `None` while there are none.
    pub fn take_first(&mut self) -> Option<Bytes> {
        let context = Context::from_waker(Waker::noop());
        match self.io.poll_bytes(&context) {
            Poll::Ready(Ok(first)) => first,
            Poll::Ready(Err(_)) | Poll::Pending => None,
        }
    }

    /// Gives bytes back that were taken and not used: they are the first again.
    pub fn put_back(&mut self, bytes: Bytes) {
        self.io.put_back(bytes);
    }

    /// Tells the peer the reason why the port cannot be reached.
    pub fn refuse(self, reason: Reason) {
        self.io.session().reset(self.channel, reason);
    }

    /// Completes when the peer gave the channel up, so that no useless connection is made.
    ///
    /// Cancel safety: safe; nothing is read.
    pub async fn abandoned(&self) {
        std::future::poll_fn(|context| self.io.session().poll_reset(self.channel, context).map(drop)).await;
    }
}

#[cfg(test)]
mod tests;
