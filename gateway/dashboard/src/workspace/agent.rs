//! Facts about the agent of a workspace.

use crate::words;
use gateway_agents::registry::{LiveSession, SessionWay};
use gateway_api::presence::LastDisconnect;
use gateway_types::UnixSeconds;
use tunnel_link::grpc::Via;
use tunnel_proto::reason::Reason;

/// Facts about a connected agent.
pub(super) struct AgentFacts {
    pub(super) version: String,
    pub(super) connected: String,
    /// Address that it dialed from.
    pub(super) peer: String,
    /// How it gets out.
    pub(super) way_out: &'static str,
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
            way_out: match (session.way(), session.via()) {
                (SessionWay::Relay, _) => "through another replica of the gateway",
                (SessionWay::Direct, Via::Http2) => "directly, over HTTP/2",
                (SessionWay::Direct, Via::WebSocket) => "in a WebSocket, where HTTP/2 does not pass",
            },
            round_trip: stats.round_trip.map(|time| format!("{:.1} ms", time.as_secs_f64() * 1e3)).unwrap_or_default(),
            sent: words::bytes(stats.bytes_sent),
            received: words::bytes(stats.bytes_received),
            channels: stats.channels_live,
            resumed: stats.links.saturating_sub(1),
        }
    }
}

/// Says when and why an agent was disconnected last.
pub(super) fn last_disconnect(last: &LastDisconnect, now: UnixSeconds) -> String {
    let why = match Reason::ALL.iter().find(|reason| reason.text() == last.reason) {
        Some(Reason::SessionLost) => "its link was lost and did not come back in time",
        Some(Reason::Shutdown) => "it was stopped",
        Some(Reason::Displaced) => "another process with a token of this workspace took its place",
        Some(Reason::Revoked) => "its token was revoked or has expired",
        Some(_) | None => &*last.reason,
    };
    format!("{}: {why}", words::ago(last.at, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_disconnect_is_said_in_words_and_an_unknown_reason_as_it_is() {
        let now = UnixSeconds::new(1_000_000);
        let said = |reason: &str| last_disconnect(&LastDisconnect { at: now, reason: reason.to_owned() }, now);
        assert!(said(Reason::SessionLost.text()).ends_with(": its link was lost and did not come back in time"));
        assert!(said("of a later version").ends_with(": of a later version"));
    }
}
