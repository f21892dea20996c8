//! Open event streams of the public host, re-authorised for as long as they are open.
//!
//! The content of a stream belongs to its owner; only the proof of its reader can change, so that is checked again.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use gateway_auth::request::OfferedCredential;
use gateway_types::UserName;

/// One open stream.
#[derive(Debug)]
pub struct EventStream {
    offered: OfferedCredential,
    user: UserName,
    ended: CancellationToken,
}

impl EventStream {
    /// Returns the credential that was offered.
    pub(crate) fn offered(&self) -> &OfferedCredential {
        &self.offered
    }

    /// Returns the user proven by that credential.
    pub(crate) fn user(&self) -> &UserName {
        &self.user
    }

    /// Ends the stream.
    pub(crate) fn end(&self) {
        self.ended.cancel();
    }

    /// Waits until the stream has to end. The future borrows nothing.
    pub(crate) fn wait_owned(&self) -> WaitForCancellationFutureOwned {
        self.ended.clone().cancelled_owned()
    }
}

/// All open streams.
#[derive(Debug, Default)]
pub struct EventStreams(Mutex<Vec<Weak<EventStream>>>);

impl EventStreams {
    /// Registers a stream, which is re-authorised for as long as it is held.
    pub fn follow(&self, offered: OfferedCredential, user: UserName) -> Arc<EventStream> {
        let followed = Arc::new(EventStream { offered, user, ended: CancellationToken::new() });
        self.0.lock().push(Arc::downgrade(&followed));
        followed
    }

    /// Returns the open streams, and forgets the others.
    pub(crate) fn open(&self) -> Vec<Arc<EventStream>> {
        let mut open = Vec::new();
        self.0.lock().retain(|followed| followed.upgrade().map(|followed| open.push(followed)).is_some());
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_asked_about_while_it_is_open_and_no_longer() {
        let followers = EventStreams::default();
        let open = followers.follow(OfferedCredential::Token([1; 32]), "ann".parse().unwrap());
        drop(followers.follow(OfferedCredential::Nothing, "bob".parse().unwrap()));
        let found = followers.open();
        assert!(found.len() == 1 && found[0].user().as_str() == "ann");
        drop((open, found));
        assert!(followers.open().is_empty() && followers.0.lock().is_empty());
    }
}
