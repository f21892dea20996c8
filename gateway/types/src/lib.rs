//! The gateway's vocabulary: names, ports, users, states, shares, credentials. No behaviour that needs I/O.
//!
//! Text that enters the gateway is parsed into one of these types once, at the border; inner code never re-checks.
//!
//! * names and addresses: [`WorkspaceName`], [`UserName`], [`ClusterName`], [`ProviderName`], [`Port`], [`Zone`],
//!   [`PublicUrl`], [`Endpoint`], [`GitHost`]
//! * workspaces: [`DesiredState`], [`ActualState`], [`Lifecycle`], [`TimeLimits`], [`IdleRecord`], [`blockers`],
//!   [`start_progress`], [`Share`], [`NamedPort`], [`DisplayName`]
//! * users and credentials: [`principal`], [`token`] (what is handed out, with a checksum), [`opaque`] (random ids and their
//!   digests), [`Secret`] (a text that prints as a mask), [`sign_in_rows`]
//! * limits: [`Limit`] names each; requests that failed: [`failed_request`]
//! * text: [`markup`] inside HTML, [`hexadecimal`], [`UnixSeconds`] as a date
//!
//! Pure, but for new tokens and ids, whose bytes come from the system's random numbers: nothing in this crate's dependencies
//! has a socket, a clock or a runtime.

pub mod blockers;
mod cluster;
mod display_name;
mod endpoint;
pub mod failed_request;
mod git_host;
mod idle;
mod job_time;
mod lifecycle;
mod limit;
pub mod markup;
mod named_port;
pub mod opaque;
pub mod principal;
mod provider;
mod public_url;
pub mod quota;
mod secret;
mod share;
pub mod sign_in_rows;
pub mod start_progress;
mod template;
mod time;
pub mod token;

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::sync::Arc;

use http::Uri;
use thiserror::Error;
use tunnel_proto::inspector::INSPECTOR_PORT;
use tunnel_proto::terminal::{EDITOR_PORT, TERMINAL_PORT};

pub use cluster::{BadClusterName, CLUSTER_NAME_BYTES_MAX, ClusterName};
pub use display_name::{BadDisplayName, DISPLAY_NAME_CHARS_MAX, DisplayName};
pub use endpoint::{BadEndpoint, ENDPOINT_BYTES_MAX, Endpoint};
pub use git_host::{BadGitHost, GitHost};
pub use idle::{
    Activity, ActivityKind, BadActivityKind, BadIdleLimit, IDLE_TIME_MAX, IDLE_TIME_MIN, IdleLimit, IdleRecord,
    IdleRules, IdleStage, KEEP_TIME, KEEP_TIME_MAX,
};
pub use job_time::{JOB_TIMES, JobTime, SAVE_TIMES};
pub use lifecycle::{ActualState, BadState, DesiredState, Lifecycle, LifecycleRefused, REASON_BYTES_MAX, TimeLimits};
pub use limit::Limit;
pub use named_port::{
    BadNamedPort, BadPortHost, BadPortName, BadPortProtocol, NAMED_PORTS_MAX, NamedPort, PortHost, PortName,
    PortProtocol,
};
pub use provider::{BadProviderName, PROVIDER_NAME_BYTES_MAX, ProviderName};
pub use public_url::{BadOrigin, PublicUrl};
pub use secret::Secret;
pub use tunnel_proto::ssh::{SSH_PORT, SSH_USER};

pub use share::{Audience, BadAudience, RefusedShare, Share};
pub use template::{BadTemplate, NoName, UserTemplate, WorkspaceTemplate};
pub use time::{BadTime, Clock, UnixSeconds};

/// Writes bytes as hexadecimal digits, in lower case.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether a text is a label, `[a-z0-9]([a-z0-9-]*[a-z0-9])?`, of at most `bytes_max` bytes.
fn is_label(text: &str, bytes_max: usize) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    let bytes = text.as_bytes();
    bytes.len() <= bytes_max
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
        && is_edge(bytes.first())
        && is_edge(bytes.last())
}

