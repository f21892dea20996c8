//! Sign-ins as rows: browser sessions and sign-ins of programs, as the store keeps them for the next process.
//!
//! Rows hold digests of ids and codes only.

use std::net::IpAddr;

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
