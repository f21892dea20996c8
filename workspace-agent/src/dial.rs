//! Keeps an agent connected: dials, serves channels, redials with full jitter, and stops only when a person has to act.
//!
//! A session outlives its link if the gateway agrees: its channels run on while the agent dials again, and the next
//! link carries on where the last one broke off.

mod active_session;
mod connect;
mod credential;
mod decide;
mod lane;
mod link;
mod moving;
mod network;
mod seal;
mod served;
mod socket;
mod transport;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tunnel_link::backoff::Backoff;
use tunnel_link::grpc::{ConnectError, DialedLink};
use tunnel_link::session::{LinkHold, LinkRequest, Session};
use tunnel_proto::hello::{Hello, Role, Welcome};
use tunnel_proto::limit::{OPEN_CREDIT_BYTES, REPLAY_BYTES_MAX, RESUME_ANSWER_TIMEOUT, SESSION_BUDGET_BYTES};
use tunnel_proto::mux::{ReplicaBudget, SessionError, replay_budget};
use tunnel_proto::reason::Reason;
use tunnel_proto::version;

pub use tunnel_link::connect::DialedStream;
pub use tunnel_link::proxy::{BadProxy, Proxy};

pub use self::connect::{BadGateway, Gateway, GatewayConnection, GatewayError, Offer, TlsError};
pub use self::credential::{BadClientFiles, ClientFiles, ClientKey};
use self::decide::Streak;
pub(crate) use self::decide::with_sources;
pub use self::decide::{AfterFailure, DialFailure, decide};
pub use self::lane::{LaneKind, RelayLanes};
pub use self::network::{LocalMachine, Network};
pub use self::seal::LatestSeal;
pub use self::socket::AppSocket;
pub use self::transport::{DialHistory, Transport, TransportPlan, cannot_pass};

use self::active_session::ActiveSession;
pub(crate) use self::credential::read_token;
use self::link::{Greeting, LinkConnection};
use self::moving::{Moving, next};
use self::served::ServedLink;
use crate::{Ports, TokenSource};

/// Longest wait for a gateway's answer to a Hello while there is no session to save.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(15);

/// Longest time for a closing session to say so.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time for an agent that is asked to stop to say so, if its session has no link at that moment or waits
/// for its Welcome.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// Reason why an agent stopped for good. Each text says what a person can do.
#[derive(Debug, Error)]
pub enum DialEnded {
    /// The gateway refused this agent as it is.
    #[error("the gateway refused this agent: {message}")]
    Refused {
        /// The gateway's words.
        message: String,
    },
    /// A newer agent with the same token took over.
    #[error("a newer agent with the same token took over; run one agent per workspace")]
    Displaced,
    /// Its credential was revoked, or has ended for good.
    #[error("access was revoked: {message}")]
    Revoked {
        /// The gateway's words.
        message: String,
    },
    /// The workspace is not to run. No fault: whatever started the agent may end too.
    #[error("the workspace is not to run: {message}")]
    WorkspaceStopped {
        /// The gateway's words.
        message: String,
    },
    /// The token cannot be read.
    #[error("the token file {path} cannot be used")]
    Token {
        /// The file.
        path: String,
        /// Cause.
        #[source]
        error: std::io::Error,
    },
}

/// Event in the life of an agent.
#[derive(Clone, Copy, Debug)]
pub enum AgentEvent<'a> {
    /// It dials.
    Dialing,
    /// A link is up.
    Connected {
        /// Answer of the gateway.
        welcome: &'a Welcome,
        /// The session, new or resumed.
        session: &'a Session,
    },
    /// A session is over.
    SessionEnded {
        /// Reason of the end.
        error: &'a SessionError,
    },
    /// It waits before it dials again.
    Redialing {
        /// Wait before the dial.
        after: Duration,
        /// Reason of the dial.
        cause: &'a str,
    },
}

