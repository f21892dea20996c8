//! What lives longer than the decision that let it through: asked again whether it still may, for as long as it lives.
//!
//! A [`Watch`] stands for one credential on one connection towards one port. Every request, body and stream that it let
//! through is [`UnderWay`]; [`Living::due`] gives out those with something under way, and whoever finds that it may be no
//! longer ends it. A connection that asks the same again uses one watch for all its requests, so a request makes none.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture, WaitForCancellationFutureOwned};

use super::address::Address;
use super::respond::Failure;
use crate::auth::policy::Grant;
use crate::auth::request::Offered;
use crate::limits::Standing;
use crate::model::{Port, UserName};

/// One credential, used on one connection towards one port.
#[derive(Debug)]
pub(crate) struct Watch {
    offered: Offered,
    address: Arc<Address>,
    port: Port,
    user: Option<UserName>,
    /// What its requests count in.
    standing: Standing,
    under_way: AtomicUsize,
    ended: CancellationToken,
    why: OnceLock<Failure>,
}

/// Something that a watch let through and that is not over.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Watch>);

impl UnderWay {
    fn new(watch: Arc<Watch>) -> Self {
        watch.under_way.fetch_add(1, Ordering::Relaxed);
        Self(watch)
    }
}

impl Clone for UnderWay {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for UnderWay {
    type Target = Watch;

    fn deref(&self) -> &Watch {
        &self.0
    }
}

impl Watch {
    /// Returns what was offered.
    pub(crate) fn offered(&self) -> &Offered {
        &self.offered
    }

    /// Returns where it was offered.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the port that was asked for.
    pub(crate) fn port(&self) -> Port {
        self.port
    }

    /// Returns what its requests count in.
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Returns whether a new decision goes on with this one: it allows, and the same person.
    pub(crate) fn is_upheld_by(&self, grant: &Grant) -> bool {
        grant.user() == self.user.as_ref()
    }

    /// Ends everything that holds it.
    pub(crate) fn end(&self, why: Failure) {
        if self.why.set(why).is_ok() {
            self.ended.cancel();
        }
    }

    /// Returns whether it has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Returns why it ended: what a new request would be told.
    pub(crate) fn why(&self) -> Failure {
        self.why.get().copied().unwrap_or(Failure::SignInRequired)
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&self) -> WaitForCancellationFuture<'_> {
        self.ended.cancelled()
    }

    /// Waits until it has ended, and borrows nothing.
    pub(crate) fn wait_owned(&self) -> WaitForCancellationFutureOwned {
        self.ended.clone().cancelled_owned()
    }
}

/// The watch that a connection used last.
pub(crate) type LastWatch = Mutex<Option<Arc<Watch>>>;

/// All watches.
#[derive(Debug, Default)]
pub(crate) struct Living {
    watches: Mutex<Vec<Weak<Watch>>>,
}

impl Living {
    /// Returns the watch for what was just granted: the connection's last one if that is for the same, else a new one with
    /// a `standing` of its own.
    pub(crate) fn watch(
        &self,
        last: &LastWatch,
        offered: &Offered,
        address: &Arc<Address>,
        grant: &Grant,
        standing: impl FnOnce() -> Standing,
    ) -> UnderWay {
        let mut last = last.lock();
        let same = |watch: &&Arc<Watch>| {
            watch.offered == *offered
                && Arc::ptr_eq(&watch.address, address)
                && watch.port == grant.port()
                && watch.is_upheld_by(grant)
                && !watch.is_ended()
        };
        if let Some(watch) = last.as_ref().filter(same) {
            return UnderWay::new(watch.clone());
        }
        let watch = Arc::new(Watch {
            offered: *offered,
            address: address.clone(),
            port: grant.port(),
            user: grant.user().cloned(),
            standing: standing(),
            under_way: AtomicUsize::new(0),
            ended: CancellationToken::new(),
            why: OnceLock::new(),
        });
        let under_way = UnderWay::new(watch.clone());
        self.watches.lock().push(Arc::downgrade(&watch));
        *last = Some(watch);
        under_way
    }

    /// Returns those with something under way, and forgets those whose connection and streams are gone.
    pub(crate) fn due(&self) -> Vec<Arc<Watch>> {
        let mut due = Vec::new();
        self.watches.lock().retain(|watch| {
            let Some(watch) = watch.upgrade() else { return false };
            if watch.under_way.load(Ordering::Relaxed) > 0 {
                due.push(watch);
            }
            true
        });
        due
    }
}
