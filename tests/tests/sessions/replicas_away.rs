//! Several replicas whose store is away: agents move between them, users find them, and what was done meanwhile is put right
//! when the store is back.

use std::time::Duration;

use bytes::Bytes;
use e2e::fleet::Fleet;
use e2e::raw::RawApp;
use e2e::relay::Relay;
use e2e::scripted::hello;
use e2e::{PATIENCE, TestGateway, until};
use gateway_agents::registry::SessionWay;
use gateway_store::{
    Incarnation, ProvedAgent, ReplicaState, SealedAdmission, SealedGeneration, Store, TokenSubject, wall_clock,
};
use gateway_types::UnixSeconds;
use gateway_types::token::Token;
use tokio::time::Instant;
use tunnel_proto::frame::Body;
use tunnel_proto::hello::{Hello, Welcome};
use tunnel_proto::mux::SessionError;
use tunnel_proto::reason::Reason;
use tunnel_proto::version::{FEATURE_RELAY_LANES, FEATURE_RESUME, FEATURE_SEALS};
use workspace_agent::Transport;

use crate::raw_agent::{RawAgent, Stage};

const UNAVAILABLE: u16 = 14;

/// Takes the store away from a replica, or gives it back.
fn hold(replicas: &[&TestGateway], is_held: bool) {
    for replica in replicas {
        replica.store.availability().hold(is_held, Instant::now());
    }
}

async fn until_back(replica: &TestGateway) {
    until("the store is back", || replica.store.availability().outage().is_none()).await;
}

/// Ends the lease of a replica, as time would.
async fn lapse(store: &Store, replica: Incarnation) {
    store.renew_replica(replica, ReplicaState::Serving, Duration::ZERO).await.unwrap();
}

/// Returns the youngest replica.
async fn last_of(store: &Store) -> Incarnation {
    store.replicas().await.unwrap().last().expect("a replica").incarnation
}

