use std::convert::Infallible;

use bytes::BytesMut;
use futures_util::{StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::{Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tunnel_link::grpc::{FrameReader, drive};
use tunnel_link::session::Session;
use tunnel_proto::frame::{self, Body};
use tunnel_proto::id::ChannelId;
use tunnel_proto::mux::{Settings, Side};

use super::*;

const UPLOAD: &str = "PUT / HTTP/1.1\r\nhost: app\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";

/// A user's request as it comes in, and the user's end, who has said no byte of the body.
async fn upload(tasks: &mut JoinSet<()>) -> (Request<Incoming>, tokio::io::DuplexStream) {
    let (mut user, here) = tokio::io::duplex(1024);
    let (sender, mut requests) = mpsc::channel(1);
    tasks.spawn(async move {
        let service = service_fn(|request| {
            let sender = sender.clone();
            async move {
                sender.send(request).await.expect("somebody waits");
                std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>().await
            }
        });
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(here), service).await.ok();
    });
    user.write_all(UPLOAD.as_bytes()).await.expect("room");
    (requests.recv().await.expect("a request"), user)
}

/// Has these frames come from the agent; its link stays.
fn arrive(tasks: &mut JoinSet<()>, session: &Session, bodies: Vec<Body>) {
    let messages = bodies.into_iter().zip(1..).map(|(body, sequence)| {
        let (mut head, mut message) = (BytesMut::new(), BytesMut::from(&[0][..]));
        let payload = frame::Frame { sequence, acknowledged: 0, body }.encode(&mut head);
        let length = u32::try_from(head.len() + payload.len()).expect("a short one");
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(&head);
        message.extend_from_slice(&payload);
        Ok::<_, Infallible>(Frame::data(message.freeze()))
    });
    let messages = stream::iter(messages.collect::<Vec<_>>()).chain(stream::pending());
    let session = session.clone();
    tasks.spawn(async move {
        drive(&session.link(), FrameReader::new(StreamBody::new(messages))).await;
    });
}

/// Asks an app, which says something at once, and looks for its answer when the time for its word is over. Returns the
/// connection, and the answer if there is one.
async fn asked_and_looked_at_late(said: &'static [u8]) -> (Box<Http1Connection>, Poll<Result<Head, Error>>) {
    let mut tasks = JoinSet::new();
    let session = Session::new(Settings::new(Side::Gateway));
    let (channel, _accepted) = session.open(80).expect("room");
    let mut connection = Http1Connection::new(channel, Arc::default());
    let (request, _user) = upload(&mut tasks).await;
    let (parts, body) = request.into_parts();
    connection.begin(Outgoing::new(&parts, RequestBody::new(body, 1, None).0, true).expect("a request"));
    let mut context = Context::from_waker(Waker::noop());
    assert!(connection.poll_head(&mut context).is_pending());
    let channel = ChannelId::new(1);
    let accept = Body::Accept { channel, credit_bytes: 0 };
    arrive(&mut tasks, &session, vec![accept, Body::Data { channel, payload: Bytes::from_static(said) }]);
    // Everything has come by then, and nobody has looked.
    tokio::time::sleep(2 * CONTINUE_TIMEOUT).await;
    let head = connection.poll_head(&mut context);
    (connection, head)
}

#[tokio::test(start_paused = true)]
async fn refusal_that_is_read_late_still_gets_nothing_of_the_body() {
    let (connection, head) =
        asked_and_looked_at_late(b"HTTP/1.1 417 Expectation Failed\r\ncontent-length: 0\r\n\r\n").await;
    let Poll::Ready(Ok(head)) = head else { panic!("{head:?}") };
    assert_eq!(head.status, StatusCode::EXPECTATION_FAILED);
    assert!(matches!(connection.upload, Upload::NotAsked { .. }), "{:?}", connection.upload);
}

#[tokio::test(start_paused = true)]
async fn body_is_held_back_no_longer_than_the_time_for_the_apps_word() {
    // Half of a head says nothing yet.
    let (connection, head) = asked_and_looked_at_late(b"HTTP/1.1 ").await;
    assert!(head.is_pending(), "{head:?}");
    assert!(matches!(connection.upload, Upload::Sending { hold: None, .. }), "{:?}", connection.upload);
}
