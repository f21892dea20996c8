//! The link inside a WebSocket: the same session, and what proxies and hostile peers may do to it.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http_body_util::Empty;
use hyper::body::Incoming as RequestBody;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::protocol::frame::Frame as RawFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tunnel_link::grpc::{Code, ConnectError, DialedLink, FrameReader, IncomingBody, RpcRefused, accept_response};
use tunnel_link::pace::Pace;
use tunnel_link::session::Session;
use tunnel_link::websocket::{self, Handshake, HelloAnswer, NoHandshake, refuse_response, switch_response};
use tunnel_proto::frame::{Body, Frame};
use tunnel_proto::limit::{FRAME_BYTES_MAX, PAYLOAD_BYTES_ALONE};
use tunnel_proto::mux::{SessionError, Settings, Side};
use tunnel_proto::reason::Reason;

use crate::apps::App;
use crate::bounds::fill;
use crate::flow::through_the_echo;
use crate::pair::{Pair, Plan, driven_to_end, hello, no_task_left, soon, until, welcome, while_it_moves};
use crate::wire::{Stream, Wire, loopback};

type Reader = FrameReader<IncomingBody>;

/// Accepts one agent and hands out its reader before anything is answered.
fn switched(tasks: &mut JoinSet<()>, stream: impl Stream + 'static) -> oneshot::Receiver<(Reader, HelloAnswer)> {
    let (asked, upgrade) = oneshot::channel();
    let asked = std::sync::Mutex::new(Some(asked));
    let service = service_fn(move |mut request: Request<RequestBody>| {
        let handshake = Handshake::read(&request).expect("a handshake");
        assert_eq!(request.headers().get("authorization").unwrap(), "Bearer a-token");
        let asked = asked.lock().unwrap().take().expect("one request");
        asked.send(hyper::upgrade::on(&mut request)).expect("somebody waits");
        async move { Ok::<_, Infallible>(switch_response::<Empty<Bytes>>(handshake)) }
    });
    let (sender, receiver) = oneshot::channel();
    tasks.spawn(async move {
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades();
        // How it ends is seen at the sessions.
        connection.await.ok();
        let Ok(upgrade) = upgrade.await else { return };
        let stream = upgrade.await.expect("switched");
        let (carrier, reader, answer) = websocket::serve(TokioIo::new(stream)).await;
        sender.send((reader, answer)).ok();
        carrier.await.ok();
    });
    receiver
}

/// The gateway's end: gives out the agent that attached.
pub(crate) fn gateway(
    tasks: &mut JoinSet<()>,
    stream: impl Stream + 'static,
    settings: Settings,
) -> mpsc::Receiver<(Session, Reader)> {
    let (sender, receiver) = mpsc::channel(1);
    let switched = switched(tasks, stream);
    tasks.spawn(async move {
        let (mut reader, answer) = switched.await.expect("switched");
        let hello = reader.next().await.expect("readable").expect("a frame");
        assert!(matches!(hello.body, Body::Hello(_)), "{hello:?}");
        let session = Session::new(settings);
        answer.accept(accept_response(welcome(), session.link(), Pace::unbounded()).into_body());
        sender.send((session, reader)).await.expect("somebody waits");
    });
    receiver
}

/// The agent's end, up to the welcome.
pub(crate) async fn dialed(tasks: &mut JoinSet<()>, stream: impl Stream + 'static) -> Result<DialedLink, ConnectError> {
    let authority = "gateway.example:8081".parse().expect("authority");
    let (carrier, answer) =
        soon(websocket::dial(stream, Pace::unbounded(), authority, Some("a-token"), hello())).await?;
    tasks.spawn(async move {
        carrier.await.ok();
    });
    soon(answer).await
}

fn plan(wire: Wire) -> Plan {
    Plan { websocket: true, ..Plan::new(wire) }
}

