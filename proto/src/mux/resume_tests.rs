use std::time::Duration;

use bytes::Bytes;

use super::super::{Mux, Read, Room, Settings, Side};
use super::*;
use crate::frame::{Body, Frame};
use crate::id::ChannelId;
use crate::limit::REPLAY_STEP_BYTES;

const GRACE: Duration = Duration::from_secs(30);

fn instant() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "tests need some origin; only differences matter")]
    Instant::now()
}

/// A gateway's and an agent's session with one channel that both know.
struct Pair {
    now: Instant,
    gateway: Mux,
    agent: Mux,
    channel: ChannelId,
}

impl Pair {
    fn new(adjust: impl Fn(&mut Settings)) -> Self {
        let now = instant();
        let mux = |side| {
            let mut settings = Settings { resume_grace: Some(GRACE), ..Settings::new(side) };
            adjust(&mut settings);
            Mux::new(settings, now)
        };
        let (mut gateway, mut agent) = (mux(Side::Gateway), mux(Side::Agent));
        let channel = gateway.open(now, 80, &mut Bytes::new()).expect("room");
        carry(now, &mut gateway, &mut agent);
        agent.accept(channel);
        carry(now, &mut agent, &mut gateway);
        Self { now, gateway, agent, channel }
    }

    /// Breaks the link; what was on it is lost.
    fn cut(&mut self) {
        assert!(self.gateway.link_lost(self.now) && self.agent.link_lost(self.now));
    }

    fn mend(&mut self) {
        let (gateway, agent) = (self.gateway.received(), self.agent.received());
        self.gateway.resume(self.now, agent).expect("the books fit");
        self.agent.resume(self.now, gateway).expect("the books fit");
    }

    fn read(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Read::Bytes(bytes) = self.agent.read(self.channel) {
            all.extend_from_slice(&bytes);
        }
        all
    }
}

fn carry(now: Instant, from: &mut Mux, to: &mut Mux) {
    while let Some(frame) = from.poll_transmit(now) {
        to.handle_frame(now, frame).expect("an honest peer");
    }
}

fn frames(mux: &mut Mux, now: Instant) -> Vec<Frame> {
    std::iter::from_fn(|| mux.poll_transmit(now)).collect()
}

#[test]
fn lost_frames_come_again_with_their_numbers_before_anything_new() {
    let mut pair = Pair::new(|_| {});
    let (now, channel) = (pair.now, pair.channel);
    pair.gateway.write(channel, &mut Bytes::from_static(b"one "));
    let lost = frames(&mut pair.gateway, now);
    pair.cut();
    pair.gateway.write(channel, &mut Bytes::from_static(b"two"));
    assert!(!pair.gateway.wants_transmit() && pair.gateway.poll_transmit(now).is_none(), "there is no link");
    pair.mend();
    let again = frames(&mut pair.gateway, now);
    let payload = |frame: &Frame| matches!(frame.body, Body::Data { .. }).then_some(frame.sequence);
    let numbers: Vec<_> = again.iter().filter_map(payload).collect();
    let first = lost.iter().find_map(payload).expect("it was sent");
    assert_eq!(numbers, [first, first + 1]);
    for frame in again {
        pair.agent.handle_frame(now, frame).expect("an honest peer");
    }
    assert_eq!(pair.read(), b"one two");
}

#[test]
fn frame_that_arrived_without_its_acknowledgement_does_not_come_twice() {
    let mut pair = Pair::new(|_| {});
    pair.gateway.write(pair.channel, &mut Bytes::from_static(b"once"));
    carry(pair.now, &mut pair.gateway, &mut pair.agent);
    pair.cut();
    pair.mend();
    carry(pair.now, &mut pair.gateway, &mut pair.agent);
    assert_eq!(pair.read(), b"once");
}

#[test]
fn channel_opened_and_closed_without_a_link_reaches_the_agent_with_the_next_one() {
    let mut pair = Pair::new(|_| {});
    pair.cut();
    let channel = pair.gateway.open(pair.now, 81, &mut Bytes::from_static(b"GET")).expect("room");
    pair.gateway.finish(channel);
    pair.mend();
    carry(pair.now, &mut pair.gateway, &mut pair.agent);
    assert_eq!(pair.agent.read(channel), Read::Bytes(Bytes::from_static(b"GET")));
    assert_eq!(pair.agent.read(channel), Read::End);
}

