//! A session that outlives its links: its channels run on while the agent dials again.

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;
use tracing::debug;
use tunnel_link::channel_io::ChannelError;
use tunnel_link::session::{Incoming, LinkEnd, LinkHold, Session};
use tunnel_link::splice::splice;
use tunnel_proto::hello::{Resume, Welcome};
use tunnel_proto::id::SessionId;
use tunnel_proto::mux::{ReplicaBudget, SessionError, Settings, Side};
use tunnel_proto::reason::Reason;
use tunnel_proto::target::Target;
use tunnel_proto::version::FEATURE_APP_TLS;

use super::network::Network;

/// A session, what it takes to resume it, and the tasks that serve its channels.
#[derive(Debug)]
pub(super) struct ActiveSession {
    pub(super) session: Session,
    pub(super) id: SessionId,
    secret: Bytes,
    /// Whether the gateway says for each channel if the app speaks TLS.
    says_tls: bool,
    pub(super) tasks: JoinSet<()>,
}

impl ActiveSession {
    /// Starts the session that a gateway's welcome announces.
    pub(super) fn new(welcome: &Welcome, budget: Arc<ReplicaBudget>, replay: Arc<ReplicaBudget>) -> Self {
        let resumes = !welcome.resume_secret.is_empty() && !welcome.resume_grace.is_zero();
        let session = Session::new(Settings {
            channels_max: welcome.channels_max,
            keepalive_interval: welcome.keepalive_interval,
            keepalive_timeout: welcome.keepalive_timeout,
            resume_grace: resumes.then_some(welcome.resume_grace),
            // The one session may use all of the budget.
            session_budget: budget.limit(),
            replica_budget: Some(budget),
            replay_budget: Some(replay),
            ..Settings::new(Side::Agent)
        });
        Self {
            session,
            id: welcome.session,
            secret: welcome.resume_secret.clone(),
            says_tls: welcome.features.iter().any(|feature| feature == FEATURE_APP_TLS),
            tasks: JoinSet::new(),
        }
    }

    /// Returns the resume to ask the gateway for, if the session waits for a link.
    pub(super) fn resume(&self) -> Option<Resume> {
        self.session.is_detached().then(|| Resume {
            session: self.id,
            secret: self.secret.clone(),
            received: self.session.received(),
        })
    }

    /// Goes on over a new link, if the welcome says so.
    ///
    /// # Errors
    /// The gateway has forgotten the session, or the byte counts of the two sides do not fit together.
    pub(super) fn go_on(&mut self, welcome: &Welcome) -> Result<LinkHold, SessionError> {
        let resumed = welcome.resumed.filter(|_| welcome.session == self.id).ok_or(SessionError::LinkLost)?;
        let (link, _received) = self.session.resume(resumed.received)?;
        self.secret = welcome.resume_secret.clone();
        Ok(link)
    }

    /// Serves the channels that the gateway opens. Completes only when the session is over.
    ///
    /// Cancel safety: safe; channels that were taken go on.
    pub(super) async fn serve<N: Network>(&mut self, network: &Arc<N>) {
        loop {
            tokio::select! {
                incoming = self.session.accept() => match incoming {
                    Some(incoming) => drop(self.tasks.spawn(serve_channel(network.clone(), incoming, self.says_tls))),
                    None => return,
                },
                Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => {}
            }
        }
    }

    /// Does other work, and meanwhile serves the session that waits for a link, if there is one: for some channels, the
    /// frames received before the last link broke are enough.
    ///
    /// Cancel safety: that of `work`.
    pub(super) async fn serving<N: Network, T>(
        carried: Option<&mut Self>,
        network: &Arc<N>,
        work: impl Future<Output = T>,
    ) -> T {
        let serve = async {
            if let Some(carried) = carried {
                carried.serve(network).await;
            }
            std::future::pending().await
        };
        tokio::select! {
            done = work => done,
            never = serve => never,
        }
    }

    /// Begins the session's grace after its link is gone; the grace ends by itself.
    pub(super) fn wait(&mut self, link: LinkHold) {
        drop(self.tasks.spawn(async move {
            match link.await_next().await {
                LinkEnd::Over(error) => debug!(%error, "the session did not come back"),
                LinkEnd::Replaced | LinkEnd::Lost => {}
            }
        }));
    }

    /// Ends what is left of the session, and waits for the channels' sockets to close.
    pub(super) async fn end(mut self, reason: Reason) {
        self.session.close(reason, reason.text());
        self.tasks.shutdown().await;
    }
}

async fn serve_channel<N: Network>(network: Arc<N>, incoming: Incoming, says_tls: bool) {
    let port = incoming.port;
    let tls = if says_tls { incoming.tls } else { network.own_tls(port) };
    let connected = tokio::select! {
        // The gateway has abandoned the channel: make no connection for it.
        () = incoming.abandoned() => return,
        connected = network.port(Target { port, tls }) => connected,
    };
    match connected {
        Err(reason) => {
            debug!(port, %reason, "channel refused");
            incoming.refuse(reason);
        }
        Ok(mut socket) => match splice(incoming.accept(), &mut socket).await {
            Ok(copied) => debug!(port, inward = copied.inward, outward = copied.outward, "channel ended"),
            Err(error) => {
                debug!(port, %error, "channel broke");
                if ChannelError::find(&error).is_some_and(is_break) {
                    N::reset(socket);
                }
            }
        },
    }
}

/// Returns whether an app has to see a channel's end as a broken connection: the connection at the other end broke, or
/// was cut. Users and processes that go away close connections as always.
fn is_break(error: ChannelError) -> bool {
    match error {
        ChannelError::Reset(Reason::AppReset | Reason::Revoked | Reason::SessionLost | Reason::WorkspaceStopped) => {
            true
        }
        ChannelError::Reset(
            Reason::Unknown
            | Reason::Cancelled
            | Reason::PortClosed
            | Reason::PortNotAllowed
            | Reason::TimedOut
            | Reason::Overloaded
            | Reason::Protocol
            | Reason::Displaced
            | Reason::Shutdown
            | Reason::AppTls,
        )
        | ChannelError::Open(_)
        | ChannelError::Finished => false,
    }
}
