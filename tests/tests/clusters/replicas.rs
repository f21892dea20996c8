//! Changes between replicas: users ask one, and the cluster's agent dialed another.

use std::time::{Duration, Instant};

use e2e::cluster::{ClusterAgent, done};
use e2e::fleet::{Fleet, free_address};
use e2e::raw::Raw;
use e2e::relay::{Cut, Relay};
use e2e::{PATIENCE, TestGateway};
use gateway_store::WorkspaceId;
use gateway_types::DesiredState;
use serde_json::Value;
use workspace_agent::Transport;

use crate::support::Stage;

/// Longest way of a change while replicas cannot reach each other.
const CUT_MAX: Duration = Duration::from_secs(3);

/// Two replicas: users ask the first, the agent of a cluster has dialed the second, and what goes between them can be broken.
struct Two {
    stage: Stage,
    dialed: TestGateway,
    agent: ClusterAgent,
    workspace: WorkspaceId,
    between: [Relay; 2],
    _fleet: Fleet,
}

impl Two {
    async fn new() -> Self {
        let (fleet, ports) = (Fleet::default(), [free_address(), free_address()]);
        let between = [Relay::start(ports[0]).await, Relay::start(ports[1]).await];
        let stage = Stage::with(|config| fleet.join_behind(config, ports[0], between[0].address)).await;
        let dialed = TestGateway::start_with(|config| fleet.join_behind(config, ports[1], between[1].address)).await;
        let made = stage.make("prod", "one").await;
        let mut agent = ClusterAgent::attach_at(&stage.gateway, dialed.addresses.agents, "prod", 1).await;
        agent.begin().await;
        let round = agent.round().await;
        agent.report(done(&round[0])).await;
        let mut two = Self { stage, dialed, agent, workspace: made.workspace.id, between, _fleet: fleet };
        two.meet().await;
        two
    }

    /// Waits until each replica has announced something to the other one. A replica knows one that came later from the
    /// next renewal of its lease on.
    async fn meet(&mut self) {
        let began = Instant::now();
        while received(&self.dialed).await == 0.0 || received(&self.stage.gateway).await == 0.0 {
            assert!(began.elapsed() < PATIENCE, "nothing is announced");
            self.turn().await;
        }
    }

    /// Cuts the ways between the replicas.
    fn part(&self, how: Cut) {
        for between in &self.between {
            between.down();
            between.cut(how);
        }
    }

    /// Asks the first replica for the other state, and has the agent report it to the second. Returns the times to the
    /// agent, and to an event stream of the first replica.
    async fn turn(&mut self) -> [Duration; 2] {
        let life = self.stage.read(self.workspace).await.lifecycle;
        let is_stop = life.desired == DesiredState::Running;
        let (desired, actual) =
            if is_stop { (DesiredState::Stopped, "Stopped") } else { (DesiredState::Running, "Running") };
        let mut stream = EventStream::open(&self.stage.gateway, "one").await;
        let asked = Instant::now();
        self.stage.request(self.workspace, desired).await;
        let intent = self.agent.intent().await;
        let to_agent = asked.elapsed();
        assert_eq!(intent.desired, desired);
        let reported = Instant::now();
        self.agent.report(done(&intent)).await;
        stream.until(&format!("\"actual\":\"{actual}\"")).await;
        [to_agent, reported.elapsed()]
    }
}

/// Gets JSON of the API, for the owner.
async fn read(gateway: &TestGateway, path: &str) -> Value {
    let mut raw = Raw::connect(gateway.addresses.public).await;
    // The port of the public URL in which replicas agree.
    let fields = format!("host: localhost:1\r\nauthorization: Bearer {}\r\n", gateway.user_token);
    raw.send(format!("GET /api/v1{path} HTTP/1.1\r\n{fields}\r\n")).await;
    serde_json::from_slice(&raw.message().await.expect("an answer").body).expect("JSON")
}

