//! What the authority of a request means on its connection. Clients ask one connection for the same authority again and
//! again, so the answer is found once and remembered.

use std::net::IpAddr;

use super::forwarded::Fields;
use super::rewrite::OwnOrigin;
use crate::model::{Port, Scheme, WorkspaceName};

/// A workspace's address as one connection's user sees it, and what an app is told of that.
#[derive(Debug)]
pub(crate) struct Address {
    /// As the request has it.
    pub(crate) authority: Box<str>,
    /// The workspace that it names.
    pub(crate) name: WorkspaceName,
    /// The port that it names, if it does.
    pub(crate) port: Option<Port>,
    /// The host in its one spelling, without the listener's port.
    pub(crate) host: Box<str>,
    /// The scheme that the user's browser sees.
    pub(crate) scheme: Scheme,
    /// What tells the app of the user.
    pub(crate) forwarded: Fields,
}

impl Address {
    /// Works everything out.
    pub(crate) fn new(
        authority: &str,
        (name, port): (WorkspaceName, Option<Port>),
        host: String,
        scheme: Scheme,
        peer: IpAddr,
    ) -> Self {
        Self {
            authority: authority.into(),
            name,
            port,
            host: host.into(),
            scheme,
            forwarded: Fields::new(peer, scheme, authority),
        }
    }

    /// Returns the origin that the user's browser sees.
    pub(crate) fn origin(&self) -> OwnOrigin<'_> {
        OwnOrigin { scheme: self.scheme, authority: &self.authority }
    }
}
