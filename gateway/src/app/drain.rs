//! The end of a gateway: agents go elsewhere or wait, requests and streams finish within a time limit, and sessions end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tunnel_link::drain::{Drain, DrainResult};
use tunnel_proto::reason::Reason;

use super::App;
use super::redial::redial_after;
use super::replicas::ReplicaParts;
use gateway_agents::peers::MaybePeers;
use gateway_agents::registry::{LiveSession, Registry};
use gateway_config::{Config, Directory};
use gateway_store::DrainRequest;

/// Longest wait for agents that were asked to move, behind the time over which they spread.
const MOVE_PATIENCE: Duration = Duration::from_secs(10);

/// Time from the end of accepting, because another process serves, to the beginning of the drain: users' connections in use get an
/// answer that is their last, and the other process learns users and workspaces before agents come.
const HANDED_DELAY: Duration = Duration::from_secs(2);

/// Longest wait for agents that have just lost their links, as a request waits for one: they come back here, and are asked to move
/// then.
const RETURN_PATIENCE: Duration = Duration::from_secs(3);

/// Interval of checks whether requests have ended in a drain.
const QUIET_INTERVAL: Duration = Duration::from_millis(20);

/// Interval of lines about what a drain waits for.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// The end of all sessions in a drain.
pub(super) struct SessionsDrain {
    registry: Arc<Registry>,
    drain: Drain,
    /// Cancelled once all sessions are closed.
    closed: CancellationToken,
    peers: MaybePeers,
    /// Drain that the operator asks of this replica.
    asked: watch::Receiver<Option<DrainRequest>>,
    /// Time from the announcement of the drain to its beginning.
    delay: Duration,
    /// Time limit of what is under way.
    deadline: Duration,
    /// Cancelled once another process of this host serves in this one's place.
    handed: CancellationToken,
    /// Time limit of what is under way then.
    handed_deadline: Duration,
    /// Agents that the other replicas take in a second, at least.
    moves_per_second: u32,
}

impl SessionsDrain {
    /// Makes it for a gateway that is about to run.
    pub(super) fn of(app: &App) -> Self {
        Self {
            registry: app.base.registry.clone(),
            drain: app.base.drain.clone(),
            closed: app.closed.clone(),
            peers: app.edge.peers.clone(),
            asked: ReplicaParts::drain_asked(app.replica.as_ref()),
            delay: shutdown_delay(&app.config),
            deadline: app.config.timeouts.drain,
            handed: app.succession.handed.clone(),
            handed_deadline: handed_deadline(&app.config),
            moves_per_second: app.config.limits.sessions_per_second,
        }
    }

