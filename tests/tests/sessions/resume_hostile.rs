//! Agents that resume what is not theirs, or lie while they do it: nobody who keeps the rules notices.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use e2e::raw::Raw;
use e2e::scripted::hello;
use e2e::until;
use gateway_agents::registry::LiveSession;
use gateway_config::Config;
use gateway_store::{Terms, TokenSubject, wall_clock};
use tokio::task::JoinSet;
use tunnel_proto::frame::{Body, Frame};
use tunnel_proto::hello::{Hello, Resume, Welcome};
use tunnel_proto::id::{ChannelId, SessionId};
use tunnel_proto::reason::Reason;
use tunnel_proto::version::FEATURE_RESUME;

use crate::lifecycle::{metric, until_metric};
use crate::raw_agent::{RawAgent, Stage};

/// Status codes of gRPC.
const PERMISSION_DENIED: u16 = 7;
const ABORTED: u16 = 10;

/// The process that [`hello`] names.
const INSTANCE: u64 = 1;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn resumable() -> Hello {
    Hello { features: vec![FEATURE_RESUME.into()], instance: INSTANCE, ..hello() }
}

fn asking(session: SessionId, secret: &Bytes, received: u64) -> Hello {
    Hello { resume: Some(Resume { session, secret: secret.clone(), received }), ..resumable() }
}

/// A session that can be resumed, the agent that owns it, and a user who waits for an answer.
struct Owned {
    stage: Stage,
    token: String,
    agent: RawAgent,
    welcome: Welcome,
    session: Arc<LiveSession>,
    channel: ChannelId,
    user: Raw,
}

impl Owned {
    async fn new(change: impl FnOnce(&mut Config)) -> Self {
        let stage = Stage::new(change).await;
        let token = stage.gateway.agent_token("one").await;
        let mut agent = RawAgent::dial(&stage.gateway, &token, resumable()).await;
        let welcome = agent.welcome().await;
        assert!(!welcome.resume_secret.is_empty() && !welcome.resume_grace.is_zero() && welcome.resumed.is_none());
        stage.gateway.until_connected("one").await;
        let session = stage.gateway.registry.current(&"one".parse().unwrap()).expect("attached");
        assert_eq!(session.id, welcome.session);
        let user = stage.asking("one", 4000).await;
        let channel = agent.opened().await;
        Self { stage, token, agent, welcome, session, channel, user }
    }

    async fn dial(&self, hello: Hello) -> RawAgent {
        RawAgent::dial(&self.stage.gateway, &self.token, hello).await
    }

    /// What the owner itself would say, with another secret.
    fn asking_with(&self, secret: &Bytes) -> Hello {
        asking(self.session.id, secret, self.agent.received)
    }

    fn asking(&self) -> Hello {
        self.asking_with(&self.welcome.resume_secret)
    }

    /// Goes on over another link, as its owner.
    async fn resume(&mut self) {
        let mut agent = self.dial(self.asking()).await;
        self.welcome = agent.welcome().await;
        assert_eq!(self.welcome.session, self.session.id);
        let resumed = self.welcome.resumed.expect("it goes on");
        assert_eq!(resumed.received, self.agent.sequence, "nothing was lost on the way");
        (agent.sequence, agent.received) = (self.agent.sequence, self.agent.received);
        self.agent = agent;
    }

    /// The gateway has heard the owner over the link that it has now.
    async fn be_heard(&mut self) {
        self.agent.say(Body::Ping { token: 1 }).await;
        until("the agent was heard", || self.session.tunnel.was_heard()).await;
    }

    fn links(&self) -> u64 {
        self.session.tunnel.stats().links
    }

    fn is_current(&self) -> bool {
        let current = self.stage.gateway.registry.of(&self.session.subject);
        current.is_some_and(|current| current.id == self.session.id) && !self.session.tunnel.is_ended()
    }

    /// The user gets the answer, on the very session and channel.
    async fn assert_undisturbed(mut self, told: &str, links: u64) {
        assert!(self.is_current(), "{told}: {:?}", self.session.tunnel.end());
        assert_eq!(self.links(), links, "{told}");
        let channel = self.channel;
        self.agent.say(Body::Accept { channel, credit_bytes: 0 }).await;
        self.agent.say(Body::Data { channel, payload: Bytes::from_static(ANSWER) }).await;
        self.agent.say(Body::Finish { channel }).await;
        let answer = self.user.message().await.expect("an answer");
        assert_eq!((answer.status(), answer.text()), (200, "ok".to_owned()), "{told}");
        drop(self.user);
        assert_eq!(self.session.tunnel.broken_invariant(), None, "{told}");
        self.agent.say(Body::Close { reason: Reason::Shutdown, detail: String::new() }).await;
        until("the session is gone", || self.session.tunnel.is_ended()).await;
        self.stage.finish().await;
    }

