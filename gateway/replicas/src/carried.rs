//! A relay lane or hop lane between two replicas: the agent that one of them has authenticated, in front of the agent's own messages.

use std::net::SocketAddr;
use std::pin::Pin;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use gateway_agents::admission::Candidate;
use gateway_agents::registry::{Credential, LiveSession, SessionLease, Subject};
use gateway_agents::service::CarriedLease;
use gateway_store::WorkspaceId;
use gateway_types::{UnixSeconds, UserName};
use http_body::Body as _;
use hyper::body::Incoming;
use prost::Message;
use thiserror::Error;
use tunnel_link::grpc::{self, PREFIX_BYTES};

use crate::lane_body::Preceded;
use crate::wire;

/// Longest description of an agent, in bytes: a few names and numbers.
const HEAD_BYTES_MAX: usize = 4 * 1024;

/// An agent that another replica has authenticated and entitled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedAgent {
    /// Its workspace or cluster.
    pub subject: Subject,
    /// The workspace and its owner; `None` for a cluster.
    pub owned: Option<(WorkspaceId, UserName)>,
    /// Its credential, and the end of that.
    pub credential: Credential,
    /// Time from which the credential is worth nothing.
    pub expires_at: Option<UnixSeconds>,
    /// Address that it dialed from.
    pub peer: SocketAddr,
    /// Whether the replica that carries the lane says how much may be on the way to it: that of a relay lane does, a hop lane is a
    /// session of its own there.
    pub is_windowed: bool,
}

/// Reason why a carried lane is not one.
#[derive(Debug, Error)]
pub enum BadLane {
    /// The stream ended or broke first.
    #[error("the stream ended before a lane began")]
    Ended,
    /// The description did not come in time.
    #[error("the description of an agent did not come in time")]
    Late,
    /// The description is longer than [`HEAD_BYTES_MAX`], or compressed.
    #[error("the description of an agent is too long or compressed")]
    TooLong,
    /// It is not protobuf.
    #[error("the description of an agent cannot be read: {0}")]
    Malformed(#[from] prost::DecodeError),
    /// A field is wrong.
    #[error("the description of an agent has a wrong {0}")]
    Field(&'static str),
}

impl CarriedAgent {
    /// Describes an entitled agent. `None` for the agent of a cluster, and for one whose workspace is not known.
    #[must_use]
    pub fn of(candidate: &Candidate) -> Option<Self> {
        candidate.subject.workspace()?;
        Some(Self {
            subject: candidate.subject.clone(),
            owned: Some(candidate.owned.clone()?),
            credential: candidate.lease.credential.clone(),
            expires_at: candidate.lease.expires_at,
            peer: candidate.peer,
            is_windowed: true,
        })
    }

    /// Describes the agent of a session for a hop lane. Its credential is checked where the session is, as long as that lives:
    /// the agent may come back with a newer one, of which the lane's other end knows nothing.
    #[must_use]
    pub fn of_session(session: &LiveSession) -> Self {
        Self {
            subject: session.subject.clone(),
            owned: session.workspace.zip(session.owner.clone()),
            credential: Credential::Relayed { shown: session.credential().to_string().into() },
            expires_at: None,
            peer: session.peer(),
            is_windowed: false,
        }
    }

    /// Returns it as the owner of a relay lane that ends here.
    #[must_use]
    pub fn into_lease(self) -> CarriedLease {
        let Self { subject, owned, credential, expires_at, peer, is_windowed: _ } = self;
        let lease = SessionLease { credential, expires_at, renew_at: None, review: None, proof: None };
        CarriedLease { subject, lease, owned, peer }
    }

    /// Encodes it as the first gRPC message of a carried lane.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let (workspace_id, owner) = self.owned.as_ref().map(|(id, owner)| (id.to_string(), owner.to_string())).unzip();
        let (workspace, cluster) = names_of(&self.subject);
        let message = wire::CarriedLane {
            workspace,
            workspace_id: workspace_id.unwrap_or_default(),
            owner: owner.unwrap_or_default(),
            token: self.credential.token().map(|token| token.to_string()).unwrap_or_default(),
            // The other end adds that it was relayed.
            credential: if let Credential::Relayed { shown } = &self.credential {
                shown.to_string()
            } else {
                self.credential.to_string()
            },
            peer: self.peer.to_string(),
            expires_at: self.expires_at.map_or(0, UnixSeconds::get),
            cluster,
            windowed: self.is_windowed,
        };
        let length = message.encoded_len();
        let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
        bytes.put_u8(0);
        bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        message.encode_raw(&mut bytes);
        bytes.freeze()
    }

    /// Reads the first message of a carried lane. Returns the agent, and the body of what follows.
    ///
    /// # Errors
    /// [`BadLane`].
    ///
    /// Cancel safety: dropped, it loses the stream.
    pub async fn read(mut body: Incoming) -> Result<(Self, Preceded<Incoming>), BadLane> {
        let mut first = BytesMut::new();
        loop {
            if let Some(length) = head_length(&first)?
                && first.len() >= PREFIX_BYTES + length
            {
                first.advance(PREFIX_BYTES);
                let message = wire::CarriedLane::decode(first.split_to(length))?;
                let rest = Some(first.freeze()).filter(|rest| !rest.is_empty());
                return Ok((Self::from_wire(&message)?, Preceded::new(rest, body)));
            }
            let next = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
            let Some(Ok(frame)) = next else { return Err(BadLane::Ended) };
            if let Ok(data) = frame.into_data() {
                first.extend_from_slice(&data);
            }
        }
    }

    fn from_wire(message: &wire::CarriedLane) -> Result<Self, BadLane> {
        let subject = subject_in(&message.workspace, &message.cluster).map_err(BadLane::Field)?;
        let owned = match &subject {
            Subject::Cluster(_) => None,
            Subject::Workspace(_) => Some((
                message.workspace_id.parse().map_err(|_| BadLane::Field("workspace_id"))?,
                message.owner.parse().map_err(|_| BadLane::Field("owner"))?,
            )),
        };
        let credential = match message.token.as_str() {
            "" => Credential::Relayed { shown: message.credential.clone().into() },
            token => Credential::Token(token.parse().map_err(|_| BadLane::Field("token"))?),
        };
        Ok(Self {
            subject,
            owned,
            credential,
            expires_at: (message.expires_at > 0).then(|| UnixSeconds::new(message.expires_at)),
            peer: message.peer.parse().map_err(|_| BadLane::Field("peer"))?,
            is_windowed: message.windowed,
        })
    }
}

/// Returns the names of a workspace and a cluster on the wire, of which one is empty.
pub(crate) fn names_of(subject: &Subject) -> (String, String) {
    match subject {
        Subject::Workspace(name) => (name.to_string(), String::new()),
        Subject::Cluster(name) => (String::new(), name.to_string()),
    }
}

/// Reads them.
///
/// # Errors
/// The field that is wrong.
pub(crate) fn subject_in(workspace: &str, cluster: &str) -> Result<Subject, &'static str> {
    match (workspace, cluster) {
        (_, "") => workspace.parse().map(Subject::Workspace).map_err(|_| "workspace"),
        ("", _) => cluster.parse().map(Subject::Cluster).map_err(|_| "cluster"),
        (_, _) => Err("cluster"),
    }
}