#[test]
fn full_replay_is_backpressure_and_never_loss() {
    let mut pair = Pair::new(|settings| {
        settings.replay_max = 2 * REPLAY_STEP_BYTES;
        settings.window_initial = 8 << 20;
        settings.open_credit = 4 << 20;
    });
    let (now, channel) = (pair.now, pair.channel);
    let mut sent = Vec::new();
    let mut written = 0;
    loop {
        let mut bytes = Bytes::from(vec![7; 100_000]);
        match pair.gateway.write(channel, &mut bytes) {
            Room::Bytes(taken) => written += taken,
            Room::Pending => break,
            other @ (Room::Finished | Room::Reset(_)) => panic!("{other:?}"),
        }
        sent.extend(frames(&mut pair.gateway, now));
    }
    assert!(pair.gateway.stats().replay_bytes <= 3 * REPLAY_STEP_BYTES, "{:?}", pair.gateway.stats());
    assert!(!pair.gateway.wants_transmit(), "a link that is asked for nothing is not woken");
    assert!(matches!(sent.last().map(|frame| &frame.body), Some(Body::Ping { .. })), "the way out is asked for");
    // No time passes: the answer to the ping opens the way.
    let mut got = 0;
    for frame in sent {
        pair.agent.handle_frame(now, frame).expect("an honest peer");
    }
    for _ in 0..100 {
        got += pair.read().len();
        carry(now, &mut pair.agent, &mut pair.gateway);
        carry(now, &mut pair.gateway, &mut pair.agent);
    }
    assert_eq!(got + pair.read().len(), written);
    assert_eq!(pair.gateway.broken_invariant(), None);
}

#[test]
fn bound_smaller_than_what_is_always_free_ends_no_honest_session() {
    let mut pair = Pair::new(|settings| settings.replay_max = 1024);
    let (now, channel) = (pair.now, pair.channel);
    let mut sent = Vec::new();
    let mut written = 0;
    while let Room::Bytes(taken) = pair.gateway.write(channel, &mut Bytes::from(vec![7; 10_000])) {
        written += taken;
        sent.extend(frames(&mut pair.gateway, now));
    }
    assert!(pair.gateway.stats().replay_bytes > 8 * 1024, "{:?}", pair.gateway.stats());
    // It speaks before it has heard any of that.
    pair.agent.reset(channel, Reason::Cancelled);
    carry(now, &mut pair.agent, &mut pair.gateway);
    assert_eq!(pair.gateway.read(channel), Read::Reset(Reason::Cancelled));
    assert!(pair.gateway.is_up() && written > 0);
}

#[test]
fn grace_ends_every_channel_by_its_name_and_gives_the_budget_back() {
    let mut pair = Pair::new(|_| {});
    pair.gateway.write(pair.channel, &mut Bytes::from_static(b"lost"));
    drop(frames(&mut pair.gateway, pair.now));
    pair.cut();
    assert_eq!(pair.gateway.poll_timeout(), Some(pair.now + GRACE));
    assert_eq!(pair.gateway.handle_timeout(pair.now + GRACE - Duration::from_millis(1)), Ok(()));
    assert_eq!(pair.gateway.handle_timeout(pair.now + GRACE), Err(SessionError::LinkLost));
    assert_eq!(pair.gateway.read(pair.channel), Read::Reset(Reason::SessionLost));
    assert!(pair.gateway.is_ended());
    let stats = pair.gateway.stats();
    assert_eq!((stats.replay_bytes, stats.window_bytes), (0, 0));
    assert_eq!(pair.gateway.resume(pair.now, 0), Err(SessionError::Ended), "too late");
}

#[test]
fn books_that_do_not_fit_end_the_session() {
    for wrong in [0, 99] {
        let mut pair = Pair::new(|_| {});
        pair.gateway.write(pair.channel, &mut Bytes::from_static(b"x"));
        carry(pair.now, &mut pair.gateway, &mut pair.agent);
        assert_eq!(pair.agent.handle_timeout(pair.now + Duration::from_secs(1)), Ok(()));
        carry(pair.now, &mut pair.agent, &mut pair.gateway);
        pair.cut();
        let error = pair.gateway.resume(pair.now, wrong).expect_err("a peer that forgot, or made up, frames");
        assert!(matches!(error, SessionError::Acknowledged { acknowledged, .. } if acknowledged == wrong));
        assert!(pair.gateway.is_ended());
    }
}

