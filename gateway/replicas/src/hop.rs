//! Hop lanes: this replica plays an agent's half of a lane towards another replica, and opens each of its channels in its own
//! session with the agent. For agents that add no relay lane, or no more of them, and for those of clusters.
//!
//! Bytes of a hop lane are decoded here, and those on their way are lost with this process. Credit goes from end to end: what the
//! other end does not take fills a window of the channel there, one here and one at the agent, all within the budgets of
//! sessions. A hop never hops again: only this process's own sessions are asked.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gateway_agents::hop;
use gateway_agents::registry::{LiveSession, Subject};
use gateway_agents::service::AgentService;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use tunnel_link::channel_io::{ChannelError, ChannelIo};
use tunnel_link::drain::Drain;
use tunnel_link::grpc::{self, ConnectError, DialedLink, FrameReader};
use tunnel_link::pace::Pace;
use tunnel_link::session::{Incoming, Session};
use tunnel_link::splice::splice_channels;
use tunnel_proto::environments::ENVIRONMENTS_PORT;
use tunnel_proto::hello::RelayTicket;
use tunnel_proto::mux::{OpenError, SessionError};
use tunnel_proto::orphans::ORPHANS_PORT;
use tunnel_proto::reason::Reason;
use tunnel_proto::target::Target;

use crate::carried::CarriedAgent;
use crate::connection::{CALL_TIMEOUT, PeerError};
use crate::lane_body::HopBody;
use crate::lane_places::LanePlaces;
use crate::replica::{FindError, Replica};

/// Longest wait of a channel for a link of the agent's session: as long as a request at this replica waits.
const LINK_PATIENCE: Duration = Duration::from_secs(3);

/// Time for the frame that says why a lane ended to get to its other end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Hop lanes that this replica carries: one for each agent and replica.
#[derive(Debug)]
pub struct Hops {
    replica: Arc<Replica>,
    agents: Arc<AgentService>,
    tasks: Drain,
    stop: CancellationToken,
    /// By agent and number of the other replica's process start.
    running: Mutex<HashMap<(Subject, u64), RunningHop>>,
    next: AtomicU64,
    places: Mutex<LanePlaces>,
}

#[derive(Debug)]
struct RunningHop {
    number: u64,
    end: CancellationToken,
}

/// A lane's place among [`Hops`]; free when it is dropped.
struct HopPlace {
    hops: Arc<Hops>,
    key: (Subject, u64),
    number: u64,
}

/// Reason why a hop lane did not come up.
#[derive(Debug, Error)]
enum HopError {
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("the replica is gone")]
    Gone,
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("no welcome came in time")]
    Late,
}

impl Hops {
    /// Makes it. Lanes are tasks of `tasks`, and end with `stop`.
    #[must_use]
    pub fn new(replica: Arc<Replica>, agents: Arc<AgentService>, tasks: Drain, stop: CancellationToken) -> Arc<Self> {
        let (running, places) = (Mutex::default(), Mutex::new(LanePlaces::new(agents.relay_lanes_max())));
        Arc::new(Self { replica, agents, tasks, stop, running, next: AtomicU64::new(0), places })
    }

    /// Returns whether the agent of a session is to be asked for a relay lane to a replica.
    pub(crate) fn asks_agent(&self, session: &LiveSession, replica: u64) -> bool {
        let (subject, now) = (&session.subject, Instant::now().into_std());
        session.takes_relay_lanes && self.places.lock().take(subject, session.instance, replica, now)
    }

    /// Begins a lane from a session to the replica of a ticket. The one that there was is over: a replica asks when it has none.
    pub(crate) fn begin(self: &Arc<Self>, session: Arc<LiveSession>, ticket: RelayTicket) {
        let (key, end) = ((session.subject.clone(), ticket.replica), self.stop.child_token());
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let before = self.running.lock().insert(key.clone(), RunningHop { number, end: end.clone() });
        if let Some(before) = before {
            before.end.cancel();
        }
        let place = HopPlace { hops: self.clone(), key, number };
        self.tasks.spawn(async move {
            let (agent, replica) = &place.key;
            if let Err(error) = place.hops.carry(&session, ticket, &end).await {
                info!(%agent, replica, %error, "a hop lane did not come up");
            }
        });
    }

    /// Carries a lane from its Hello to its end.
    async fn carry(
        &self,
        session: &Arc<LiveSession>,
        ticket: RelayTicket,
        end: &CancellationToken,
    ) -> Result<(), HopError> {
        let replica = ticket.replica;
        let url = self.replica.url_of(replica).await?.ok_or(HopError::Gone)?;
        let connections = self.replica.connections();
        let peer = connections.to(replica, &url);
        let (filler, half) = grpc::request_body(hop::hello(session, ticket), Pace::unbounded());
        let answer = connections.hop(&peer, HopBody::of_hop(&CarriedAgent::of_session(session), half)).await?;
        if let Some(refused) = grpc::refusal(answer.headers()) {
            return Err(ConnectError::Refused(refused).into());
        }
        let welcomed = grpc::welcomed(FrameReader::new(answer.into_body().into()), filler);
        let dialed = timeout(CALL_TIMEOUT, welcomed).await.map_err(|_elapsed| HopError::Late)??;
        let tunnel = Session::new(self.agents.hop_settings(session, &dialed.welcome));
        let link = tunnel.link();
        dialed.attach(link.clone());
        let DialedLink { mut reader, .. } = dialed;
        info!(agent = %session.subject, session = %session.id, replica, "hop lane up");
        let why = tokio::select! {
            _ended = grpc::drive_by(&link, &mut reader) => None,
            () = serve(&tunnel, session) => None,
            () = session.tunnel.ended() => {
                Some(session.tunnel.end().as_ref().map_or(Reason::SessionLost, SessionError::reason))
            }
            () = end.cancelled() => Some(Reason::Shutdown),
        };
        debug!(agent = %session.subject, session = %session.id, replica, ?why, "hop lane ended");
        if let Some(reason) = why {
            tunnel.close(reason, reason.text());
            // The reader keeps the stream open until the other end has read why.
            let rest = async { while let Ok(Some(_)) = reader.next().await {} };
            drop(timeout(CLOSE_TIMEOUT, rest).await);
        }
        Ok(())
    }
}

