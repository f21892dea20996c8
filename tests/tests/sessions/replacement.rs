//! One gateway takes another's place on the same host: what users have open goes on, and nothing is refused.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use e2e::fleet::free_address;
use e2e::relay::Cut;
use e2e::{TestGateway, until};
use gateway::app::{Inheritance, ReplaceError};
use gateway_agents::registry::SessionWay;
use gateway_config::{Config, Directory, HostConfig, StoreUrl};
use gateway_net::handover::NoHandover;
use gateway_net::host_sockets::HostSockets;
use gateway_store::wall_clock;
use tempfile::TempDir;
use tunnel_link::drain::DrainResult;
use workspace_agent::Transport;

use crate::raw_agent::Stage;
use crate::resume::Flaky;
use crate::streams::Streams;

/// The gateways of one host: their database, and the addresses that one hands to the next.
struct Host {
    folder: TempDir,
    public: SocketAddr,
    agents: SocketAddr,
}

impl Host {
    fn new() -> Self {
        // Unix sockets have short paths.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| TempDir::new()).expect("a folder");
        Self { folder, public: free_address(), agents: free_address() }
    }

    fn configure(&self, config: &mut Config) {
        config.listen.public = self.public;
        config.listen.agents = self.agents;
        config.public_url = config.public_url.with_port(self.public.port());
        self.share(config, Duration::from_secs(60));
    }

    fn share(&self, config: &mut Config, drain_max: Duration) {
        let path: &Path = self.folder.path();
        config.store.url = StoreUrl::SqliteFile(path.join("gateway.db"));
        config.directory = Directory::Host(HostConfig { sockets: path.join("gateway.db.replicas"), drain_max });
    }

    async fn flaky(&self) -> Flaky {
        let stage = Stage::new(|config| self.configure(config)).await;
        let flaky = Flaky::dialing(stage, self.agents, Transport::default()).await;
        assert_eq!(flaky.session.way(), SessionWay::Direct);
        flaky
    }

