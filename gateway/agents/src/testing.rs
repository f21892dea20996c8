//! Sessions for tests, here and in the crates above.

use gateway_auth::keys::ResumeKeys;
use gateway_types::UnixSeconds;
use tunnel_link::grpc::Via;
use tunnel_link::session::Session;
use tunnel_proto::mux::{Settings, Side};

use crate::lanes::Lanes;
use crate::registry::{AgentPorts, Arrival, Credential, NewSession, SessionLease, SessionWay, Subject};

/// Makes a session of a workspace's agent without a link.
#[must_use]
#[expect(clippy::expect_used, reason = "a test with a name that is none has to fail")]
pub fn new(workspace: &str) -> NewSession {
    NewSession {
        subject: Subject::Workspace(workspace.parse().expect("a name")),
        workspace: None,
        owner: None,
        lease: SessionLease::renewable(Credential::Token("t-1".parse().expect("an id")), None, UnixSeconds::new(0)),
        tunnel: Session::new(Settings::new(Side::Gateway)),
        keys: ResumeKeys::default(),
        lanes: Lanes::default(),
        had: None,
        generation: None,
        way: SessionWay::Direct,
        takes_relay_lanes: false,
        moves: false,
        takes_seals: false,
        instance: 1,
        arrival: Arrival { peer: ([127, 0, 0, 1], 1).into(), via: Via::Http2 },
        agent_version: "0".into(),
        ports: AgentPorts::default(),
        requests_max: 1,
    }
}
