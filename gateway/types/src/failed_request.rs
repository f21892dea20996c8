//! A request that the gateway answered with a failure, as it is explained later: at the replica that answered it, and between
//! replicas.

use serde::{Deserialize, Serialize};

/// The side that a failure is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The program behind the port.
    App,
    /// The workspace's agent, or the workspace itself.
    Agent,
    /// The way between gateway and agent.
    Way,
    /// The gateway: a replica of it, or its store.
    Replica,
    /// A rule on who may do what.
    Policy,
    /// A bound that is reached.
    Limit,
    /// The client: its request cannot be answered as it is.
    Client,
}

impl Side {
    /// Every side.
    pub const ALL: [Self; 7] =
        [Self::App, Self::Agent, Self::Way, Self::Replica, Self::Policy, Self::Limit, Self::Client];

    /// Returns the word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Agent => "agent",
            Self::Way => "way",
            Self::Replica => "replica",
            Self::Policy => "policy",
            Self::Limit => "limit",
            Self::Client => "client",
        }
    }
}

/// A failed request. Neither its path nor its header is in it: these carry secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRequest {
    /// Id that the answer named.
    pub trace_id: String,
    /// Time of the answer, in milliseconds since 1970.
    pub at_ms: u64,
    /// Code of the failure.
    pub code: String,
    /// What exactly failed where the code covers several cases: of `overloaded`, the limit.
    pub detail: Option<String>,
    /// The side that it is of.
    pub side: Side,
    /// What happened, in a sentence.
    pub what: String,
    /// What to do about it.
    pub to_do: String,
    /// Status of the answer.
    pub status: u16,
    /// Time from the head of the request to its answer, in milliseconds.
    pub took_ms: u64,
    /// User who asked, if one was proved.
    pub user: Option<String>,
    /// Workspace that was asked for.
    pub workspace: Option<String>,
    /// Its port.
    pub port: Option<u16>,
    /// Address of the client.
    pub address: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_is_one_word_everywhere() {
        for side in Side::ALL {
            assert_eq!(serde_json::to_value(side).unwrap(), side.as_str());
        }
    }
}