#[test]
fn silence_detaches_a_session_that_can_be_resumed() {
    let mut pair = Pair::new(|_| {});
    let late = pair.now + Duration::from_secs(3600);
    let mut result = Ok(());
    for _ in 0..4 {
        result = pair.gateway.handle_timeout(late);
        if result.is_err() {
            break;
        }
        drop(frames(&mut pair.gateway, pair.now));
    }
    assert_eq!(result, Err(SessionError::KeepaliveTimedOut));
    assert!(pair.gateway.is_detached());
    assert!(pair.agent.link_lost(pair.now));
    pair.mend();
    assert_eq!(pair.gateway.handle_timeout(pair.now), Ok(()), "the new link starts with a clean record");
}

#[test]
fn session_without_the_feature_ends_with_its_link() {
    let mut pair = Pair::new(|settings| settings.resume_grace = None);
    assert!(!pair.gateway.link_lost(pair.now));
    assert_eq!(pair.gateway.read(pair.channel), Read::Reset(Reason::SessionLost));
    assert!(pair.gateway.is_ended());
}

#[test]
fn drain_that_was_lost_with_its_link_is_told_again() {
    let mut pair = Pair::new(|_| {});
    pair.gateway.drain(Duration::from_secs(5), Duration::ZERO);
    drop(frames(&mut pair.gateway, pair.now));
    pair.cut();
    pair.mend();
    let again = frames(&mut pair.gateway, pair.now);
    assert_eq!(drains(&again), 1);
}

fn drains(frames: &[Frame]) -> usize {
    frames.iter().filter(|frame| matches!(frame.body, Body::Drain { .. })).count()
}

#[test]
fn drain_that_was_asked_for_without_a_link_is_told_once() {
    let mut pair = Pair::new(|_| {});
    pair.cut();
    pair.gateway.drain(Duration::from_secs(5), Duration::ZERO);
    pair.mend();
    assert_eq!(drains(&frames(&mut pair.gateway, pair.now)), 1);
    pair.cut();
    pair.mend();
    assert_eq!(drains(&frames(&mut pair.gateway, pair.now)), 1, "this link may be the first that carries it");
}

#[test]
fn drain_goes_ahead_of_the_end_of_its_session() {
    let mut pair = Pair::new(|_| {});
    pair.gateway.reset(pair.channel, Reason::Cancelled);
    pair.gateway.drain(Duration::from_secs(5), Duration::from_secs(1));
    pair.gateway.close(Reason::Shutdown, "it goes");
    let last = frames(&mut pair.gateway, pair.now);
    assert!(
        matches!(last[..], [Frame { body: Body::Drain { .. }, .. }, Frame { body: Body::Close { .. }, .. }]),
        "{last:?}"
    );
    for frame in last {
        drop(pair.agent.handle_frame(pair.now, frame));
    }
    let heard = std::iter::from_fn(|| pair.agent.poll_event()).any(|event| matches!(event, MuxEvent::Draining { .. }));
    assert!(heard && pair.agent.is_ended() && pair.gateway.is_ended());
}

#[test]
fn drain_that_every_link_tells_is_heard_once_and_another_one_too() {
    let mut pair = Pair::new(|_| {});
    let heard = |pair: &mut Pair| {
        carry(pair.now, &mut pair.gateway, &mut pair.agent);
        let events = std::iter::from_fn(|| pair.agent.poll_event());
        events.filter(|event| matches!(event, MuxEvent::Draining { .. })).count()
    };
    pair.gateway.drain(Duration::from_secs(5), Duration::ZERO);
    assert_eq!(heard(&mut pair), 1);
    pair.cut();
    pair.mend();
    assert_eq!(heard(&mut pair), 0, "it knows");
    pair.gateway.drain(Duration::from_secs(5), Duration::from_secs(1));
    assert_eq!(heard(&mut pair), 1, "it was asked for something else");
    carry(pair.now, &mut pair.agent, &mut pair.gateway);
    assert!(pair.agent.is_up() && pair.gateway.is_up());
}
