//! Laws for any interleaving (against the model), and stories for single rules.

use proptest::prelude::*;

use super::model::World;
use super::*;
use crate::frame::{Frame, FrameError, Grant};
use crate::hello::{Hello, HostMode};
use crate::target::AppTls;

fn instant() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "tests need some origin; only differences matter")]
    Instant::now()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_interleaving_delivers_each_byte_once_in_order_and_ends_idle(
        script in proptest::collection::vec(any::<u8>(), 0..1600),
        budget in 600_000_u64..4_000_000,
    ) {
        World::new(instant(), budget).run(&script);
    }

    #[test]
    fn hostile_frames_never_break_an_invariant(
        frames in proptest::collection::vec((0_u8..10, 0_u64..6, any::<u32>(), 0_usize..70_000), 0..120),
        gateway in any::<bool>(),
    ) {
        let now = instant();
        let side = if gateway { Side::Gateway } else { Side::Agent };
        let mut mux = Mux::new(Settings { session_budget: 2 << 20, ..Settings::new(side) }, now);
        let mut own = Vec::new();
        if gateway {
            for _ in 0..3 { own.extend(mux.open(now, 80, &mut Bytes::new())); }
        }
        let mut sequence = 0;
        for (kind, channel, number, length) in frames {
            let channel = ChannelId::new(channel + 1);
            let payload = Bytes::from(vec![0; length.min(crate::limit::PAYLOAD_BYTES_MAX)]);
            let body = match kind {
                0 | 1 => Body::Open(Open { channel, port: 1, tls: AppTls::None, credit_bytes: number, payload }),
                2 => Body::Accept { channel, credit_bytes: number },
                3 | 4 => Body::Data { channel, payload },
                5 => Body::Finish { channel },
                6 => Body::Reset { channel, reason: Reason::Unknown },
                7 => Body::Credit { grants: vec![Grant { channel, bytes: number.max(1) }] },
                8 => Body::Ping { token: u64::from(number) },
                _ => Body::Pong { token: u64::from(number) },
            };
            if body.is_numbered() { sequence += 1; }
            let numbered = if body.is_numbered() { sequence } else { 0 };
            let result = mux.handle_frame(now, Frame { sequence: numbered, acknowledged: 0, body });
            prop_assert_eq!(mux.broken_invariant(), None);
            prop_assert!(mux.stats().window_bytes <= 2 << 20);
            while let Some(event) = mux.poll_event() {
                if let MuxEvent::Opened(open) = event { mux.accept(open.channel); }
            }
            if result.is_err() { break; }
        }
        while mux.poll_transmit(now).is_some() {}
    }
}

/// Two sessions whose frames travel at once.
struct Pair {
    now: Instant,
    gateway: Mux,
    agent: Mux,
}

impl Pair {
    fn new() -> Self {
        let now = instant();
        let pair = |side| Mux::new(Settings::new(side), now);
        Self { now, gateway: pair(Side::Gateway), agent: pair(Side::Agent) }
    }

    /// Carries frames both ways until neither side has any; returns the bodies that the gateway sent.
    fn settle(&mut self) -> Vec<Body> {
        let mut sent = Vec::new();
        loop {
            let down = self.gateway.poll_transmit(self.now);
            let up = self.agent.poll_transmit(self.now);
            if down.is_none() && up.is_none() {
                return sent;
            }
            if let Some(frame) = down {
                sent.push(frame.body.clone());
                drop(self.agent.handle_frame(self.now, frame));
            }
            if let Some(frame) = up {
                drop(self.gateway.handle_frame(self.now, frame));
            }
        }
    }

    fn open(&mut self, first: &'static [u8]) -> ChannelId {
        self.gateway.open(self.now, 8080, &mut Bytes::from_static(first)).expect("room for a channel")
    }
}

fn events(mux: &mut Mux) -> Vec<MuxEvent> {
    std::iter::from_fn(|| mux.poll_event()).collect()
}

