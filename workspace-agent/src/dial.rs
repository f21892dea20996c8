//! Stay connected: dial, serve channels, redial with full jitter, and stop only when a person has to act.

mod connect;
mod decide;
mod link;
mod proxy;
mod transport;

use std::time::Duration;

use thiserror::Error;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use tunnel_link::backoff::Backoff;
use tunnel_link::grpc::{Dialed, drive};
use tunnel_link::session::{Incoming, Session};
use tunnel_link::splice::splice;
use tunnel_proto::hello::{Hello, Role};
use tunnel_proto::limit::OPEN_CREDIT_BYTES;
use tunnel_proto::mux::{SessionError, Settings, Side};
use tunnel_proto::reason::Reason;
use tunnel_proto::version;

pub use self::connect::{BadGateway, Gateway, TlsError};
pub use self::decide::{DialFailure, Next, decide};
use self::link::Connection;
pub use self::proxy::{BadProxy, Proxy};
pub use self::transport::{Memory, Plan, Transport, cannot_pass};

use crate::{Options, TokenSource, ports};

/// How long a gateway may take to answer a Hello.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a closing session may take to say so.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why an agent stopped for good. Each text says what a person can do.
#[derive(Debug, Error)]
pub enum Ended {
    /// The gateway does not want this agent as it is.
    #[error("the gateway refused this agent: {message}")]
    Refused {
        /// The gateway's words.
        message: String,
    },
    /// A newer agent with the same token took over.
    #[error("a newer agent with the same token took over; run one agent per workspace")]
    Displaced,
    /// The token was revoked.
    #[error("access was revoked: {message}")]
    Revoked {
        /// The gateway's words.
        message: String,
    },
    /// The token cannot be read.
    #[error("the token file {path} cannot be used")]
    Token {
        /// The file.
        path: String,
        /// Why.
        #[source]
        error: std::io::Error,
    },
}

/// Runs until `stop` or until only a person can help.
pub(crate) async fn run(options: Options, stop: CancellationToken) -> Result<(), Ended> {
    let backoff = Backoff::default();
    let instance = rand::random();
    let mut failures = 0;
    let mut memory = Memory::default();
    loop {
        let started = Instant::now();
        // Hears of `stop` itself: a session that is up still has to say goodbye.
        let Some((failure, up)) = one_link(&options, instance, &mut memory, &stop).await? else { return Ok(()) };
        failures = backoff.failures_after(failures, up).saturating_add(1);
        match decide(failure, failures, rand::random(), &backoff) {
            Next::Stop(ended) => return Err(ended),
            Next::Redial { after, cause } => {
                warn!(cause, after = ?after, attempt = failures, lasted = ?started.elapsed(), "not connected, dialing again");
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    () = tokio::time::sleep(after) => {}
                }
            }
        }
    }
}

/// Dials once and serves until the link ends. `None` when it was asked to stop; else why it ended and how long it was
/// up.
async fn one_link(
    options: &Options,
    instance: u64,
    memory: &mut Memory,
    stop: &CancellationToken,
) -> Result<Option<(DialFailure, Duration)>, Ended> {
    let token = read_token(&options.token).await?;
    let hello = Hello {
        versions: version::OURS,
        features: version::FEATURES.iter().map(|name| (*name).to_owned()).collect(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        role: Role::Workspace,
        instance,
        resume: None,
        open_credit_bytes: OPEN_CREDIT_BYTES,
        ports: options.ports.exposed.clone(),
        default_port: options.ports.default,
    };
    let plan = memory.plan(options.transport);
    let dialing = link::dial(&options.gateway, plan, &token, hello);
    let Some(dialed) = stop.run_until_cancelled(dialing).await else { return Ok(None) };
    memory.learn(plan, dialed.as_ref().ok().map(|(_, dialed)| dialed.reader.via()));
    let (connection, dialed) = match dialed {
        Ok(link) => link,
        Err(failure) => return Ok(Some((failure, Duration::ZERO))),
    };
    let since = Instant::now();
    let end = serve(options, dialed, connection, stop).await;
    Ok(end.map(|failure| (failure, since.elapsed())))
}

/// Serves one session; `None` when it was asked to stop.
async fn serve(
    options: &Options,
    dialed: Dialed,
    mut connection: Connection,
    stop: &CancellationToken,
) -> Option<DialFailure> {
    let welcome = &dialed.welcome;
    let session = Session::new(Settings {
        channels_max: welcome.channels_max,
        keepalive_interval: welcome.keepalive_interval,
        keepalive_timeout: welcome.keepalive_timeout,
        ..Settings::new(Side::Agent)
    });
    dialed.attach(session.clone());
    info!(
        workspace = %welcome.workspace, session = %welcome.session, generation = %welcome.generation,
        gateway = %options.gateway, via = %dialed.reader.via(), proxy = options.gateway.proxy().map(tracing::field::display), "connected"
    );
    let mut channels = JoinSet::new();
    let Dialed { reader, .. } = dialed;
    let mut driver = Box::pin(drive(&session, reader));
    // Set when the connection has ended: what was received before, a Close among it, is still read, but not for ever.
    let mut lost_at = None;
    let end = loop {
        tokio::select! {
            error = driver.as_mut() => break Some(error),
            () = connection.as_mut(), if lost_at.is_none() => {
                lost_at = Some(Instant::now() + CLOSE_TIMEOUT);
            }
            () = at(lost_at) => session.link_lost(),
            incoming = session.accept() => if let Some(incoming) = incoming {
                channels.spawn(serve_channel(options.ports.clone(), incoming));
            },
            Some(_) = channels.join_next(), if !channels.is_empty() => {}
            () = stop.cancelled() => {
                session.close(Reason::Shutdown, "the agent is shutting down");
                break None;
            }
        }
        if session.is_ended() {
            break Some(driver.as_mut().await);
        }
    };
    // Every channel was reset with the session; their sockets close as the tasks end.
    channels.shutdown().await;
    // The reader keeps the stream open, and the frame that says why is still to be sent.
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

/// Waits until a time; for ever if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn serve_channel(ports: std::sync::Arc<ports::Ports>, incoming: Incoming) {
    let port = incoming.port;
    let connected = tokio::select! {
        // Nobody waits any more: make no connection for them.
        () = incoming.abandoned() => return,
        connected = ports::connect(&ports, port) => connected,
    };
    match connected {
        Err(reason) => {
            debug!(port, %reason, "channel refused");
            incoming.refuse(reason);
        }
        Ok(socket) => match splice(incoming.accept(), socket).await {
            Ok(copied) => debug!(port, inward = copied.inward, outward = copied.outward, "channel ended"),
            Err(error) => debug!(port, %error, "channel broke"),
        },
    }
}

async fn read_token(source: &TokenSource) -> Result<String, Ended> {
    match source {
        TokenSource::Value(token) => Ok(token.as_ref().to_owned()),
        TokenSource::File(path) => {
            let unreadable = |error| Ended::Token { path: path.display().to_string(), error };
            // A token file is a few dozen bytes; it is read once per dial.
            let text = tokio::fs::read_to_string(path).await.map_err(unreadable)?;
            let token = text.trim();
            if token.is_empty() {
                return Err(unreadable(std::io::Error::other("it is empty")));
            }
            Ok(token.to_owned())
        }
    }
}

#[cfg(test)]
mod tests;
