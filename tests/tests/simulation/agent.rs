//! An agent's host: `workspace_agent::dial` over simulated TCP, with the real redial decision, and apps beside it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tunnel_link::grpc::{ConnectError, Dialed, dial as dial_rpc, drive};
use tunnel_link::session::{Incoming, Session};
use tunnel_link::splice::splice;
use tunnel_proto::hello::{Hello, Role};
use tunnel_proto::limit::OPEN_CREDIT_BYTES;
use tunnel_proto::mux::{SessionError, Settings, Side};
use tunnel_proto::reason::Reason;
use tunnel_proto::version;
use turmoil::net::TcpStream;
use workspace_agent::dial::{DialFailure, Next, decide};

use crate::apps;
use crate::gateway_host::PORT;
use crate::net::{GATEWAY, Rolls};
use crate::shared::{Shared, Witness};

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a gateway may take to answer a Hello.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a closing session may take to say so.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Which agents run on a host.
#[derive(Clone, Debug)]
pub(crate) struct AgentPlan {
    pub(crate) host: String,
    pub(crate) workspaces: Vec<String>,
    pub(crate) seed: u64,
}

struct Agent {
    shared: Arc<Shared>,
    host: String,
    workspace: String,
    rolls: Rolls,
}

/// The host's processes.
pub(crate) async fn run(shared: Arc<Shared>, plan: AgentPlan) -> turmoil::Result {
    let mut tasks = JoinSet::new();
    apps::start(&mut tasks, &shared).await?;
    let mut rolls = Rolls::new(plan.seed);
    for workspace in plan.workspaces {
        let rolls = Rolls::new(rolls.next());
        tasks.spawn(Agent { shared: shared.clone(), host: plan.host.clone(), workspace, rolls }.run());
    }
    while let Some(done) = tasks.join_next().await {
        // A failed expectation in a task fails the host, and with it the test.
        done?;
    }
    Ok(())
}

impl Agent {
    async fn run(mut self) {
        let backoff = self.shared.backoff;
        let stop = self.shared.stop.clone();
        let mut failures = 0;
        loop {
            self.shared.dialed(&self.workspace);
            let Some((failure, up)) = self.one_link().await else {
                self.shared.note(&self.host, format_args!("agent of {} was shut down", self.workspace));
                return;
            };
            failures = backoff.failures_after(failures, up).saturating_add(1);
            match decide(failure, failures, self.rolls.unit(), &backoff) {
                Next::Stop(ended) => return self.shared.agent_stopped(&self.host, ended),
                Next::Redial { after, cause } => {
                    self.shared.note(&self.host, format_args!("{} redials after {after:?}: {cause}", self.workspace));
                    drop(tokio::time::timeout(after, stop.cancelled()).await);
                }
            }
        }
    }

    /// Dials once and serves until the link ends. `None` when it was asked to stop.
    async fn one_link(&self) -> Option<(DialFailure, Duration)> {
        let failed = |failure| Some((failure, Duration::ZERO));
        let stop = &self.shared.stop;
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((GATEWAY, PORT)));
        let stream = match stop.run_until_cancelled(connecting).await? {
            Err(_elapsed) => return failed(DialFailure::ConnectTimedOut),
            Ok(Err(error)) => return failed(DialFailure::Connect(error)),
            Ok(Ok(stream)) => stream,
        };
        let authority = "gateway.example:8081".parse().expect("authority");
        let dialing = dial_rpc(stream, authority, http::uri::Scheme::HTTP, &self.workspace, hello());
        let (connection, answer) = match dialing.await {
            Ok(halves) => halves,
            Err(error) => return failed(DialFailure::Rpc(error)),
        };
        let mut connection = pin!(connection);
        let mut answer = pin!(tokio::time::timeout(WELCOME_TIMEOUT, answer));
        let answer = async {
            tokio::select! {
                biased;
                answer = &mut answer => Some(answer),
                // What was received before the end is still there to be read.
                _ = connection.as_mut() => tokio::time::timeout(Duration::ZERO, answer).await.ok(),
            }
        };
        let dialed = match stop.run_until_cancelled(answer).await? {
            Some(Ok(Ok(dialed))) => dialed,
            Some(Ok(Err(error))) => return failed(DialFailure::Rpc(error)),
            Some(Err(_elapsed)) => return failed(DialFailure::WelcomeTimedOut),
            None => return failed(DialFailure::Rpc(ConnectError::NoWelcome)),
        };
        let since = Instant::now();
        let failure = self.serve(dialed, connection).await?;
        Some((failure, since.elapsed()))
    }

    async fn serve(
        &self,
        dialed: Dialed,
        mut connection: Pin<&mut impl Future<Output = Result<(), hyper::Error>>>,
    ) -> Option<DialFailure> {
        let welcome = &dialed.welcome;
        let session = Session::new(Settings {
            channels_max: welcome.channels_max,
            keepalive_interval: welcome.keepalive_interval,
            keepalive_timeout: welcome.keepalive_timeout,
            ..Settings::new(Side::Agent)
        });
        dialed.attach(session.clone());
        let place = self.shared.session_up(Witness {
            host: self.host.clone(),
            workspace: self.workspace.clone(),
            side: Side::Agent,
            generation: welcome.generation.get(),
            session: session.clone(),
            end: None,
        });
        let mut channels = JoinSet::new();
        let Dialed { reader, .. } = dialed;
        let mut driver = Box::pin(drive(&session, reader));
        // Set when the connection has ended: what was received before is still read, but not for ever.
        let mut lost_at = None;
        let end = loop {
            tokio::select! {
                error = driver.as_mut() => break Some(error),
                _ = connection.as_mut(), if lost_at.is_none() => lost_at = Some(Instant::now() + CLOSE_TIMEOUT),
                () = at(lost_at) => session.link_lost(),
                incoming = session.accept() => if let Some(incoming) = incoming {
                    channels.spawn(serve_channel(incoming));
                },
                Some(done) = channels.join_next(), if !channels.is_empty() => done.expect("channels do not fail"),
                () = self.shared.stop.cancelled() => {
                    session.close(Reason::Shutdown, "the agent is shutting down");
                    break None;
                }
            }
            if session.is_ended() {
                break Some(driver.as_mut().await);
            }
        };
        self.shared.session_ended(place, end.clone().unwrap_or(SessionError::Ended));
        channels.shutdown().await;
        drop(driver);
        if lost_at.is_none() {
            drop(tokio::time::timeout(CLOSE_TIMEOUT, connection).await);
        }
        match (end, session.drain_request()) {
            (Some(SessionError::Closed { reason: Reason::Shutdown, .. }), Some(request)) => {
                Some(DialFailure::Drained { redial_after: request.redial_after })
            }
            (end, _) => end.map(DialFailure::Session),
        }
    }
}

/// Waits until a time; for ever if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn serve_channel(incoming: Incoming) {
    let connected = tokio::select! {
        () = incoming.abandoned() => return,
        connected = TcpStream::connect(("127.0.0.1", incoming.port)) => connected,
    };
    match connected {
        Err(_) => incoming.refuse(Reason::PortClosed),
        Ok(socket) => {
            // How it ends is seen at the other end.
            splice(incoming.accept(), socket).await.ok();
        }
    }
}

fn hello() -> Hello {
    Hello {
        versions: version::OURS,
        features: Vec::new(),
        agent_version: "1.0.0".into(),
        role: Role::Workspace,
        instance: 1,
        resume: None,
        open_credit_bytes: OPEN_CREDIT_BYTES,
        ports: Vec::new(),
        default_port: None,
    }
}
