//! What an agent can meet instead of a gateway, and a gateway instead of an agent.

use std::convert::Infallible;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame as Piece;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tunnel_link::grpc::{Code, ConnectError, FrameReader, PATH, ReadError, RpcRefused};
use tunnel_link::session::Session;
use tunnel_proto::frame::{Body, Frame, FrameError, Open};
use tunnel_proto::id::ChannelId;
use tunnel_proto::mux::{SessionError, Settings, Side};
use tunnel_proto::reason::Reason;
use tunnel_proto::target::AppTls;

use crate::apps::App;
use crate::pair::{Pair, dialed, driven_to_end, gateway, hello, no_task_left, refusing_gateway, soon, welcome};
use crate::wire::{Stream, Wire};

type RawBody = UnsyncBoxBody<Bytes, Infallible>;

/// A frame as it stands in the stream: prefix and message.
fn message(frame: Frame) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(frame.encoded_len()).expect("small"));
    let payload = frame.encode(&mut bytes);
    bytes.put(payload);
    bytes.freeze()
}

fn welcome_message() -> Bytes {
    message(Frame { sequence: 0, acknowledged: 0, body: Body::Welcome(Box::new(welcome())) })
}

/// Announces a message of a mebibyte.
fn too_large() -> Bytes {
    Bytes::from_static(&[0, 0, 0x10, 0, 0])
}

/// The pieces as HTTP/2 data, one frame each, and then silence.
fn pieces(pieces: Vec<Bytes>) -> RawBody {
    let said = futures_util::stream::iter(pieces).map(|piece| Ok(Piece::data(piece)));
    StreamBody::new(said.chain(futures_util::stream::pending())).boxed_unsync()
}

/// A server that speaks HTTP/2 and says `body`, with this status and type.
fn raw_server(
    tasks: &mut JoinSet<()>,
    stream: impl Stream + 'static,
    status: u16,
    kind: &'static str,
    body: fn() -> RawBody,
) {
    let service = service_fn(move |request: Request<Incoming>| async move {
        let mut response = Response::new(body());
        *response.status_mut() = status.try_into().expect("a status");
        response.headers_mut().insert("content-type", http::HeaderValue::from_static(kind));
        // Read on, as a server does that means well.
        drop(request);
        Ok::<_, Infallible>(response)
    });
    let connection =
        hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    tasks.spawn(async move {
        connection.await.ok();
    });
}

/// Dials such a server, and checks that nothing stays behind when it failed.
async fn dial_raw(status: u16, kind: &'static str, body: fn() -> RawBody) -> ConnectError {
    let mut tasks = JoinSet::new();
    let (here, there) = Wire::Memory.connect().await;
    raw_server(&mut tasks, there, status, kind, body);
    let error = dialed(&mut tasks, here).await.map(drop).expect_err("not a gateway");
    soon(async { while tasks.join_next().await.is_some() {} }).await;
    no_task_left().await;
    error
}

#[tokio::test]
async fn each_refusal_arrives_with_its_code_its_words_and_its_hint() {
    for code in Code::ALL {
        for retry_after in [None, Some(Duration::from_millis(1_500))] {
            let refused = RpcRefused { code, message: "come back with a better token".into(), retry_after };
            let mut tasks = JoinSet::new();
            let (here, there) = Wire::Memory.connect().await;
            refusing_gateway(&mut tasks, there, refused.clone());
            let error = dialed(&mut tasks, here).await.map(drop).expect_err("refused");
            assert!(matches!(&error, ConnectError::Refused(heard) if *heard == refused), "{error:?}");
            soon(async { while tasks.join_next().await.is_some() {} }).await;
            no_task_left().await;
        }
    }
}

#[tokio::test]
async fn web_server_is_named_as_not_a_gateway() {
    let page = || Full::new(Bytes::from_static(b"<!doctype html><title>Not here</title>")).boxed_unsync();
    for status in [200, 404, 502] {
        let error = dial_raw(status, "text/html", page).await;
        assert!(matches!(error, ConnectError::NotGateway { status: heard } if heard == status), "{error:?}");
    }
}

#[tokio::test]
async fn garbage_instead_of_the_welcome_is_named() {
    let error = dial_raw(200, "application/grpc", || pieces(vec![Bytes::from_static(&[9; 100])])).await;
    assert!(matches!(error, ConnectError::Welcome(ReadError::Frame(FrameError::Field { .. }))), "{error:?}");
    let error =
        dial_raw(200, "application/grpc", || pieces(vec![Bytes::from_static(&[0, 0, 0, 0, 2, 0xff, 0xff])])).await;
    assert!(matches!(error, ConnectError::Welcome(ReadError::Frame(FrameError::Malformed(_)))), "{error:?}");
    let error = dial_raw(200, "application/grpc", || pieces(vec![too_large()])).await;
    assert!(matches!(error, ConnectError::Welcome(ReadError::Frame(FrameError::TooLarge { .. }))), "{error:?}");
}

