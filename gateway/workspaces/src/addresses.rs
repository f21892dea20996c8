//! Addresses of a gateway, for the definitions of workspaces.

use gateway_config::Config;
use gateway_types::{Scheme, Zone};

/// Addresses of a gateway, for the definitions of workspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The domain under which workspaces have their hosts.
    pub zone: Zone,
    /// URL of the gateway, for people.
    pub public_url: String,
    /// URL of the gateway, for agents, unless a cluster's configuration has another.
    pub agents_url: String,
}

impl Addresses {
    /// Takes them from a gateway's configuration: agents find it at the public host, on the port that is for them.
    #[must_use]
    pub fn of(config: &Config, agents_port: u16) -> Self {
        let scheme = if config.tls.agents.is_some() { Scheme::Https } else { Scheme::Http };
        Self {
            zone: config.zone.clone(),
            public_url: config.public_url.to_string(),
            agents_url: format!("{}://{}:{agents_port}", scheme.as_str(), config.public_url.host()),
        }
    }
}
