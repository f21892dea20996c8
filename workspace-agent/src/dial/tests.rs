use std::convert::Infallible;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tunnel_link::grpc::{FrameReader, accept_response, server_builder};
use tunnel_link::pace::Pace;
use tunnel_proto::hello::Welcome;
use tunnel_proto::id::{Generation, SessionId};
use tunnel_proto::limit::{CHANNELS_MAX, PAYLOAD_BYTES_MAX};
use tunnel_proto::mux::{Settings, Side};

use super::*;
use crate::Ports;

fn welcome() -> Welcome {
    Welcome {
        version: version::VERSION_MAX,
        features: Vec::new(),
        session: SessionId::new(1),
        generation: Generation::new(1),
        channels_max: CHANNELS_MAX,
        payload_bytes_max: u32::try_from(PAYLOAD_BYTES_MAX).expect("small"),
        keepalive_interval: Duration::from_secs(20),
        keepalive_timeout: Duration::from_secs(10),
        resume_secret: bytes::Bytes::new(),
        workspace: "well".into(),
        resume_grace: Duration::ZERO,
        resumed: None,
        lanes: 0,
        join_secret: bytes::Bytes::new(),
    }
}

/// Takes one agent and hands out its session, and how it ends.
async fn gateway(listener: &TcpListener, events: mpsc::Sender<Result<Session, SessionError>>) {
    let (stream, _) = listener.accept().await.expect("an agent");
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let events = events.clone();
        async move {
            let mut reader = FrameReader::new(request.into_body());
            reader.next().await.expect("readable").expect("a hello");
            let session = Session::new(Settings::new(Side::Gateway));
            let driven = session.clone();
            let mut driver = JoinSet::new();
            driver.spawn(async move {
                events.send(Ok(driven.clone())).await.expect("the test listens");
                events
                    .send(Err(drive(&driven.link(), reader).await.over().expect("the end")))
                    .await
                    .expect("the test listens");
            });
            driver.detach_all();
            Ok::<_, Infallible>(accept_response(welcome(), session.link(), Pace::unbounded()))
        }
    });
    let minute = Duration::from_secs(60);
    // How it ends is seen at the session.
    server_builder(minute, minute).serve_connection(TokioIo::new(stream), service).await.ok();
}

#[tokio::test]
async fn agent_that_is_asked_to_stop_says_so_to_its_gateway() {
    // Which of two things that are ready is taken is a matter of chance, so once is not enough.
    for _ in 0..8 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let options = crate::Options {
            lanes: 1,
            gateway: Gateway::parse(&format!("http://{address}"), None).expect("an address"),
            transport: Transport::default(),
            token: TokenSource::Value("a-token".into()),
            ports: Ports::default().into(),
        };
        let (sender, mut events) = mpsc::channel::<Result<Session, SessionError>>(2);
        let stop = CancellationToken::new();
        let asked = stop.clone();
        let test = async {
            let session = events.recv().await.expect("an event").expect("a session");
            // The agent's end is up too once it has answered something.
            let (channel, answer) = session.open(1).expect("an open session");
            assert!(answer.await.expect("an answer").is_err(), "nothing listens there");
            drop(channel);
            asked.cancel();
            let since = Instant::now();
            let end = events.recv().await.expect("an event").expect_err("the end");
            (end, since)
        };
        let all = async { tokio::join!(crate::run(options, stop), gateway(&listener, sender), test) };
        let (ran, (), (end, since)) = tokio::time::timeout(Duration::from_secs(20), all).await.expect("in time");
        assert!(ran.is_ok(), "{ran:?}");
        assert!(since.elapsed() < CLOSE_TIMEOUT, "it waits for nothing that it could do itself");
        assert!(matches!(end, SessionError::Closed { reason: Reason::Shutdown, .. }), "{end:?}");
    }
}