/// Observer of an agent's events. Called on the agent's task: it must not block.
pub type Observer = Box<dyn FnMut(AgentEvent<'_>) + Send>;

/// An agent on some network.
pub struct Agent<N> {
    /// Network through which it reaches its gateway and its ports.
    pub network: Arc<N>,
    /// Credential; read anew for each dial.
    pub token: TokenSource,
    /// Role of the agent.
    pub role: Role,
    /// Features of its role that it does not offer, as an older one would not.
    pub without: &'static [&'static str],
    /// Ports that it announces.
    pub ports: Arc<Ports>,
    /// Transports that its links may use.
    pub transport: Transport,
    /// Experience of earlier dials with them.
    pub memory: DialHistory,
    /// Back-off between attempts.
    pub backoff: Backoff,
    /// Random numbers, uniform in `0.0..1.0`.
    pub roll: Box<dyn FnMut() -> f64 + Send>,
    /// Number that tells a restart from a redial.
    pub instance: u64,
    /// Links that its session should have.
    pub lanes: u32,
    /// The lane that this agent is, if it is one.
    pub lane: Option<LaneKind>,
    /// Relay lanes that gateways asked for.
    pub relays: RelayLanes,
    /// Proof of the last session's generation.
    pub seal: LatestSeal,
    /// Memory budget of its sessions, together.
    pub budget: Arc<ReplicaBudget>,
    /// The part of it that they may keep for a resume, together.
    pub replay: Arc<ReplicaBudget>,
    /// Observer of its events.
    pub observer: Observer,
}

impl<N: fmt::Debug> fmt::Debug for Agent<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Agent").field("network", &self.network).finish_non_exhaustive()
    }
}

impl<N: Network> Agent<N> {
    /// Makes an agent with one link, the default back-off, random numbers from the system, and no observer.
    #[must_use]
    pub fn new(network: N, token: TokenSource, ports: Arc<Ports>) -> Self {
        Self {
            network: Arc::new(network),
            token,
            role: Role::Workspace,
            without: &[],
            ports,
            transport: Transport::default(),
            memory: DialHistory::default(),
            backoff: Backoff::default(),
            roll: Box::new(rand::random),
            instance: rand::random(),
            lanes: 1,
            lane: None,
            relays: RelayLanes::default(),
            seal: LatestSeal::default(),
            budget: ReplicaBudget::new(SESSION_BUDGET_BYTES),
            replay: replay_budget(REPLAY_BYTES_MAX),
            observer: Box::new(|_event| {}),
        }
    }

    /// Runs until `stop` or until only a person can help.
    ///
    /// # Errors
    /// [`DialEnded`] says what a person has to do.
    pub async fn run(self, stop: CancellationToken) -> Result<(), DialEnded> {
        self.run_from(None, stop).await
    }

    /// Runs like [`Agent::run`], from a link on that another task began to serve.
    async fn run_from(mut self, served: Option<ServedLink>, stop: CancellationToken) -> Result<(), DialEnded> {
        let mut carried = None;
        let result = self.keep_up(&mut carried, served, &stop).await;
        self.relays.close().await;
        if result.is_ok() && carried.as_ref().is_some_and(|carried| carried.session.is_detached()) {
            // Boxed: another dial in here would double what an agent takes for as long as it runs.
            Box::pin(self.say_goodbye(&mut carried, &stop)).await;
        }
        if let Some(carried) = carried {
            let session = carried.session.clone();
            carried.end(Reason::Shutdown).await;
            let error = session.end().unwrap_or(SessionError::Ended);
            (self.observer)(AgentEvent::SessionEnded { error: &error });
        }
        result
    }

