//! Meaning of a request's authority on its connection. Clients send one connection the same authority again and again,
//! so it is worked out once and remembered.

use std::net::IpAddr;

use super::forwarded::ForwardedFields;
use super::rewrite::OwnOrigin;
use gateway_types::{Port, Scheme, WorkspaceName};

/// A workspace's address as one connection's user sees it, and the forwarding fields for the app.
#[derive(Debug)]
pub(crate) struct Address {
    /// Authority as the request wrote it.
    pub(crate) authority: Box<str>,
    /// The workspace that it names.
    pub(crate) name: WorkspaceName,
    /// Port in the authority, if there is one.
    pub(crate) port: Option<Port>,
    /// The host in its one spelling, without the listener's port.
    pub(crate) host: Box<str>,
    /// Beginning of the paths of a port that is reached by path, without a slash at its end: see `by_path`.
    pub(crate) prefix: Option<Box<str>>,
    /// The scheme that the user's browser sees.
    pub(crate) scheme: Scheme,
    /// Forwarding fields that describe the user to the app.
    pub(crate) forwarded: ForwardedFields,
}

impl Address {
    /// Creates the address, with its forwarding fields.
    pub(crate) fn new(
        authority: &str,
        name: WorkspaceName,
        port: Option<Port>,
        host: String,
        scheme: Scheme,
        peer: IpAddr,
    ) -> Self {
        Self {
            authority: authority.into(),
            name,
            port,
            host: host.into(),
            prefix: None,
            scheme,
            forwarded: ForwardedFields::new(peer, scheme, authority),
        }
    }

    /// Makes the address one that is reached by path.
    pub(crate) fn below(self, prefix: &str) -> Self {
        Self { prefix: Some(prefix.into()), forwarded: self.forwarded.below(prefix), ..self }
    }

    /// Returns whether it is reached by path. Such a one is for the owner of the workspace alone.
    pub(crate) fn is_by_path(&self) -> bool {
        self.prefix.is_some()
    }

    /// Returns whether it is the address of this path too, once it is of the authority.
    pub(crate) fn has(&self, path: &str) -> bool {
        match &self.prefix {
            None => true,
            // Below the address of a workspace lie those of its ports.
            Some(prefix) => {
                self.port.is_some() && path.strip_prefix(&**prefix).is_some_and(|rest| rest.starts_with('/'))
            }
        }
    }

    /// Returns the origin that the user's browser sees.
    pub(crate) fn origin(&self) -> OwnOrigin<'_> {
        OwnOrigin { scheme: self.scheme, authority: &self.authority }
    }
}
