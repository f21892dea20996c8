//! The owner of a connection to an app. An app that sends a byte too many answers the next request with it, so a connection
//! serves one principal only: a user, or, without a sign-in, one connection of a client.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{PoolKey, Upstreams};
use gateway_types::UserName;

/// Most ports to which one client's connections are kept at a time. A browser that joins hosts on one HTTP/2 connection
/// has a few; beyond that, the connections of the port that was used first are given up.
const PORTS_PER_CLIENT_MAX: usize = 16;

/// A client's connection that came without a sign-in. Connections kept for it end with it.
#[derive(Debug)]
pub(crate) struct AnonymousClient {
    number: u64,
    upstreams: Arc<Upstreams>,
    ports: Mutex<Vec<PoolKey>>,
}

impl AnonymousClient {
    pub(super) fn new(number: u64, upstreams: Arc<Upstreams>) -> Self {
        Self { number, upstreams, ports: Mutex::default() }
    }

    /// Notes that a connection to a port is about to be kept.
    pub(super) fn keeps(&self, key: PoolKey) {
        let first = {
            let mut ports = self.ports.lock();
            if ports.contains(&key) {
                return;
            }
            ports.push(key);
            (ports.len() > PORTS_PER_CLIENT_MAX).then(|| ports.remove(0))
        };
        if let Some(first) = first {
            self.upstreams.forget(first, self.number);
        }
    }
}

impl Drop for AnonymousClient {
    fn drop(&mut self) {
        for key in std::mem::take(self.ports.get_mut()) {
            self.upstreams.forget(key, self.number);
        }
    }
}

/// The principal that a request is for.
#[derive(Clone, Debug)]
pub(crate) enum Owner {
    /// A user, on any connection of theirs.
    User(UserName),
    /// A client, as long as its connection lasts.
    Client(Arc<AnonymousClient>),
}

/// The owner of a kept connection, without keeping a client's connection alive.
#[derive(Debug)]
pub(super) enum KeptFor {
    User(UserName),
    Client(u64),
}

impl Owner {
    /// Splits into the owner to keep with a connection to a port, and the client that has to live until it is kept.
    pub(super) fn into_kept(self, key: PoolKey) -> (KeptFor, Option<Arc<AnonymousClient>>) {
        match self {
            Self::User(user) => (KeptFor::User(user), None),
            Self::Client(client) => {
                client.keeps(key);
                (KeptFor::Client(client.number), Some(client))
            }
        }
    }
}

impl KeptFor {
    /// Turns back into the owner that it is kept for.
    pub(super) fn into_owner(self, owner: &Owner) -> Owner {
        match self {
            Self::User(user) => Owner::User(user),
            Self::Client(_) => owner.clone(),
        }
    }

    /// Returns whether a connection may serve this one too.
    pub(super) fn is(&self, owner: &Owner) -> bool {
        match (self, owner) {
            (Self::User(kept), Owner::User(user)) => kept == user,
            (Self::Client(kept), Owner::Client(client)) => *kept == client.number,
            (Self::User(_), Owner::Client(_)) | (Self::Client(_), Owner::User(_)) => false,
        }
    }

    /// Returns whether it is for a client of this number.
    pub(super) fn is_client(&self, number: u64) -> bool {
        matches!(self, Self::Client(kept) if *kept == number)
    }

    /// Returns whether it is for a user, who comes back more often than a client whose connection is at rest.
    pub(super) fn is_user(&self) -> bool {
        matches!(self, Self::User(_))
    }
}
