//! Agents that break the rules: a fault in one channel ends that channel, a fault in the session ends that session, and
//! nobody else notices.

use std::time::Duration;

use bytes::Bytes;
use e2e::raw::Raw;
use e2e::stopwatch::Stopwatch;
use e2e::until;
use tunnel_proto::frame::{Body, Frame, Grant, Open};
use tunnel_proto::id::ChannelId;
use tunnel_proto::reason::Reason;
use tunnel_proto::target::AppTls;

use crate::raw_agent::{RawAgent, Stage, prefixed};

const KIB: usize = 1024;
const FLOOD: usize = 50_000;

/// The answer of an app, as payload.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A session with one open channel, and the user who waits for its answer.
struct Breaking {
    stage: Stage,
    agent: RawAgent,
    channel: ChannelId,
    user: Raw,
}

impl Breaking {
    async fn new() -> Self {
        let stage = Stage::new(|config| config.tunnel.window_initial = 16 * KIB as u64).await;
        let mut agent = RawAgent::attach(&stage.gateway, "one").await;
        let user = stage.asking("one", 4000).await;
        let channel = agent.opened().await;
        Self { stage, agent, channel, user }
    }

    async fn data(&mut self, payload: &'static [u8]) {
        self.agent.say(Body::Data { channel: self.channel, payload: Bytes::from_static(payload) }).await;
    }

    /// Waits until the gateway has taken all that was said up to now.
    async fn until_taken(&mut self) {
        const TOKEN: u64 = 2;
        self.agent.say(Body::Ping { token: TOKEN }).await;
        loop {
            match self.agent.next().await.expect("the session lives").body {
                Body::Pong { token: TOKEN } => return,
                Body::Ping { token } => self.agent.say(Body::Pong { token }).await,
                _ => {}
            }
        }
    }

    /// The session ended with this reason, and so did the user's request.
    async fn assert_session_ended(mut self, told: &str, reason: Reason) {
        loop {
            match self.agent.heard().await {
                Some(Body::Close { reason: said, detail }) => {
                    assert_eq!(said, reason, "{told}");
                    assert!(detail.is_ascii() && !detail.is_empty(), "{told}: {detail}");
                    break;
                }
                // What was under way before the fault was noticed.
                Some(Body::Credit { .. } | Body::Reset { .. } | Body::Finish { .. }) => {}
                other => panic!("{told}: {other:?}"),
            }
        }
        assert_eq!(self.agent.next().await, None, "{told}: something follows the close");
        let answer = self.user.message().await.expect("an answer");
        assert_eq!((answer.status(), answer.header("gateway-error")), (502, Some("session_lost")), "{told}");
        self.stage.gateway.until_gone("one").await;
        self.stage.finish().await;
    }

    /// The channel was reset as a breach, and the session works on.
    async fn assert_channel_ended(mut self, told: &str) {
        loop {
            match self.agent.heard().await {
                Some(Body::Reset { channel, reason }) => {
                    assert_eq!((channel, reason), (self.channel, Reason::Protocol), "{told}");
                    break;
                }
                Some(Body::Credit { .. }) => {}
                other => panic!("{told}: {other:?}"),
            }
        }
        let answer = self.user.message().await.expect("an answer");
        assert_eq!(answer.status(), 502, "{told}: {answer:?}");
        self.assert_works(told).await;
    }

    /// A new request is answered on the same session.
    async fn assert_works(mut self, told: &str) {
        let mut user = self.stage.asking("one", 4000).await;
        let channel = self.agent.opened().await;
        self.agent.say(Body::Accept { channel, credit_bytes: 0 }).await;
        self.agent.say(Body::Data { channel, payload: Bytes::from_static(ANSWER) }).await;
        let answer = user.message().await.expect("an answer");
        assert_eq!(answer.status(), 200, "{told}: {answer:?}");
        drop(user);
        drop(self.user);
        let session = self.stage.gateway.registry.current(&"one".parse().unwrap()).expect("the session lives");
        assert_eq!(session.tunnel.broken_invariant(), None, "{told}");
        self.stage.finish().await;
    }
}

