//! Sessions outlive their links: wires break at any byte in either direction, and no byte is lost, repeated or moved.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Empty};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tunnel_link::grpc::{Chunk, Code, DialedLink, RpcRefused, accept_response, dial, drive, refuse_response};
use tunnel_link::pace::PacedStream;
use tunnel_link::session::{LinkEnd, Session};
use tunnel_proto::frame::{Body, Frame};
use tunnel_proto::hello::{Hello, Resume, Resumed, Welcome};
use tunnel_proto::id::SessionId;
use tunnel_proto::limit::{PAYLOAD_BYTES_ALONE, REPLAY_STEP_BYTES};
use tunnel_proto::mux::{SessionError, Settings, Side};
use tunnel_proto::reason::Reason;

use crate::apps::{App, Pattern};
use crate::fuse::{Break, Fuse, Plan};
use crate::pair::{hello, no_task_left, serve, serve_rpc, soon, welcome};
use crate::wire::{Stream, Wire};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

const REPLAY_MAX: u64 = 512 * KIB as u64;

/// What may be kept at most: the bound, the step in which room for it is taken, one frame, and what is no payload.
const KEPT_MAX: u64 = REPLAY_MAX + REPLAY_STEP_BYTES + PAYLOAD_BYTES_ALONE as u64 + 128 * KIB as u64;

/// A link that stalls is given up after this.
const PATIENCE: Duration = Duration::from_millis(150);

/// Chance that is the same in every run.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }

    /// Within the handshake, shortly after it, or in the middle of everything.
    fn position(&mut self) -> usize {
        let most = [800, 8 * KIB, 300 * KIB, 2 * MIB][self.below(4)];
        self.below(most)
    }

    fn plan(&mut self) -> Plan {
        let how = [Break::End, Break::Reset, Break::End, Break::Reset, Break::Reset, Break::Stall][self.below(6)];
        let (read, written) = (self.position(), self.position());
        // Either direction may be the one that breaks first.
        match self.below(3) {
            0 => Plan { read, written: usize::MAX, how },
            1 => Plan { read: usize::MAX, written, how },
            _ => Plan { read, written, how },
        }
    }
}

/// Both ends of a session, and links between them that break.
struct Ends {
    gateway: Session,
    agent: Session,
    /// Links break no more.
    is_calm: Arc<AtomicBool>,
    links: Arc<AtomicUsize>,
    driving: Arc<Mutex<JoinSet<()>>>,
    tasks: JoinSet<()>,
}

impl Ends {
    fn new(wire: Wire, seed: u64, serves: bool) -> Self {
        let session = |side| {
            Session::new(Settings {
                resume_grace: Some(Duration::from_secs(60)),
                replay_max: REPLAY_MAX,
                keepalive_interval: PATIENCE,
                keepalive_timeout: PATIENCE,
                ..Settings::new(side)
            })
        };
        let (gateway, agent) = (session(Side::Gateway), session(Side::Agent));
        for session in [&gateway, &agent] {
            // They begin as if a first link had just broken.
            assert_eq!(session.link().lost(), LinkEnd::Lost);
        }
        let (is_calm, links) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let driving = Arc::default();
        let mut ends = Self { gateway, agent, is_calm, links, driving, tasks: JoinSet::new() };
        ends.start(wire, seed, serves);
        ends
    }

    fn start(&mut self, wire: Wire, seed: u64, serves: bool) {
        let (gateway, agent) = (self.gateway.clone(), self.agent.clone());
        let (is_calm, links, driving) = (self.is_calm.clone(), self.links.clone(), self.driving.clone());
        if serves {
            let session = agent.clone();
            self.tasks.spawn(async move { serve(&session).await });
        }
        self.tasks.spawn(async move {
            let mut random = Random::new(seed);
            let mut connections = JoinSet::new();
            while !agent.is_ended() {
                let plan = (!is_calm.load(Ordering::Relaxed)).then(|| random.plan());
                let (here, there) = wire.connect().await;
                answer(&mut connections, there, &gateway, &driving);
                links.fetch_add(1, Ordering::Relaxed);
                carry(&agent, Fuse::new(here, plan)).await;
                assert_eq!((gateway.broken_invariant(), agent.broken_invariant()), (None, None));
                for session in [&gateway, &agent] {
                    let kept = session.stats().replay_bytes;
                    assert!(kept <= KEPT_MAX, "{kept} bytes kept");
                }
            }
            // Each connection ends by itself, whatever became of its link.
            while let Some(ended) = connections.join_next().await {
                ended.expect("no panic");
            }
        });
    }