#[tokio::test]
async fn stream_that_ends_before_the_welcome_is_named() {
    let error = dial_raw(200, "application/grpc", || Full::new(Bytes::new()).boxed_unsync()).await;
    assert!(matches!(error, ConnectError::NoWelcome), "{error:?}");
    // The beginning of a message is not one.
    let error = dial_raw(200, "application/grpc", || Full::new(welcome_message().slice(..20)).boxed_unsync()).await;
    assert!(matches!(error, ConnectError::NoWelcome), "{error:?}");
}

#[tokio::test]
async fn another_frame_instead_of_the_welcome_is_no_welcome() {
    let ping = || pieces(vec![message(Frame { sequence: 0, acknowledged: 0, body: Body::Ping { token: 1 } })]);
    let error = dial_raw(200, "application/grpc", ping).await;
    assert!(matches!(error, ConnectError::NoWelcome), "{error:?}");
}

#[tokio::test]
async fn server_of_another_protocol_is_named() {
    let mut tasks = JoinSet::new();
    let (here, mut there) = Wire::Memory.connect().await;
    tasks.spawn(async move {
        there.read_exact(&mut [0; 24]).await.expect("the preface");
        there.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await.expect("said");
    });
    let error = dialed(&mut tasks, here).await.map(drop).expect_err("not HTTP/2");
    assert!(matches!(error, ConnectError::Http2(_)), "{error:?}");
    soon(async { while tasks.join_next().await.is_some() {} }).await;
    no_task_left().await;
}

#[tokio::test(start_paused = true)]
async fn server_that_never_answers_costs_nothing_once_the_agent_gave_up() {
    let mut server = JoinSet::new();
    let (here, there) = Wire::Memory.connect().await;
    // It speaks HTTP/2, answers pings, and never the request.
    let service = service_fn(|request: Request<Incoming>| async move {
        std::future::pending::<()>().await;
        drop(request);
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
    });
    let connection =
        hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(there), service);
    server.spawn(async move {
        connection.await.ok();
    });
    let mut agent = JoinSet::new();
    agent.spawn(async move {
        let mut tasks = JoinSet::new();
        // It gives up by itself.
        dialed(&mut tasks, here).await.map(drop).ok();
    });
    // As its caller does when the wait for the welcome ran out.
    tokio::time::timeout(Duration::from_secs(15), agent.join_next()).await.expect_err("still waiting");
    agent.shutdown().await;
    // The server hears that nobody waits: its connection ends.
    soon(server.join_next()).await;
    no_task_left().await;
}

