//! The handshake: an agent's offer and a gateway's answer.

use std::time::Duration;

use bytes::Bytes;

use crate::frame::{FrameError, port, text};
use crate::id::{Generation, SessionId};
use crate::limit::{
    CHANNELS_MAX, FEATURES_MAX, LANES_MAX, OPEN_CREDIT_BYTES, PAYLOAD_BYTES_MAX, PORTS_MAX, SEAL_BYTES_MAX,
    TICKET_BYTES_MAX, URL_BYTES_MAX, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN,
};
use crate::version::VersionRange;
use crate::wire;

/// First message of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Hello {
    /// Versions that the agent speaks.
    pub versions: VersionRange,
    /// Features that the agent can use.
    pub features: Vec<String>,
    /// Version of the program, for people.
    pub agent_version: String,
    /// Role of the agent.
    pub role: Role,
    /// Random, chosen when the agent process started.
    pub instance: u64,
    /// Asks to continue a session.
    pub resume: Option<Resume>,
    /// Payload bytes that the gateway may send on a new channel before any grant.
    pub open_credit_bytes: u32,
    /// Ports that the agent exposes; empty means every loopback port but its own.
    pub ports: Vec<Port>,
    /// Port of `{name}.{zone}`.
    pub default_port: Option<u16>,
    /// Asks for one more lane of a session.
    pub join: Option<Join>,
    /// Lanes that the agent wants for a new session; 0 or 1 for none but its first link.
    pub lanes: u32,
    /// Options for speaking to ports, exposed by name or not.
    pub apps: Vec<Port>,
    /// Host that apps see on ports of which nothing else says it.
    pub host: HostMode,
    /// The replica at which the link ends, if it is a relay lane.
    pub relay: Option<RelayTicket>,
    /// Seal of the last Welcome; empty without one. At most [`SEAL_BYTES_MAX`] bytes.
    pub seal: Bytes,
}

/// Names the session that an agent wants another lane of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// The session.
    pub session: SessionId,
    /// The secret that its Welcome carried.
    pub secret: Bytes,
}

/// Permission to add one relay lane, and the replica at which that ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayTicket {
    /// The replica: the number of its process start.
    pub replica: u64,
    /// Secret, good once; at most [`TICKET_BYTES_MAX`] bytes.
    pub ticket: Bytes,
}

/// Role of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Inside a workspace: carries channels to its ports.
    Workspace,
    /// Inside a cluster: reconciles workspaces.
    Cluster,
}

/// Names the session that an agent wants to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The session.
    pub session: SessionId,
    /// The secret that its Welcome carried.
    pub secret: Bytes,
    /// Highest frame number received in order.
    pub received: u64,
}

/// Options for speaking to one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// 1 to 65535.
    pub number: u16,
    /// HTTP version that the app speaks.
    pub protocol: AppProtocol,
    /// Host that the app sees.
    pub host: HostMode,
    /// Whether the app speaks it inside TLS, with a certificate of its own.
    pub tls: bool,
}

/// HTTP version that an app speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppProtocol {
    /// HTTP/1.1 (RFC 9112).
    #[default]
    Http1,
    /// HTTP/2 with prior knowledge (RFC 9113, section 3.3), as gRPC servers speak it.
    Http2,
}

/// Host that an app sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostMode {
    /// Not said: the host that the user asked for, and `localhost:{port}` where the app refuses that.
    #[default]
    Auto,
    /// The host that the user asked for, whatever the app makes of it.
    Original,
    /// `localhost:{port}`, for dev servers that insist on it.
    Localhost,
}

/// Answer of a gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Welcome {
    /// The version that both sides use from here on.
    pub version: u32,
    /// The features that both sides named.
    pub features: Vec<String>,
    /// The new session.
    pub session: SessionId,
    /// Its place among the sessions of this agent.
    pub generation: Generation,
    /// Channels that may live at once.
    pub channels_max: u32,
    /// Largest payload of one frame, in bytes.
    pub payload_bytes_max: u32,
    /// Silence after which a ping is sent.
    pub keepalive_interval: Duration,
    /// Wait for a pong before the link counts as dead.
    pub keepalive_timeout: Duration,
    /// Secret to resume with, good for one attempt; empty while that feature is not agreed on.
    pub resume_secret: Bytes,
    /// The workspace that the credential stands for.
    pub workspace: String,
    /// Longest time that the gateway keeps a session without a link.
    pub resume_grace: Duration,
    /// The session that the Hello named goes on; `None` for a new one.
    pub resumed: Option<Resumed>,
    /// Lanes that the session may have; 0 while that feature is not agreed on.
    pub lanes: u32,
    /// Secret to join a lane with; empty while that feature is not agreed on.
    pub join_secret: Bytes,
    /// URL at which people reach the workspace. Its host is `NAME.ZONE`; with `PORT-` before it, it is one of the
    /// ports. Empty for a cluster, and from a gateway that does not say it.
    pub workspace_url: String,
    /// Proof of the generation, for the next Hello; empty from a gateway without replicas. At most [`SEAL_BYTES_MAX`] bytes.
    pub seal: Bytes,
}