    /// The user hears that the session is lost; the gateway and everybody else go on.
    async fn assert_lost(mut self, told: &str) {
        let answer = self.user.message().await.expect("an answer");
        assert_eq!((answer.status(), answer.header("gateway-error")), (502, Some("session_lost")), "{told}");
        until("the session is over", || self.session.tunnel.is_ended() && self.session.in_flight() == 0).await;
        let stats = self.session.tunnel.stats();
        assert_eq!((stats.channels_live, stats.window_bytes, stats.replay_bytes), (0, 0, 0), "{told}");
        let name = "one".parse().unwrap();
        if let Some(current) = self.stage.gateway.registry.current(&name) {
            assert!(current.id > self.session.id, "{told}");
            current.tunnel.close(Reason::Shutdown, "the test is over");
        }
        self.stage.gateway.until_gone("one").await;
        self.stage.finish().await;
    }
}

#[tokio::test]
async fn secret_that_is_not_the_sessions_is_refused() {
    let owned = Owned::new(|_| {}).await;
    let token = owned.stage.gateway.agent_token("two").await;
    let mut other = RawAgent::dial(&owned.stage.gateway, &token, resumable()).await;
    let others = other.welcome().await.resume_secret;
    let good = owned.welcome.resume_secret.clone();
    let mut flipped = good.to_vec();
    flipped[3] ^= 1;
    for (told, secret) in [
        ("made up", Bytes::from(vec![b'A'; good.len()])),
        ("empty", Bytes::new()),
        ("another workspace's", others),
        ("one bit off", Bytes::from(flipped)),
        ("too short", good.slice(1..)),
        ("no text", Bytes::from(vec![0xff; good.len()])),
    ] {
        for received in [0, owned.agent.received, u64::MAX] {
            let hello = asking(owned.session.id, &secret, received);
            let (status, said) = owned.dial(hello).await.refusal().await;
            assert_eq!(status, PERMISSION_DENIED, "{told}: {said}");
            assert!(owned.is_current(), "{told}");
        }
    }
    let two = owned.stage.gateway.registry.current(&"two".parse().unwrap()).expect("it is not missed yet");
    two.tunnel.close(Reason::Shutdown, "the test is over");
    owned.assert_undisturbed("wrong secrets", 1).await;
}

#[tokio::test]
async fn secret_of_a_session_is_worth_nothing_to_another_workspace() {
    let owned = Owned::new(|_| {}).await;
    let token = owned.stage.gateway.agent_token("two").await;
    // First without a session of its own, and then with one.
    for _ in 0..2 {
        let mut thief = RawAgent::dial(&owned.stage.gateway, &token, owned.asking()).await;
        let welcome = thief.welcome().await;
        assert!(welcome.resumed.is_none() && welcome.session != owned.session.id);
        assert_eq!(welcome.workspace, "two");
    }
    // Of another process, it is taken for a late one.
    let hello = Hello { instance: INSTANCE + 1, ..owned.asking() };
    let (status, _) = RawAgent::dial(&owned.stage.gateway, &token, hello).await.refusal().await;
    assert_eq!(status, ABORTED);
    let two = owned.stage.gateway.registry.current(&"two".parse().unwrap()).expect("it is not missed yet");
    two.tunnel.close(Reason::Shutdown, "the test is over");
    owned.assert_undisturbed("another workspace", 1).await;
}

#[tokio::test]
async fn session_that_is_not_the_current_one_is_never_resumed() {
    // An older one, of another process: that process was displaced.
    let owned = Owned::new(|_| {}).await;
    let older = SessionId::new(owned.session.id.get() - 1);
    let stale = Hello { instance: INSTANCE + 1, ..asking(older, &owned.welcome.resume_secret, 0) };
    for _ in 0..3 {
        let (status, said) = owned.dial(stale.clone()).await.refusal().await;
        assert_eq!((status, said.contains("newer agent")), (ABORTED, true), "{said}");
    }
    owned.assert_undisturbed("an older session", 1).await;

    // Of the same process, or unheard of: an agent that lost its way gets a new session, as without a resume.
    for (told, session) in [("its own older one", None), ("one that never was", Some(SessionId::new(1 << 62)))] {
        let owned = Owned::new(|_| {}).await;
        let session = session.unwrap_or(SessionId::new(owned.session.id.get() - 1));
        let mut again = owned.dial(asking(session, &owned.welcome.resume_secret, 0)).await;
        let welcome = again.welcome().await;
        assert!(welcome.resumed.is_none() && welcome.session > owned.session.id, "{told}");
        owned.assert_lost(told).await;
    }
}

