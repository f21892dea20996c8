use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::{Mutex, OnceLock};
use std::task::Poll;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tunnel_link::grpc::{FrameReader, accept_response, server_builder};
use tunnel_link::pace::Pace;
use tunnel_proto::hello::Welcome;
use tunnel_proto::id::{Generation, SessionId};
use tunnel_proto::limit::{CHANNELS_MAX, PAYLOAD_BYTES_MAX};
use tunnel_proto::mux::{Settings, Side};
use tunnel_proto::target::{AppTls, Target};

use tunnel_link::grpc::drive;

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
        resume_secret: Bytes::new(),
        workspace: "well".into(),
        resume_grace: Duration::ZERO,
        resumed: None,
        lanes: 0,
        join_secret: Bytes::new(),
        workspace_url: String::new(),
        seal: Bytes::new(),
    }
}

/// Takes one agent and hands out its session, and how it ends. The agent hears that it is let in once it may.
async fn gateway(stream: DuplexStream, events: mpsc::Sender<Result<Session, SessionError>>, may: CancellationToken) {
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let (events, may) = (events.clone(), may.clone());
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
            may.cancelled().await;
            Ok::<_, Infallible>(accept_response(welcome(), session.link(), Pace::unbounded()))
        }
    });
    let minute = Duration::from_secs(60);
    // How it ends is seen at the session.
    server_builder(minute, minute).serve_connection(TokioIo::new(stream), service).await.ok();
}

#[tokio::test(start_paused = true)]
async fn agent_that_is_asked_to_stop_says_so_to_its_gateway() {
    check_goodbye(true).await;
}

#[tokio::test(start_paused = true)]
async fn agent_that_is_asked_to_stop_while_it_is_let_in_says_so_too() {
    check_goodbye(false).await;
}

/// `is_up`: the agent has its session when it is asked to stop; else the gateway alone has it.
async fn check_goodbye(is_up: bool) {
    // Which of two things that are ready is taken is a matter of chance, so once is not enough.
    for _ in 0..8 {
        let (here, there) = tokio::io::duplex(64 * 1024);
        let (asked, _ports) = mpsc::channel(1);
        let network = OneLink { link: Mutex::new(Some(here)), asked };
        let agent = Agent::new(network, TokenSource::Value("a-token".into()), Ports::default().into());
        let (sender, mut events) = mpsc::channel::<Result<Session, SessionError>>(2);
        let (stop, may) = (CancellationToken::new(), CancellationToken::new());
        let stopper = stop.clone();
        let test = async {
            let session = events.recv().await.expect("an event").expect("a session");
            if is_up {
                may.cancel();
                // The agent's end is up too once it has answered something.
                let (channel, answer) = session.open(1).expect("an open session");
                assert!(answer.await.expect("an answer").is_err(), "nothing listens there");
                drop(channel);
            }
            stopper.cancel();
            let since = Instant::now();
            // The agent has noticed, and the gateway not.
            tokio::task::yield_now().await;
            may.cancel();
            let end = events.recv().await.expect("an event").expect_err("the end");
            (end, since)
        };
        let all = async { tokio::join!(agent.run(stop), gateway(there, sender, may.clone()), test) };
        let (ran, (), (end, since)) = tokio::time::timeout(Duration::from_secs(20), all).await.expect("in time");
        assert!(ran.is_ok(), "{ran:?}");
        assert!(since.elapsed() < CLOSE_TIMEOUT, "it waits for nothing that it could do itself");
        assert!(matches!(end, SessionError::Closed { reason: Reason::Shutdown, .. }), "{end:?}");
    }
}

/// A network with one link; whoever dials again waits for ever.
#[derive(Debug)]
struct OneLink {
    link: Mutex<Option<DuplexStream>>,
    asked: mpsc::Sender<Target>,
}

impl Network for OneLink {
    type Socket = DuplexStream;

    async fn dial(&self, _offer: Offer) -> Result<GatewayConnection, DialFailure> {
        let link = self.link.lock().expect("nobody panicked").take();
        match link {
            Some(stream) => Ok(GatewayConnection::new(stream, |_stream, _bytes| None)),
            None => pending().await,
        }
    }

    fn origin(&self) -> (Authority, Scheme) {
        (Authority::from_static("gateway.example:8081"), Scheme::HTTP)
    }

    async fn port(&self, target: Target) -> Result<DuplexStream, Reason> {
        self.asked.send(target).await.expect("the test listens");
        Err(Reason::PortClosed)
    }

    fn own_tls(&self, _port: u16) -> AppTls {
        AppTls::Http2
    }
}

/// Takes an agent, opens a channel, and is gone in the very moment in which that was said.
async fn gateway_that_goes_after_an_open(stream: DuplexStream, port: u16) {
    let grace = Duration::from_secs(30);
    let held = Arc::new(OnceLock::new());
    let slot = held.clone();
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let slot = slot.clone();
        async move {
            let mut reader = FrameReader::new(request.into_body());
            reader.next().await.expect("readable").expect("a hello");
            let session = Session::new(Settings { resume_grace: Some(grace), ..Settings::new(Side::Gateway) });
            let opened = session.open(port).expect("room");
            let welcome = Welcome { resume_secret: Bytes::from_static(b"next"), resume_grace: grace, ..welcome() };
            let response = accept_response(welcome, session.link(), Pace::unbounded());
            assert!(slot.set((session, opened, reader)).is_ok(), "one link");
            Ok::<_, Infallible>(response)
        }
    });
    let minute = Duration::from_secs(60);
    let mut serving = pin!(server_builder(minute, minute).serve_connection(TokioIo::new(stream), service));
    std::future::poll_fn(|context| {
        assert!(serving.as_mut().poll(context).is_pending(), "the agent stays");
        let said = held.get().is_some_and(|(session, ..)| session.stats().frames.0 > 0);
        if said { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn channel_that_was_opened_just_before_the_link_broke_is_served_without_waiting_for_the_next() {
    let day = Duration::from_secs(24 * 60 * 60);
    // Whether the agent waits to dial, or dials without getting anywhere.
    for roll in [1.0, 0.0] {
        let (here, there) = tokio::io::duplex(64 * 1024);
        let (asked, mut ports) = mpsc::channel(1);
        let network = OneLink { link: Mutex::new(Some(here)), asked };
        let agent = Agent {
            backoff: Backoff { first: day, max: day, absence_max: day, ..Backoff::default() },
            roll: Box::new(move || roll),
            ..Agent::new(network, TokenSource::Value("a-token".into()), Ports::default().into())
        };
        let gateway = async {
            gateway_that_goes_after_an_open(there, 80).await;
            pending::<Target>().await
        };
        let port = async {
            tokio::select! {
                ended = agent.run(CancellationToken::new()) => panic!("{ended:?}"),
                port = gateway => port,
                port = ports.recv() => port.expect("the agent runs"),
            }
        };
        // This gateway knows nothing of TLS to apps, so the agent's own settings count.
        let asked = Target { port: 80, tls: AppTls::Http2 };
        assert_eq!(tokio::time::timeout(Duration::from_secs(10), port).await, Ok(asked), "{roll}");
    }
}
