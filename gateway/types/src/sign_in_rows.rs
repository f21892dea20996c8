//! Sign-ins as rows: browser sessions and sign-ins of programs, as the store keeps them for the next process.
//!
//! Rows hold digests of ids and codes only.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use super::{UnixSeconds, UserName};
use crate::opaque::Digest;

/// A session as a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSession {
    /// The SHA-256 of its id.
    pub id: Digest,
    /// Its user.
    pub user: UserName,
    /// The parent session; `None` for a session of the public host.
    pub of: Option<KeptParent>,
    /// The subject that the identity provider signed in, and its name of that session.
    pub provider: Option<(Box<str>, Option<Box<str>>)>,
    /// The address that it began from.
    pub peer: IpAddr,
    /// Its beginning.
    pub opened_at: UnixSeconds,
    /// Its last use, as far as that was written.
    pub used_at: UnixSeconds,
}

/// Parent of a session of a workspace host, and that host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptParent {
    /// The SHA-256 of the public session's id.
    pub parent: Digest,
    /// The only host at which the session is valid.
    pub host: Box<str>,
}

/// A change of the rows in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChange {
    /// A session has begun.
    Begun(Box<KeptSession>),
    /// An existing session was used.
    Used(Digest, UnixSeconds),
    /// A session has ended.
    Ended(Digest),
}

/// A request as a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptDevice {
    /// The SHA-256 of its device code.
    pub device: Digest,
    /// The SHA-256 of its user code.
    pub code: Digest,
    /// The name that the machine gave itself.
    pub machine: String,
    /// The address that it asked from.
    pub peer: IpAddr,
    /// The time of its request.
    pub asked_at: UnixSeconds,
    /// The answer of its user.
    pub answer: KeptAnswer,
}

/// The answer of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptAnswer {
    /// Nothing yet.
    None,
    /// Yes, by this user. The program may have been told already, and its token may not have been made.
    Yes(UserName),
    /// No.
    No,
}

/// A change of the rows in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChange {
    /// The current state of a request.
    Is(Box<KeptDevice>),
    /// The request has ended.
    Ended(Digest),
}

/// Sessions that end together, wherever they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionsOf {
    /// All of a user.
    User(UserName),
    /// Those that the identity provider's message is about: of its subject, of its session, or of both.
    Provider {
        /// The subject.
        subject: Option<String>,
        /// The provider's name of its session.
        session: Option<String>,
    },
}

/// A session of the public host that has ended, with its children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSession {
    /// The SHA-256 of its id.
    pub id: Digest,
    /// Its user.
    pub user: UserName,
}

/// Code by which a request of a program is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKey {
    /// The SHA-256 of its device code.
    Device(Digest),
    /// The SHA-256 of its user code.
    Code(Digest),
}

/// Kind of a step of a sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// The link of dev mode.
    Link,
    /// A sign-in that is pending at the identity provider.
    Provider,
    /// A one-time code from the public host to a workspace host.
    Transfer,
    /// Something that must not count a second time.
    Spent,
}

impl StepKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Link, Self::Provider, Self::Transfer, Self::Spent];

    /// Returns the name under which it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Provider => "provider",
            Self::Transfer => "transfer",
            Self::Spent => "spent",
        }
    }
}

/// A step of a sign-in that the next request of its browser takes. `Debug` shows no contents.
#[derive(Clone, PartialEq, Eq)]
pub struct NewStep {
    /// Its kind.
    pub kind: StepKind,
    /// The SHA-256 of the code that the browser will come with.
    pub id: Digest,
    /// What the code stands for.
    pub contents: Vec<u8>,
    /// Time for which it can be taken.
    pub age_max: Duration,
}

impl fmt::Debug for NewStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("NewStep").field("kind", &self.kind).finish_non_exhaustive()
    }
}