#[tokio::test]
async fn frames_that_break_the_session_end_it_with_the_reason() {
    let far = ChannelId::new(99);
    let raw = |sequence, acknowledged, body| Frame { sequence, acknowledged, body };
    let data = |channel, payload| Body::Data { channel, payload };
    let open = Open { channel: far, port: 22, tls: AppTls::None, credit_bytes: 1000, payload: Bytes::new() };
    let one = ChannelId::new(1);
    for (told, frame) in [
        ("a number left out", raw(2, 0, data(one, Bytes::from_static(b"x")))),
        ("a number above all", raw(u64::MAX, 0, data(one, Bytes::new()))),
        ("an acknowledgement of what was never sent", raw(0, 1000, Body::Acknowledge)),
        ("data on an unknown channel", raw(1, 0, data(far, Bytes::from_static(b"x")))),
        ("an accept of an unknown channel", raw(1, 0, Body::Accept { channel: far, credit_bytes: 1 })),
        ("a finish of an unknown channel", raw(1, 0, Body::Finish { channel: far })),
        ("a reset of an unknown channel", raw(1, 0, Body::Reset { channel: far, reason: Reason::Cancelled })),
        ("credit for an unknown channel", raw(1, 0, Body::Credit { grants: vec![Grant { channel: far, bytes: 1 }] })),
        ("an open", raw(1, 0, Body::Open(open))),
        ("a second hello", raw(0, 0, Body::Hello(Box::new(e2e::scripted::hello())))),
        ("a drain", raw(0, 0, Body::Drain { deadline_ms: 1, redial_after_ms: 1, moves: true })),
    ] {
        let mut breaking = Breaking::new().await;
        breaking.agent.send_frame(frame).await;
        breaking.assert_session_ended(told, Reason::Protocol).await;
    }
}

#[tokio::test]
async fn bytes_that_are_no_frame_end_the_session() {
    for (told, bytes) in [
        ("garbage", prefixed(&[0xff; 100])),
        ("a frame above the limit", Bytes::from_static(&[0, 0x7f, 0xff, 0xff, 0xff])),
        ("compression", Bytes::from_static(&[1, 0, 0, 0, 1, 0])),
        (
            "a payload above the limit",
            prefixed(
                &[[0x08, 1, 0x3a, 0x85, 0x80, 0x06, 0x08, 1, 0x12, 0x80, 0x80, 0x06].to_vec(), vec![0; 96 * KIB]]
                    .concat(),
            ),
        ),
        ("channel 0", prefixed(&[0x08, 1, 0x42, 0])),
    ] {
        let mut breaking = Breaking::new().await;
        breaking.agent.send(bytes).await;
        breaking.assert_session_ended(told, Reason::Protocol).await;
    }
}

#[tokio::test]
async fn agents_own_close_and_its_end_of_stream_end_the_session() {
    for close in [true, false] {
        let mut breaking = Breaking::new().await;
        if close {
            breaking.agent.say(Body::Close { reason: Reason::Shutdown, detail: String::new() }).await;
        } else {
            breaking.agent.finish();
        }
        let answer = breaking.user.message().await.expect("an answer");
        assert_eq!((answer.status(), answer.header("gateway-error")), (502, Some("session_lost")));
        while breaking.agent.next().await.is_some() {}
        breaking.stage.gateway.until_gone("one").await;
        breaking.stage.finish().await;
    }
}

