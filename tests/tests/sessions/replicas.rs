//! Several replicas: users ask one, the agent dials another, and replicas die.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use e2e::fleet::{Fleet, free_address};
use e2e::raw::{Raw, RawApp};
use e2e::relay::{Cut, Relay};
use e2e::scripted::hello;
use e2e::{PATIENCE, TestGateway, until};
use gateway_agents::registry::SessionWay;
use gateway_net::peers::PeerTls;
use gateway_store::{SessionClaim, SessionKey, wall_clock};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tunnel_proto::frame::Body;
use tunnel_proto::hello::{Hello, Join, RelayTicket, Resume, Welcome};
use tunnel_proto::id::SessionId;
use tunnel_proto::mux::SessionError;
use tunnel_proto::reason::Reason;
use tunnel_proto::version::{FEATURE_RELAY_LANES, FEATURE_RESUME};
use workspace_agent::Transport;

use crate::raw_agent::{RawAgent, Stage};
use crate::resume::Flaky;
use crate::streams::Streams;

/// Three replicas: users ask the first, the agent has dialed the second.
struct Three {
    flaky: Flaky,
    dialed: TestGateway,
    spare: TestGateway,
    _fleet: Fleet,
}

impl Three {
    async fn new(transport: Transport) -> Self {
        let fleet = Fleet::default();
        let stage = Stage::new(|config| fleet.join(config)).await;
        let (dialed, spare) = (fleet.replica().await, fleet.replica().await);
        let flaky = Flaky::dialing(stage, dialed.addresses.agents, transport).await;
        assert_eq!(flaky.session.way(), SessionWay::Relay);
        Self { flaky, dialed, spare, _fleet: fleet }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_every_kind_reach_an_agent_that_dialed_another_replica() {
    let Three { flaky, dialed: _dialed, spare: _spare, .. } = Three::new(Transport::default()).await;
    let mut streams = Streams::open(&flaky, 3).await;
    for _ in 0..3 {
        streams.say().await;
        streams.hear().await;
    }
    streams.close().await;
    assert_eq!(flaky.session.tunnel.stats().links, 1);
    flaky.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_that_dies_under_streams_of_another_loses_no_byte_of_them() {
    dies(Transport::Http2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_that_dies_under_a_lane_inside_a_websocket_loses_no_byte_of_it() {
    dies(Transport::Websocket).await;
}

async fn dies(transport: Transport) {
    let Three { flaky, dialed, spare, .. } = Three::new(transport).await;
    let mut streams = Streams::open(&flaky, 4).await;
    streams.say().await;
    streams.hear().await;
    streams.say().await;
    // Killed: nothing is said, and its lease lives on.
    flaky.relay.lead_to(spare.addresses.agents);
    drop(dialed);
    streams.hear().await;
    streams.say().await;
    streams.hear().await;
    until("the lane goes on over another replica", || flaky.session.tunnel.stats().links > 1).await;
    // And once more, to the replica at which the lane ends.
    let links = flaky.session.tunnel.stats().links;
    flaky.relay.lead_to(flaky.stage.gateway.addresses.agents);
    drop(spare);
    streams.say().await;
    streams.hear().await;
    until("it goes on over another link", || flaky.session.tunnel.stats().links > links).await;
    streams.close().await;
    flaky.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_that_moves_to_another_replica_is_found_there() {
    let Three { flaky, dialed, spare, .. } = Three::new(Transport::default()).await;
    let name = "one".parse().unwrap();
    flaky.relay.lead_to(spare.addresses.agents);
    assert_eq!(dialed.stop().await, tunnel_link::drain::DrainResult::Clean);
    until("the agent is at the other replica", || {
        spare.registry.current(&name).is_some_and(|session| session.way() == SessionWay::Direct)
    })
    .await;
    let mut raw = flaky.ask(&flaky.apps.mirror, "GET /", "").await;
    assert_eq!(raw.message().await.expect("an answer").status(), 200);
    flaky.finish().await;
}

/// A balancer leads each dial of an agent to any replica, and its own session stays where its users are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_goes_on_where_it_is_although_its_agent_comes_back_at_another_replica() {
    let fleet = Fleet::default();
    let stage = Stage::new(|config| fleet.join(config)).await;
    let (spare, own) = (fleet.replica().await, stage.gateway.addresses.agents);
    let flaky = Flaky::dialing(stage, own, Transport::default()).await;
    assert_eq!(flaky.session.way(), SessionWay::Direct);
    let mut streams = Streams::open(&flaky, 3).await;
    streams.say().await;
    flaky.relay.lead_to(spare.addresses.agents);
    flaky.break_link(Cut::Reset).await;
    streams.hear().await;
    streams.say().await;
    streams.hear().await;
    assert!(spare.registry.current(&"one".parse().unwrap()).is_none(), "it is only carried there");
    // The replica that carries it dies.
    let links = flaky.session.tunnel.stats().links;
    flaky.relay.lead_to(own);
    drop(spare);
    streams.say().await;
    streams.hear().await;
    until("it goes on over another link", || flaky.session.tunnel.stats().links > links).await;
    streams.close().await;
    flaky.finish().await;
}

/// Two replicas: users ask the first, the agent has dialed the second. What goes to the first one's port for replicas can be
/// broken.
struct Parted {
    flaky: Flaky,
    between: Relay,
    _dialed: TestGateway,
    _fleet: Fleet,
}

impl Parted {
    async fn new() -> Self {
        let (fleet, listen) = (Fleet::default(), free_address());
        let between = Relay::start(listen).await;
        let stage = Stage::new(|config| fleet.join_behind(config, listen, between.address)).await;
        let dialed = fleet.replica().await;
        let flaky = Flaky::dialing(stage, dialed.addresses.agents, Transport::default()).await;
        Self { flaky, between, _dialed: dialed, _fleet: fleet }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lane_goes_on_after_its_replicas_lost_each_other_without_a_word() {
    let Parted { flaky, between, _dialed, _fleet } = Parted::new().await;
    let mut streams = Streams::open(&flaky, 3).await;
    streams.say().await;
    streams.hear().await;
    for how in [Cut::Stall, Cut::Reset] {
        let links = flaky.session.tunnel.stats().links;
        streams.say().await;
        between.cut(how);
        streams.hear().await;
        // What was said may have been answered before the cut.
        until("the lane goes on over another link", || flaky.session.tunnel.stats().links > links).await;
    }
    streams.close().await;
    flaky.finish().await;
}

/// Both see the store, and the agent: only the way between the replicas is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_is_absent_to_new_users_while_its_replica_cannot_reach_theirs_and_streams_wait() {
    let Parted { flaky, between, _dialed: dialed, _fleet } = Parted::new().await;
    let token = flaky.stage.gateway.agent_token("three").await;
    let _three = dialed.start_eager_agent(dialed.addresses.agents, Transport::default(), &token, flaky.apps.ports());
    dialed.until_connected("three").await;
    let mut streams = Streams::open(&flaky, 1).await;
    between.down();
    between.cut(Cut::Reset);
    streams.say().await;
    let answer = flaky.stage.asking("three", flaky.apps.mirror.port).await.message().await.expect("an answer");
    assert_eq!((answer.status(), answer.header("gateway-error")), (503, Some("agent_absent")), "{answer:?}");
    assert!(answer.text().contains(r#""reason":"peer""#), "{answer:?}");
    between.up();
    streams.hear().await;
    let found = async {
        while flaky.stage.asking("three", flaky.apps.mirror.port).await.message().await.expect("an answer").status()
            != 200
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("the other workspace is reached too");
    streams.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_that_starts_again_at_another_replica_is_found_there() {
    let Three { flaky, spare, dialed: _dialed, .. } = Three::new(Transport::default()).await;
    let token = flaky.stage.gateway.agent_token("one").await;
    let before = flaky.session.instance;
    let _newer = spare.start_eager_agent(spare.addresses.agents, Transport::default(), &token, flaky.apps.ports());
    spare.until_connected("one").await;
    let current = || flaky.stage.gateway.registry.current(&"one".parse().unwrap());
    until("the older process has ended its lane", || flaky.session.tunnel.is_ended()).await;
    let answer = flaky.ask(&flaky.apps.mirror, "GET /", "").await.message().await.expect("an answer");
    assert_eq!(answer.status(), 200, "{answer:?}");
    let lane = current().expect("a lane");
    assert_eq!(lane.way(), SessionWay::Relay);
    assert_ne!(lane.instance, before, "it is the newer process's");
}

/// The agent `two` of bytes, at one of two replicas, and a user that asks for it at the other.
struct Pair {
    fleet: Fleet,
    stage: Stage,
    dialed: TestGateway,
    token: String,
    hello: Hello,
    agent: RawAgent,
    /// Seal of its generation.
    seal: Bytes,
    session: SessionId,
}

impl Pair {
    async fn new(features: &[&str]) -> Self {
        let fleet = Fleet::default();
        let stage = Stage::new(|config| fleet.join(config)).await;
        let dialed = fleet.replica().await;
        let token = stage.gateway.agent_token("two").await;
        let features = features.iter().map(|name| (*name).to_owned()).collect();
        let hello = Hello { features, instance: 7, ..hello() };
        let mut agent = RawAgent::dial(&dialed, &token, hello.clone()).await;
        let Welcome { seal, session, .. } = agent.welcome().await;
        Self { fleet, stage, dialed, token, hello, agent, seal, session }
    }

    /// Has a user ask, and returns the ticket that the agent gets.
    async fn ticket(&mut self) -> (Raw, RelayTicket) {
        let asking = self.stage.asking("two", 80).await;
        loop {
            if let Body::OpenLane(ticket) = self.agent.next().await.expect("a frame").body {
                return (asking, ticket);
            }
        }
    }
}

const RELAYS: &[&str] = &[FEATURE_RESUME, FEATURE_RELAY_LANES];
const PERMISSION_DENIED: u16 = 7;
const ABORTED: u16 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ticket_is_good_once_and_the_lane_is_named_by_the_replica_at_which_it_ends() {
    let mut pair = Pair::new(RELAYS).await;
    let (_asking, ticket) = pair.ticket().await;
    let lane = Hello { relay: Some(ticket.clone()), ..pair.hello.clone() };
    let mut first = RawAgent::dial(&pair.dialed, &pair.token, lane.clone()).await;
    let welcome = first.welcome().await;
    assert_eq!(welcome.session.replica(), ticket.replica);
    let again = RawAgent::dial(&pair.dialed, &pair.token, lane.clone()).await.refusal().await;
    assert_eq!(again.0, PERMISSION_DENIED, "{again:?}");
    // A replica that never was.
    let nowhere = RelayTicket { replica: u64::MAX, ..ticket };
    let lost = Hello { relay: Some(nowhere), ..lane };
    let lost = RawAgent::dial(&pair.dialed, &pair.token, lost).await.refusal().await;
    assert_eq!(lost.0, PERMISSION_DENIED, "{lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ticket_is_worth_nothing_to_another_process_or_workspace() {
    let mut of_process = Pair::new(RELAYS).await;
    let mut of_workspace = Pair::new(RELAYS).await;
    let (_asking, ticket) = of_process.ticket().await;
    let other = Hello { relay: Some(ticket), instance: 8, ..of_process.hello.clone() };
    let refused = RawAgent::dial(&of_process.dialed, &of_process.token, other).await.refusal().await;
    assert_eq!(refused.0, PERMISSION_DENIED, "{refused:?}");
    let (_asking, ticket) = of_workspace.ticket().await;
    let three = of_workspace.stage.gateway.agent_token("three").await;
    let other = Hello { relay: Some(ticket), ..of_workspace.hello.clone() };
    let refused = RawAgent::dial(&of_workspace.dialed, &three, other).await.refusal().await;
    assert_eq!(refused.0, PERMISSION_DENIED, "{refused:?}");
}

/// Whose session a link goes on with is decided by the credential: an id leads nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_of_another_workspace_is_not_resumed_or_joined_through_another_replica() {
    let Pair { stage, dialed, token, hello, session, agent: _agent, .. } = Pair::new(RELAYS).await;
    let three = stage.gateway.agent_token("three").await;
    let (secret, received) = (Bytes::from_static(b"guessed"), 0);
    let resume = Some(Resume { session, secret: secret.clone(), received });
    let foreign = Hello { resume: resume.clone(), instance: 9, ..hello.clone() };
    let welcome = RawAgent::dial(&stage.gateway, &three, foreign).await.welcome().await;
    assert_eq!((welcome.resumed, welcome.workspace.as_str()), (None, "three"), "it is a new session");
    let join = Some(Join { session, secret });
    let foreign = Hello { join: join.clone(), instance: 9, ..hello.clone() };
    let refused = RawAgent::dial(&stage.gateway, &three, foreign).await.refusal().await;
    assert_eq!(refused.0, PERMISSION_DENIED, "{refused:?}");
    // Nor its own with a guessed secret.
    for guess in [Hello { resume, ..hello.clone() }, Hello { join, ..hello }] {
        let refused = RawAgent::dial(&stage.gateway, &token, guess).await.refusal().await;
        assert_eq!(refused.0, PERMISSION_DENIED, "{refused:?}");
    }
    let its = dialed.registry.current(&"two".parse().unwrap()).expect("its session");
    assert!(its.id == session && !its.tunnel.is_ended());
}

#[tokio::test]
async fn gateway_that_is_alone_takes_no_relay_lane() {
    let gateway = TestGateway::start().await;
    let token = gateway.agent_token("two").await;
    let relay = Some(RelayTicket { replica: 1, ticket: Bytes::from_static(b"ticket") });
    let refused = RawAgent::dial(&gateway, &token, Hello { relay, ..hello() }).await.refusal().await;
    assert_eq!(refused.0, PERMISSION_DENIED, "{refused:?}");
}

/// Two processes with one token: what a process says of its last generation counts only with a replica's seal, wherever it
/// shows that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_that_had_an_older_session_is_told_so_by_its_seal_at_every_replica() {
    let Pair { stage, dialed, token, hello, seal, agent: _agent, .. } = Pair::new(RELAYS).await;
    let newer = Hello { instance: 8, ..hello.clone() };
    RawAgent::dial(&stage.gateway, &token, newer).await.welcome().await;
    for replica in [&dialed, &stage.gateway] {
        let older = Hello { seal: seal.clone(), ..hello.clone() };
        let refused = RawAgent::dial(replica, &token, older).await.refusal().await;
        assert_eq!(refused.0, ABORTED, "{refused:?}");
    }
    let mut forged = seal.to_vec();
    *forged.last_mut().unwrap() ^= 1;
    let unproved = Hello { seal: forged.into(), ..hello };
    let welcome = RawAgent::dial(&dialed, &token, unproved).await.welcome().await;
    assert_eq!(welcome.generation.get(), 3, "no word of it counted: the newest claim wins");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_that_does_not_know_relay_lanes_or_adds_none_gets_the_channel_on_its_own_session() {
    for features in [&[FEATURE_RESUME], RELAYS] {
        let mut pair = Pair::new(features).await;
        let (_asking, mut tickets) = (pair.stage.asking("two", 80).await, 0);
        let open = loop {
            match pair.agent.next().await.expect("a frame").body {
                Body::Open(open) => break open,
                Body::OpenLane(_) => tickets += 1,
                _ => {}
            }
        };
        assert_eq!((open.port, tickets), (80, features.len() - 1));
        let first = std::str::from_utf8(&open.payload).expect("a head");
        assert!(first.starts_with("GET ") && first.ends_with("\r\n\r\n"), "it has the first bytes: {first}");
        let lane = pair.stage.gateway.registry.current(&"two".parse().unwrap()).expect("a lane");
        assert!(lane.is_hop() && lane.instance == pair.hello.instance);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_of_a_replica_that_is_gone_or_says_nothing_is_absent_for_that_reason() {
    let Pair { fleet, stage, dialed, agent: _agent, .. } = Pair::new(RELAYS).await;
    drop(dialed);
    // Takes connections, and says nothing.
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (store, address) = (&stage.gateway.store, silent.local_addr().unwrap());
    stage.gateway.agent_token("three").await;
    let (_, workspace) = store.workspace_ids(&[&"three".parse().unwrap()]).await.unwrap().remove(0);
    let claim = SessionClaim { key: SessionKey::Workspace(workspace), instance: 7, known: None, is_late: false };
    let replica = fleet.add_replica(store, address).await;
    store.claim_sessions(replica, &[claim]).await.unwrap().expect("its lease lives");
    for name in ["two", "three"] {
        let answer = stage.asking(name, 80).await.message().await.expect("an answer");
        assert_eq!((answer.status(), answer.header("gateway-error")), (503, Some("agent_absent")), "{name}");
        assert!(answer.text().contains(r#""reason":"peer""#), "{answer:?}");
    }
}

/// The store says that the agent is here, and its session comes up a moment later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_waits_for_an_agent_whose_place_was_claimed_here_a_moment_ago() {
    let Pair { stage, dialed: _dialed, agent: _agent, .. } = Pair::new(RELAYS).await;
    let app = RawApp::mirror().await;
    let gateway = &stage.gateway;
    let token = gateway.agent_token("four").await;
    let (_, workspace) = gateway.store.workspace_ids(&[&"four".parse().unwrap()]).await.unwrap().remove(0);
    let own = gateway.store.replicas().await.unwrap().remove(0).incarnation;
    let claim = SessionClaim { key: SessionKey::Workspace(workspace), instance: 7, known: None, is_late: false };
    gateway.store.claim_sessions(own, &[claim]).await.unwrap().expect("its lease lives");
    let mut raw = stage.asking("four", app.port).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let _four = gateway.start_eager_agent(gateway.addresses.agents, Transport::default(), &token, Vec::new());
    assert_eq!(raw.message().await.expect("an answer").status(), 200);
}

/// An agent of bytes: it ends nothing by itself when it hears of the revocation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_token_ends_the_lanes_of_its_agent_at_every_replica() {
    let mut pair = Pair::new(RELAYS).await;
    let (_asking, ticket) = pair.ticket().await;
    let lane = Hello { relay: Some(ticket), ..pair.hello.clone() };
    let mut agent = RawAgent::dial(&pair.dialed, &pair.token, lane).await;
    agent.welcome().await;
    let (registry, name) = (&pair.stage.gateway.registry, "two".parse().unwrap());
    until("the lane is up", || registry.current(&name).is_some()).await;
    let lane = registry.current(&name).expect("it is up");
    let token = lane.token().expect("a token");
    assert!(pair.dialed.store.revoke_token(token, wall_clock()).await.unwrap());
    until("the lane is over", || lane.tunnel.is_ended()).await;
    let ended = lane.tunnel.end();
    assert!(matches!(&ended, Some(SessionError::Closed { reason: Reason::Revoked, .. })), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_port_gives_nothing_before_an_introduction() {
    let pair = Pair::new(RELAYS).await;
    let living = pair.stage.gateway.store.replicas().await.unwrap();
    let url: http::Uri = living[0].peer_url.parse().unwrap();
    let address: SocketAddr = url.authority().unwrap().as_str().parse().unwrap();
    let tls = PeerTls::load(&pair.fleet.peers(address, address), &"localhost".parse().unwrap()).unwrap();
    let stream = tls.connect(TcpStream::connect(address).await.unwrap()).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { connection.await.ok() });
    for call in ["WantLane", "Displace", "CarryLane"] {
        let request = http::Request::post(format!("https://localhost/peers.v1.Peers/{call}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let (answer, mut body) = client.send_request(request.body(()).unwrap(), false).unwrap();
        body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
        let answer = answer.await.unwrap();
        // FAILED_PRECONDITION
        assert_eq!(answer.headers().get("grpc-status").map(|status| status.as_bytes()), Some(&b"9"[..]), "{call}");
    }
}
