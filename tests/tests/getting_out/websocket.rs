//! Agents whose link is inside a WebSocket.

use std::time::Duration;

use bytes::Bytes;
use e2e::raw::RawApp;
use e2e::{TestAgent, TestGateway, until};
use gateway_store::wall_clock;
use tunnel_link::grpc::{Code, ConnectError, DialedLink, drive};
use tunnel_link::pace::Pace;
use tunnel_link::session::{LinkEnd, Session};
use tunnel_link::websocket;
use tunnel_proto::hello::{Hello, Role};
use tunnel_proto::mux::{SessionError, Settings, Side};
use tunnel_proto::reason::Reason;
use workspace_agent::{DialEnded, Gateway, Transport};

use crate::middle::Middle;
use crate::proxies::assert_serves;

fn at(address: std::net::SocketAddr) -> Gateway {
    Gateway::parse(&format!("http://{address}"), None).expect("an address")
}

#[tokio::test]
async fn agent_that_http2_does_not_reach_attaches_with_a_websocket_in_the_same_attempt() {
    let (gateway, app) = (TestGateway::start().await, RawApp::mirror().await);
    let balancer = Middle::http1_only(gateway.addresses.agents, true).await;
    let token = gateway.agent_token("one").await;
    let agent = TestAgent::start(at(balancer.address), Transport::Auto, &token, Vec::new());
    gateway.until_connected("one").await;
    assert_serves(&gateway, &app, "one").await;
    assert_eq!(balancer.counts(), (2, 1), "HTTP/2 first, then the WebSocket");
    // What worked is remembered when the gateway is lost.
    let session = gateway.registry.current(&"one".parse().unwrap()).expect("a session");
    session.tunnel.close(Reason::Shutdown, "the test cuts it");
    until("another session", || {
        gateway.registry.current(&"one".parse().unwrap()).is_some_and(|other| other.id != session.id)
    })
    .await;
    assert_eq!(balancer.counts(), (3, 2));
    assert_serves(&gateway, &app, "one").await;
    agent.stop().await;
    gateway.until_gone("one").await;
    gateway.stop().await;
}

#[tokio::test]
async fn named_transport_is_the_only_one_that_is_tried() {
    let (gateway, app) = (TestGateway::start().await, RawApp::mirror().await);
    let balancer = Middle::http1_only(gateway.addresses.agents, true).await;
    let token = gateway.agent_token("one").await;
    let agent = TestAgent::start(at(balancer.address), Transport::Http2, &token, Vec::new());
    until("it is tried again", || balancer.counts().0 >= 2).await;
    assert_eq!(balancer.counts().1, 0);
    agent.stop().await;
    let before = balancer.counts().0;
    let agent = TestAgent::start(at(balancer.address), Transport::Websocket, &token, Vec::new());
    gateway.until_connected("one").await;
    assert_eq!(balancer.counts(), (before + 1, 1));
    agent.stop().await;
    gateway.until_gone("one").await;
    // Straight to the gateway too.
    let agent = TestAgent::start(at(gateway.addresses.agents), Transport::Websocket, &token, Vec::new());
    gateway.until_connected("one").await;
    assert_serves(&gateway, &app, "one").await;
    agent.stop().await;
}

#[tokio::test]
async fn refusal_by_the_gateway_is_final_and_no_reason_for_a_websocket() {
    let gateway = TestGateway::start().await;
    let (name, owner) = ("one".parse().unwrap(), "dev".parse().unwrap());
    let revoked = gateway.store.create_agent_token(&name, &owner, wall_clock()).await.unwrap();
    assert!(gateway.store.revoke_token(revoked.id, wall_clock()).await.unwrap());
    for transport in [Transport::Auto, Transport::Websocket] {
        let mut agent = TestAgent::start(at(gateway.addresses.agents), transport, revoked.token.reveal(), Vec::new());
        let ended = agent.ended().await.expect_err("refused");
        assert!(matches!(&ended, DialEnded::Refused { message } if message.contains("revoked")), "{ended}");
    }
    // A gateway behind a balancer is heard too.
    let balancer = Middle::http1_only(gateway.addresses.agents, true).await;
    let mut agent = TestAgent::start(at(balancer.address), Transport::Auto, revoked.token.reveal(), Vec::new());
    assert!(matches!(agent.ended().await, Err(DialEnded::Refused { .. })));
    assert_eq!(balancer.counts(), (2, 0));
}

#[tokio::test]
async fn balancer_that_lets_nothing_through_is_dialed_again() {
    let gateway = TestGateway::start().await;
    let balancer = Middle::http1_only(gateway.addresses.agents, false).await;
    let token = gateway.agent_token("one").await;
    let agent = TestAgent::start(at(balancer.address), Transport::Auto, &token, Vec::new());
    until("it is tried again", || balancer.counts().0 >= 4).await;
    assert!(gateway.registry.current(&"one".parse().unwrap()).is_none());
    agent.stop().await;
}