async fn counted(gateway: &TestGateway, way: &str) -> f64 {
    let name = format!("gateway_replica_changes_total{{way=\"{way}\"}}");
    gateway.metrics().await.get(&name).copied().unwrap_or_default()
}

async fn received(gateway: &TestGateway) -> f64 {
    counted(gateway, "received").await
}

/// An event stream of a workspace, for its owner.
struct EventStream(Raw);

impl EventStream {
    async fn open(gateway: &TestGateway, name: &str) -> Self {
        let mut raw = Raw::connect(gateway.addresses.public).await;
        let target = format!("/api/v1/workspaces/{name}/events");
        // The port of the public URL in which replicas agree.
        let fields = format!("host: localhost:1\r\nauthorization: Bearer {}\r\n", gateway.user_token);
        raw.send(format!("GET {target} HTTP/1.1\r\n{fields}\r\n")).await;
        assert_eq!(raw.head().await.expect("an answer").status(), 200);
        let mut stream = Self(raw);
        stream.until("event: state").await;
        stream
    }

    /// Reads to a line with a text.
    async fn until(&mut self, text: &str) {
        while !self.0.line().await.contains(text) {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intent_is_at_the_agent_of_another_replica_and_what_that_learns_at_an_event_stream_here() {
    let mut two = Two::new().await;
    let (here, there) = (received(&two.stage.gateway).await, received(&two.dialed).await);
    let mut times = Vec::new();
    for _ in 0..8 {
        times.push(two.turn().await);
    }
    assert!(received(&two.dialed).await >= there + 8.0, "intents were announced");
    assert!(received(&two.stage.gateway).await >= here + 8.0, "and reports");
    // Found in the store they would take half a second, and some of eight a whole one.
    for way in 0..2 {
        let mut ways: Vec<Duration> = times.iter().map(|times| times[way]).collect();
        ways.sort_unstable();
        assert!(ways[4] < Duration::from_millis(300), "{ways:?}");
    }
    // What a replica is sent it sends to no other: nothing goes back and forth.
    let sent = (counted(&two.stage.gateway, "sent").await, counted(&two.dialed, "sent").await);
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!((counted(&two.stage.gateway, "sent").await, counted(&two.dialed, "sent").await), sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_found_in_the_store_while_replicas_cannot_reach_each_other() {
    let mut two = Two::new().await;
    for how in [Cut::Stall, Cut::Reset] {
        two.part(how);
        let (here, there) = (received(&two.stage.gateway).await, received(&two.dialed).await);
        for _ in 0..4 {
            let times = two.turn().await;
            assert!(times.iter().all(|time| *time < CUT_MAX), "{how:?}: {times:?}");
        }
        assert_eq!((received(&two.stage.gateway).await, received(&two.dialed).await), (here, there));
    }
    assert!(counted(&two.stage.gateway, "unsent").await > 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_of_a_workspace_is_connected_at_each_replica_whichever_it_dialed() {
    let two = Two::new().await;
    let agent = {
        let token = two.stage.gateway.agent_token("one").await;
        let address = two.dialed.addresses.agents;
        two.stage.gateway.start_eager_agent(address, Transport::default(), &token, Vec::new())
    };
    two.dialed.until_connected("one").await;
    let gateways = [&two.stage.gateway, &two.dialed];
    let seen = async |connected: bool| {
        for gateway in gateways {
            let began = Instant::now();
            loop {
                let (row, list) = (read(gateway, "/workspaces/one").await, read(gateway, "/workspaces").await);
                let listed = list["workspaces"].as_array().expect("a list")[0].clone();
                if row["connected"] == connected
                    && row["agent"].is_object() == connected
                    && listed["connected"] == connected
                {
                    break;
                }
                assert!(began.elapsed() < PATIENCE, "wanted {connected}: {row} {listed}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    seen(true).await;
    agent.stop().await;
    seen(false).await;
}
