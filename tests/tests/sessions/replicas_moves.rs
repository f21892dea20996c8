//! Agents that move to another replica, because theirs drains or has more than its share: they have a session there first, and
//! what users have open stays open.

use std::time::Duration;

use e2e::fleet::Fleet;
use e2e::scripted::hello;
use e2e::{PATIENCE, until};
use gateway_agents::registry::SessionWay;
use gateway_config::{Config, Directory};
use gateway_store::{DrainRequest, ReplicaState, SessionClaim, SessionKey};
use tokio::net::TcpListener;
use tunnel_link::drain::DrainResult;
use tunnel_proto::frame::Body;
use tunnel_proto::hello::Hello;
use tunnel_proto::version::{FEATURE_RELAY_LANES, FEATURE_RESUME};
use workspace_agent::Transport;

use crate::raw_agent::{RawAgent, Stage};
use crate::resume::Flaky;
use crate::streams::Streams;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_of_a_draining_replica_is_never_absent_and_streams_of_others_go_on() {
    let fleet = Fleet::default();
    let stage = Stage::new(|config| fleet.join(config)).await;
    let (dialed, spare) = (fleet.replica().await, fleet.replica().await);
    let flaky = Flaky::dialing(stage, dialed.addresses.agents, Transport::default()).await;
    let mut streams = Streams::open(&flaky, 3).await;
    streams.say().await;
    streams.hear().await;
    streams.say().await;
    // As a balancer does that sees it not ready.
    flaky.relay.lead_to(spare.addresses.agents);
    let mut stopped = tokio::task::JoinSet::new();
    stopped.spawn(dialed.stop());
    let mut asked = 0;
    let drained = loop {
        if let Some(drained) = stopped.try_join_next() {
            break drained.expect("it did not panic");
        }
        let answer = flaky.ask(&flaky.apps.mirror, "GET /", "").await.message().await.expect("an answer");
        assert_eq!(answer.status(), 200, "request {asked}: {answer:?}");
        asked += 1;
    };
    assert_eq!(drained, DrainResult::Clean);
    assert!(asked > 0, "requests came during the drain");
    let own = spare.registry.current(&"one".parse().unwrap()).expect("the agent's session");
    assert_eq!(own.way(), SessionWay::Direct);
    streams.hear().await;
    streams.say().await;
    streams.hear().await;
    streams.close().await;
    flaky.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_at_the_replica_that_drains_go_on_until_they_end() {
    let fleet = Fleet::default();
    let stage = Stage::new(|config| fleet.join(config)).await;
    let (spare, own) = (fleet.replica().await, stage.gateway.addresses.agents);
    let flaky = Flaky::dialing(stage, own, Transport::default()).await;
    assert_eq!(flaky.session.way(), SessionWay::Direct);
    let mut streams = Streams::open(&flaky, 4).await;
    streams.say().await;
    streams.hear().await;
    flaky.relay.lead_to(spare.addresses.agents);
    flaky.stage.gateway.begin_stop();
    let name = "one".parse().unwrap();
    until("the agent is at the other replica", || {
        spare.registry.current(&name).is_some_and(|session| session.way() == SessionWay::Direct)
    })
    .await;
    until("its session here is a relay lane", || flaky.session.way() == SessionWay::Relay).await;
    streams.say().await;
    streams.hear().await;
    // Its link breaks, and is dialed at the other replica, which carries it.
    streams.say().await;
    flaky.break_link(e2e::relay::Cut::Reset).await;
    streams.hear().await;
    streams.say().await;
    streams.hear().await;
    streams.close().await;
    until("the session that nothing uses ends with the drain", || flaky.session.tunnel.is_ended()).await;
    assert!(spare.registry.current(&name).is_some_and(|session| !session.tunnel.is_ended()), "the other goes on");
}

/// A balancer may lead the agent to the same replica again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_that_is_asked_to_move_and_comes_back_here_keeps_its_streams() {
    let fleet = Fleet::default();
    let stage = Stage::new(|config| fleet.join(config)).await;
    let (_spare, own) = (fleet.replica().await, stage.gateway.addresses.agents);
    let flaky = Flaky::dialing(stage, own, Transport::default()).await;
    let mut streams = Streams::open(&flaky, 2).await;
    streams.say().await;
    assert!(flaky.session.ask_to_move(Duration::from_secs(30), Duration::ZERO));
    let (registry, name) = (&flaky.stage.gateway.registry, "one".parse().unwrap());
    until("it has a newer session here", || {
        registry.current(&name).is_some_and(|session| session.generation() > flaky.session.generation())
    })
    .await;
    assert_eq!(flaky.session.way(), SessionWay::Relay);
    streams.hear().await;
    streams.say().await;
    streams.hear().await;
    streams.close().await;
    let answer = flaky.ask(&flaky.apps.mirror, "GET /", "").await.message().await.expect("an answer");
    assert_eq!(answer.status(), 200, "{answer:?}");
}

/// The row that a request has read names a replica from which the agent has gone by the time that this one is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_that_moves_while_it_is_looked_for_is_found_where_it_is_now() {
    let fleet = Fleet::default();
    let stage = Stage::new(|config| fleet.join(config)).await;
    let spare = fleet.replica().await;
    let token = stage.gateway.agent_token("two").await;
    let former = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let store = &stage.gateway.store;
    let (_, workspace) = store.workspace_ids(&[&"two".parse().unwrap()]).await.unwrap().remove(0);
    let claim = SessionClaim { key: SessionKey::Workspace(workspace), instance: 7, known: None, is_late: false };
    let replica = fleet.add_replica(store, former.local_addr().unwrap()).await;
    store.claim_sessions(replica, &[claim]).await.unwrap().expect("its lease lives");
    let asking = stage.asking("two", stage.app.port).await;
    let (asked, _) = former.accept().await.unwrap();
    let features = [FEATURE_RESUME, FEATURE_RELAY_LANES].map(str::to_owned).into();
    let mut agent = RawAgent::dial(&spare, &token, Hello { features, instance: 7, ..hello() }).await;
    agent.welcome().await;
    drop(asked);
    while !matches!(agent.next().await.expect("a frame").body, Body::OpenLane(_)) {}
    drop(asking);
}

/// Balancers find out that a replica is not ready some time after it is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_that_is_to_end_serves_on_until_balancers_know() {
    let fleet = Fleet::default();
    let delayed = |config: &mut Config| {
        fleet.join(config);
        if let Directory::Store(peers) = &mut config.directory {
            peers.shutdown_delay = Duration::from_hours(1);
        }
    };
    let stage = Stage::new(delayed).await;
    let _spare = fleet.replica().await;
    let store = stage.gateway.store.clone();
    let own = store.replicas().await.unwrap().remove(0).incarnation;
    stage.gateway.begin_drain().await;
    let announced = async {
        while store.replicas().await.unwrap()[0].state != ReplicaState::Draining {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, announced).await.expect("the others know");
    stage.assert_serves("bystander").await;
    let newcomer = stage.gateway.agent("newcomer").await;
    stage.assert_serves("newcomer").await;
    assert!(store.ask_to_drain(own.get(), DrainRequest::Now).await.unwrap());
    // The operator waits for nothing.
    stage.gateway.stop().await;
    newcomer.kill();
}