/// Longest DNS label (RFC 1035, section 2.3.4), in bytes. A workspace host's first label must fit.
pub const LABEL_BYTES_MAX: usize = 63;

/// Longest workspace name, in bytes: a label also has to hold the widest port and a dash (`65535-`).
pub const WORKSPACE_NAME_BYTES_MAX: usize = LABEL_BYTES_MAX - 6;

/// The name of a workspace: `[a-z0-9]([a-z0-9-]*[a-z0-9])?`, not beginning with digits and a dash (that would read as
/// a port), at most [`WORKSPACE_NAME_BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkspaceName(Arc<str>);

/// Reason why a text is not a workspace name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadWorkspaceName {
    /// The text is empty.
    #[error("a workspace name cannot be empty")]
    Empty,
    /// The text is longer than [`WORKSPACE_NAME_BYTES_MAX`].
    #[error("a workspace name has at most {WORKSPACE_NAME_BYTES_MAX} characters")]
    TooLong,
    /// A character outside `[a-z0-9-]`, or a dash at either end.
    #[error("a workspace name uses a-z, 0-9 and inner dashes only")]
    Character,
    /// It begins with digits and a dash, which is how a port is written.
    #[error("a workspace name cannot begin with digits and a dash: that is how a port is written")]
    LooksLikePort,
}

impl WorkspaceName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for WorkspaceName {
    type Err = BadWorkspaceName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(BadWorkspaceName::Empty);
        }
        if text.len() > WORKSPACE_NAME_BYTES_MAX {
            return Err(BadWorkspaceName::TooLong);
        }
        let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
        if !text.as_bytes().iter().all(inner) || text.starts_with('-') || text.ends_with('-') {
            return Err(BadWorkspaceName::Character);
        }
        if let Some((head, _)) = text.split_once('-')
            && head.bytes().all(|byte| byte.is_ascii_digit())
        {
            return Err(BadWorkspaceName::LooksLikePort);
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for WorkspaceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A TCP port inside a workspace, 1 to 65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port(NonZeroU16);

/// The text is not a decimal port from 1 to 65535 without leading zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a port is a decimal number from 1 to 65535 without leading zeros")]
pub struct BadPort;

impl Port {
    /// Wraps a number; `None` for 0.
    #[must_use]
    pub fn new(number: u16) -> Option<Self> {
        NonZeroU16::new(number).map(Self)
    }

    /// Returns the number.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0.get()
    }

    /// Returns the name of this product's own service at the port, if it has one there.
    #[must_use]
    pub fn label(self) -> Option<&'static str> {
        match self.get() {
            EDITOR_PORT => Some("editor"),
            TERMINAL_PORT => Some("terminal"),
            INSPECTOR_PORT => Some("requests"),
            SSH_PORT => Some("ssh"),
            _ => None,
        }
    }

    /// Returns whether this is the port under which agents offer SSH: to reach it is to have the machine, without another proof.
    #[must_use]
    pub fn is_ssh(self) -> bool {
        self.get() == SSH_PORT
    }

    /// Returns whether this is the port of the editor of workspaces that the gateway makes.
    #[must_use]
    pub fn is_editor(self) -> bool {
        self.get() == EDITOR_PORT
    }

    /// Returns whether this is the port on which agents serve terminals: input there runs on the machine.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        self.get() == TERMINAL_PORT
    }

    /// Returns whether this is the port on which agents serve their request inspector: what all users of the workspace's apps send and
    /// get can be read there, and sent again.
    #[must_use]
    pub fn is_inspector(self) -> bool {
        self.get() == INSPECTOR_PORT
    }

    /// Returns whether an agent serves pages of its own at the port, and believes what the gateway says there of the user.
    #[must_use]
    pub fn is_agents_page(self) -> bool {
        self.is_terminal() || self.is_inspector()
    }
}

impl FromStr for Port {
    type Err = BadPort;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits_only = text.bytes().all(|byte| byte.is_ascii_digit());
        if text.is_empty() || text.starts_with('0') || !digits_only {
            return Err(BadPort);
        }
        text.parse().ok().and_then(Self::new).ok_or(BadPort)
    }
}

