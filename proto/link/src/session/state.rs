//! State behind the session's lock; the machine's events become wakers that run after it is released.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tunnel_proto::frame::Open;
use tunnel_proto::id::ChannelId;
use tunnel_proto::limit::LANES_MAX;
use tunnel_proto::mux::{DrainAsked, Mux, MuxEvent, Room, SessionError};
use tunnel_proto::reason::Reason;

use super::{DrainRequest, LinkRequest};

/// The machine, and the tasks that wait for it.
pub(super) struct SessionState {
    pub(super) mux: Mux,
    pub(super) channels: BTreeMap<ChannelId, ChannelWaiters>,
    /// Waker of the link's outgoing half, while it has nothing to send.
    pub(super) transmit: Option<Waker>,
    /// Channels that the peer opened and that were not accepted yet. Bounded by the machine's channel bound.
    pub(super) incoming: VecDeque<Open>,
    pub(super) accept: Option<Waker>,
    pub(super) draining: Option<DrainRequest>,
    /// Links that the gateway wants and that no task has taken; more than there may be lanes are forgotten.
    pub(super) link_requests: VecDeque<LinkRequest>,
    /// Latest seal of the gateway that no task has taken.
    pub(super) seal: Option<Box<Bytes>>,
    /// Waker of the task that waits for such links and seals.
    pub(super) link_requests_waker: Option<Waker>,
    pub(super) end: Option<SessionError>,
    pub(super) link: Current,
}

/// The link that carries the session, or carried it last.
pub(super) struct Current {
    /// Counts the session's links.
    pub(super) number: u64,
    pub(super) replaced: CancellationToken,
    /// Whether the peer has said something over it.
    pub(super) heard: bool,
    /// Whether it cannot say anything any more.
    pub(super) mute: bool,
}

impl Current {
    pub(super) fn new(number: u64) -> Self {
        Self { number, replaced: CancellationToken::new(), heard: false, mute: false }
    }
}

/// Tasks that wait on one channel.
#[derive(Default)]
pub(super) struct ChannelWaiters {
    pub(super) read: Option<Waker>,
    pub(super) write: Option<Waker>,
    pub(super) accepted: Option<oneshot::Sender<Result<(), Reason>>>,
}

/// The peer's answer about an opened channel, and the task that waits for it.
type OpenAnswer = (oneshot::Sender<Result<(), Reason>>, Result<(), Reason>);

/// Wakers and answers collected under the lock and run after it.
#[derive(Default)]
pub(super) struct Wakes {
    transmit: Option<Waker>,
    /// Most calls wake one task: no allocation for it.
    first: Option<Waker>,
    others: Vec<Waker>,
    answers: Vec<OpenAnswer>,
}

impl Wakes {
    fn add(&mut self, waker: Option<Waker>) {
        if self.first.is_none() {
            self.first = waker;
        } else {
            self.others.extend(waker);
        }
    }

    pub(super) fn run(self) {
        for waker in self.transmit.into_iter().chain(self.first).chain(self.others) {
            waker.wake();
        }
        for (sender, answer) in self.answers {
            // The task may not be waiting any more.
            sender.send(answer).ok();
        }
    }
}

impl SessionState {
    pub(super) fn new(mux: Mux) -> Self {
        Self {
            mux,
            channels: BTreeMap::new(),
            transmit: None,
            incoming: VecDeque::new(),
            accept: None,
            draining: None,
            link_requests: VecDeque::new(),
            seal: None,
            link_requests_waker: None,
            end: None,
            link: Current::new(1),
        }
    }

    /// Ends the session; the first reason counts. Returns whether no frame is left to be sent about it.
    pub(super) fn close(&mut self, reason: Reason, detail: &str, error: SessionError) -> bool {
        self.mux.close(reason, detail);
        self.end.get_or_insert(error);
        self.link.mute || self.mux.is_ended()
    }

    pub(super) fn or_wait_to_write(&mut self, channel: ChannelId, context: &Context<'_>, room: Room) -> Poll<Room> {
        match room {
            Room::Pending => {
                register(&mut self.channels.entry(channel).or_default().write, context);
                Poll::Pending
            }
            Room::Bytes(_) | Room::Finished | Room::Reset(_) => Poll::Ready(room),
        }
    }

    /// Turns the machine's events into wakers to run.
    pub(super) fn collect(&mut self, wakes: &mut Wakes) {
        while let Some(event) = self.mux.poll_event() {
            match event {
                MuxEvent::Opened(open) => {
                    self.incoming.push_back(open);
                    wakes.add(self.accept.take());
                }
                MuxEvent::Accepted(channel) => {
                    let sender = self.channels.get_mut(&channel).and_then(|waiting| waiting.accepted.take());
                    wakes.answers.extend(sender.map(|sender| (sender, Ok(()))));
                }
                MuxEvent::Readable(channel) => {
                    wakes.add(self.channels.get_mut(&channel).and_then(|waiting| waiting.read.take()));
                }
                MuxEvent::Writable(channel) => {
                    wakes.add(self.channels.get_mut(&channel).and_then(|waiting| waiting.write.take()));
                }
                MuxEvent::Reset(channel, reason) => self.wake_all(channel, reason, wakes),
                MuxEvent::Draining(DrainAsked { deadline_ms, redial_after_ms, moves }) => {
                    let redial_after = Duration::from_millis(u64::from(redial_after_ms));
                    let deadline = Duration::from_millis(u64::from(deadline_ms));
                    self.draining = Some(DrainRequest { deadline, redial_after, moves });
                    wakes.add(self.accept.take());
                    if moves {
                        self.ask_for_link(LinkRequest::Move { within: redial_after }, wakes);
                    }
                }
                MuxEvent::LaneWanted(wanted) => self.ask_for_link(LinkRequest::Lane(wanted), wakes),
                MuxEvent::Sealed(seal) => {
                    self.seal = Some(Box::new(seal));
                    wakes.add(self.link_requests_waker.take());
                }
            }
        }
        if self.end.is_some() {
            wakes.add(self.accept.take());
            wakes.add(self.link_requests_waker.take());
        }
        // Without a link, no task waits for frames to send.
        if self.transmit.is_some() && (self.mux.wants_transmit() || !self.mux.is_up()) {
            wakes.transmit = self.transmit.take();
        }
    }

    fn ask_for_link(&mut self, request: LinkRequest, wakes: &mut Wakes) {
        if self.link_requests.len() < LANES_MAX as usize {
            self.link_requests.push_back(request);
            wakes.add(self.link_requests_waker.take());
        }
    }

    fn wake_all(&mut self, channel: ChannelId, reason: Reason, wakes: &mut Wakes) {
        if let Some(waiting) = self.channels.get_mut(&channel) {
            wakes.add(waiting.read.take());
            wakes.add(waiting.write.take());
            wakes.answers.extend(waiting.accepted.take().map(|sender| (sender, Err(reason))));
        }
    }
}

/// Leaves a waker, unless the same one is there already.
pub(crate) fn register(slot: &mut Option<Waker>, context: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(context.waker()),
        None => *slot = Some(context.waker().clone()),
    }
}
