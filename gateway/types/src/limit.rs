//! Names of the limits on the use of the gateway.

/// Limit that a refusal names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Connections of all users.
    Connections,
    /// Connections of one address on which no user has signed in.
    ConnectionsPerAddress,
    /// New connections of one address.
    ConnectionsPerSecondPerAddress,
    /// Agents' connections of one address on which no session came up.
    AgentConnectionsPerAddress,
    /// New connections of agents of one address.
    AgentConnectionsPerSecondPerAddress,
    /// TLS handshakes of one address.
    HandshakesPerAddress,
    /// Requests in flight of one address without a user.
    RequestsPerAddress,
    /// Requests of one address without a user.
    RequestsPerSecondPerAddress,
    /// Requests in flight of one user.
    RequestsPerUser,
    /// Requests of one user.
    RequestsPerSecondPerUser,
    /// Requests in flight to one port.
    RequestsPerPort,
    /// Requests in flight to one workspace.
    RequestsPerWorkspace,
    /// Credentials and codes of one address that were not good.
    FailedSignIns,
    /// Credentials that wait to be looked up.
    Lookups,
    /// HTTP/2 streams of one connection that were reset.
    Http2Resets,
    /// HTTP/2 frames of one connection that carry nothing.
    Http2Frames,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Self; 16] = [
        Self::Connections,
        Self::ConnectionsPerAddress,
        Self::ConnectionsPerSecondPerAddress,
        Self::AgentConnectionsPerAddress,
        Self::AgentConnectionsPerSecondPerAddress,
        Self::HandshakesPerAddress,
        Self::RequestsPerAddress,
        Self::RequestsPerSecondPerAddress,
        Self::RequestsPerUser,
        Self::RequestsPerSecondPerUser,
        Self::RequestsPerPort,
        Self::RequestsPerWorkspace,
        Self::FailedSignIns,
        Self::Lookups,
        Self::Http2Resets,
        Self::Http2Frames,
    ];

    /// Returns the name: the configuration key that changes it, if there is one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "limits.connections",
            Self::ConnectionsPerAddress => "limits.connections_per_address",
            Self::ConnectionsPerSecondPerAddress => "limits.connections_per_second_per_address",
            Self::AgentConnectionsPerAddress => "limits.agent_connections_per_address",
            Self::AgentConnectionsPerSecondPerAddress => "limits.agent_connections_per_second_per_address",
            Self::HandshakesPerAddress => "limits.handshakes_per_address",
            Self::RequestsPerAddress => "limits.requests_per_address",
            Self::RequestsPerSecondPerAddress => "limits.requests_per_second_per_address",
            Self::RequestsPerUser => "limits.requests_per_user",
            Self::RequestsPerSecondPerUser => "limits.requests_per_second_per_user",
            Self::RequestsPerPort => "limits.requests_per_port",
            Self::RequestsPerWorkspace => "limits.requests_per_workspace",
            Self::FailedSignIns => "limits.failed_sign_ins_per_minute",
            Self::Lookups => "lookups",
            Self::Http2Resets => "limits.http2_resets_per_second",
            Self::Http2Frames => "http2_frames",
        }
    }
}