#[tokio::test(start_paused = true)]
async fn server_that_says_nothing_at_all_costs_nothing_once_the_agent_gave_up() {
    let (here, there) = Wire::Memory.connect().await;
    let mut agent = JoinSet::new();
    agent.spawn(async move {
        let mut tasks = JoinSet::new();
        // It gives up by itself.
        dialed(&mut tasks, here).await.map(drop).ok();
    });
    tokio::time::timeout(Duration::from_secs(15), agent.join_next()).await.expect_err("still waiting");
    agent.shutdown().await;
    // HTTP/2's own keepalive notices at the latest.
    let waiting = async {
        while tokio::runtime::Handle::current().metrics().num_alive_tasks() > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("gone within a minute");
    drop(there);
}

#[tokio::test]
async fn welcome_that_was_dialed_and_never_used_lets_its_connection_go() {
    let mut tasks = JoinSet::new();
    let (here, there) = Wire::Memory.connect().await;
    let mut attached = gateway(&mut tasks, there, Settings::new(Side::Gateway));
    let dialed = dialed(&mut tasks, here).await.expect("welcome");
    let (session, reader) = soon(attached.recv()).await.expect("attached");
    drop(dialed);
    assert_eq!(soon(driven_to_end(&session, reader)).await, SessionError::Ended);
    drop(session);
    soon(async { while tasks.join_next().await.is_some() {} }).await;
    no_task_left().await;
}

#[tokio::test]
async fn frames_that_came_in_one_piece_with_the_handshake_are_not_lost() {
    // As a proxy between the two may cut them.
    let mut together = BytesMut::from(welcome_message().as_ref());
    let open =
        Open { channel: ChannelId::new(1), port: 3000, tls: AppTls::None, credit_bytes: 1_000, payload: Bytes::new() };
    together.put(message(Frame { sequence: 1, acknowledged: 0, body: Body::Open(open) }));
    let finish = message(Frame { sequence: 2, acknowledged: 0, body: Body::Finish { channel: ChannelId::new(1) } });
    together.put(finish.slice(..3));
    let pieces = vec![together.freeze(), finish.slice(3..)];
    let said = futures_util::stream::iter(pieces).map(|piece| Ok::<_, Infallible>(Piece::data(piece)));
    let mut reader = FrameReader::new(StreamBody::new(said.chain(futures_util::stream::pending())));
    let first = reader.next().await.expect("readable").expect("a frame");
    assert!(matches!(first.body, Body::Welcome(_)), "{first:?}");
    let session = Session::new(Settings::new(Side::Agent));
    let channel = tokio::select! {
        error = driven_to_end(&session, reader) => panic!("ended: {error}"),
        incoming = soon(session.accept()) => incoming.expect("a channel"),
    };
    let mut channel = channel.accept();
    assert_eq!(session.stats().frames.2, 2);
    assert_eq!(soon(channel.read(&mut [0; 1])).await.expect("the end"), 0);
}

/// An agent that says its Hello and then `then`.
async fn raw_agent(tasks: &mut JoinSet<()>, stream: impl Stream + 'static, then: Bytes) -> FrameReader<Incoming> {
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("handshake");
    tasks.spawn(async move {
        connection.await.ok();
    });
    let hello = message(Frame { sequence: 0, acknowledged: 0, body: Body::Hello(Box::new(hello())) });
    let request = Request::post(format!("http://gateway.example{PATH}"))
        .header("content-type", "application/grpc")
        .header("authorization", "Bearer a-token")
        .body(pieces(vec![hello, then]))
        .expect("a request");
    let response = soon(sender.send_request(request)).await.expect("answered");
    let mut reader = FrameReader::new(response.into_body());
    let frame = soon(reader.next()).await.expect("readable").expect("a frame");
    assert!(matches!(frame.body, Body::Welcome(_)), "{frame:?}");
    reader
}

/// Lets an agent break a rule. Returns why its session ended and what it was told; a neighbour's session lives on.
async fn check_offender(offence: Bytes) -> (SessionError, Reason) {
    let app = App::echo().await;
    let neighbour = Pair::new(Wire::Memory).await;
    let mut tasks = JoinSet::new();
    let (here, there) = Wire::Memory.connect().await;
    let mut attached = gateway(&mut tasks, there, Settings::new(Side::Gateway));
    let mut reader = raw_agent(&mut tasks, here, offence).await;
    let (session, incoming) = soon(attached.recv()).await.expect("attached");
    let error = soon(driven_to_end(&session, incoming)).await;
    let told = loop {
        let body = soon(reader.next()).await.expect("readable").expect("told why").body;
        if let Body::Close { reason, .. } = body {
            break reason;
        }
        assert!(matches!(body, Body::Ping { .. } | Body::Acknowledge), "{body:?}");
    };
    let (mut channel, _accepted) = neighbour.gateway.channel(app.port);
    channel.write_all(b"still here").await.expect("written");
    let mut answer = [0; 10];
    soon(channel.read_exact(&mut answer)).await.expect("answered");
    assert_eq!(&answer, b"still here");
    drop((channel, app, reader));
    assert_eq!(session.stats().channels_live, 0);
    drop((session, attached));
    tasks.shutdown().await;
    neighbour.finish().await;
    (error, told)
}

#[tokio::test]
async fn peer_that_breaks_a_rule_loses_its_session_by_name_and_no_other() {
    let error = check_offender(too_large()).await;
    assert_eq!(error, (SessionError::Frame(FrameError::TooLarge { bytes: 1 << 20 }), Reason::Protocol));

    let error = check_offender(Bytes::from_static(b"\x01\0\0\0\0")).await;
    assert_eq!(error, (SessionError::Frame(FrameError::Field { field: "compression flag" }), Reason::Protocol));

    let finish = Body::Finish { channel: ChannelId::new(9) };
    let error = check_offender(message(Frame { sequence: 1, acknowledged: 0, body: finish.clone() })).await;
    assert_eq!(error, (SessionError::ChannelUnknown { channel: ChannelId::new(9) }, Reason::Protocol));

    let error = check_offender(message(Frame { sequence: 4, acknowledged: 0, body: finish })).await;
    assert_eq!(error, (SessionError::Sequence { expected: 1, got: 4 }, Reason::Protocol));
}

#[tokio::test]
async fn gateway_that_breaks_a_rule_is_told_so_by_the_agent() {
    let mut tasks = JoinSet::new();
    let (here, there) = Wire::Memory.connect().await;
    let (sender, mut requests) = tokio::sync::mpsc::channel(1);
    let service = service_fn(move |request: Request<Incoming>| {
        let sender = sender.clone();
        async move {
            sender.send(FrameReader::new(request.into_body())).await.expect("somebody waits");
            let response = Response::builder().header("content-type", "application/grpc");
            Ok::<_, Infallible>(response.body(pieces(vec![welcome_message(), too_large()])).expect("a response"))
        }
    });
    let connection =
        hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(there), service);
    tasks.spawn(async move {
        connection.await.ok();
    });
    let dialed = dialed(&mut tasks, here).await.expect("welcome");
    let agent = Session::new(Settings::new(Side::Agent));
    dialed.attach(agent.link());
    let mut heard = soon(requests.recv()).await.expect("a request");
    let error = soon(driven_to_end(&agent, dialed.reader)).await;
    assert_eq!(error, SessionError::Frame(FrameError::TooLarge { bytes: 1 << 20 }));
    let told = loop {
        match soon(heard.next()).await.expect("readable").map(|frame| frame.body) {
            Some(Body::Close { reason, .. }) => break reason,
            Some(_) => {}
            None => panic!("the stream ended without a reason"),
        }
    };
    assert_eq!(told, Reason::Protocol);
    drop((agent, heard));
    // This server never ends its answer: the agent's caller bounds its wait for the connection.
    tasks.shutdown().await;
    no_task_left().await;
}