/// Returns the length of the description that begins with these bytes; `None` while they do not say it.
fn head_length(bytes: &[u8]) -> Result<Option<usize>, BadLane> {
    match grpc::message_length(bytes).map_err(|_| BadLane::TooLong)? {
        Some(length) if length > HEAD_BYTES_MAX => Err(BadLane::TooLong),
        length => Ok(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_is_the_same_behind_the_wire() {
        let agent = CarriedAgent {
            subject: Subject::Workspace("one".parse().expect("a name")),
            owned: Some(("w-7".parse().expect("an id"), "ann".parse().expect("a name"))),
            credential: Credential::Token("t-3".parse().expect("an id")),
            expires_at: Some(UnixSeconds::new(9)),
            peer: ([127, 0, 0, 1], 80).into(),
            is_windowed: true,
        };
        let message = agent.encode();
        let length = head_length(&message).expect("short").expect("whole");
        assert_eq!(message.len(), PREFIX_BYTES + length);
        let read = |bytes: &[u8]| CarriedAgent::from_wire(&wire::CarriedLane::decode(bytes).expect("protobuf"));
        assert_eq!(read(&message[PREFIX_BYTES..]).expect("an agent"), agent);
        let other = CarriedAgent {
            credential: Credential::Relayed { shown: "pod a/b".into() },
            expires_at: None,
            is_windowed: false,
            ..agent
        };
        let of_pod = wire::CarriedLane {
            credential: "pod a/b".into(),
            ..wire::CarriedLane::decode(&other.encode()[PREFIX_BYTES..]).expect("protobuf")
        };
        assert_eq!(CarriedAgent::from_wire(&of_pod).expect("an agent"), other);
        let of_cluster =
            CarriedAgent { subject: Subject::Cluster("one".parse().expect("a name")), owned: None, ..other };
        assert_eq!(read(&of_cluster.encode()[PREFIX_BYTES..]).expect("an agent"), of_cluster);
    }

    #[test]
    fn description_that_is_too_long_or_wrong_is_named() {
        assert!(matches!(head_length(&[0, 0, 1, 0, 0]), Err(BadLane::TooLong)));
        assert!(matches!(head_length(&[0, 0, 0, 0]), Ok(None)));
        let wrong = wire::CarriedLane { workspace: "One!".into(), ..wire::CarriedLane::default() };
        assert!(matches!(CarriedAgent::from_wire(&wrong), Err(BadLane::Field("workspace"))));
        let both = wire::CarriedLane { workspace: "one".into(), cluster: "one".into(), ..wire::CarriedLane::default() };
        assert!(matches!(CarriedAgent::from_wire(&both), Err(BadLane::Field("cluster"))));
    }
}