/// Asks until there is an answer with that status.
async fn until_answered(stage: &Stage, workspace: &str, port: u16, status: u16) {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = stage.asking(workspace, port).await.message().await.expect("an answer");
        if answer.status() == status {
            return;
        }
        assert!(Instant::now() < until, "{workspace}: {answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The agent `two` of bytes, whose replica gave it a seal, and a replica that never saw it.
struct Sealed {
    stage: Stage,
    dialed: TestGateway,
    spare: TestGateway,
    token: String,
    hello: Hello,
    agent: RawAgent,
    generation: u64,
    _fleet: Fleet,
}

impl Sealed {
    async fn new(features: &[&str]) -> Self {
        let fleet = Fleet::default();
        let stage = Stage::new(|config| fleet.join(config)).await;
        let (dialed, spare) = (fleet.replica().await, fleet.replica().await);
        let token = stage.gateway.agent_token("two").await;
        let features = features.iter().map(|name| (*name).to_owned()).collect();
        let first = Hello { features, instance: 7, ..hello() };
        let mut agent = RawAgent::dial(&dialed, &token, first.clone()).await;
        let Welcome { seal, generation, .. } = agent.welcome().await;
        let hello = Hello { seal, ..first };
        Self { stage, dialed, spare, token, hello, agent, generation: generation.get(), _fleet: fleet }
    }

    async fn refusal(&self, token: &str, hello: Hello) -> (u16, String) {
        RawAgent::dial(&self.spare, token, hello).await.refusal().await
    }
}

const FEATURES: &[&str] = &[FEATURE_RESUME, FEATURE_RELAY_LANES, FEATURE_SEALS];

fn hash(token: &str) -> [u8; 32] {
    Token::parse(token).expect("a token").hash()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_whose_replica_dies_is_found_at_one_that_never_saw_it() {
    for transport in [Transport::Http2, Transport::Websocket] {
        let fleet = Fleet::default();
        let stage = Stage::new(|config| fleet.join(config)).await;
        let (dialed, spare) = (fleet.replica().await, fleet.replica().await);
        let (app, relay) = (RawApp::mirror().await, Relay::start(dialed.addresses.agents).await);
        let token = stage.gateway.agent_token("three").await;
        // The user is known here, and the workspace.
        until_answered(&stage, "three", app.port, 503).await;
        let _agent = stage.gateway.start_eager_agent(relay.address, transport, &token, Vec::new());
        dialed.until_connected("three").await;
        let name = "three".parse().unwrap();
        let before = dialed.registry.current(&name).expect("its session").generation();
        // Each replica has read by now which others there are.
        tokio::time::sleep(Duration::from_secs(4)).await;
        hold(&[&stage.gateway, &dialed, &spare], true);
        until_answered(&stage, "three", app.port, 200).await;
        relay.lead_to(spare.addresses.agents);
        drop(dialed);
        spare.until_connected("three").await;
        let session = spare.registry.current(&name).expect("its session");
        assert_eq!((session.way(), session.generation().get()), (SessionWay::Direct, before.get() + 1));
        until_answered(&stage, "three", app.port, 200).await;
        hold(&[&stage.gateway, &spare], false);
        until("its place is claimed", || session.generation().get() > before.get() + 1).await;
        let owner = spare.store.workspace_session(&name).await.unwrap().expect("an owner");
        assert_eq!((owner.generation, owner.instance), (session.generation().get(), session.instance));
        assert!(!session.tunnel.is_ended());
        until_answered(&stage, "three", app.port, 200).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seal_counts_for_its_token_and_process_while_the_store_is_away_and_it_is_not_too_old() {
    let sealed = Sealed::new(FEATURES).await;
    let three = sealed.stage.gateway.agent_token("three").await;
    let store = &sealed.dialed.store;
    let record = store.token_by_hash(&hash(&sealed.token)).await.unwrap().expect("a token");
    let TokenSubject::Agent { workspace_id: workspace, workspace: name } = record.subject else { panic!("an agent's") };
    hold(&[&sealed.spare], true);
    let with = |seal: Bytes| Hello { seal, ..sealed.hello.clone() };
    let other = Hello { instance: 8, ..sealed.hello.clone() };
    for (what, token, hello) in [
        ("without a seal", &sealed.token, with(Bytes::new())),
        ("another token", &three, sealed.hello.clone()),
        ("another process", &sealed.token, other),
    ] {
        let refused = sealed.refusal(token, hello).await;
        assert_eq!(refused.0, UNAVAILABLE, "{what}: {refused:?}");
    }
    let made_at = |seconds: i64| {
        let (name, owner, token) = (name.clone(), "dev".parse().unwrap(), record.id);
        let of = SealedAdmission { workspace, name, owner, token, expires_at: None };
        let at = UnixSeconds::new(wall_clock().get() + seconds);
        let proved = ProvedAgent { token_hash: &hash(&sealed.token), instance: 7 };
        with(store.seal_admission(&of, proved, SealedGeneration { generation: 40, at }).into())
    };
    for (what, seconds) in [("too old", -11 * 60), ("of the future", 120)] {
        let refused = sealed.refusal(&sealed.token, made_at(seconds)).await;
        assert_eq!(refused.0, UNAVAILABLE, "{what}: {refused:?}");
    }
    let welcome = RawAgent::dial(&sealed.spare, &sealed.token, made_at(-9 * 60)).await.welcome().await;
    assert_eq!((welcome.generation.get(), welcome.workspace.as_str()), (41, "two"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revocation_counts_in_an_outage_if_it_was_read_before_and_else_when_the_store_is_back() {
    let sealed = Sealed::new(FEATURES).await;
    hold(&[&sealed.spare], true);
    RawAgent::dial(&sealed.spare, &sealed.token, sealed.hello.clone()).await.welcome().await;
    let name = "two".parse().unwrap();
    let session = sealed.spare.registry.current(&name).expect("its session");
    let token = session.token().expect("a token");
    assert!(sealed.dialed.store.revoke_token(token, wall_clock()).await.unwrap());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!session.tunnel.is_ended(), "the store is away");
    // Read in the meantime by a replica that has lost the store since.
    hold(&[&sealed.stage.gateway], true);
    let refused = RawAgent::dial(&sealed.stage.gateway, &sealed.token, sealed.hello.clone()).await.refusal().await;
    assert_eq!(refused.0, UNAVAILABLE, "{refused:?}");
    let began = Instant::now();
    hold(&[&sealed.spare], false);
    until("the session ends", || session.tunnel.is_ended()).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let ended = session.tunnel.end();
    assert!(matches!(&ended, Some(SessionError::Closed { reason: Reason::Revoked, .. })), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_gets_a_newer_seal_when_its_place_is_claimed_if_it_takes_one() {
    for (features, takes) in [(FEATURES, true), (&FEATURES[..2], false)] {
        let sealed = Sealed::new(features).await;
        hold(&[&sealed.spare], true);
        let mut agent = RawAgent::dial(&sealed.spare, &sealed.token, sealed.hello.clone()).await;
        assert_eq!(agent.welcome().await.generation.get(), sealed.generation + 1);
        let session = sealed.spare.registry.current(&"two".parse().unwrap()).expect("its session");
        hold(&[&sealed.spare], false);
        until("its place is claimed", || session.generation().get() == sealed.generation + 2).await;
        if takes {
            let Some(Body::Seal(seal)) = agent.heard().await else { panic!("no seal") };
            let proved = ProvedAgent { token_hash: &hash(&sealed.token), instance: 7 };
            let (_, newer) = sealed.dialed.store.sealed_admission(proved, &seal).expect("it is good");
            assert_eq!(newer.generation, sealed.generation + 2);
        } else {
            let heard = tokio::time::timeout(Duration::from_secs(1), agent.heard()).await;
            assert!(heard.is_err(), "{heard:?}");
        }
        let _former = sealed.agent;
    }
}

/// Of two processes with one token, each let in while its replica had lost the store, the one with the newer seal stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_with_the_older_seal_is_displaced_when_the_store_is_back() {
    let sealed = Sealed::new(FEATURES).await;
    // The process 8 takes over, and so has the newer seal.
    let newer = Hello { instance: 8, seal: Bytes::new(), ..sealed.hello.clone() };
    let seal = RawAgent::dial(&sealed.dialed, &sealed.token, newer.clone()).await.welcome().await.seal;
    let newer = Hello { seal, ..newer };
    for is_first_back in [true, false] {
        hold(&[&sealed.spare, &sealed.stage.gateway], true);
        let old = RawAgent::dial(&sealed.spare, &sealed.token, sealed.hello.clone()).await;
        let new = RawAgent::dial(&sealed.stage.gateway, &sealed.token, newer.clone()).await;
        let mut agents = [old, new];
        for agent in &mut agents {
            agent.welcome().await;
        }
        let name = "two".parse().unwrap();
        let [old, new] =
            [&sealed.spare, &sealed.stage.gateway].map(|at| at.registry.current(&name).expect("its session"));
        let order = [&sealed.spare, &sealed.stage.gateway];
        let [first, second] = if is_first_back { order } else { [order[1], order[0]] };
        hold(&[first], false);
        until_back(first).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        hold(&[second], false);
        until("the older one is over", || old.tunnel.is_ended()).await;
        let ended = old.tunnel.end();
        assert!(matches!(&ended, Some(SessionError::Closed { reason: Reason::Displaced, .. })), "{ended:?}");
        until_back(second).await;
        assert!(!new.tunnel.is_ended());
        let owner = sealed.dialed.store.workspace_session(&name).await.unwrap().expect("an owner");
        assert_eq!(owner.instance, 8);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_that_is_longer_than_a_lease_ends_no_replica_and_no_session_but_those_that_others_took_over() {
    let Sealed { stage, dialed, spare, token, hello, mut agent, .. } = Sealed::new(FEATURES).await;
    let three = stage.gateway.agent_token("three").await;
    let mut other = RawAgent::dial(&spare, &three, Hello { instance: 9, ..hello.clone() }).await;
    other.welcome().await;
    let mut two = RawAgent::dial(&spare, &token, hello.clone()).await;
    two.welcome().await;
    assert!(matches!(agent.heard().await, Some(Body::Close { .. })), "it moved");
    let (held, replica) = (spare.registry.all(), last_of(&stage.gateway.store).await);
    assert_eq!(held.len(), 2);
    hold(&[&spare], true);
    lapse(&stage.gateway.store, replica).await;
    // Another process of the agent comes to a replica that has the store.
    RawAgent::dial(&dialed, &token, Hello { instance: 8, seal: Bytes::new(), ..hello }).await.welcome().await;
    assert!(held.iter().all(|session| !session.tunnel.is_ended()));
    hold(&[&spare], false);
    let is_two = |name: &str| name == "two";
    until("the session that another replica has is over", || {
        held.iter().any(|session| is_two(session.subject.name()) && session.tunnel.is_ended())
    })
    .await;
    assert!(held.iter().all(|session| is_two(session.subject.name()) || !session.tunnel.is_ended()));
    let living = stage.gateway.store.replicas().await.unwrap();
    assert!(living.iter().any(|one| one.incarnation == replica), "it goes on");
    let owner = stage.gateway.store.workspace_session(&"three".parse().unwrap()).await.unwrap().expect("an owner");
    assert_eq!((owner.incarnation, owner.generation, owner.is_live), (replica, 1, true), "nothing was written for it");
    assert!(matches!(two.heard().await, Some(Body::Close { reason: Reason::Displaced, .. })));
}

/// A replica alone has lost the store for longer than its lease: its agents are not absent for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_is_found_at_a_replica_whose_lease_is_over() {
    let fleet = Fleet::default();
    let stage = Stage::new(|config| fleet.join(config)).await;
    let (dialed, app) = (fleet.replica().await, RawApp::mirror().await);
    let replica = last_of(&stage.gateway.store).await;
    let token = stage.gateway.agent_token("three").await;
    let _agent = stage.gateway.start_eager_agent(dialed.addresses.agents, Transport::Http2, &token, Vec::new());
    dialed.until_connected("three").await;
    hold(&[&dialed], true);
    lapse(&stage.gateway.store, replica).await;
    assert_eq!(stage.gateway.store.replicas().await.unwrap().len(), 1);
    until_answered(&stage, "three", app.port, 200).await;
}