/// A session goes on over a new link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// Highest frame number that the gateway received in order.
    pub received: u64,
}

impl Hello {
    pub(crate) fn to_wire(&self) -> wire::Hello {
        wire::Hello {
            version_min: self.versions.min,
            version_max: self.versions.max,
            features: self.features.clone(),
            agent_version: self.agent_version.clone(),
            role: self.role.name().to_owned(),
            instance: self.instance,
            resume: self.resume.as_ref().map(|resume| wire::Resume {
                session: resume.session.get(),
                secret: resume.secret.clone(),
                received: resume.received,
            }),
            open_credit_bytes: self.open_credit_bytes,
            ports: self.ports.iter().map(|port| port.to_wire()).collect(),
            default_port: self.default_port.map_or(0, u32::from),
            join: self
                .join
                .as_ref()
                .map(|join| wire::Join { session: join.session.get(), secret: join.secret.clone() }),
            lanes: self.lanes,
            apps: self.apps.iter().map(|port| port.to_wire()).collect(),
            // The host mode of the session has no flag for being said: `auto` is its default.
            host: self.host.to_wire().into(),
            relay: self
                .relay
                .as_ref()
                .map(|relay| wire::Relay { replica: relay.replica, ticket: relay.ticket.clone() }),
            seal: self.seal.clone(),
        }
    }

    pub(crate) fn from_wire(hello: wire::Hello) -> Result<Self, FrameError> {
        if hello.features.len() > FEATURES_MAX {
            return Err(FrameError::Field { field: "features" });
        }
        if hello.ports.len() > PORTS_MAX {
            return Err(FrameError::Field { field: "ports" });
        }
        if hello.apps.len() > PORTS_MAX {
            return Err(FrameError::Field { field: "apps" });
        }
        if !(WINDOW_BYTES_MIN..=WINDOW_BYTES_MAX).contains(&hello.open_credit_bytes) {
            return Err(FrameError::Field { field: "open_credit_bytes" });
        }
        let features = hello.features.into_iter().map(|name| text(name, "features")).collect::<Result<_, _>>()?;
        Ok(Self {
            versions: VersionRange { min: hello.version_min, max: hello.version_max },
            features,
            agent_version: text(hello.agent_version, "agent_version")?,
            role: Role::parse(&hello.role)?,
            instance: hello.instance,
            resume: hello.resume.map(|resume| Resume {
                session: SessionId::new(resume.session),
                secret: resume.secret,
                received: resume.received,
            }),
            open_credit_bytes: hello.open_credit_bytes,
            ports: hello.ports.iter().map(Port::from_wire).collect::<Result<_, _>>()?,
            default_port: match hello.default_port {
                0 => None,
                number => Some(port(number)?),
            },
            join: hello.join.map(|join| Join { session: SessionId::new(join.session), secret: join.secret }),
            lanes: hello.lanes.min(LANES_MAX),
            apps: hello.apps.iter().map(Port::from_wire).collect::<Result<_, _>>()?,
            host: HostMode::from_wire(hello.host, false)?,
            relay: hello.relay.map(|relay| RelayTicket::from_wire(relay.replica, relay.ticket)).transpose()?,
            seal: seal(hello.seal)?,
        })
    }
}

impl RelayTicket {
    pub(crate) fn from_wire(replica: u64, ticket: Bytes) -> Result<Self, FrameError> {
        if ticket.len() > TICKET_BYTES_MAX {
            return Err(FrameError::Field { field: "ticket" });
        }
        Ok(Self { replica, ticket })
    }
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Cluster => "cluster",
        }
    }

    fn parse(name: &str) -> Result<Self, FrameError> {
        match name {
            "workspace" => Ok(Self::Workspace),
            "cluster" => Ok(Self::Cluster),
            _ => Err(FrameError::Field { field: "role" }),
        }
    }
}

impl Port {
    fn to_wire(self) -> wire::Port {
        let protocol = match self.protocol {
            AppProtocol::Http1 => wire::AppProtocol::Http1,
            AppProtocol::Http2 => wire::AppProtocol::Http2,
        };
        // Only the host mode that is also the default has to say that it was chosen.
        let host_is_said = self.host == HostMode::Original;
        wire::Port {
            number: u32::from(self.number),
            protocol: protocol.into(),
            host: self.host.to_wire().into(),
            host_is_said,
            tls: self.tls,
        }
    }