    /// Everything came through: nothing is kept, and nothing is left. Returns how many links it took.
    async fn finish<A>(mut self, apps: A) -> usize {
        self.is_calm.store(true, Ordering::Relaxed);
        for session in [&self.gateway, &self.agent] {
            until_idle(session).await;
            let stats = session.stats();
            assert_eq!((stats.channels_live, stats.window_bytes, stats.queued_bytes), (0, 0, 0));
        }
        drop(apps);
        let links = self.links.load(Ordering::Relaxed);
        self.gateway.close(Reason::Shutdown, "the test is over");
        let closed = SessionError::Closed { reason: Reason::Shutdown, detail: "the test is over".into() };
        soon(self.agent.ended()).await;
        assert_eq!((self.gateway.end(), self.agent.end()), (Some(closed.clone()), Some(closed)));
        soon(async {
            while let Some(ended) = self.tasks.join_next().await {
                ended.expect("no panic");
            }
        })
        .await;
        let mut driving = std::mem::take(&mut *self.driving.lock());
        soon(async {
            while let Some(ended) = driving.join_next().await {
                ended.expect("no panic");
            }
        })
        .await;
        drop(self);
        no_task_left().await;
        links
    }
}

async fn until_idle(session: &Session) {
    let idle = async {
        while session.stats().replay_bytes > 0 || session.stats().channels_live > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), idle).await.unwrap_or_else(|_| panic!("{:?}", session.stats()));
}

/// The gateway's end of one link.
fn answer(
    connections: &mut JoinSet<()>,
    stream: impl Stream + 'static,
    gateway: &Session,
    driving: &Arc<Mutex<JoinSet<()>>>,
) {
    let (gateway, driving) = (gateway.clone(), driving.clone());
    serve_rpc(connections, stream, move |mut reader, pace| {
        let (gateway, driving) = (gateway.clone(), driving.clone());
        async move {
            let asked = match reader.next().await {
                Ok(Some(Frame { body: Body::Hello(hello), .. })) => hello.resume,
                // It broke within its first frame.
                Ok(_) | Err(_) => None,
            };
            let Some(asked) = asked else {
                let refused = RpcRefused { code: Code::InvalidArgument, message: "no hello".into(), retry_after: None };
                return refuse_response::<Empty<Chunk>>(&refused).map(Either::Right);
            };
            let (link, received) = gateway.resume(asked.received).expect("honest books fit together");
            let answer =
                accept_response(Welcome { resumed: Some(Resumed { received }), ..welcome() }, link.clone(), pace);
            driving.lock().spawn(async move {
                drive(&link, reader).await;
                link.session().said().await;
            });
            answer.map(Either::Left)
        }
    });
}

/// The agent's end of one link, until it breaks.
async fn carry(agent: &Session, stream: Fuse) {
    let resume = Resume { session: SessionId::new(1), secret: Bytes::new(), received: agent.received() };
    let authority = "gateway.example:8081".parse().expect("authority");
    let hello = Hello { resume: Some(resume), ..hello() };
    let (stream, pace) = PacedStream::new(stream, |_stream, _bytes| None);
    let dialing = dial(stream, pace, authority, http::uri::Scheme::HTTP, Some("a-token"), hello);
    let Ok(Ok((connection, answer))) = tokio::time::timeout(2 * PATIENCE, dialing).await else { return };
    let mut connection = pin!(connection);
    let dialed = tokio::select! {
        answer = answer => answer,
        _ = connection.as_mut() => return,
        () = tokio::time::sleep(2 * PATIENCE) => return,
    };
    let Ok(dialed) = dialed else { return };
    let received = dialed.welcome.resumed.expect("it goes on").received;
    let (link, _) = agent.resume(received).expect("honest books fit together");
    dialed.attach(link.clone());
    let DialedLink { reader, .. } = dialed;
    let mut driver = Box::pin(drive(&link, reader));
    tokio::select! {
        end = driver.as_mut() => if matches!(end, LinkEnd::Over(_)) { connection.await.ok(); },
        _ = connection.as_mut() => drop(link.lost()),
    }
}