async fn check_bytes(wire: Wire) {
    let app = App::echo().await;
    let pair = Pair::planned(plan(wire)).await;
    let mut channels = JoinSet::new();
    channels.spawn(through_the_echo(pair.gateway.clone(), app.port, 1, 10 * 1024 * 1024));
    for seed in 0..50 {
        channels.spawn(through_the_echo(pair.gateway.clone(), app.port, seed, 100_000 + 1_000 * seed));
    }
    while_it_moves(&pair.gateway, channels.join_all()).await;
    drop(app);
    pair.finish().await;
}

#[tokio::test]
async fn bytes_survive_the_way_there_and_back_over_memory() {
    check_bytes(Wire::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_survive_the_way_there_and_back_over_loopback() {
    check_bytes(Wire::Loopback).await;
}

#[tokio::test(start_paused = true)]
async fn idle_link_stays_up_for_hours_and_a_silent_peer_is_missed() {
    let mut pair = Pair::planned(Plan { serves: false, ..plan(Wire::Memory) }).await;
    tokio::time::sleep(Duration::from_secs(6 * 3_600)).await;
    assert!(!pair.gateway.is_ended() && !pair.agent.is_ended());
    pair.switch.stop();
    let ends = async { tokio::join!(&mut pair.gateway_end, &mut pair.agent_end) };
    let ends = tokio::time::timeout(Duration::from_secs(120), ends).await.expect("noticed");
    assert_eq!(ends, (Ok(SessionError::KeepaliveTimedOut), Ok(SessionError::KeepaliveTimedOut)));
    // Nobody cuts the wire: the carriers give up by themselves.
    pair.finish().await;
}

#[tokio::test]
async fn link_that_takes_nothing_bounds_what_waits_for_it() {
    let pair = Pair::planned(Plan { serves: false, ..plan(Wire::Memory) }).await;
    let (mut here, _accepted) = pair.gateway.open(1).expect("opened");
    let mut there = soon(pair.agent.accept()).await.expect("a channel").accept();
    pair.switch.stop();
    let before = (pair.gateway.stats().bytes_sent, pair.agent.stats().bytes_sent);
    soon(fill(&pair.agent, &mut there)).await;
    soon(fill(&pair.gateway, &mut here)).await;
    let below = |session: &Session, before| session.stats().bytes_sent - before;
    // One message, and at the gateway what the stopped pipe of 64 KiB holds.
    let batch = u64::try_from(PAYLOAD_BYTES_ALONE).unwrap() + 32 * 1024;
    assert!(below(&pair.agent, before.1) <= batch, "{}", below(&pair.agent, before.1));
    assert!(below(&pair.gateway, before.0) <= batch + 64 * 1024, "{}", below(&pair.gateway, before.0));
    for session in [&pair.gateway, &pair.agent] {
        assert!(session.stats().queued_bytes <= 2 * PAYLOAD_BYTES_ALONE, "{:?}", session.stats());
    }
    drop((here, there));
    pair.switch.cut();
    pair.finish().await;
}

fn closed(reason: Reason, detail: &str) -> SessionError {
    SessionError::Closed { reason, detail: detail.into() }
}

#[tokio::test(start_paused = true)]
async fn last_word_of_either_end_is_heard_and_both_connections_end() {
    for gateway_speaks in [true, false] {
        let (mut tasks, (here, there)) = (JoinSet::new(), Wire::Memory.connect().await);
        let mut attached = gateway(&mut tasks, there, Settings::new(Side::Gateway));
        let dialed = dialed(&mut tasks, here).await.expect("welcome");
        let (gateway, gateway_reader) = soon(attached.recv()).await.expect("attached");
        let agent = Session::new(Settings::new(Side::Agent));
        dialed.attach(agent.link());
        let DialedLink { reader, .. } = dialed;
        let began = tokio::time::Instant::now();
        if gateway_speaks {
            gateway.close(Reason::Displaced, "a newer agent took over");
            drop((gateway, gateway_reader));
            assert_eq!(soon(driven_to_end(&agent, reader)).await, closed(Reason::Displaced, "a newer agent took over"));
        } else {
            agent.close(Reason::Shutdown, "the agent is shutting down");
            drop((agent, reader));
            let end = soon(driven_to_end(&gateway, gateway_reader)).await;
            assert_eq!(end, closed(Reason::Shutdown, "the agent is shutting down"));
            drop(gateway);
        }
        soon(async { while tasks.join_next().await.is_some() {} }).await;
        assert!(began.elapsed() < Duration::from_secs(1), "it was closed in order: {:?}", began.elapsed());
        no_task_left().await;
    }
}

#[tokio::test]
async fn carrier_that_nobody_drives_any_more_is_cut() {
    let (mut tasks, mut carriers, (here, there)) = (JoinSet::new(), JoinSet::new(), loopback().await);
    let mut attached = gateway(&mut tasks, there, Settings::new(Side::Gateway));
    let dialed = dialed(&mut carriers, here).await.expect("welcome");
    let (gateway, gateway_reader) = soon(attached.recv()).await.expect("attached");
    carriers.shutdown().await;
    assert_eq!(soon(driven_to_end(&gateway, gateway_reader)).await, SessionError::Ended);
    drop((gateway, dialed));
    soon(async { while tasks.join_next().await.is_some() {} }).await;
    no_task_left().await;
}

fn refusal(code: Code) -> RpcRefused {
    RpcRefused { code, message: "limits.sessions is reached".into(), retry_after: Some(Duration::from_millis(2_500)) }
}

async fn answered(response: Response<Empty<Bytes>>) -> ConnectError {
    let (mut tasks, (here, there)) = (JoinSet::new(), Wire::Memory.connect().await);
    let service = service_fn(move |_: Request<RequestBody>| {
        let response = response.clone();
        async move { Ok::<_, Infallible>(response) }
    });
    tasks.spawn(async move {
        http1::Builder::new().serve_connection(TokioIo::new(there), service).await.ok();
    });
    dialed(&mut tasks, here).await.expect_err("refused")
}

#[tokio::test]
async fn refusal_before_the_switch_arrives_with_its_code_its_words_and_its_hint() {
    for code in Code::ALL {
        let response = refuse_response::<Empty<Bytes>>(&refusal(code));
        assert!(response.status().is_client_error() || response.status().is_server_error(), "{response:?}");
        let error = answered(response).await;
        assert!(matches!(&error, ConnectError::Refused(refused) if *refused == refusal(code)), "{error:?}");
    }
}

#[tokio::test]
async fn refusal_of_a_hello_arrives_with_its_code_its_words_and_its_hint() {
    for code in Code::ALL {
        let (mut tasks, (here, there)) = (JoinSet::new(), Wire::Memory.connect().await);
        let switched = switched(&mut tasks, there);
        tasks.spawn(async move {
            let (_reader, answer) = switched.await.expect("switched");
            answer.refuse(&refusal(code));
        });
        let error = dialed(&mut tasks, here).await.expect_err("refused");
        assert!(matches!(&error, ConnectError::Refused(refused) if *refused == refusal(code)), "{error:?}");
        soon(async { while tasks.join_next().await.is_some() {} }).await;
    }
}

#[tokio::test]
async fn answer_that_is_no_gateways_is_named() {
    for status in [200, 301, 403, 404, 426, 502] {
        let response = Response::builder().status(status).body(Empty::new()).unwrap();
        let error = answered(response).await;
        assert!(matches!(error, ConnectError::NotGateway { status: told } if told == status), "{status}: {error:?}");
    }
    // An echo of a WebSocket server that knows nothing of tunnels.
    let switching = || Response::builder().status(101).header("connection", "upgrade").header("upgrade", "websocket");
    let error = answered(switching().body(Empty::new()).unwrap()).await;
    assert!(matches!(error, ConnectError::Upgrade("Sec-WebSocket-Accept")), "{error:?}");
    let (mut tasks, (here, mut there)) = (JoinSet::new(), Wire::Memory.connect().await);
    tasks.spawn(async move {
        there.read_u8().await.unwrap();
        there.write_all(b"220 mail.example ESMTP\r\n").await.unwrap();
    });
    let error = dialed(&mut tasks, here).await.expect_err("not HTTP");
    assert!(matches!(error, ConnectError::Http1(_)), "{error:?}");
}

fn asking(change: impl FnOnce(http::request::Builder) -> http::request::Builder) -> Result<Handshake, NoHandshake> {
    let request = Request::get("/tunnel.v1.Tunnel/Connect")
        .header("connection", "keep-alive, Upgrade")
        .header("upgrade", "WebSocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "other, tunnel.v1");
    Handshake::read(&change(request).body(()).unwrap())
}

#[test]
fn requests_are_granted_or_refused_by_name() {
    let granted = switch_response::<Empty<Bytes>>(asking(|request| request).expect("granted"));
    assert_eq!(granted.status(), StatusCode::SWITCHING_PROTOCOLS);
    // The example of RFC 6455, section 1.3.
    assert_eq!(granted.headers().get("sec-websocket-accept").unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let without = |name: &'static str| {
        asking(|mut request| {
            request.headers_mut().unwrap().remove(name);
            request
        })
        .expect_err("refused")
    };
    assert_eq!(without("connection"), NoHandshake::NotAsked);
    assert_eq!(without("upgrade"), NoHandshake::NotAsked);
    assert_eq!(without("sec-websocket-version"), NoHandshake::Version);
    assert_eq!(without("sec-websocket-key"), NoHandshake::Key);
    assert_eq!(without("sec-websocket-protocol"), NoHandshake::Protocol);
    assert_eq!(asking(|request| request.method("POST")).expect_err("refused"), NoHandshake::NotAsked);
    assert_eq!(asking(|request| request.uri("/healthz")).expect_err("refused"), NoHandshake::NotHere);
}

/// An attached gateway's session, and the raw WebSocket of an agent that may say anything on it.
async fn hostile(tasks: &mut JoinSet<()>) -> (Session, Reader, WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>) {
    let (here, there) = loopback().await;
    let mut attached = gateway(tasks, there, Settings::new(Side::Gateway));
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(TokioIo::new(here)).await.expect("HTTP/1.1");
    tasks.spawn(async move {
        connection.with_upgrades().await.ok();
    });
    let request = Request::get("/tunnel.v1.Tunnel/Connect")
        .header("host", "gateway")
        .header("authorization", "Bearer a-token")
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "tunnel.v1")
        .body(Empty::new())
        .unwrap();
    let response = soon(sender.send_request(request)).await.expect("an answer");
    let stream = TokioIo::new(soon(hyper::upgrade::on(response)).await.expect("switched"));
    let mut raw = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    raw.send(Message::Binary(message(Body::Hello(Box::new(hello()))))).await.expect("sent");
    let welcome = soon(raw.next()).await.expect("a message").expect("readable");
    assert!(matches!(welcome, Message::Binary(_)), "{welcome:?}");
    let (session, reader) = soon(attached.recv()).await.expect("attached");
    (session, reader, raw)
}

fn message(body: Body) -> Bytes {
    let mut encoded = bytes::BytesMut::new();
    let payload = Frame { sequence: 0, acknowledged: 0, body }.encode(&mut encoded);
    encoded.extend_from_slice(&payload);
    [&[0][..], &u32::try_from(encoded.len()).unwrap().to_be_bytes(), &encoded].concat().into()
}

#[tokio::test]
async fn message_that_breaks_the_rules_ends_its_link_and_is_told_so() {
    let fragments = |count: usize| {
        let first = RawFrame::message(vec![0; 100_000], OpCode::Data(Data::Binary), false);
        let rest = |_| Message::Frame(RawFrame::message(vec![0; 100_000], OpCode::Data(Data::Continue), false));
        std::iter::once(Message::Frame(first)).chain((1..count).map(rest)).collect()
    };
    let offences: [(&str, Vec<Message>, CloseCode); 4] = [
        ("too large", vec![Message::Binary(vec![0; FRAME_BYTES_MAX + 6].into())], CloseCode::Size),
        ("too large in fragments", fragments(2), CloseCode::Size),
        ("a text", vec![Message::Text("hello".into())], CloseCode::Unsupported),
        (
            "a rest of nothing",
            vec![Message::Frame(RawFrame::message(vec![0], OpCode::Data(Data::Continue), true))],
            CloseCode::Protocol,
        ),
    ];
    for (told, messages, code) in offences {
        let mut tasks = JoinSet::new();
        let (session, reader, mut raw) = hostile(&mut tasks).await;
        tasks.spawn(async move {
            for message in messages {
                raw.send(message).await.ok();
            }
            let mut heard = None;
            while let Some(Ok(message)) = raw.next().await {
                if let Message::Close(close) = message {
                    heard = close.map(|close| close.code);
                }
            }
            // A reset may overtake it when the offence was not read to its end.
            assert!(heard == Some(code) || (heard.is_none() && code == CloseCode::Size), "{told}: {heard:?}");
        });
        assert_eq!(soon(driven_to_end(&session, reader)).await, SessionError::Ended, "{told}");
        drop(session);
        soon(async {
            while let Some(task) = tasks.join_next().await {
                task.expect("no panic")
            }
        })
        .await;
    }
}

#[tokio::test]
async fn frames_that_a_proxy_cut_or_joined_are_the_same_frames() {
    let mut tasks = JoinSet::new();
    let (session, reader, mut raw) = hostile(&mut tasks).await;
    let driven = session.clone();
    tasks.spawn(async move {
        driven_to_end(&driven, reader).await;
    });
    let pings: Vec<_> = (1..=3).map(|token| message(Body::Ping { token })).collect();
    // Two in one message, and one in three messages, of which one is in two fragments with a ping of the proxy's between.
    raw.send(Message::Binary(pings[..2].concat().into())).await.expect("sent");
    raw.send(Message::Binary(pings[2].slice(..2))).await.expect("sent");
    let binary = |bytes: Bytes, code, last| Message::Frame(RawFrame::message(bytes, OpCode::Data(code), last));
    raw.send(binary(pings[2].slice(2..4), Data::Binary, false)).await.expect("sent");
    raw.send(Message::Ping(Bytes::from_static(b"proxy"))).await.expect("sent");
    raw.send(binary(pings[2].slice(4..6), Data::Continue, true)).await.expect("sent");
    raw.send(Message::Binary(Bytes::new())).await.expect("sent");
    raw.send(Message::Binary(pings[2].slice(6..))).await.expect("sent");
    let (mut answered, mut pongs) = (Vec::new(), 0);
    while !answered.contains(&3) || pongs == 0 {
        match soon(raw.next()).await.expect("a message").expect("readable") {
            Message::Binary(mut bytes) => {
                while !bytes.is_empty() {
                    let length = usize::try_from(u32::from_be_bytes(bytes[1..5].try_into().unwrap())).unwrap();
                    let frame = Frame::decode(bytes.split_to(5 + length).slice(5..)).expect("a frame");
                    if let Body::Pong { token } = frame.body {
                        answered.push(token);
                    }
                }
            }
            Message::Pong(said) => {
                assert_eq!(said, "proxy");
                pongs += 1;
            }
            other @ (Message::Text(_) | Message::Ping(_) | Message::Close(_) | Message::Frame(_)) => {
                panic!("{other:?}")
            }
        }
    }
    // Two pings that came together have one answer.
    assert_eq!((answered, pongs), (vec![2, 3], 1));
    session.close(Reason::Shutdown, "the test is over");
    while let Some(Ok(_)) = soon(raw.next()).await {}
    until("the session is over", || session.is_ended()).await;
    soon(async { while tasks.join_next().await.is_some() {} }).await;
}
