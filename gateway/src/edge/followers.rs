//! Event streams of the public host that are open: asked again whether they still may be, for as long as they are.
//!
//! What a stream tells is its owner's, whoever that is; so only who asked for it can change, and that is asked again.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::auth::request::Offered;
use crate::model::UserName;

/// One stream that is open.
#[derive(Debug)]
pub(crate) struct Followed {
    offered: Offered,
    user: UserName,
    ended: CancellationToken,
}

impl Followed {
    /// Returns what was offered.
    pub(crate) fn offered(&self) -> &Offered {
        &self.offered
    }

    /// Returns whom that proved.
    pub(crate) fn user(&self) -> &UserName {
        &self.user
    }

    /// Ends the stream.
    pub(crate) fn end(&self) {
        self.ended.cancel();
    }

    /// Waits until it has to end, and borrows nothing.
    pub(crate) fn wait_owned(&self) -> WaitForCancellationFutureOwned {
        self.ended.clone().cancelled_owned()
    }
}

/// All streams.
#[derive(Debug, Default)]
pub(crate) struct Followers(Mutex<Vec<Weak<Followed>>>);

impl Followers {
    /// Enters a stream, which is asked about for as long as somebody holds it.
    pub(crate) fn follow(&self, offered: Offered, user: UserName) -> Arc<Followed> {
        let followed = Arc::new(Followed { offered, user, ended: CancellationToken::new() });
        self.0.lock().push(Arc::downgrade(&followed));
        followed
    }

    /// Returns those that are open, and forgets the others.
    pub(crate) fn due(&self) -> Vec<Arc<Followed>> {
        let mut due = Vec::new();
        self.0.lock().retain(|followed| followed.upgrade().map(|followed| due.push(followed)).is_some());
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_asked_about_while_it_is_open_and_no_longer() {
        let followers = Followers::default();
        let open = followers.follow(Offered::Token([1; 32]), "ann".parse().unwrap());
        drop(followers.follow(Offered::Nothing, "bob".parse().unwrap()));
        let due = followers.due();
        assert!(due.len() == 1 && due[0].user().as_str() == "ann");
        drop((open, due));
        assert!(followers.due().is_empty() && followers.0.lock().is_empty());
    }
}
