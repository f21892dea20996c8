//! Agents that move to another replica, because theirs drains or has more than its share: they have a session there first, and
//! what users have open stays open.

use e2e::fleet::Fleet;
use e2e::until;
use gateway_agents::registry::SessionWay;
use tunnel_link::drain::DrainResult;
use workspace_agent::Transport;

use crate::raw_agent::Stage;
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
    assert!(flaky.session.ask_to_move(std::time::Duration::from_secs(30), std::time::Duration::ZERO));
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