    /// A value that a newer agent may send and this version does not know is an error: guessing how to speak to an
    /// app would break it in a way that is hard to see.
    fn from_wire(message: &wire::Port) -> Result<Self, FrameError> {
        let protocol = match wire::AppProtocol::try_from(message.protocol) {
            Ok(wire::AppProtocol::Http1) => AppProtocol::Http1,
            Ok(wire::AppProtocol::Http2) => AppProtocol::Http2,
            Err(_) => return Err(FrameError::Field { field: "protocol" }),
        };
        let host = HostMode::from_wire(message.host, message.host_is_said)?;
        Ok(Self { number: port(message.number)?, protocol, host, tls: message.tls })
    }
}

impl HostMode {
    fn to_wire(self) -> wire::HostMode {
        match self {
            Self::Auto | Self::Original => wire::HostMode::Original,
            Self::Localhost => wire::HostMode::Localhost,
        }
    }

    fn from_wire(mode: i32, is_said: bool) -> Result<Self, FrameError> {
        match wire::HostMode::try_from(mode) {
            Ok(wire::HostMode::Original) => Ok(if is_said { Self::Original } else { Self::Auto }),
            Ok(wire::HostMode::Localhost) => Ok(Self::Localhost),
            Err(_) => Err(FrameError::Field { field: "host" }),
        }
    }
}

impl Welcome {
    pub(crate) fn to_wire(&self) -> wire::Welcome {
        wire::Welcome {
            version: self.version,
            features: self.features.clone(),
            session: self.session.get(),
            generation: self.generation.get(),
            limits: Some(wire::Limits { channels: self.channels_max, payload_bytes: self.payload_bytes_max }),
            keepalive_interval_ms: milliseconds(self.keepalive_interval),
            keepalive_timeout_ms: milliseconds(self.keepalive_timeout),
            resume_secret: self.resume_secret.clone(),
            workspace: self.workspace.clone(),
            resume_grace_ms: milliseconds(self.resume_grace),
            resumed: self.resumed.map(|resumed| wire::Resumed { received: resumed.received }),
            lanes: self.lanes,
            join_secret: self.join_secret.clone(),
            workspace_url: self.workspace_url.clone(),
            seal: self.seal.clone(),
        }
    }

    pub(crate) fn from_wire(welcome: wire::Welcome) -> Result<Self, FrameError> {
        if welcome.features.len() > FEATURES_MAX {
            return Err(FrameError::Field { field: "features" });
        }
        let limits = welcome.limits.ok_or(FrameError::Field { field: "limits" })?;
        if limits.channels == 0 || limits.payload_bytes == 0 {
            return Err(FrameError::Field { field: "limits" });
        }
        if welcome.keepalive_interval_ms == 0 || welcome.keepalive_timeout_ms == 0 {
            return Err(FrameError::Field { field: "keepalive" });
        }
        let payload_max = u32::try_from(PAYLOAD_BYTES_MAX).unwrap_or(u32::MAX);
        Ok(Self {
            version: welcome.version,
            features: welcome.features.into_iter().map(|name| text(name, "features")).collect::<Result<_, _>>()?,
            session: SessionId::new(welcome.session),
            generation: Generation::new(welcome.generation),
            // A peer may ask for more than this program is built for; the smaller number holds.
            channels_max: limits.channels.min(CHANNELS_MAX * 16),
            payload_bytes_max: limits.payload_bytes.min(payload_max),
            keepalive_interval: Duration::from_millis(u64::from(welcome.keepalive_interval_ms)),
            keepalive_timeout: Duration::from_millis(u64::from(welcome.keepalive_timeout_ms)),
            resume_secret: welcome.resume_secret,
            workspace: text(welcome.workspace, "workspace")?,
            resume_grace: Duration::from_millis(u64::from(welcome.resume_grace_ms)),
            resumed: welcome.resumed.map(|resumed| Resumed { received: resumed.received }),
            lanes: welcome.lanes.min(LANES_MAX),
            join_secret: welcome.join_secret,
            workspace_url: url(welcome.workspace_url, "workspace_url")?,
            seal: seal(welcome.seal)?,
        })
    }
}

/// Checks the length of a seal.
pub(crate) fn seal(bytes: Bytes) -> Result<Bytes, FrameError> {
    if bytes.len() <= SEAL_BYTES_MAX { Ok(bytes) } else { Err(FrameError::Field { field: "seal" }) }
}

fn url(text: String, field: &'static str) -> Result<String, FrameError> {
    // The URL is shown to people, in logs too.
    let is_plain = text.len() <= URL_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain { Ok(text) } else { Err(FrameError::Field { field }) }
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

const _: () = assert!(OPEN_CREDIT_BYTES >= WINDOW_BYTES_MIN && OPEN_CREDIT_BYTES <= WINDOW_BYTES_MAX);