    async fn next(&self) -> TestGateway {
        loop {
            match TestGateway::replacing(|config| self.configure(config)).await {
                Ok(next) => return next,
                // It has not noticed yet that the one before is gone.
                Err(error) if error.to_string().contains("another process") => {}
                Err(error) => panic!("it hands over: {error}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_go_on_while_their_gateway_is_replaced_twice() {
    let (host, name) = (Host::new(), "one".parse().unwrap());
    let flaky = host.flaky().await;
    let mut streams = Streams::open(&flaky, 6).await;
    streams.say().await;
    streams.hear().await;
    streams.say().await;
    let mut before: Option<TestGateway> = None;
    for round in 0..2 {
        let next = host.next().await;
        let mut asked = 0;
        while !next.registry.current(&name).is_some_and(|session| session.way() == SessionWay::Direct) {
            let answer = flaky.ask(&flaky.apps.mirror, "GET /", "").await.message().await.expect("an answer");
            assert_eq!(answer.status(), 200, "request {asked} of round {round}: {answer:?}");
            asked += 1;
        }
        until("the streams' session is a relay lane", || flaky.session.way() == SessionWay::Relay).await;
        streams.hear().await;
        streams.say().await;
        // Their link breaks, and is dialed at the new gateway, which carries it to the one where they end.
        flaky.break_link(Cut::Reset).await;
        streams.hear().await;
        streams.say().await;
        if let Some(mut before) = before.replace(next) {
            until("what has nothing open ends", || before.has_ended()).await;
        }
    }
    streams.hear().await;
    streams.close().await;
    let mut first = flaky.stage.gateway;
    until("the first gateway ends once nothing is open there", || first.has_ended()).await;
    let answer = before.expect("the last").stop().await;
    assert_eq!(answer, DrainResult::Clean);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_whose_successor_does_not_come_to_serve_goes_on() {
    let host = Host::new();
    let flaky = host.flaky().await;
    let mut streams = Streams::open(&flaky, 3).await;
    for _ in 0..2 {
        let mut config = Config::default();
        host.configure(&mut config);
        drop(Inheritance::of_running(&config).await.expect("it hands over").expect("it runs"));
        streams.say().await;
        streams.hear().await;
        let answer = flaky.ask(&flaky.apps.mirror, "GET /", "").await.message().await.expect("an answer");
        assert_eq!(answer.status(), 200);
    }
    assert_eq!(flaky.session.way(), SessionWay::Direct);
    // The lock and the sockets are still its own, to hand over to one that serves.
    let next = host.next().await;
    until("the new gateway has the agent", || {
        next.registry.current(&"one".parse().unwrap()).is_some_and(|session| session.way() == SessionWay::Direct)
    })
    .await;
    streams.say().await;
    streams.hear().await;
    streams.close().await;
    assert_eq!(next.stop().await, DrainResult::Clean);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_of_a_host_live_at_most_and_one_asks_at_a_time() {
    let host = Host::new();
    let flaky = host.flaky().await;
    let streams = Streams::open(&flaky, 1).await;
    let mut config = Config::default();
    host.configure(&mut config);
    {
        let _first = Inheritance::of_running(&config).await.expect("it hands over").expect("it runs");
        let refused = Inheritance::of_running(&config).await.expect_err("one at a time").to_string();
        assert!(refused.contains("another process is about to take its place"), "{refused}");
    }
    // What they replaced still lives: one has streams, and the other one stands still, for all that is known.
    let next = host.next().await;
    let folder = host.folder.path().join("gateway.db.replicas");
    let third = HostSockets::open(&folder).expect("a folder").bind_own().expect("bound");
    let refused = loop {
        match Inheritance::of_running(&config).await {
            // The first one was asked: it has not learned yet that the next one serves.
            Err(ReplaceError::Handover(NoHandover::Io(_))) => {}
            Err(error) if error.to_string().contains("another process") => {}
            Err(error) => break error.to_string(),
            Ok(found) => panic!("three live: {found:?}"),
        }
    };
    assert!(refused.contains("gateway replicas drain --now"), "{refused}");
    drop(third);
    drop(Inheritance::of_running(&config).await.expect("two live").expect("it runs"));
    let mut first = flaky.stage.gateway;
    drop(streams);
    until("the first one ends", || first.has_ended()).await;
    assert_eq!(next.stop().await, DrainResult::Clean);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_open_at_a_replaced_gateway_is_cut_after_its_time() {
    let host = Host::new();
    let brief = |config: &mut Config| {
        host.configure(config);
        host.share(config, Duration::from_secs(1));
    };
    let stage = Stage::new(brief).await;
    let flaky = Flaky::dialing(stage, host.agents, Transport::default()).await;
    let _streams = Streams::open(&flaky, 1).await;
    let next = TestGateway::replacing(brief).await.expect("it hands over");
    let mut first = flaky.stage.gateway;
    until("it is over", || first.has_ended()).await;
    assert_eq!(next.stop().await, DrainResult::Clean);
}

#[tokio::test]
async fn place_of_a_gateway_that_shares_nothing_cannot_be_taken() {
    let refused = Inheritance::of_running(&Config::default()).await.expect_err("it has no directory");
    assert!(matches!(refused, ReplaceError::Directory) && refused.to_string().contains("directory = \"host\""));
    let (host, mut config) = (Host::new(), Config::default());
    host.configure(&mut config);
    assert!(Inheritance::of_running(&config).await.expect("none runs").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_that_ends_at_the_new_gateway_ends_what_is_open_at_the_old_one() {
    let host = Host::new();
    let flaky = host.flaky().await;
    let mut open = flaky.ask(&flaky.apps.events, "GET /", "").await;
    assert_eq!(open.head().await.expect("a head").status(), 200);
    let next = host.next().await;
    until("the agent is at the new one", || flaky.session.way() == SessionWay::Relay).await;
    let token = flaky.session.token().expect("a token");
    assert!(next.store.revoke_token(token, wall_clock()).await.expect("the store"));
    until("the agent's session at the old one is over", || flaky.session.tunnel.is_ended()).await;
    let mut first = flaky.stage.gateway;
    until("nothing is open at the old one", || first.has_ended()).await;
    assert_eq!(next.stop().await, DrainResult::Clean);
}
