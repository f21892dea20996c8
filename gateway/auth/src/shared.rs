//! Sign-ins that several replicas share: what this crate needs of their store.
//!
//! One gateway has none of it. With several, a balancer leads each request of a browser to any replica. What a replica does not
//! know it asks the store once, and remembers; ends reach it by the store's feed of changes.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::Instant;

use gateway_types::opaque::Digest;
use gateway_types::sign_in_rows::{
    DeviceKey, EndedSession, KeptAnswer, KeptDevice, KeptSession, NewStep, SessionsOf, StepKind,
};
use gateway_types::{UnixSeconds, UserName};

/// Reads of one kind that clients without a valid credential can cause in a second. More are refused, as if the store were away, so
/// that a flood of made-up codes and cookies costs the store little. Browsers that all come to a replica that has just started need
/// one each.
pub const READS_PER_SECOND_MAX: u32 = 1_000;

/// Writes of one kind that such clients can cause in a second.
pub const WRITES_PER_SECOND_MAX: u32 = 200;

/// Length of a proof, in bytes.
pub const PROOF_BYTES: usize = 16;

/// The store did not do what it was asked. The text is for the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SharedFailure(pub String);

/// Answer of the store.
pub type SharedAnswer<'a, T> = BoxFuture<'a, Result<T, SharedFailure>>;

/// The store, as far as replicas share sign-ins in it. All methods may be dropped before they return; they then have done
/// everything or nothing.
pub trait SharedSignIns: fmt::Debug + Send + Sync {
    /// Returns a session and its parent, if it has one; nothing for an unknown id.
    fn session(&self, id: Digest) -> SharedAnswer<'_, Vec<KeptSession>>;
    /// Returns all sessions of a user.
    fn sessions_of<'a>(&'a self, user: &'a UserName) -> SharedAnswer<'a, Vec<KeptSession>>;
    /// Ends sessions and their children; returns those of the public host.
    fn end_sessions(&self, of: SessionsOf) -> SharedAnswer<'_, Vec<EndedSession>>;
    /// Returns the request of a program.
    fn device(&self, key: DeviceKey) -> SharedAnswer<'_, Option<KeptDevice>>;
    /// Writes a user's decision; `false` if it is too late for it.
    fn decide_device(&self, device: Digest, answer: KeptAnswer) -> SharedAnswer<'_, bool>;
    /// Takes a decided request, for one caller of all replicas; `false` if another has it.
    fn take_device(&self, device: Digest) -> SharedAnswer<'_, bool>;
    /// Puts a request back that was taken in vain.
    fn put_device(&self, device: KeptDevice) -> SharedAnswer<'_, ()>;
    /// Writes steps of a sign-in. `false`, and nothing is written, if one of them is there already.
    fn add_steps(&self, steps: Vec<NewStep>) -> SharedAnswer<'_, bool>;
    /// Takes a step, for one caller of all replicas; returns its contents.
    fn take_step(&self, kind: StepKind, id: Digest) -> SharedAnswer<'_, Option<Vec<u8>>>;
    /// Counts one more guess for each key, and returns the counts within [`WINDOW`](crate::attempts::WINDOW).
    fn count_guesses<'a>(&'a self, keys: &'a [String]) -> SharedAnswer<'a, Vec<u32>>;
    /// Takes guesses back that were none.
    fn uncount_guesses<'a>(&'a self, keys: &'a [String]) -> SharedAnswer<'a, ()>;
    /// Makes a proof that a replica has written `text`.
    fn prove(&self, text: &[u8]) -> [u8; PROOF_BYTES];
    /// Returns whether `proof` is what a replica makes of `text`, also with a key that was exchanged since.
    fn proves(&self, text: &[u8], proof: &[u8]) -> bool;
    /// Returns the time.
    fn now(&self) -> UnixSeconds;
}

/// The store that replicas share.
pub type Shared = Arc<dyn SharedSignIns>;

/// Bound on questions to the store in each second.
#[derive(Debug)]
pub struct QuestionRate {
    max: u32,
    asked: Mutex<Option<(Instant, u32)>>,
}

impl QuestionRate {
    /// Allows `max` in a second.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self { max, asked: Mutex::default() }
    }

    /// Returns whether one more may be asked now.
    pub fn take(&self, now: Instant) -> bool {
        let mut asked = self.asked.lock();
        match &mut *asked {
            Some((since, count)) if now.saturating_duration_since(*since).as_secs() == 0 => {
                *count = count.saturating_add(1);
                *count <= self.max
            }
            window => {
                *window = Some((now, 1));
                true
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod memory;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn questions_are_bounded_in_each_second() {
        let (rate, now) = (QuestionRate::new(3), Instant::now());
        assert_eq!((0..10).filter(|_| rate.take(now)).count(), 3);
        assert!(!rate.take(now + Duration::from_millis(999)) && rate.take(now + Duration::from_secs(1)));
    }
}
