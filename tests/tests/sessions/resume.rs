//! Streams outlive links: whatever breaks between agent and gateway, for a while, is not seen by users.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use e2e::raw::{Raw, RawApp};
use e2e::relay::{CUTS, Cut, Relay};
use e2e::{PATIENCE, TestAgent, until};
use gateway_agents::registry::LiveSession;
use gateway_config::Config;
use tunnel_proto::reason::Reason;
use workspace_agent::{DialEnded, Transport};

use crate::raw_agent::Stage;
use crate::streams::{Apps, Streams};

/// What a request waits for a link (`LINK_PATIENCE` of the edge).
const LINK_PATIENCE: Duration = Duration::from_secs(3);

/// A gateway, the workspace `one`, and the relay between them.
pub(crate) struct Flaky {
    pub(crate) stage: Stage,
    pub(crate) apps: Apps,
    pub(crate) relay: Relay,
    agent: TestAgent,
    pub(crate) session: Arc<LiveSession>,
}

/// Lets a gateway and its agents miss soon a link that stalls. Only for tests that stall one: on a busy machine, links that are
/// well are missed too.
pub(crate) fn notice_stalls(config: &mut Config) {
    config.tunnel.keepalive_interval = Duration::from_millis(250);
    config.tunnel.keepalive_timeout = Duration::from_millis(500);
}

impl Flaky {
    pub(crate) async fn new(change: impl FnOnce(&mut Config)) -> Self {
        let stage = Stage::new(change).await;
        let dialed = stage.gateway.addresses.agents;
        Self::dialing(stage, dialed, Transport::default()).await
    }

    /// With an agent that dials this address, which may be of another replica than the one that users ask.
    pub(crate) async fn dialing(stage: Stage, dialed: SocketAddr, transport: Transport) -> Self {
        Self::of_older_agent(stage, dialed, transport, &[]).await
    }

