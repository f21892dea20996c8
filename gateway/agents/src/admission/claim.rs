//! One link's claim on its session, from the admission to the end. Dropping it releases the session.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use tokio::time::Instant;
use tracing::info;
use tunnel_link::grpc::{self, FrameReader};
use tunnel_link::session::{LinkEnd, LinkHold};
use tunnel_proto::reason::Reason;

use crate::peers::MaybePeers;
use crate::registry::{LiveSession, Registry, SessionWay};
use crate::resume::LinkRole;

/// Time for an ended session to say so before its link is cut.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Releases a session's place when it is dropped, unless another link has it: also if no task ever served the link, or
/// the task that did is cut.
#[derive(Debug)]
pub struct Claim {
    /// The session.
    pub session: Arc<LiveSession>,
    /// The link's hold on it.
    pub link: LinkHold,
    role: LinkRole,
    registry: Arc<Registry>,
    peers: MaybePeers,
    passed_on: bool,
}

impl Claim {
    /// Takes responsibility for a link's role in a session, and tells other replicas when the session's place is free.
    #[must_use]
    pub fn new(
        registry: Arc<Registry>,
        peers: MaybePeers,
        session: Arc<LiveSession>,
        role: LinkRole,
        link: LinkHold,
    ) -> Self {
        Self { session, link, role, registry, peers, passed_on: false }
    }

    /// Returns the link's role in the session.
    #[must_use]
    pub fn role(&self) -> &LinkRole {
        &self.role
    }

    /// Feeds the session over the link. A lost link makes it wait for the next one, which is served by a task of its
    /// own; at the end of the session it gives the place back and returns the reason.
    pub async fn serve<B>(mut self, reader: FrameReader<B>) -> Option<Reason>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let end = tokio::select! {
            end = grpc::drive(&self.link, reader) => end,
            () = self.session.renewal() => self.link.lost(),
        };
        let end = match end {
            LinkEnd::Lost => {
                info!(agent = %self.session.subject, session = %self.session.id, "link lost, waiting for the next");
                self.next_link().await
            }
            end @ (LinkEnd::Replaced | LinkEnd::Over(_)) => end,
        };
        let Some(end) = end.over() else {
            self.passed_on = true;
            return None;
        };
        let (session, tunnel) = (&self.session, self.link.session());
        // Not current any more from here on, but the frame that says why is still to be sent.
        self.release(end.reason());
        drop(tokio::time::timeout(CLOSE_TIMEOUT, tunnel.said()).await);
        let (stats, uptime) = (tunnel.stats(), session.since.elapsed());
        let what = self.role.name();
        info!(
            agent = %session.subject, session = %session.id, reason = %end, ?uptime, links = stats.links,
            sent = stats.bytes_sent, received = stats.bytes_received, "{what} ended"
        );
        Some(end.reason())
    }

    /// Waits for the next link of the session, or its end, and counts the agent's return.
    async fn next_link(&self) -> LinkEnd {
        let lost_at = Instant::now();
        let end = self.link.await_next().await;
        if matches!(self.role, LinkRole::First) && self.session.way() == SessionWay::Direct {
            let returns = &self.registry.returns;
            match &end {
                LinkEnd::Replaced => returns.came_back(lost_at.elapsed()),
                LinkEnd::Over(over) if over.reason() == Reason::SessionLost => returns.stayed_away(),
                // It was ended: its agent was not waited for.
                LinkEnd::Lost | LinkEnd::Over(_) => {}
            }
        }
        end
    }

    fn release(&self, reason: Reason) {
        match &self.role {
            LinkRole::First => {
                let was_current = self.registry.release(&self.session);
                if let Some(peers) =
                    self.peers.as_ref().filter(|_| was_current && self.session.way() == SessionWay::Direct)
                {
                    peers.released(&self.session);
                }
                self.session.lanes.close(reason);
            }
            LinkRole::Lane(lane) => self.session.lanes.remove(lane.id),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.passed_on && self.link.lost() != LinkEnd::Replaced {
            self.release(Reason::SessionLost);
            // No task is left to wait for another link.
            self.link.session().close(Reason::SessionLost, Reason::SessionLost.text());
        }
    }
}