#[tokio::test]
async fn secret_is_good_for_one_resume_once_the_next_one_has_arrived() {
    let mut owned = Owned::new(|_| {}).await;
    let mut old = Vec::new();
    for _ in 0..3 {
        old.push(owned.welcome.resume_secret.clone());
        owned.resume().await;
        owned.be_heard().await;
        assert!(!old.contains(&owned.welcome.resume_secret));
        for secret in &old {
            let (status, _) = owned.dial(owned.asking_with(secret)).await.refusal().await;
            assert_eq!(status, PERMISSION_DENIED, "a secret that was used");
        }
    }
    owned.assert_undisturbed("used secrets", 4).await;
}

#[tokio::test]
async fn resume_while_the_session_is_up_takes_it_over_from_the_old_link() {
    let mut owned = Owned::new(|_| {}).await;
    let before = owned.dial(owned.asking()).await;
    let mut old = std::mem::replace(&mut owned.agent, before);
    owned.welcome = owned.agent.welcome().await;
    (owned.agent.sequence, owned.agent.received) = (old.sequence, old.received);
    assert!(owned.welcome.resumed.is_some());
    // The old link's stream ends, and what its agent still says is not heard.
    while let Some(frame) = old.next().await {
        assert!(!matches!(frame.body, Body::Close { .. }), "{frame:?}");
    }
    old.send_frame(Frame { sequence: 99, acknowledged: 99, body: Body::Finish { channel: owned.channel } }).await;
    old.finish();
    drop(old);
    owned.be_heard().await;
    owned.assert_undisturbed("taken over", 2).await;
}

#[tokio::test]
async fn welcomes_that_are_lost_cost_nothing() {
    let mut owned = Owned::new(|_| {}).await;
    for lost in 0..5 {
        let links = owned.links();
        let unlucky = owned.dial(owned.asking()).await;
        until("the gateway has resumed it", || owned.links() > links).await;
        drop(unlucky);
        until("the link is missed", || owned.session.tunnel.is_detached()).await;
        assert!(owned.is_current(), "after {lost} lost welcomes");
    }
    owned.resume().await;
    owned.be_heard().await;
    owned.assert_undisturbed("lost welcomes", 7).await;
}

