//! The agent's half of a hop lane, which the replica that has the agent's session plays towards another one: what it says of
//! the agent there.

use bytes::Bytes;
use tunnel_proto::hello::{Hello, RelayTicket};
use tunnel_proto::limit::OPEN_CREDIT_BYTES;
use tunnel_proto::version::{FEATURE_APP_TLS, FEATURE_LISTENING, FEATURE_RECONCILE, OURS};

use crate::registry::{LiveSession, Subject};

/// Makes the Hello that shows a ticket for an agent that cannot, with everything that the agent said about its ports. It offers
/// no resume: the lane ends with its link.
#[must_use]
pub fn hello(session: &LiveSession, ticket: RelayTicket) -> Hello {
    let ports = session.agent_ports();
    let features: Vec<&str> = match &session.subject {
        Subject::Workspace(_) => {
            let known = [(FEATURE_LISTENING, ports.reports), (FEATURE_APP_TLS, ports.speaks_tls)];
            known.into_iter().filter(|(_, knows)| *knows).map(|(feature, _)| feature).collect()
        }
        // Without it no cluster's agent is let in; the port for it is not served here.
        Subject::Cluster(_) => vec![FEATURE_RECONCILE],
    };
    Hello {
        versions: OURS,
        features: features.into_iter().map(str::to_owned).collect(),
        agent_version: session.agent_version.clone(),
        role: session.subject.role(),
        instance: session.instance,
        resume: None,
        open_credit_bytes: OPEN_CREDIT_BYTES,
        ports: ports.exposed.clone(),
        default_port: ports.default,
        join: None,
        lanes: 1,
        apps: ports.apps.clone(),
        host: ports.host,
        relay: Some(ticket),
        seal: Bytes::new(),
    }
}