impl Drop for HopPlace {
    fn drop(&mut self) {
        let mut running = self.hops.running.lock();
        if running.get(&self.key).is_some_and(|current| current.number == self.number) {
            running.remove(&self.key);
        }
    }
}

/// Serves the channels that the other replica opens. Completes when the lane is over.
async fn serve(tunnel: &Session, session: &Arc<LiveSession>) {
    let mut channels = JoinSet::new();
    loop {
        tokio::select! {
            incoming = tunnel.accept() => match incoming {
                Some(incoming) => drop(channels.spawn(serve_channel(session.clone(), incoming))),
                None => return,
            },
            Some(_) = channels.join_next(), if !channels.is_empty() => {}
        }
    }
}

/// Opens the same channel at the agent, with the bytes that it came with, and joins both.
async fn serve_channel(session: Arc<LiveSession>, mut incoming: Incoming) {
    let port = incoming.port;
    if !is_hopped(&session.subject, port) {
        incoming.refuse(Reason::PortNotAllowed);
        return;
    }
    let _use = session.hop();
    let has_link = tokio::select! {
        () = incoming.abandoned() => return,
        has_link = session.tunnel.attached(LINK_PATIENCE) => has_link,
    };
    if !has_link {
        incoming.refuse(Reason::SessionLost);
        return;
    }
    let opened = match open(&session, &mut incoming).await {
        Ok(Some(opened)) => opened,
        Ok(None) => return,
        Err(reason) => {
            debug!(agent = %session.subject, port, %reason, "a channel of a hop lane was not opened");
            incoming.refuse(reason);
            return;
        }
    };
    let (io, accepted) = opened;
    let answered = tokio::select! {
        () = incoming.abandoned() => return,
        answered = accepted => answered.unwrap_or(Err(Reason::SessionLost)),
    };
    match answered {
        Err(reason) => incoming.refuse(reason),
        Ok(()) => match splice_channels(io, incoming.accept()).await {
            Ok(copied) => debug!(port, inward = copied.inward, outward = copied.outward, "hopped channel ended"),
            Err(reason) => debug!(port, %reason, "hopped channel broke"),
        },
    }
}

/// Returns whether channels to a port go over hop lanes. A cluster's conversation about its workspaces has one end, where its
/// agent's session is.
fn is_hopped(subject: &Subject, port: u16) -> bool {
    match subject {
        Subject::Workspace(_) => true,
        Subject::Cluster(_) => [ENVIRONMENTS_PORT, ORPHANS_PORT].contains(&port),
    }
}

/// A channel, and the agent's answer about it.
type OpenedChannel = (ChannelIo, oneshot::Receiver<Result<(), Reason>>);

/// Opens a channel at the agent. `None` if the other replica gave it up meanwhile.
async fn open(session: &LiveSession, incoming: &mut Incoming) -> Result<Option<OpenedChannel>, Reason> {
    let tunnel = session.lanes.pick(&session.tunnel);
    let target = Target { port: incoming.port, tls: incoming.tls };
    let Some(mut first) = incoming.take_first() else {
        return tunnel.open(target).map(Some).map_err(reason_of);
    };
    let (mut io, accepted) = tunnel.channel(target);
    let written = tokio::select! {
        () = incoming.abandoned() => return Ok(None),
        written = poll_fn(|context| io.poll_write_bytes(context, &mut first)) => written,
    };
    incoming.put_back(first);
    match written {
        Ok(_) => Ok(Some((io, accepted))),
        Err(error) => Err(match ChannelError::find(&error) {
            Some(ChannelError::Open(error)) => reason_of(error),
            Some(ChannelError::Reset(reason)) => reason,
            Some(ChannelError::Finished) | None => Reason::SessionLost,
        }),
    }
}

fn reason_of(error: OpenError) -> Reason {
    match error {
        OpenError::ChannelsExhausted | OpenError::BudgetExhausted | OpenError::ReplayExhausted => Reason::Overloaded,
        OpenError::Ended => Reason::SessionLost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tunnel_proto::reconcile::RECONCILE_PORT;

    #[test]
    fn conversation_of_a_cluster_stays_where_its_session_is() {
        let cluster = Subject::Cluster("prod".parse().expect("a name"));
        assert!(is_hopped(&cluster, ENVIRONMENTS_PORT) && !is_hopped(&cluster, RECONCILE_PORT));
        assert!(is_hopped(&cluster, ORPHANS_PORT) && !is_hopped(&cluster, 80));
        let workspace = Subject::Workspace("one".parse().expect("a name"));
        assert!([0, 1, 80].into_iter().all(|port| is_hopped(&workspace, port)));
    }
}
