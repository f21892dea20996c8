//! Hop lanes: the agent's replica opens channels for users of another one, because the agent adds no relay lane, or no more.

use std::time::Duration;

use e2e::fleet::Fleet;
use e2e::raw::{Raw, RawApp};
use e2e::{PATIENCE, TestGateway, until};
use gateway_agents::registry::SessionWay;
use gateway_config::Config;
use gateway_store::wall_clock;
use gateway_types::Port;
use tunnel_proto::mux::SessionError;
use tunnel_proto::reason::Reason;
use tunnel_proto::version::FEATURE_RELAY_LANES;
use workspace_agent::Transport;

use crate::raw_agent::Stage;
use crate::resume::Flaky;
use crate::streams::Streams;

/// Two replicas: users ask the first, an agent that does not know relay lanes has dialed the second.
struct Hopped {
    flaky: Flaky,
    dialed: TestGateway,
    fleet: Fleet,
}

impl Hopped {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl Fn(&mut Config)) -> Self {
        let fleet = Fleet::default();
        let join = |config: &mut Config| {
            change(config);
            fleet.join(config);
        };
        let stage = Stage::new(join).await;
        let dialed = TestGateway::start_with(join).await;
        let (address, without) = (dialed.addresses.agents, &[FEATURE_RELAY_LANES]);
        let flaky = Flaky::of_older_agent(stage, address, Transport::default(), without).await;
        assert!(flaky.session.is_hop());
        Self { flaky, dialed, fleet }
    }

    fn current(&self) -> std::sync::Arc<gateway_agents::registry::LiveSession> {
        self.dialed.registry.current(&"one".parse().unwrap()).expect("its agent is here")
    }
}

