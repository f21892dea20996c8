//! Other replicas, as this crate needs them: they share a directory of sessions, and carry relay lanes. One gateway alone has
//! none.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use hyper::body::Incoming;
use tunnel_link::grpc::RpcRefused;
use tunnel_link::lane_window::LaneTaking;
use tunnel_proto::id::{Generation, SessionId};

use crate::admission::Candidate;
use crate::registry::{LiveSession, Subject};
use crate::service::PassingBody;
use gateway_types::WorkspaceName;
use gateway_types::failed_request::FailedRequest;

/// A boxed future: a trait object cannot return another one.
pub type PeerFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Other replicas of this gateway.
pub trait Peers: fmt::Debug + Send + Sync + 'static {
    /// Returns the number of this process start among those of all replicas.
    fn incarnation(&self) -> u64;

    /// Returns whether another replica takes agents, as far as is known.
    ///
    /// Cancel safety: safe.
    fn have_room(&self) -> PeerFuture<'_, bool>;

    /// Returns how many other replicas take agents, as was known last.
    fn others(&self) -> usize;

    /// Claims the place of a new session among those of all replicas. The session that had it is displaced, wherever it is.
    /// While the store is away the session gets a generation for the time being, and the place is claimed later.
    ///
    /// Cancel safety: safe; a claim without a session is displaced by the next one.
    fn claim<'a>(&'a self, candidate: &'a Candidate) -> PeerFuture<'a, Result<Generation, RpcRefused>>;

    /// Returns how many sessions wait for a place, because the store was away when they came up.
    fn provisional(&self) -> usize;

    /// Seals a session's generation for its agent; empty if its place is not known.
    fn seal(&self, session: &LiveSession) -> Bytes;

    /// Gives the place of a session back that has ended. Does not wait.
    fn released(&self, session: &LiveSession);

    /// Returns whether another replica has a session that its agent may resume there: one that lives and can be reached.
    ///
    /// Cancel safety: safe.
    fn has_session<'a>(
        &'a self,
        replica: u64,
        workspace: &'a WorkspaceName,
        session: SessionId,
    ) -> PeerFuture<'a, bool>;

    /// Asks the other replicas for a failed request, by its trace id.
    ///
    /// Cancel safety: safe.
    fn explain<'a>(&'a self, trace: &'a str) -> PeerFuture<'a, Option<FailedRequest>>;

    /// Finds the session of a workspace or cluster whose agent dialed another replica: makes a relay lane, or a hop lane, if
    /// there is none. The latter is all that clusters have, and no conversation about their workspaces goes over it.
    ///
    /// Cancel safety: safe; what was begun for one caller serves the next.
    fn find<'a>(&'a self, subject: &'a Subject) -> PeerFuture<'a, FoundSession>;

    /// Carries a lane to the replica at which it ends. Returns that replica's answer, whose body has the other direction.
    ///
    /// Cancel safety: dropped, it ends the lane's stream.
    fn carry(&self, lane: CarriedLane) -> PeerFuture<'_, Result<Response<Incoming>, RpcRefused>>;
}

/// Result of a search for the session of a workspace or cluster among other replicas.
#[derive(Clone, Debug)]
pub enum FoundSession {
    /// A relay lane or hop lane to its agent.
    Lane(Arc<LiveSession>),
    /// No replica is known to have one.
    Absent,
    /// Another replica has one, and no lane to its agent came up.
    Unreachable,
}

impl FoundSession {
    /// Returns the lane, if there is one.
    #[must_use]
    pub fn lane(self) -> Option<Arc<LiveSession>> {
        match self {
            Self::Lane(session) => Some(session),
            Self::Absent | Self::Unreachable => None,
        }
    }

    /// Returns whether a replica has a session that cannot be reached from here now: its lane, if there is one, has no link, and its
    /// agent cannot bring one.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Lane(session) => session.tunnel.is_detached(),
            Self::Absent => false,
            Self::Unreachable => true,
        }
    }
}

/// A relay lane, or a link of a session, on its way to another replica, authenticated here.
#[derive(Debug)]
pub struct CarriedLane {
    /// The replica: the number of its process start.
    pub replica: u64,
    /// The agent, entitled to a session of its workspace.
    pub candidate: Box<Candidate>,
    /// The agent's Hello, as it came.
    pub hello: Bytes,
    /// Everything behind that.
    pub body: PassingBody,
    /// Counts what of the other direction has left for the agent.
    pub taking: Arc<LaneTaking>,
}

/// Peers of a gateway that may have some.
pub type MaybePeers = Option<Arc<dyn Peers>>;
