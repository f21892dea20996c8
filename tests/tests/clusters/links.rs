//! Links that break, agents that do not read, and messages that are large.

use std::time::{Duration, Instant};

use e2e::cluster::{ClusterAgent, done};
use e2e::raw::Raw;
use e2e::relay::{Cut, Relay};
use e2e::{PATIENCE, until};
use gateway_types::{ActualState, DesiredState};
use tunnel_proto::reconcile::ToCluster;

use crate::support::{Stage, file};

const LARGE: usize = 200 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_goes_on_over_the_next_link_where_the_last_one_broke() {
    let stage = Stage::new().await;
    for number in 0..20 {
        stage.make_with("prod", &format!("w{number}"), &[file("blob", LARGE)]).await;
    }
    let relay = Relay::start(stage.gateway.addresses.agents).await;
    let mut agent = ClusterAgent::attach_at(&stage.gateway, relay.address, "prod", 1).await;
    let session = stage.gateway.cluster_session("prod").expect("a session");
    agent.begin().await;
    let mut named = Vec::new();
    loop {
        match agent.next().await {
            ToCluster::Intent(intent) => {
                assert!(intent.config.len() > LARGE);
                named.push(intent.workspace);
                if named.len() == 3 || named.len() == 11 {
                    relay.cut(Cut::Reset);
                    until("the link is missed", || agent.session.is_detached()).await;
                    agent.resume(relay.address).await;
                }
            }
            ToCluster::RoundEnd { workspaces, .. } => {
                assert_eq!(workspaces, 20);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    named.sort_unstable();
    named.dedup();
    assert_eq!(named.len(), 20, "each was named once");
    assert_eq!(session.tunnel.stats().links, 3);
    assert_eq!(stage.gateway.cluster_session("prod").map(|current| current.id), Some(session.id));
    stage.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_round_to_an_agent_that_does_not_read_holds_little_and_delays_nobody() {
    let stage = Stage::new().await;
    let made = stage.make("busy", "hot").await;
    for number in 0..30 {
        stage.make_with("prod", &format!("w{number}"), &[file("blob", LARGE)]).await;
    }
    let (mut busy, round) = ClusterAgent::begun(&stage.gateway, "busy").await;
    busy.report(done(&round[0])).await;
    let mut lazy = ClusterAgent::attach(&stage.gateway, "prod").await;
    lazy.begin().await;
    let session = stage.gateway.cluster_session("prod").expect("a session");
    // It reads nothing: what the gateway holds for it stays within the channel's credit and one message.
    until("the channel is full", || {
        session.tunnel.stats().queued_bytes > 0 || session.tunnel.stats().bytes_sent > 1 << 16
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let stats = session.tunnel.stats();
    assert!(stats.bytes_sent < 4 << 20, "{stats:?}");
    // Meanwhile another cluster's agent, and a user of the gateway, wait for nothing.
    let asked = Instant::now();
    for desired in [DesiredState::Stopped, DesiredState::Running] {
        stage.request(made.workspace.id, desired).await;
        let intent = busy.intent().await;
        busy.report(done(&intent)).await;
    }
    let mut raw = Raw::connect(stage.gateway.addresses.public).await;
    raw.send("GET / HTTP/1.1\r\nhost: 80-nobody.localhost\r\n\r\n").await;
    assert!(raw.message().await.is_some());
    // The other reads only after this.
    assert!(asked.elapsed() < PATIENCE, "{:?}", asked.elapsed());
    assert_eq!(stage.read(made.workspace.id).await.lifecycle.actual, ActualState::Running);
    // And when it reads again, it gets the rest.
    assert_eq!(lazy.round().await.len(), 30);
    stage.finish().await;
}

#[tokio::test]
async fn agent_that_comes_back_after_its_grace_is_told_everything_anew() {
    let stage = Stage::with(|config| config.tunnel.resume_grace = Duration::from_millis(300)).await;
    let made = stage.make("prod", "one").await;
    let relay = Relay::start(stage.gateway.addresses.agents).await;
    let mut first = ClusterAgent::attach_at(&stage.gateway, relay.address, "prod", 1).await;
    first.begin().await;
    assert_eq!(first.round().await.len(), 1);
    relay.down();
    relay.cut(Cut::Reset);
    stage.gateway.until_cluster_is_gone("prod").await;
    stage.request(made.workspace.id, DesiredState::Stopped).await;
    let (_second, round) = ClusterAgent::begun(&stage.gateway, "prod").await;
    assert_eq!((round[0].desired, round[0].generation), (DesiredState::Stopped, 2));
    stage.finish().await;
}