#[tokio::test]
async fn data_above_the_credit_resets_its_channel_only() {
    let mut breaking = Breaking::new().await;
    static TOO_MUCH: [u8; 16 * KIB + 1] = [b'x'; 16 * KIB + 1];
    breaking.data(&TOO_MUCH).await;
    breaking.assert_channel_ended("at once").await;

    // In pieces, while nobody reads: an endless head.
    let mut breaking = Breaking::new().await;
    static PIECE: [u8; 4 * KIB] = [b'x'; 4 * KIB];
    breaking.data(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await;
    let head = breaking.user.head().await.expect("a head");
    assert_eq!(head.status(), 200);
    for _ in 0..4000 {
        breaking.data(&PIECE).await;
    }
    let (mut user, channel) = (breaking.user, breaking.channel);
    loop {
        match breaking.agent.heard().await {
            Some(Body::Reset { channel: reset, reason }) => {
                assert_eq!(reset, channel);
                assert!(matches!(reason, Reason::Protocol | Reason::Cancelled), "{reason:?}");
                break;
            }
            Some(Body::Credit { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    // The body broke off: what came is less than was announced.
    assert!(user.read_rest().await.len() < 1_000_000);
    let breaking = Breaking { user, ..breaking };
    breaking.assert_works("in pieces").await;
}

#[tokio::test]
async fn breaches_within_a_channel_reset_it_only() {
    let mut breaking = Breaking::new().await;
    let channel = breaking.channel;
    for _ in 0..2 {
        breaking.agent.say(Body::Accept { channel, credit_bytes: 0 }).await;
    }
    breaking.assert_channel_ended("accepted twice").await;

    let mut breaking = Breaking::new().await;
    for _ in 0..2 {
        breaking.agent.say(Body::Credit { grants: vec![Grant { channel, bytes: u32::MAX }] }).await;
    }
    breaking.assert_channel_ended("more credit than there is").await;
}

#[tokio::test]
async fn data_behind_a_finish_gets_through_to_nobody() {
    let mut breaking = Breaking::new().await;
    let channel = breaking.channel;
    breaking.agent.say(Body::Finish { channel }).await;
    breaking.agent.say(Body::Data { channel, payload: Bytes::from_static(ANSWER) }).await;
    breaking.agent.say(Body::Finish { channel }).await;
    let answer = breaking.user.message().await.expect("an answer");
    assert_eq!(answer.status(), 502, "{answer:?}");
    breaking.assert_works("finished twice").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_small_frames_cost_nobody_else_anything() {
    let channel = ChannelId::new(1);
    let empty = || Body::Data { channel, payload: Bytes::new() };
    for (told, flood) in [
        ("pings", Body::Ping { token: 1 }),
        ("pongs", Body::Pong { token: 1 }),
        ("acknowledgements", Body::Acknowledge),
        ("credit", Body::Credit { grants: vec![Grant { channel, bytes: 1 }; 4] }),
        ("late accepts", Body::Accept { channel, credit_bytes: 0 }),
        ("empty data", empty()),
    ] {
        let mut breaking = Breaking::new().await;
        assert_eq!(breaking.channel, channel);
        let (watch, mut tenth) = (Stopwatch::start(), Duration::ZERO);
        let mut batch = Vec::new();
        for count in 1..=FLOOD {
            breaking.agent.sequence += u64::from(flood.is_numbered());
            let sequence = if flood.is_numbered() { breaking.agent.sequence } else { 0 };
            batch.extend(crate::raw_agent::message(Frame { sequence, acknowledged: 0, body: flood.clone() }));
            if count % 1000 == 0 {
                breaking.agent.send(std::mem::take(&mut batch).into()).await;
            }
            if count == FLOOD / 10 {
                breaking.until_taken().await;
                tenth = watch.elapsed();
            }
            if count == FLOOD / 2 {
                breaking.stage.assert_serves("bystander").await;
            }
        }
        breaking.assert_works(told).await;
        // What costs the more the more of it there was takes a hundred times as long as its first tenth.
        let limit = Duration::from_secs(10).max(20 * tenth);
        assert!(watch.elapsed() < limit, "{told}: {:?}, and {tenth:?} for a tenth of it", watch.elapsed());
    }
}

#[tokio::test]
async fn agent_that_never_reads_loses_its_session_in_time() {
    // All users have to be under way by then.
    let patience = Duration::from_secs(5);
    let stage = Stage::new(|config| {
        config.tunnel.keepalive_interval = patience;
        config.tunnel.keepalive_timeout = patience;
    })
    .await;
    let token = stage.gateway.agent_token("one").await;
    // The least that HTTP/2 begins with, so that frames get stuck in the gateway.
    let mut agent = RawAgent::open_with_window(&stage.gateway, Some(&format!("Bearer {token}")), 65_535).await;
    agent.say(Body::Hello(Box::new(e2e::scripted::hello()))).await;
    stage.gateway.until_connected("one").await;
    let session = stage.gateway.registry.current(&"one".parse().unwrap()).expect("attached");
    let body = "x".repeat(256 * KIB);
    let mut users = Vec::new();
    for _ in 0..20 {
        let mut raw = Raw::connect(stage.gateway.addresses.public).await;
        let head = stage.get("one", 4000).replacen("GET", "POST", 1);
        let head = head.replacen("\r\n\r\n", &format!("\r\ncontent-length: {}\r\n\r\n", body.len()), 1);
        raw.send(head).await;
        users.push(raw);
    }
    until("all are under way", || session.in_flight() == users.len()).await;
    for raw in &mut users {
        // It may be over before it is through.
        tokio::time::timeout(Duration::from_millis(20), raw.try_send(&body)).await.ok();
    }
    let queued = session.tunnel.stats().queued_bytes;
    assert!(queued < 16 * KIB * KIB, "{queued} bytes queued");
    stage.gateway.until_gone("one").await;
    for raw in &mut users {
        let answer = raw.message().await.expect("an answer");
        assert_eq!((answer.status(), answer.header("gateway-error")), (502, Some("session_lost")));
    }
    drop((agent, users));
    stage.finish().await;
}
