//! For tests: two sessions without a link between them, and wakers that count.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tunnel_proto::mux::{Settings, Side};

use crate::channel_io::ChannelIo;
use crate::session::{Session, Taken};

/// A gateway's and an agent's session.
pub(crate) fn sessions() -> (Session, Session) {
    (Session::new(Settings::new(Side::Gateway)), Session::new(Settings::new(Side::Agent)))
}

/// Carries all frames of one session to the other. Returns their number.
pub(crate) fn carry(from: &Session, to: &Session) -> usize {
    let mut frames = VecDeque::new();
    let context = Context::from_waker(Waker::noop());
    while let Poll::Ready(true) = from.link().poll_transmit(&context, |frame| {
        frames.push_back(frame);
        true
    }) {}
    let count = frames.len();
    // A session that is over says so by an error.
    while to.link().handle_frames(|| frames.pop_front().map(Ok)) == Ok(Taken::Some) {}
    count
}

/// Carries in both directions until neither has anything to say.
pub(crate) fn settle(one: &Session, other: &Session) {
    while carry(one, other) + carry(other, one) > 0 {}
}

/// Returns the ends of an accepted channel between two sessions, with all its frames carried.
pub(crate) fn joined(gateway: &Session, agent: &Session) -> (ChannelIo, ChannelIo) {
    let (here, _accepted) = gateway.open(3000).expect("opened");
    settle(gateway, agent);
    let there = incoming(agent).accept();
    settle(gateway, agent);
    (here, there)
}

/// Returns the channel that was opened last.
pub(crate) fn incoming(session: &Session) -> crate::session::Incoming {
    let mut accepting = std::pin::pin!(session.accept());
    match accepting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(incoming)) => incoming,
        Poll::Ready(None) | Poll::Pending => panic!("no channel was opened"),
    }
}

/// Counter of wakes.
#[derive(Default)]
pub(crate) struct Count(AtomicUsize);

impl Count {
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(Self::default());
        (count.clone(), Waker::from(count))
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