/// An app that checks what it is sent and answers with how much that was.
async fn sink(seed: usize) -> App {
    App::new(move |mut stream| async move {
        let count = Pattern::new(seed).check(&mut stream).await;
        stream.write_all(&(count as u64).to_be_bytes()).await.expect("answered");
        stream.shutdown().await.expect("finished");
    })
    .await
}

/// An app that sends so much and then ends.
async fn source(seed: usize, total: usize) -> App {
    App::new(move |mut stream| async move {
        Pattern::new(seed).write(&mut stream, total).await;
        stream.shutdown().await.expect("finished");
        stream.read_to_end(&mut Vec::new()).await.expect("the end");
    })
    .await
}

async fn echo(session: &Session, port: u16, total: usize) {
    let (mut reader, mut writer) = tokio::io::split(session.channel(port).0);
    let pattern = Pattern::new(1);
    let writing = async {
        pattern.write(&mut writer, total).await;
        writer.shutdown().await.expect("finished");
    };
    let (read, ()) = tokio::join!(pattern.check(&mut reader), writing);
    assert_eq!(read, total);
}

async fn upload(session: &Session, port: u16, seed: usize, total: usize) {
    let mut channel = session.channel(port).0;
    Pattern::new(seed).write(&mut channel, total).await;
    channel.shutdown().await.expect("finished");
    assert_eq!(channel.read_u64().await.expect("an answer"), total as u64);
    assert_eq!(channel.read(&mut [0; 1]).await.expect("the end"), 0);
}

async fn download(session: &Session, port: u16, seed: usize, total: usize) {
    let (mut channel, accepted) = session.open(port).expect("room");
    assert_eq!(accepted.await, Ok(Ok(())));
    assert_eq!(Pattern::new(seed).check(&mut channel).await, total);
    channel.shutdown().await.expect("finished");
}

/// Many short channels, one after the other, each with a question and its echo.
async fn keystrokes(session: &Session, port: u16, channels: usize) {
    for number in 0..channels {
        let mut channel = session.channel(port).0;
        for key in 0..10 {
            let sent = (number * 10 + key) as u64;
            channel.write_u64(sent).await.expect("written");
            assert_eq!(channel.read_u64().await.expect("echoed"), sent);
        }
        channel.shutdown().await.expect("finished");
        assert_eq!(channel.read(&mut [0; 1]).await.expect("the end"), 0);
    }
}

async fn check_breaking_links(wire: Wire, seeds: std::ops::Range<u64>) {
    let total = 6 * MIB;
    for seed in seeds {
        let apps = (App::echo().await, sink(2).await, source(3, total).await);
        let ends = Ends::new(wire, seed, true);
        let session = &ends.gateway;
        let everything = async {
            tokio::join!(
                echo(session, apps.0.port, total / 2),
                upload(session, apps.1.port, 2, total),
                download(session, apps.2.port, 3, total),
                keystrokes(session, apps.0.port, 40),
            )
        };
        let finished = tokio::time::timeout(Duration::from_secs(60), everything).await;
        assert!(
            finished.is_ok(),
            "stuck with seed {seed} after {:?} links: {:?} {:?}",
            ends.links,
            ends.gateway.stats(),
            ends.agent.stats()
        );
        let links = ends.finish(apps).await;
        assert!(links > 5, "only {links} links with seed {seed}");
    }
}

#[tokio::test]
async fn no_byte_is_lost_when_links_break_anywhere_over_memory() {
    check_breaking_links(Wire::Memory, 0..4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_byte_is_lost_when_links_break_anywhere_over_loopback() {
    check_breaking_links(Wire::Loopback, 100..104).await;
}