#[tokio::test]
async fn drain_and_displacement_are_heard_inside_a_websocket() {
    let gateway = TestGateway::start().await;
    let token = gateway.agent_token("one").await;
    let mut old = TestAgent::start(at(gateway.addresses.agents), Transport::Websocket, &token, Vec::new());
    gateway.until_connected("one").await;
    let first = gateway.registry.current(&"one".parse().unwrap()).expect("a session").id;
    let new = TestAgent::start(at(gateway.addresses.agents), Transport::Auto, &token, Vec::new());
    until("the newer session", || {
        gateway.registry.current(&"one".parse().unwrap()).is_some_and(|session| session.id != first)
    })
    .await;
    assert!(matches!(old.ended().await, Err(DialEnded::Displaced)));
    new.stop().await;
    gateway.until_gone("one").await;
    let agent = TestAgent::start(at(gateway.addresses.agents), Transport::Websocket, &token, Vec::new());
    gateway.until_connected("one").await;
    let began = tokio::time::Instant::now();
    assert_eq!(gateway.stop().await, tunnel_link::drain::DrainResult::Clean);
    assert!(began.elapsed() < Duration::from_secs(5), "nothing had to be waited for: {:?}", began.elapsed());
    agent.stop().await;
}

/// Dials with a WebSocket as far as the answer.
async fn dial(gateway: &TestGateway, token: &str, hello: Hello) -> Result<DialedLink, ConnectError> {
    let stream = tokio::net::TcpStream::connect(gateway.addresses.agents).await.expect("it listens");
    let authority = gateway.addresses.agents.to_string().parse().expect("an authority");
    let (carrier, answer) = websocket::dial(stream, Pace::unbounded(), authority, Some(token), hello).await?;
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        carrier.await.ok();
    });
    tasks.detach_all();
    tokio::time::timeout(e2e::PATIENCE, answer).await.expect("an answer")
}

fn hello() -> Hello {
    e2e::scripted::hello()
}

#[tokio::test]
async fn admission_is_the_same_as_over_http2() {
    let gateway = TestGateway::start_with(|config| config.limits.sessions = 1).await;
    let token = gateway.agent_token("one").await;
    let refused = |dialed: Result<DialedLink, ConnectError>| match dialed {
        Err(ConnectError::Refused(refused)) => (refused.code, refused.message),
        other => panic!("{other:?}"),
    };
    let (code, said) = refused(dial(&gateway, &format!("{token}x"), hello()).await);
    assert_eq!((code, said.contains("damaged")), (Code::Unauthenticated, true), "{said}");
    let (code, said) = refused(dial(&gateway, &gateway.user_token, hello()).await);
    assert_eq!((code, said.contains("not an agent's")), (Code::Unauthenticated, true), "{said}");
    let cluster = Hello { role: Role::Cluster, ..hello() };
    assert_eq!(refused(dial(&gateway, &token, cluster).await).0, Code::FailedPrecondition);
    let _first = dial(&gateway, &token, hello()).await.expect("a welcome");
    gateway.until_connected("one").await;
    let other = gateway.agent_token("two").await;
    let stream = dial(&gateway, &other, hello()).await;
    let (code, said) = refused(stream);
    assert_eq!((code, said.contains("limits.sessions")), (Code::ResourceExhausted, true), "{said}");
}

#[tokio::test]
async fn whoever_switches_and_then_is_silent_does_not_keep_the_place() {
    let gateway = TestGateway::start_with(|config| config.timeouts.agent_hello = Duration::from_secs(2)).await;
    let other = gateway.agent_token("two").await;
    let stream = tokio::net::TcpStream::connect(gateway.addresses.agents).await.expect("it listens");
    let request = http::Request::get(tunnel_link::grpc::PATH)
        .header("host", "gateway")
        .header("authorization", format!("Bearer {other}"))
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "tunnel.v1")
        .body(http_body_util::Empty::<Bytes>::new())
        .unwrap();
    let answer = tunnel_link::switch::ask(stream, request).await.expect("an answer");
    let tunnel_link::switch::SwitchAnswer::Switched(_, mut stream) = answer else { panic!("{answer:?}") };
    let mut said = Vec::new();
    let reading = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut said);
    tokio::time::timeout(e2e::PATIENCE, reading).await.expect("it is cut").expect("it ends in order");
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("grpc-status: 4") && said.contains("no hello came in time"), "{said}");
}

#[tokio::test]
async fn revocation_reaches_an_agent_inside_a_websocket() {
    let gateway = TestGateway::start().await;
    let token = gateway.agent_token("one").await;
    let dialed = dial(&gateway, &token, hello()).await.expect("a welcome");
    let session = Session::new(Settings::new(Side::Agent));
    dialed.attach(session.link());
    gateway.until_connected("one").await;
    let live = gateway.registry.current(&"one".parse().unwrap()).expect("a session");
    live.tunnel.close(Reason::Revoked, "the token was revoked");
    let DialedLink { reader, .. } = dialed;
    let end = tokio::time::timeout(e2e::PATIENCE, drive(&session.link(), reader)).await.expect("in time");
    assert!(matches!(end, LinkEnd::Over(SessionError::Closed { reason: Reason::Revoked, .. })), "{end:?}");
}