/// Asks any replica for the workspace `one`.
async fn ask(replica: &TestGateway, port: u16) -> u16 {
    let mut raw = Raw::connect(replica.addresses.public).await;
    let (host, token) = (replica.authority("one", port), &replica.user_token);
    raw.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {token}\r\n\r\n")).await;
    raw.message().await.expect("an answer").status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_every_kind_reach_an_agent_without_relay_lanes() {
    let hopped = Hopped::new().await;
    let flaky = &hopped.flaky;
    let mut streams = Streams::open(flaky, 3).await;
    for _ in 0..3 {
        streams.say().await;
        streams.hear().await;
    }
    assert!(hopped.current().in_flight() > 0, "a drain of its replica waits for them");
    streams.close().await;
    // What the agent said about its ports holds here too, and it is asked which of them listen.
    let ports = flaky.apps.ports();
    assert_eq!(flaky.session.ports(), ports);
    assert_eq!(flaky.session.default_port(), Port::new(ports[0].number));
    assert!(!flaky.session.exposes(Port::new(1).unwrap()));
    let listening = flaky.session.listening().await.expect("it reports them");
    assert!(listening.contains(&Port::new(flaky.apps.mirror.port).unwrap()), "{listening:?}");
    let Hopped { flaky, dialed, .. } = hopped;
    assert_eq!(dialed.registry.relays().len(), 0);
    flaky.finish().await;
}

/// What is on its way is lost, and said to be; the next request finds the agent where it went.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_that_dies_under_a_hop_lane_ends_its_streams_and_the_next_request_finds_the_agent() {
    let Hopped { flaky, dialed, fleet } = Hopped::new().await;
    let spare = fleet.replica().await;
    let mut upgrade = flaky.ask(&flaky.apps.upgrade, "GET /", "connection: upgrade\r\nupgrade: echo\r\n").await;
    assert_eq!(upgrade.head().await.expect("a head").status(), 101);
    upgrade.send("said").await;
    assert_eq!(upgrade.exactly(4).await, b"said");
    let mut events = flaky.ask(&flaky.apps.events, "GET /", "").await;
    assert_eq!(events.head().await.expect("a head").status(), 200);
    flaky.relay.lead_to(spare.addresses.agents);
    drop(dialed);
    until("the lane is over", || flaky.session.tunnel.is_ended()).await;
    let rest = async {
        upgrade.read_rest().await;
        events.read_rest().await
    };
    tokio::time::timeout(PATIENCE, rest).await.expect("its streams end");
    let found = async {
        while ask(&flaky.stage.gateway, flaky.apps.mirror.port).await != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("it is found at the other replica");
    let lane = flaky.stage.gateway.registry.current(&"one".parse().unwrap()).expect("a lane");
    assert!(lane.is_hop() && lane.id != flaky.session.id);
    assert!(spare.registry.current(&"one".parse().unwrap()).is_some_and(|its| its.way() == SessionWay::Direct));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_that_starts_again_at_another_replica_is_found_there_by_a_new_hop_lane() {
    let hopped = Hopped::new().await;
    let spare = hopped.fleet.replica().await;
    let Hopped { flaky, .. } = &hopped;
    let token = flaky.stage.gateway.agent_token("one").await;
    let (address, without) = (spare.addresses.agents, &[FEATURE_RELAY_LANES]);
    let _newer = spare.start_older_agent(address, Transport::default(), &token, flaky.apps.ports(), without);
    spare.until_connected("one").await;
    until("the older lane is over", || flaky.session.tunnel.is_ended()).await;
    assert_eq!(ask(&flaky.stage.gateway, flaky.apps.mirror.port).await, 200);
    let lane = flaky.stage.gateway.registry.current(&"one".parse().unwrap()).expect("a lane");
    assert!(lane.is_hop() && lane.instance != flaky.session.instance);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_token_ends_a_hop_lane_for_that_reason() {
    let hopped = Hopped::new().await;
    let flaky = &hopped.flaky;
    assert_eq!(flaky.session.token(), None, "it is the other replica that checks");
    let token = hopped.current().token().expect("a token");
    assert!(hopped.dialed.store.revoke_token(token, wall_clock()).await.unwrap());
    until("the lane is over", || flaky.session.tunnel.is_ended()).await;
    let ended = flaky.session.tunnel.end();
    assert!(matches!(&ended, Some(SessionError::Closed { reason: Reason::Revoked, .. })), "{ended:?}");
}

/// Bytes of the download of [`download`].
const DOWNLOAD: usize = 32 * 1024 * 1024;

async fn download(mut raw: Raw) {
    raw.head().await;
    raw.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {DOWNLOAD}\r\n\r\n")).await;
    raw.try_send(vec![7; DOWNLOAD]).await.ok();
    raw.read_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_that_stands_still_stops_the_app_and_no_other_stream() {
    let hopped = Hopped::with(|config| config.tunnel.window_max = 512 * 1024).await;
    let app = RawApp::start(download).await;
    let flaky = &hopped.flaky;
    let token = flaky.stage.gateway.agent_token("big").await;
    let (address, without) = (hopped.dialed.addresses.agents, &[FEATURE_RELAY_LANES]);
    let stage = &flaky.stage;
    let _agent = stage.gateway.start_older_agent(address, Transport::default(), &token, Vec::new(), without);
    hopped.dialed.until_connected("big").await;
    let mut still = stage.asking("big", app.port).await;
    assert_eq!(still.head().await.expect("a head").status(), 200);
    let session = hopped.dialed.registry.current(&"big".parse().unwrap()).expect("its agent is here");
    let received = || session.stats().bytes_received;
    let mut before = 0;
    let stands = async {
        while received() == 0 || received() != before {
            before = received();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::time::timeout(PATIENCE, stands).await.expect("nothing comes any more");
    // Kernels' buffers at the user's end, and windows. The rest waits in the app.
    assert!(received() < 3 * DOWNLOAD as u64 / 4, "{} bytes", received());
    let other = stage.asking("big", flaky.apps.mirror.port).await.message().await.expect("an answer");
    assert_eq!(other.status(), 200, "another stream of the lane goes on");
    let body = still.exactly(DOWNLOAD).await;
    assert!(body.iter().all(|byte| *byte == 7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_beyond_the_bound_of_relay_lanes_gets_a_hop_lane() {
    let fleet = Fleet::default();
    let stage = Stage::new(|config| fleet.join(config)).await;
    let dialed = TestGateway::start_with(|config| {
        fleet.join(config);
        config.tunnel.relay_lanes_max = 1;
    })
    .await;
    let flaky = Flaky::dialing(stage, dialed.addresses.agents, Transport::default()).await;
    assert!(!flaky.session.is_hop(), "the first has the one lane that the agent adds");
    let other = fleet.replica().await;
    assert_eq!(ask(&other, flaky.apps.mirror.port).await, 200);
    assert!(other.registry.current(&"one".parse().unwrap()).expect("a lane").is_hop());
    assert!(!flaky.session.is_hop() && !flaky.session.tunnel.is_ended());
}