    /// Waits until this gateway has to end, and drains: after a time in which it serves on without being ready, if there are others.
    pub(super) async fn run(mut self, stop: &CancellationToken, replaced: &CancellationToken) -> DrainResult {
        let mut asked = self.asked.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = replaced.cancelled() => {}
            () = self.handed.cancelled() => {}
            () = wait_for(&mut self.asked, DrainRequest::Finish) => {}
        }
        let is_handed = self.handed.is_cancelled();
        tokio::select! {
            drained = self.announce_and_drain(replaced) => drained,
            // What users have open is given the usual time from here on.
            () = stop.cancelled(), if is_handed => self.drain_within(self.deadline).await,
            () = wait_for(&mut asked, DrainRequest::Now) => self.drain_within(Duration::ZERO).await,
        }
    }

    /// Balancers lead to this gateway until they have seen that it is not ready, and so do agents that move.
    async fn announce_and_drain(&self, replaced: &CancellationToken) -> DrainResult {
        self.drain.announce();
        if self.handed.is_cancelled() {
            info!(tasks = self.drain.live(), most = ?self.handed_deadline, "replaced; the drain begins after a delay");
            tokio::time::sleep(HANDED_DELAY).await;
            return self.drain_within(self.handed_deadline).await;
        }
        if !self.delay.is_zero() && !replaced.is_cancelled() {
            info!(delay = ?self.delay, "not ready any more; the drain begins after the delay");
            tokio::select! {
                () = tokio::time::sleep(self.delay) => {}
                () = replaced.cancelled() => {}
            }
        }
        info!(tasks = self.drain.live(), "draining");
        self.drain_within(self.deadline).await
    }

    /// Tells agents that the gateway drains, and ends requests, streams and sessions. Agents that can move to another replica
    /// have a session there first, so that their workspaces are never without one.
    async fn drain_within(&self, deadline: Duration) -> DrainResult {
        let sessions = self.registry.with_relays();
        let have_room = match &self.peers {
            Some(peers) if !deadline.is_zero() => peers.have_room().await,
            Some(_) | None => false,
        };
        let spread = spread_of(sessions.len(), self.moves_per_second).min(deadline / 2);
        // An agent without a link hears nothing now.
        let (returning, sessions): (Vec<_>, Vec<_>) =
            sessions.into_iter().partition(|session| have_room && session.can_move() && session.tunnel.is_detached());
        let moves = |session: &&Arc<LiveSession>| have_room && session.ask_to_move(deadline, spread);
        let waiting: Vec<_> = sessions.iter().filter(|session| !moves(session)).collect();
        let others = self.peers.as_ref().map_or(0, |peers| peers.others());
        for (index, session) in waiting.iter().enumerate() {
            session.tunnel.drain(deadline, redial_after(index, waiting.len(), others, self.moves_per_second));
        }
        // Requests and streams first; sessions carry them, and are closed when these are through or time is up.
        let (drained, cut, ()) = tokio::join!(
            self.drain.run(deadline),
            self.close_when_quiet(deadline, spread, &returning),
            move_when_back(&returning, deadline)
        );
        let drained = match drained {
            DrainResult::Clean if cut == 0 => DrainResult::Clean,
            DrainResult::Clean => DrainResult::Cut(cut),
            DrainResult::Cut(tasks) => DrainResult::Cut(tasks.max(cut)),
        };
        if let DrainResult::Cut(tasks) = drained {
            warn!(tasks, "cut what did not finish in time");
        }
        drained
    }

    /// Closes sessions once their agents have moved and no request uses them any more, so that a drain takes no longer than
    /// its work, and then stops accepting agents. Returns how many requests and streams were cut because the time was up.
    async fn close_when_quiet(&self, deadline: Duration, spread: Duration, returning: &[Arc<LiveSession>]) -> usize {
        let now = Instant::now();
        let return_by = now + RETURN_PATIENCE.min(deadline);
        let (by, move_by) = (now + deadline.saturating_sub(2 * QUIET_INTERVAL), now + spread + MOVE_PATIENCE);
        let mut report_at = now + PROGRESS_INTERVAL;
        loop {
            let (now, sessions) = (Instant::now(), self.registry.with_relays());
            let streams: usize = sessions.iter().map(|session| session.in_flight()).sum();
            let moving = if now < move_by { sessions.iter().filter(|session| session.is_moving()).count() } else { 0 };
            let is_away = |session: &&Arc<LiveSession>| session.tunnel.is_detached() && !session.tunnel.is_ended();
            let away = if now < return_by { returning.iter().filter(is_away).count() } else { 0 };
            let agents = moving + away;
            if now >= by || (streams == 0 && agents == 0) {
                break;
            }
            if now >= report_at {
                report_at = now + PROGRESS_INTERVAL;
                info!(streams, agents, "the drain waits for streams to end, and for agents to move");
            }
            tokio::time::sleep(QUIET_INTERVAL).await;
        }
        let mut cut = 0;
        for session in self.registry.with_relays() {
            cut += session.in_flight();
            session.tunnel.close(Reason::Shutdown, "the gateway is shutting down");
        }
        self.closed.cancel();
        cut
    }
}

/// Asks agents to move whose links come back in time.
async fn move_when_back(returning: &[Arc<LiveSession>], deadline: Duration) {
    let asked = returning.iter().map(|session| async move {
        if session.tunnel.attached(RETURN_PATIENCE.min(deadline)).await {
            session.ask_to_move(deadline, Duration::ZERO);
        }
    });
    join_all(asked).await;
}

/// Returns the time that balancers get. None lead to one gateway alone: what it refuses is refused either way.
fn shutdown_delay(config: &Config) -> Duration {
    match &config.directory {
        Directory::Memory | Directory::Host(_) => Duration::ZERO,
        Directory::Store(peers) => peers.shutdown_delay,
    }
}

/// Returns the time limit of what users have open at a process that was replaced.
fn handed_deadline(config: &Config) -> Duration {
    match &config.directory {
        Directory::Host(host) => host.drain_max,
        Directory::Memory | Directory::Store(_) => config.timeouts.drain,
    }
}

/// Returns the time over which agents spread their dials, so that the other replicas can take them.
fn spread_of(agents: usize, per_second: u32) -> Duration {
    let agents = u32::try_from(agents).unwrap_or(u32::MAX);
    Duration::from_secs_f64(f64::from(agents) / f64::from(per_second.max(1)))
}

/// Waits until the operator asks for a drain, this one or one that waits for less.
async fn wait_for(asked: &mut watch::Receiver<Option<DrainRequest>>, least: DrainRequest) {
    if asked.wait_for(|request| *request >= Some(least)).await.is_err() {
        // One gateway alone is not asked.
        std::future::pending().await
    }
}