impl fmt::Display for Port {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// A signed-in person, by the name the identity provider or the operator gave: 1 to 128 printable ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserName(Arc<str>);

/// The text is not 1 to 128 printable ASCII characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a user name has 1 to 128 printable ASCII characters and no spaces")]
pub struct BadUserName;

impl UserName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UserName {
    type Err = BadUserName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_printable_name(text) { Ok(Self(text.into())) } else { Err(BadUserName) }
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The name of a group of users, as the identity provider says it: 1 to 128 printable ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupName(Arc<str>);

/// The text is not 1 to 128 printable ASCII characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a group name has 1 to 128 printable ASCII characters and no spaces")]
pub struct BadGroupName;

impl GroupName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GroupName {
    type Err = BadGroupName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_printable_name(text) { Ok(Self(text.into())) } else { Err(BadGroupName) }
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn is_printable_name(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The DNS domain under which workspaces live, lower case, without a trailing dot: `localhost`, `ws.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Zone(Arc<str>);

/// The text is not a DNS name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a zone is a DNS name such as `localhost` or `workspaces.example.com`")]
pub struct BadZone;

impl Zone {
    /// Returns the zone as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Zone {
    type Err = BadZone;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let label = |label: &str| {
            !label.is_empty()
                && label.len() <= LABEL_BYTES_MAX
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        // 253 is the longest DNS name in text form; the workspace label and its dot must still fit in front.
        if text.len() > 253 - LABEL_BYTES_MAX - 1 || !text.split('.').all(label) {
            return Err(BadZone);
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The scheme of a web origin. Behind a load balancer that ends TLS it is the one that browsers see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

impl Scheme {
    /// Returns the scheme as it is written in a URL.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Returns the port that a URL of this scheme means when it has none.
    #[must_use]
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// Reads a scheme, in any case. `None` for schemes that are not HTTP.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("http") {
            return Some(Self::Http);
        }
        text.eq_ignore_ascii_case("https").then_some(Self::Https)
    }

    /// Reads the scheme of a request target. `None` if it has none, or one that is not HTTP.
    #[must_use]
    pub fn of(uri: &Uri) -> Option<Self> {
        uri.scheme_str().and_then(Self::from_text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_name(text: &str, expected: Result<(), BadWorkspaceName>) {
        assert_eq!(text.parse::<WorkspaceName>().map(|_| ()), expected, "{text:?}");
    }

    #[test]
    fn workspace_name_accepts_labels_and_refuses_all_else() {
        check_name("a", Ok(()));
        check_name("my-app", Ok(()));
        check_name("3d-printer", Ok(()));
        check_name("8080", Ok(()));
        check_name("", Err(BadWorkspaceName::Empty));
        check_name("8080-app", Err(BadWorkspaceName::LooksLikePort));
        check_name("-a", Err(BadWorkspaceName::Character));
        check_name("a-", Err(BadWorkspaceName::Character));
        check_name("A", Err(BadWorkspaceName::Character));
        check_name("a.b", Err(BadWorkspaceName::Character));
        check_name("ä", Err(BadWorkspaceName::Character));
        check_name(&"a".repeat(58), Err(BadWorkspaceName::TooLong));
    }

    #[test]
    fn port_refuses_zero_signs_and_leading_zeros() {
        assert_eq!("8080".parse::<Port>().map(Port::get), Ok(8080));
        for text in ["", "0", "080", "+80", "-1", "65536", "8080 ", "٣", "99999999999999999999"] {
            assert_eq!(text.parse::<Port>(), Err(BadPort), "{text:?}");
        }
    }

    #[test]
    fn zone_is_a_dns_name() {
        assert!("localhost".parse::<Zone>().is_ok());
        assert!("ws.example.com".parse::<Zone>().is_ok());
        for text in ["", ".", "a..b", "Example.com", "a.", "-a.b", "a b"] {
            assert_eq!(text.parse::<Zone>(), Err(BadZone), "{text:?}");
        }
    }
}