    /// With such an agent that does not offer some features.
    pub(crate) async fn of_older_agent(
        stage: Stage,
        dialed: SocketAddr,
        transport: Transport,
        without: &'static [&'static str],
    ) -> Self {
        let apps = Apps::start().await;
        let relay = Relay::start(dialed).await;
        let token = stage.gateway.agent_token("one").await;
        let agent = stage.gateway.start_older_agent(relay.address, transport, &token, apps.ports(), without);
        let session = tokio::time::timeout(PATIENCE, async {
            loop {
                // Where the agent dials another replica, a request is what finds it.
                stage.asking("one", apps.mirror.port).await.message().await.expect("an answer");
                if let Some(session) = stage.gateway.registry.current(&"one".parse().unwrap()) {
                    return session;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let session = session.await.expect("the agent is connected");
        Self { stage, apps, relay, agent, session }
    }

    fn links(&self) -> u64 {
        self.session.tunnel.stats().links
    }

    /// Breaks the link and waits until the session goes on over another one.
    pub(crate) async fn break_link(&self, how: Cut) {
        let before = self.links();
        self.relay.cut(how);
        until("the session goes on", || self.links() > before && !self.session.tunnel.is_detached()).await;
    }

    /// Breaks the link for good, until the relay is up again.
    pub(crate) async fn lose_link(&self) {
        self.relay.down();
        self.relay.cut(Cut::Reset);
        until("the link is missed", || self.session.tunnel.is_detached()).await;
    }

    fn head(&self, app: &RawApp, start: &str, fields: &str) -> String {
        let (host, token) = (self.stage.gateway.authority("one", app.port), &self.stage.gateway.user_token);
        format!("{start} HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {token}\r\n{fields}\r\n")
    }

    pub(crate) async fn ask(&self, app: &RawApp, start: &str, fields: &str) -> Raw {
        let mut raw = Raw::connect(self.stage.gateway.addresses.public).await;
        raw.send(self.head(app, start, fields)).await;
        raw
    }

    pub(crate) async fn finish(self) {
        assert_eq!(self.session.tunnel.broken_invariant(), None);
        self.agent.stop().await;
        until("the session is gone", || self.session.tunnel.is_ended()).await;
        self.stage.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_every_kind_survive_cuts_of_every_kind() {
    let flaky = Flaky::new(notice_stalls).await;
    let cuts: Vec<_> = CUTS.into_iter().cycle().take(9).collect();
    let mut streams = Streams::open(&flaky, 2 * cuts.len()).await;
    for how in cuts {
        streams.say().await;
        flaky.break_link(how).await;
        streams.hear().await;
        // Said while nobody may have noticed yet.
        flaky.relay.cut(how);
        streams.say().await;
        streams.hear().await;
    }
    streams.close().await;
    assert!(flaky.links() > 9);
    flaky.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_survive_links_that_break_in_the_middle_of_anything() {
    let flaky = Flaky::new(|_| {}).await;
    let fuses = [1, 30, 100, 300, 500, 800, 1_000, 2_000, 5_000, 20_000, 70_001, 150_003, 400_009, 1_000_003];
    let mut streams = Streams::open(&flaky, fuses.len()).await;
    for fuse in fuses {
        let before = flaky.relay.connections();
        flaky.relay.break_next_after(fuse);
        flaky.relay.cut(Cut::Reset);
        streams.say().await;
        streams.hear().await;
        until("it was dialed again", || flaky.relay.connections() > before).await;
    }
    streams.close().await;
    flaky.finish().await;
}

#[tokio::test]
async fn request_that_comes_without_a_link_is_answered_when_there_is_one_again() {
    let flaky = Flaky::new(|_| {}).await;
    flaky.lose_link().await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(flaky.ask(&flaky.apps.mirror, "GET /", "").await);
    }
    let first = futures_util::future::select_all(waiting.iter_mut().map(|raw| Box::pin(raw.some())));
    let early = tokio::time::timeout(Duration::from_millis(50), first).await.map(|(bytes, ..)| bytes);
    assert!(early.is_err(), "{early:?}");
    flaky.relay.up();
    for mut raw in waiting {
        assert_eq!(raw.message().await.expect("an answer").status(), 200);
    }
    assert_eq!(flaky.links(), 2);
    flaky.finish().await;
}

#[tokio::test]
async fn request_that_comes_without_a_link_waits_no_longer_than_its_patience_and_harms_no_stream() {
    let flaky = Flaky::new(|_| {}).await;
    let mut stream = flaky.ask(&flaky.apps.upgrade, "GET /", "connection: upgrade\r\nupgrade: echo\r\n").await;
    assert_eq!(stream.head().await.expect("a head").status(), 101);
    flaky.lose_link().await;
    stream.send("meanwhile").await;
    let asked = Instant::now();
    let answer = flaky.ask(&flaky.apps.mirror, "GET /", "").await.message().await.expect("an answer");
    let took = asked.elapsed();
    assert_eq!((answer.status(), answer.header("gateway-error")), (503, Some("agent_absent")));
    assert_eq!(answer.header("retry-after"), Some("3"));
    assert!(took >= LINK_PATIENCE, "{took:?}");
    assert!(flaky.session.tunnel.is_detached());
    flaky.relay.up();
    assert_eq!(stream.exactly(9).await, b"meanwhile");
    flaky.stage.assert_serves("bystander").await;
    drop(stream);
    flaky.finish().await;
}

#[tokio::test]
async fn stream_without_a_link_ends_by_its_name_after_the_grace() {
    let grace = Duration::from_millis(700);
    let flaky = Flaky::new(|config| config.tunnel.resume_grace = grace).await;
    let name = "one".parse().unwrap();
    let mut upgrade = flaky.ask(&flaky.apps.upgrade, "GET /", "connection: upgrade\r\nupgrade: echo\r\n").await;
    assert_eq!(upgrade.head().await.expect("a head").status(), 101);
    let mut events = flaky.ask(&flaky.apps.events, "GET /", "").await;
    assert_eq!(events.head().await.expect("a head").status(), 200);
    let mut upload = flaky.ask(&flaky.apps.upload, "POST /", "content-length: 10\r\n").await;
    upload.send("hello").await;
    until("all are under way", || flaky.session.in_flight() == 3).await;
    let cut = Instant::now();
    flaky.lose_link().await;
    let answer = upload.message().await.expect("an answer");
    assert!(cut.elapsed() >= grace, "{:?}", cut.elapsed());
    assert_eq!((answer.status(), answer.header("gateway-error")), (502, Some("session_lost")));
    assert!(!events.read_rest().await.ends_with(b"0\r\n\r\n"), "it broke off, and did not end");
    assert!(upgrade.read_rest().await.is_empty());
    flaky.stage.gateway.until_gone("one").await;
    assert!(flaky.session.tunnel.is_ended());
    assert_eq!(flaky.session.in_flight(), 0);
    // The agent comes back with a session of its own.
    flaky.relay.up();
    flaky.stage.gateway.until_connected("one").await;
    let new = flaky.stage.gateway.registry.current(&name).expect("connected");
    assert!(new.id > flaky.session.id && new.tunnel.stats().links == 1);
    let answer = flaky.ask(&flaky.apps.mirror, "GET /", "").await.message().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    flaky.finish().await;
}

#[tokio::test]
async fn agent_that_was_replaced_while_it_was_away_is_told_so_and_stops() {
    let mut flaky = Flaky::new(|_| {}).await;
    let mut stream = flaky.ask(&flaky.apps.upgrade, "GET /", "connection: upgrade\r\nupgrade: echo\r\n").await;
    assert_eq!(stream.head().await.expect("a head").status(), 101);
    flaky.lose_link().await;
    let token = flaky.stage.gateway.agent_token("one").await;
    let second = flaky.stage.gateway.start_agent(&token, flaky.apps.ports());
    flaky.stage.gateway.until_connected("one").await;
    assert!(stream.read_rest().await.is_empty(), "its session is over");
    flaky.relay.up();
    let ended = flaky.agent.ended().await;
    assert!(matches!(ended, Err(DialEnded::Displaced)), "{ended:?}");
    let current = flaky.stage.gateway.registry.current(&"one".parse().unwrap()).expect("the newer one stays");
    assert!(current.id > flaky.session.id && current.tunnel.stats().links == 1);
    let answer = flaky.ask(&flaky.apps.mirror, "GET /", "").await.message().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    second.stop().await;
    flaky.stage.finish().await;
}

#[tokio::test]
async fn agent_that_comes_back_after_the_gateway_restarted_gets_a_new_session() {
    let flaky = Flaky::new(|_| {}).await;
    flaky.lose_link().await;
    // The gateway has forgotten it, as after a restart.
    assert!(flaky.stage.gateway.registry.release(&flaky.session));
    flaky.relay.up();
    flaky.stage.gateway.until_connected("one").await;
    let answer = flaky.ask(&flaky.apps.mirror, "GET /", "").await.message().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    flaky.session.tunnel.close(Reason::Shutdown, "the test is over");
    flaky.finish().await;
}
