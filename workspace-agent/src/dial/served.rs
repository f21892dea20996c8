//! One link while it is served: a future of its own, which may go on in another task than the one that dialed it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tunnel_link::grpc::{FrameReader, IncomingBody, drive};
use tunnel_link::session::{LinkEnd, LinkHold, Session};
use tunnel_proto::id::SessionId;
use tunnel_proto::mux::SessionError;
use tunnel_proto::reason::Reason;

use super::active_session::ActiveSession;
use super::link::LinkConnection;
use super::network::Network;
use super::{CLOSE_TIMEOUT, DialFailure};

/// A session on its link.
pub(super) struct ServedLink {
    /// The session.
    pub(super) session: Session,
    /// Its id.
    pub(super) id: SessionId,
    served: Pin<Box<dyn Future<Output = LinkOver> + Send>>,
}

/// A link that is over.
pub(super) struct LinkOver {
    /// The session, which may go on over another link.
    pub(super) carried: ActiveSession,
    /// Reason; `None` if the agent was asked to stop.
    pub(super) failure: Option<DialFailure>,
}

impl ServedLink {
    /// Serves a session over a link, until the link is over or `stop`.
    pub(super) fn new<N: Network>(
        network: Arc<N>,
        carried: ActiveSession,
        link: LinkHold,
        reader: FrameReader<IncomingBody>,
        connection: LinkConnection,
        stop: CancellationToken,
    ) -> Self {
        let (session, id) = (link.session().clone(), carried.id);
        Self { session, id, served: Box::pin(serve(network, carried, link, reader, connection, stop)) }
    }

    /// Waits until the link is over.
    ///
    /// Cancel safety: safe; what was served goes on with the next call.
    pub(super) async fn over(&mut self) -> LinkOver {
        self.served.as_mut().await
    }
}

async fn serve<N: Network>(
    network: Arc<N>,
    mut carried: ActiveSession,
    link: LinkHold,
    reader: FrameReader<IncomingBody>,
    mut connection: LinkConnection,
    stop: CancellationToken,
) -> LinkOver {
    let session = link.session();
    let mut driver = Box::pin(drive(&link, reader));
    // Set once the connection has ended: frames received before, a Close among them, are still read, but not for
    // ever.
    let mut lost_at = None;
    let end = loop {
        tokio::select! {
            end = driver.as_mut() => break Some(end),
            () = connection.as_mut(), if lost_at.is_none() => {
                lost_at = Some(Instant::now() + CLOSE_TIMEOUT);
            }
            () = at(lost_at) => break Some(link.lost()),
            () = carried.serve(&network) => break Some(driver.as_mut().await),
            () = stop.cancelled() => {
                session.close(Reason::Shutdown, "the agent is shutting down");
                break None;
            }
        }
    };
    match end {
        Some(LinkEnd::Lost | LinkEnd::Replaced) => {
            carried.wait(link.clone());
            return LinkOver { carried, failure: Some(DialFailure::LinkLost) };
        }
        Some(LinkEnd::Over(_)) | None => {}
    }
    // The driver's reader keeps the stream open, and the frame that says why is still to be sent.
    drop(driver);
    if lost_at.is_none() {
        drop(tokio::time::timeout(CLOSE_TIMEOUT, connection).await);
    }
    let failure = match (end.and_then(LinkEnd::over), session.drain_request()) {
        (Some(SessionError::Closed { reason: Reason::Shutdown, .. }), Some(request)) => {
            Some(DialFailure::Drained { redial_after: request.redial_after })
        }
        (end, _) => end.map(DialFailure::Session),
    };
    LinkOver { carried, failure }
}

/// Waits until a time; for ever if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