#[tokio::test]
async fn agent_that_lies_about_what_it_received_loses_its_own_session_only() {
    for (told, received) in [("more than was sent", 1_000_000), ("all there is", u64::MAX), ("less than it said", 0)] {
        for is_up in [true, false] {
            let mut owned = Owned::new(|_| {}).await;
            let acknowledged = owned.agent.received;
            assert!(acknowledged > 0);
            owned.agent.send_frame(Frame { sequence: 0, acknowledged, body: Body::Acknowledge }).await;
            until("it is acknowledged", || owned.session.tunnel.stats().frames.1 == acknowledged).await;
            if !is_up {
                owned.agent.finish();
                until("the link is missed", || owned.session.tunnel.is_detached()).await;
            }
            let secret = &owned.welcome.resume_secret;
            let mut liar = owned.dial(asking(owned.session.id, secret, received)).await;
            let welcome = liar.welcome().await;
            assert!(welcome.resumed.is_none() && welcome.session > owned.session.id, "{told}");
            owned.assert_lost(told).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_resumes_costs_nobody_anything() {
    let mut owned = Owned::new(|_| {}).await;
    let wrong = Bytes::from(vec![b'A'; owned.welcome.resume_secret.len()]);
    let mut flood = JoinSet::new();
    for _ in 0..8 {
        let (address, token) = (owned.stage.gateway.addresses, owned.token.clone());
        let hello = owned.asking_with(&wrong);
        flood.spawn(async move {
            for _ in 0..40 {
                let agent = RawAgent::dial_at(address.agents, &token, hello.clone()).await;
                assert_eq!(agent.refusal().await.0, PERMISSION_DENIED);
            }
        });
    }
    for _ in 0..5 {
        owned.stage.assert_serves("bystander").await;
    }
    flood.join_all().await;
    // The owner's own, one after the other without a word in between.
    for _ in 0..100 {
        owned.resume().await;
    }
    owned.be_heard().await;
    owned.assert_undisturbed("a flood", 101).await;
}

#[tokio::test]
async fn agent_that_does_not_offer_to_resume_has_a_session_that_ends_with_its_link() {
    let stage = Stage::new(|_| {}).await;
    let token = stage.gateway.agent_token("one").await;
    let mut agent = RawAgent::dial(&stage.gateway, &token, hello()).await;
    let welcome = agent.welcome().await;
    assert!(welcome.resume_secret.is_empty() && welcome.resume_grace.is_zero());
    stage.gateway.until_connected("one").await;
    let session = stage.gateway.registry.current(&"one".parse().unwrap()).expect("attached");
    let mut user = stage.asking("one", 4000).await;
    agent.opened().await;
    // Nor can anybody resume it, with whatever.
    let hello = asking(session.id, &welcome.resume_secret, agent.received);
    let (status, _) = RawAgent::dial(&stage.gateway, &token, hello).await.refusal().await;
    assert_eq!(status, PERMISSION_DENIED);
    assert!(!session.tunnel.is_ended());
    drop(agent);
    let answer = user.message().await.expect("an answer");
    assert_eq!((answer.status(), answer.header("gateway-error")), (502, Some("session_lost")));
    until("the session is gone", || stage.gateway.registry.of(&session.subject).is_none()).await;
    stage.finish().await;
}

#[tokio::test]
async fn resume_is_not_heard_of_an_agent_or_a_gateway_that_does_not_do_it() {
    // The agent names a session without offering the feature.
    let owned = Owned::new(|_| {}).await;
    let mut agent = owned.dial(Hello { features: Vec::new(), ..owned.asking() }).await;
    let welcome = agent.welcome().await;
    assert!(welcome.resumed.is_none() && welcome.session > owned.session.id);
    owned.assert_lost("without the feature").await;

    // The gateway has no grace.
    let stage = Stage::new(|config| config.tunnel.resume_grace = Duration::ZERO).await;
    let token = stage.gateway.agent_token("one").await;
    let mut agent = RawAgent::dial(&stage.gateway, &token, resumable()).await;
    let welcome = agent.welcome().await;
    assert!(welcome.resume_secret.is_empty() && welcome.resume_grace.is_zero());
    let secret = Bytes::from_static(b"x");
    let mut again = RawAgent::dial(&stage.gateway, &token, asking(welcome.session, &secret, 0)).await;
    assert!(again.welcome().await.resumed.is_none());
    drop((agent, again));
    until("the session is gone", || stage.gateway.registry.len() == 1).await;
    stage.finish().await;
}

#[tokio::test]
async fn session_that_is_displaced_while_it_waits_for_a_link_cannot_be_resumed() {
    let mut owned = Owned::new(|_| {}).await;
    owned.agent.finish();
    until("the link is missed", || owned.session.tunnel.is_detached()).await;
    let mut newer = owned.dial(Hello { instance: INSTANCE + 1, ..resumable() }).await;
    let newest = newer.welcome().await;
    assert!(newest.session > owned.session.id);
    let (status, _) = owned.dial(owned.asking()).await.refusal().await;
    assert_eq!(status, ABORTED);
    let current = owned.stage.gateway.registry.of(&owned.session.subject).expect("the newer one stays");
    assert_eq!((current.id, current.tunnel.stats().links), (newest.session, 1));
    owned.assert_lost("displaced").await;
}

#[tokio::test]
async fn bytes_that_are_kept_for_a_resume_can_be_watched() {
    let mut owned = Owned::new(|_| {}).await;
    let kept = owned.session.tunnel.stats().replay_bytes;
    assert!(kept > 0, "the request is not acknowledged yet");
    assert_eq!(metric(&owned.stage.gateway, "gateway_tunnel_replay_bytes").await, kept);
    let acknowledged = owned.agent.received;
    owned.agent.send_frame(Frame { sequence: 0, acknowledged, body: Body::Acknowledge }).await;
    until_metric(&owned.stage.gateway, "gateway_tunnel_replay_bytes", 0).await;
    owned.assert_undisturbed("watched", 1).await;
}

#[tokio::test]
async fn session_lives_and_dies_with_the_token_that_its_agent_showed_last() {
    let mut it = Owned::new(|_| {}).await;
    let store = it.stage.gateway.store.clone();
    let of_app = || async {
        let tokens = store.list_tokens().await.unwrap();
        // Oldest first.
        tokens
            .iter()
            .filter(
                |token| matches!(&token.subject, TokenSubject::Agent { workspace, .. } if workspace.as_str() == "one"),
            )
            .map(|token| token.id)
            .collect::<Vec<_>>()
    };
    // It began with a token that has no end, and goes on with one that has.
    let first = of_app().await[0];
    let terms = Terms { note: None, expires_at: Some(wall_clock().later(Duration::from_secs(30 * 24 * 60 * 60))) };
    let (name, owner) = ("one".parse().unwrap(), "dev".parse().unwrap());
    let made = store.create_agent_token_with(&name, &owner, &terms, wall_clock()).await.unwrap();
    it.token = made.token.reveal().to_owned();
    it.resume().await;
    assert_eq!(it.session.token(), Some(made.id));
    assert!(store.revoke_token(first, wall_clock()).await.unwrap());
    assert!(store.revoke_token(made.id, wall_clock()).await.unwrap());
    until("the session has ended", || it.session.tunnel.is_ended()).await;
    assert!(it.stage.gateway.registry.current(&name).is_none_or(|now| now.id != it.session.id));
}