    async fn keep_up(
        &mut self,
        carried: &mut Option<ActiveSession>,
        mut served: Option<ServedLink>,
        stop: &CancellationToken,
    ) -> Result<(), DialEnded> {
        let mut streak = Streak::default();
        loop {
            let started = Instant::now();
            let ended = match served.take() {
                Some(served) => Box::pin(Self::go_on(served, carried, stop)).await,
                None => {
                    (self.observer)(AgentEvent::Dialing);
                    // Hears of `stop` itself: a session that is up still has to say goodbye.
                    self.one_link(carried, stop, stop).await?
                }
            };
            let Some((failure, up)) = ended else { return Ok(()) };
            self.forget_ended(carried).await;
            if carried.is_none() && self.ends_with_its_session() {
                return Ok(());
            }
            streak.count(&failure, up, &self.backoff);
            let failures = streak.failures();
            let bounds = streak.bounds(&self.backoff, carried.is_some());
            match decide(failure, up, failures, (self.roll)(), &bounds) {
                AfterFailure::Stop(ended) => return Err(ended),
                AfterFailure::Redial { after, cause } => {
                    let lasted = started.elapsed();
                    warn!(
                        cause,
                        ?after,
                        attempt = failures,
                        ?lasted,
                        waits = carried.is_some(),
                        "not connected, dialing again"
                    );
                    (self.observer)(AgentEvent::Redialing { after, cause: &cause });
                    let waiting = stop.run_until_cancelled(tokio::time::sleep(after));
                    if ActiveSession::serving(carried.as_mut(), &self.network, waiting).await.is_none() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Drops a session that has ended.
    async fn forget_ended(&mut self, carried: &mut Option<ActiveSession>) {
        if let Some(over) = carried.take_if(|carried| carried.session.is_ended()) {
            let error = over.session.end().unwrap_or(SessionError::Ended);
            (self.observer)(AgentEvent::SessionEnded { error: &error });
            over.end(Reason::SessionLost).await;
        }
    }

    /// Tells the gateway over one last link that the agent does not come back for the session: the gateway would keep
    /// users waiting until the grace is over. An agent that does not get there in time leaves without a word.
    async fn say_goodbye(&mut self, carried: &mut Option<ActiveSession>, stop: &CancellationToken) {
        // A lane ends with its session, whose own agent says so.
        if self.lane.is_some() {
            return;
        }
        (self.observer)(AgentEvent::Dialing);
        let never = CancellationToken::new();
        // Dials although it was asked to stop; the session is then closed over this link.
        let last = self.one_link(carried, &never, stop);
        if tokio::time::timeout(GOODBYE_TIMEOUT, last).await.is_err() {
            warn!("this agent's goodbye did not reach the gateway in time");
        }
    }

    /// Dials once, unless it is told to give that up, and serves until the link ends or it was asked to stop. Returns
    /// `None` if it gave up or was asked to stop, and else why the link ended and how long it was up.
    async fn one_link(
        &mut self,
        carried: &mut Option<ActiveSession>,
        give_up: &CancellationToken,
        stop: &CancellationToken,
    ) -> Result<Option<(DialFailure, Duration)>, DialEnded> {
        let token = read_token(&self.token).await?;
        let network = self.network.clone();
        let plan = self.memory.plan(self.transport);
        let patience = if carried.is_some() { RESUME_ANSWER_TIMEOUT } else { WELCOME_TIMEOUT };
        // Boxed: the future is large, is moved several times, and is soon over.
        let greeting = Greeting { token, hello: self.hello(carried.as_ref()), patience };
        let dialing = Box::pin(link::dial(&*network, plan, greeting, give_up));
        let dialing = ActiveSession::serving(carried.as_mut(), &network, dialing);
        let Some(dialed) = dialing.await else { return Ok(None) };
        self.memory.learn(plan, dialed.as_ref().ok().map(|(_, dialed)| dialed.reader.via()));
        // The session's grace may have ended meanwhile.
        self.forget_ended(carried).await;
        let (connection, dialed) = match dialed {
            Ok(link) => link,
            Err(failure) => {
                if matches!(&failure, DialFailure::Rpc(ConnectError::Refused(refused)) if refused.loses_session()) {
                    self.lose(carried).await;
                }
                return Ok(Some((failure, Duration::ZERO)));
            }
        };
        let since = Instant::now();
        let end = self.serve(carried, dialed, connection, stop).await;
        Ok(end.map(|failure| (failure, since.elapsed())))
    }

    fn hello(&self, carried: Option<&ActiveSession>) -> Hello {
        Hello {
            versions: version::OURS,
            features: self.features(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            role: self.role,
            instance: self.instance,
            resume: carried.and_then(ActiveSession::resume),
            open_credit_bytes: OPEN_CREDIT_BYTES,
            ports: self.ports.exposed.clone(),
            default_port: self.ports.default,
            // Also beside a resume: a lane that cannot go on must not become a session of its own.
            join: self.lane.as_ref().and_then(LaneKind::join),
            lanes: self.lanes,
            apps: self.ports.apps.clone(),
            host: self.ports.host,
            relay: self.lane.as_ref().and_then(LaneKind::relay),
            seal: self.seal.get(),
        }
    }

    fn features(&self) -> Vec<String> {
        let all = version::features(self.role).iter();
        all.filter(|name| !self.without.contains(name)).map(|name| (*name).to_owned()).collect()
    }

    /// Drops a session that the gateway does not know any more.
    async fn lose(&mut self, carried: &mut Option<ActiveSession>) {
        if let Some(lost) = carried.take() {
            (self.observer)(AgentEvent::SessionEnded { error: &SessionError::LinkLost });
            lost.end(Reason::SessionLost).await;
        }
    }

    /// Gives a dialed link to a session: the one that waits for it, or a new one.
    ///
    /// # Errors
    /// The gateway's session and this side's do not fit together; a new dial then replaces both.
    async fn take_up(
        &mut self,
        carried: &mut Option<ActiveSession>,
        dialed: &DialedLink,
        stop: &CancellationToken,
    ) -> Result<LinkHold, SessionError> {
        let welcome = &dialed.welcome;
        let mut resumed = None;
        match carried.as_mut().map(|carried| carried.go_on(welcome)) {
            Some(Ok(link)) => resumed = Some(link),
            Some(Err(error)) => {
                warn!(%error, "the session could not be resumed, its connections end");
                self.lose(carried).await;
                if welcome.resumed.is_some() {
                    return Err(error);
                }
            }
            None => {}
        }
        let goes_on = resumed.is_some();
        let carried =
            carried.get_or_insert_with(|| ActiveSession::new(welcome, self.budget.clone(), self.replay.clone()));
        let link = resumed.unwrap_or_else(|| carried.session.link());
        dialed.attach(link.clone());
        // Lanes get none, and show that of the session.
        if self.lane.is_none() {
            self.seal.set(welcome.seal.clone());
        }
        (self.observer)(AgentEvent::Connected { welcome, session: &carried.session });
        info!(
            workspace = %welcome.workspace, session = %welcome.session, generation = %welcome.generation,
            gateway = %self.network.origin().0, resumed = goes_on, via = %dialed.reader.via(),
            proxy = self.network.proxy().map(tracing::field::display), "connected"
        );
        if !goes_on {
            self.add_lanes(carried, welcome, stop);
        }
        Ok(link)
    }

    /// Serves one link of a session, new or resumed, and moves to another replica when the gateway asks for that; `None`
    /// if it was asked to stop.
    async fn serve(
        &mut self,
        carried: &mut Option<ActiveSession>,
        dialed: DialedLink,
        connection: LinkConnection,
        stop: &CancellationToken,
    ) -> Option<DialFailure> {
        // Boxed, as all that is soon over: this future lives as long as the link.
        let mut served = match Box::pin(self.begin(carried, dialed, connection, stop)).await {
            Ok(served) => served?,
            Err(error) => return Some(DialFailure::Session(error)),
        };
        // Asked over an earlier link, which broke before the agent had moved.
        let asked = served.session.drain_request().filter(|asked| asked.moves && self.lane.is_none());
        let mut moving: Option<Moving> = asked.and_then(|asked| self.begin_move(asked.redial_after, stop));
        loop {
            let session = served.session.clone();
            tokio::select! {
                over = served.over() => {
                    *carried = Some(over.carried);
                    return over.failure;
                }
                Some(seal) = session.seal_renewed(), if self.lane.is_none() => self.seal.set(seal),
                Some(request) = session.link_request(), if self.lane.is_none() => match request {
                    LinkRequest::Lane(wanted) => self.add_relay(wanted),
                    LinkRequest::Move { within } => moving = self.begin_move(within, stop),
                },
                dialed = next(&mut moving) => match dialed {
                    Ok((connection, dialed)) => {
                        moving = None;
                        self.hand_over(served);
                        served = match Box::pin(self.begin(carried, dialed, connection, stop)).await {
                            Ok(served) => served?,
                            Err(error) => return Some(DialFailure::Session(error)),
                        };
                    }
                    Err(failure) => moving = moving.map(|before| self.move_again(before, &failure, stop)),
                },
            }
        }
    }

    /// Begins to serve a dialed link.
    async fn begin(
        &mut self,
        carried: &mut Option<ActiveSession>,
        dialed: DialedLink,
        connection: LinkConnection,
        stop: &CancellationToken,
    ) -> Result<Option<ServedLink>, SessionError> {
        let link = self.take_up(carried, &dialed, stop).await?;
        let (network, reader) = (self.network.clone(), dialed.reader);
        let served = |carried| ServedLink::new(network, carried, link, reader, connection, stop.clone());
        Ok(carried.take().map(served))
    }

    /// Serves a link that another task began to serve, until it is over.
    async fn go_on(
        mut served: ServedLink,
        carried: &mut Option<ActiveSession>,
        stop: &CancellationToken,
    ) -> Option<(DialFailure, Duration)> {
        let since = Instant::now();
        let over = match stop.run_until_cancelled(served.over()).await {
            Some(over) => over,
            None => {
                served.session.close(Reason::Shutdown, "the agent is shutting down");
                served.over().await
            }
        };
        *carried = Some(over.carried);
        over.failure.map(|failure| (failure, since.elapsed()))
    }
}

#[cfg(test)]
mod tests;