#[test]
fn first_bytes_travel_with_the_open() {
    let mut pair = Pair::new();
    let channel = pair.open(b"GET / HTTP/1.1\r\n\r\n");
    let sent = pair.settle();
    assert!(sent.iter().any(|body| matches!(body, Body::Open(open) if &open.payload[..3] == b"GET")));
    assert_eq!(pair.agent.read(channel), Read::Bytes(Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n")));
}

#[test]
fn half_close_leaves_the_other_direction_open() {
    let mut pair = Pair::new();
    let channel = pair.open(b"question");
    pair.gateway.finish(channel);
    pair.settle();
    assert_eq!(pair.agent.read(channel), Read::Bytes(Bytes::from_static(b"question")));
    assert_eq!(pair.agent.read(channel), Read::End);
    assert_eq!(pair.agent.write(channel, &mut Bytes::from_static(b"answer")), Room::Bytes(6));
    pair.agent.finish(channel);
    pair.agent.release(channel);
    pair.settle();
    assert_eq!(pair.gateway.read(channel), Read::Bytes(Bytes::from_static(b"answer")));
    assert_eq!(pair.gateway.read(channel), Read::End);
    pair.gateway.release(channel);
    assert_eq!(pair.agent.stats().channels_live, 0);
    assert_eq!(pair.gateway.stats().channels_live, 0);
}

#[test]
fn dropped_handle_resets_and_the_peer_hears_the_reason() {
    let mut pair = Pair::new();
    let channel = pair.open(b"x");
    pair.settle();
    events(&mut pair.agent);
    pair.gateway.release(channel);
    pair.settle();
    assert_eq!(events(&mut pair.agent), [MuxEvent::Reset(channel, Reason::Cancelled)]);
    assert_eq!(pair.agent.read(channel), Read::Reset(Reason::Cancelled));
    pair.agent.release(channel);
    assert_eq!(pair.agent.stats().channels_live, 0);
    assert_eq!(pair.agent.stats().window_bytes, 0);
}

#[test]
fn peer_that_ignores_credit_loses_the_channel_and_not_the_session() {
    let mut pair = Pair::new();
    let (greedy, honest) = (pair.open(b""), pair.open(b""));
    pair.settle();
    let payload = Bytes::from(vec![0; crate::limit::PAYLOAD_BYTES_MAX]);
    for sequence in 1..=8 {
        let body = Body::Data { channel: greedy, payload: payload.clone() };
        assert_eq!(pair.gateway.handle_frame(pair.now, Frame { sequence, acknowledged: 0, body }), Ok(()));
    }
    assert_eq!(pair.gateway.read(greedy), Read::Reset(Reason::Protocol));
    assert_eq!(pair.gateway.read(honest), Read::Pending);
    assert!(!pair.gateway.is_ended());
}

#[test]
fn keystroke_waits_for_no_download() {
    let mut pair = Pair::new();
    let bulk: Vec<_> = (0..8).map(|_| pair.open(b"")).collect();
    let quiet = pair.open(b"");
    pair.settle();
    for channel in &bulk {
        pair.gateway.write(*channel, &mut Bytes::from(vec![0; 100_000]));
    }
    assert!(matches!(pair.gateway.poll_transmit(pair.now).map(|frame| frame.body), Some(Body::Data { .. })));
    pair.gateway.write(quiet, &mut Bytes::from_static(b"k"));
    let next = pair.gateway.poll_transmit(pair.now).map(|frame| frame.body);
    assert_eq!(next, Some(Body::Data { channel: quiet, payload: Bytes::from_static(b"k") }));
}

#[test]
fn stalled_reader_stops_its_sender_at_the_window_and_nobody_else() {
    let mut pair = Pair::new();
    let (stalled, quiet) = (pair.open(b""), pair.open(b""));
    pair.settle();
    events(&mut pair.agent).into_iter().for_each(|event| {
        if let MuxEvent::Opened(open) = event {
            pair.agent.accept(open.channel);
        }
    });
    pair.settle();
    let mut sent = 0;
    while let Room::Bytes(written) = pair.agent.write(stalled, &mut Bytes::from(vec![0; 50_000])) {
        sent += written;
        pair.settle();
    }
    assert_eq!(sent, WINDOW_BYTES_INITIAL as usize);
    assert_eq!(pair.agent.write(quiet, &mut Bytes::from_static(b"k")), Room::Bytes(1));
    pair.settle();
    assert_eq!(pair.gateway.read(quiet), Read::Bytes(Bytes::from_static(b"k")));
    // Taking the bytes gives the credit back and wakes the writer.
    events(&mut pair.agent);
    while let Read::Bytes(_) = pair.gateway.read(stalled) {}
    pair.settle();
    assert!(events(&mut pair.agent).contains(&MuxEvent::Writable(stalled)));
}

#[test]
fn lent_bytes_hold_their_credit_until_they_are_given_back() {
    let mut pair = Pair::new();
    let channel = pair.open(b"");
    pair.settle();
    pair.agent.accept(channel);
    pair.settle();
    let mut lent = Vec::new();
    while let Room::Bytes(_) = pair.agent.write(channel, &mut Bytes::from(vec![0; 50_000])) {
        pair.settle();
        while let Read::Bytes(bytes) = pair.gateway.lend(channel) {
            lent.push(bytes.len());
        }
        assert_eq!(pair.gateway.broken_invariant(), None);
    }
    assert_eq!(lent.iter().sum::<usize>(), WINDOW_BYTES_INITIAL as usize, "taken and lent is not the same");
    pair.gateway.give_back(channel, lent.pop().expect("something was lent"));
    for bytes in lent.drain(..lent.len() / 2 + 1) {
        pair.gateway.give_back(channel, bytes);
    }
    pair.settle();
    assert!(matches!(pair.agent.room(channel), Room::Bytes(_)), "credit comes back with the bytes");
    // The channel goes, the bytes stay: they still count.
    pair.gateway.release(channel);
    let left: usize = lent.iter().sum();
    assert_eq!((pair.gateway.broken_invariant(), pair.gateway.budget.reserved()), (None, left as u64));
    pair.gateway.give_back(channel, left);
    assert_eq!((pair.gateway.broken_invariant(), pair.gateway.budget.reserved()), (None, 0));
}

#[test]
fn piece_a_little_longer_than_a_frame_goes_in_two_halves() {
    let mut pair = Pair::new();
    let channel = pair.open(b"");
    pair.settle();
    pair.agent.accept(channel);
    pair.settle();
    pair.agent.write(channel, &mut Bytes::from(vec![0; PAYLOAD_BYTES_ALONE + 10]));
    let sizes = [(); 2].map(|()| match pair.agent.poll_transmit(pair.now).map(|frame| frame.body) {
        Some(Body::Data { payload, .. }) => payload.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(sizes, [PAYLOAD_BYTES_ALONE / 2 + 5; 2]);
}

#[test]
fn flood_of_tiny_frames_is_joined_and_keeps_its_order() {
    let mut pair = Pair::new();
    let channel = pair.open(b"");
    pair.settle();
    let sent: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
    for (at, byte) in sent.iter().enumerate() {
        let body = Body::Data { channel, payload: Bytes::copy_from_slice(&[*byte]) };
        let frame = Frame { sequence: at as u64 + 1, acknowledged: 0, body };
        assert_eq!(pair.gateway.handle_frame(pair.now, frame), Ok(()));
        events(&mut pair.gateway);
    }
    assert_eq!(pair.gateway.broken_invariant(), None);
    let mut read = Vec::new();
    let mut pieces = 0;
    while let Read::Bytes(bytes) = pair.gateway.read(channel) {
        read.extend_from_slice(&bytes);
        pieces += 1;
    }
    assert_eq!(read, sent);
    assert!(pieces <= 5, "{pieces} pieces");
}

#[test]
fn channel_beyond_the_bounds_is_refused_by_name() {
    let now = instant();
    let mut mux = Mux::new(Settings { channels_max: 1, ..Settings::new(Side::Gateway) }, now);
    assert!(mux.open(now, 1, &mut Bytes::new()).is_ok());
    assert_eq!(mux.open(now, 1, &mut Bytes::new()), Err(OpenError::ChannelsExhausted));
    let mut mux = Mux::new(Settings { session_budget: 1000, ..Settings::new(Side::Gateway) }, now);
    assert_eq!(mux.open(now, 1, &mut Bytes::new()), Err(OpenError::BudgetExhausted));
    mux.link_lost(now);
    assert_eq!(mux.open(now, 1, &mut Bytes::new()), Err(OpenError::Ended));
}

#[test]
fn parts_of_a_large_head_keep_no_more_than_themselves() {
    let now = instant();
    let mut mux = Mux::new(Settings::new(Side::Gateway), now);
    let mut head = Bytes::from(vec![7; 60_000]);
    let channel = mux.open(now, 1, &mut head).expect("room");
    // The rest has credit for a part of it only.
    assert!(matches!(mux.write(channel, &mut head), Room::Bytes(_)));
    assert!(head.len() > 40_000);
    drop(head);
    let mut parts = 0;
    while let Some(frame) = mux.poll_transmit(now) {
        let (Body::Open(Open { payload, .. }) | Body::Data { payload, .. }) = frame.body else { continue };
        let length = payload.len();
        let kept = payload.try_into_mut().expect("nobody else has it").capacity();
        assert!(kept <= 2 * length, "{length} bytes keep {kept}");
        parts += 1;
    }
    assert_eq!(parts, 2);
}

#[track_caller]
fn check_fatal(side: Side, frame: Frame, expected: &SessionError) {
    let now = instant();
    let mut mux = Mux::new(Settings::new(side), now);
    assert_eq!(mux.handle_frame(now, frame).as_ref(), Err(expected));
    let close = mux.poll_transmit(now).map(|frame| frame.body);
    assert!(matches!(close, Some(Body::Close { reason: Reason::Protocol, .. })), "{close:?}");
    assert!(mux.is_ended());
    assert_eq!(mux.poll_transmit(now), None);
    let frame = Frame { sequence: 0, acknowledged: 0, body: Body::Acknowledge };
    assert_eq!(mux.handle_frame(now, frame), Err(SessionError::Ended));
}

#[test]
fn broken_session_rules_end_the_session_by_name() {
    let channel = ChannelId::new(1);
    let numbered = |body| Frame { sequence: 1, acknowledged: 0, body };
    let open =
        |channel| Body::Open(Open { channel, port: 1, tls: AppTls::None, credit_bytes: 0, payload: Bytes::new() });
    check_fatal(Side::Gateway, numbered(open(channel)), &SessionError::Unexpected { frame: "open" });
    check_fatal(Side::Gateway, numbered(Body::Finish { channel }), &SessionError::ChannelUnknown { channel });
    let accept = Body::Accept { channel, credit_bytes: 1 };
    check_fatal(Side::Agent, numbered(accept), &SessionError::Unexpected { frame: "accept" });
    let zero = ChannelId::new(0);
    check_fatal(Side::Agent, numbered(open(zero)), &SessionError::ChannelOrder { channel: zero });
    let late = Frame { sequence: 2, acknowledged: 0, body: open(channel) };
    check_fatal(Side::Agent, late, &SessionError::Sequence { expected: 1, got: 2 });
    let early = Frame { sequence: 0, acknowledged: 5, body: Body::Acknowledge };
    check_fatal(Side::Agent, early, &SessionError::Acknowledged { acknowledged: 5, sent: 0 });
    let hello = Hello {
        versions: crate::version::OURS,
        features: Vec::new(),
        agent_version: String::new(),
        role: crate::hello::Role::Workspace,
        instance: 0,
        resume: None,
        open_credit_bytes: OPEN_CREDIT_BYTES,
        ports: Vec::new(),
        default_port: None,
        join: None,
        lanes: 1,
        apps: Vec::new(),
        host: HostMode::Auto,
        relay: None,
        seal: Bytes::new(),
    };
    let wanted = RelayTicket { replica: 1, ticket: Bytes::new() };
    let wanted = Frame { sequence: 0, acknowledged: 0, body: Body::OpenLane(wanted) };
    check_fatal(Side::Gateway, wanted, &SessionError::Unexpected { frame: "open_lane" });
    let seal = Frame { sequence: 0, acknowledged: 0, body: Body::Seal(Bytes::from_static(b"seal")) };
    check_fatal(Side::Gateway, seal, &SessionError::Unexpected { frame: "seal" });
    let again = Frame { sequence: 0, acknowledged: 0, body: Body::Hello(Box::new(hello)) };
    check_fatal(Side::Gateway, again, &SessionError::Unexpected { frame: "hello" });
    assert_eq!(SessionError::Frame(FrameError::UnknownBody).reason(), Reason::Protocol);
}

#[test]
fn credit_overflow_resets_the_channel_only() {
    let mut pair = Pair::new();
    let channel = pair.open(b"");
    pair.settle();
    let grants = vec![Grant { channel, bytes: u32::MAX }];
    let frame = Frame { sequence: 1, acknowledged: 0, body: Body::Credit { grants } };
    assert_eq!(pair.gateway.handle_frame(pair.now, frame), Ok(()));
    assert_eq!(pair.gateway.read(channel), Read::Reset(Reason::Protocol));
}

#[test]
fn silent_peer_ends_the_session_and_every_channel_hears_of_it() {
    let now = instant();
    let mut mux = Mux::new(Settings::new(Side::Gateway), now);
    let channel = mux.open(now, 1, &mut Bytes::new()).expect("room");
    while mux.poll_transmit(now).is_some() {}
    let deadline = mux.poll_timeout().expect("keepalive");
    assert_eq!(mux.handle_timeout(deadline), Err(SessionError::KeepaliveTimedOut));
    assert_eq!(mux.read(channel), Read::Reset(Reason::SessionLost));
    assert!(events(&mut mux).contains(&MuxEvent::Reset(channel, Reason::SessionLost)));
}

#[test]
fn unsent_ping_counts_as_silence_and_does_not_spin() {
    let now = instant();
    let mut mux = Mux::new(Settings::new(Side::Gateway), now);
    // The link takes nothing, so the first ping is never sent.
    let deadline = mux.poll_timeout().expect("keepalive");
    assert!(deadline > now);
    assert_eq!(mux.handle_timeout(deadline), Err(SessionError::KeepaliveTimedOut));
}

#[test]
fn graceful_close_says_why() {
    let mut pair = Pair::new();
    pair.open(b"x");
    pair.settle();
    pair.gateway.close(Reason::Displaced, "a newer session of this agent took over");
    let close = pair.gateway.poll_transmit(pair.now).expect("a close frame");
    let error = pair.agent.handle_frame(pair.now, close).expect_err("the session is over");
    assert!(matches!(error, SessionError::Closed { reason: Reason::Displaced, .. }));
    assert!(pair.agent.is_ended() && pair.gateway.is_ended());
}
