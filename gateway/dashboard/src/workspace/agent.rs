//! Facts about the agent of a workspace.

use crate::words;
use gateway_agents::registry::LiveSession;

/// Facts about a connected agent.
pub(super) struct AgentFacts {
    pub(super) version: String,
    pub(super) connected: String,
    /// Address that it dialed from.
    pub(super) peer: String,
    pub(super) round_trip: String,
    /// Payload to the workspace, and from it.
    pub(super) sent: String,
    pub(super) received: String,
    /// Channels that are open now.
    pub(super) channels: usize,
    /// Times that its link was replaced.
    pub(super) resumed: u64,
}

impl AgentFacts {
    pub(super) fn new(session: &LiveSession) -> Self {
        let stats = session.stats();
        Self {
            version: session.agent_version.clone(),
            connected: words::length(session.since.elapsed()),
            peer: session.peer().ip().to_canonical().to_string(),
            round_trip: stats.round_trip.map(|time| format!("{:.1} ms", time.as_secs_f64() * 1e3)).unwrap_or_default(),
            sent: words::bytes(stats.bytes_sent),
            received: words::bytes(stats.bytes_received),
            channels: stats.channels_live,
            resumed: stats.links.saturating_sub(1),
        }
    }
}
