//! Sessions that came up while no place could be claimed for them: their claims wait here until the store is back. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use gateway_agents::registry::Subject;
use gateway_store::SessionKey;
use gateway_types::UnixSeconds;
use parking_lot::Mutex;

/// Most sessions that wait for a place.
const WAITING_MAX: usize = 65_536;

/// Time within which an admitted agent has its session.
const ADMISSION_TIME: Duration = Duration::from_secs(10);

/// A claim that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LateClaim {
    pub(crate) subject: Subject,
    /// Generation that the session has meanwhile.
    pub(crate) generation: u64,
    /// Time of the seal by which the agent was admitted, if it was.
    pub(crate) sealed_at: Option<UnixSeconds>,
    pub(crate) since: Instant,
}

/// Session that a claim waits for, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LateSession<T> {
    /// There is none, or another one.
    None,
    /// It has no link: its agent may be elsewhere by now.
    Detached,
    /// It has one.
    Up(T),
}

/// The claims that wait. Bounded by [`WAITING_MAX`].
#[derive(Debug, Default)]
pub(crate) struct LateClaims {
    waiting: Mutex<HashMap<SessionKey, LateClaim>>,
}

impl LateClaims {
    /// Adds a claim in place of an earlier one for the same place. `false` if there are too many.
    #[must_use]
    pub(crate) fn add(&self, key: SessionKey, claim: LateClaim) -> bool {
        let mut waiting = self.waiting.lock();
        let has_room = waiting.len() < WAITING_MAX || waiting.contains_key(&key);
        if has_room {
            waiting.insert(key, claim);
        }
        has_room
    }

    /// Returns the number of claims that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Puts a claim back that could not be made, unless there is a newer one for its place.
    pub(crate) fn put_back(&self, key: SessionKey, claim: LateClaim) {
        self.waiting.lock().entry(key).or_insert(claim);
    }

    /// Returns the time of the seal by which the agent with that place was admitted.
    pub(crate) fn sealed_at(&self, key: SessionKey) -> Option<UnixSeconds> {
        self.waiting.lock().get(&key)?.sealed_at
    }

    /// Takes up to `most` claims whose sessions have a link. Those without one stay; those whose session ended go.
    pub(crate) fn take<T>(
        &self,
        most: usize,
        now: Instant,
        session_of: impl Fn(SessionKey, &LateClaim) -> LateSession<T>,
    ) -> Vec<(SessionKey, LateClaim, T)> {
        let mut taken = Vec::new();
        self.waiting.lock().retain(|key, claim| {
            if taken.len() >= most {
                return true;
            }
            match session_of(*key, claim) {
                LateSession::None => now.saturating_duration_since(claim.since) < ADMISSION_TIME,
                LateSession::Detached => true,
                LateSession::Up(session) => {
                    taken.push((*key, claim.clone(), session));
                    false
                }
            }
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> SessionKey {
        SessionKey::Workspace(format!("w-{number}").parse().expect("an id"))
    }

    fn claim(generation: u64, since: Instant) -> LateClaim {
        let subject = Subject::Workspace("one".parse().expect("a name"));
        LateClaim { subject, generation, sealed_at: None, since }
    }

    #[test]
    fn claim_waits_for_a_link_and_goes_with_its_session() {
        let (claims, now) = (LateClaims::default(), tokio::time::Instant::now().into_std());
        assert!(
            claims.add(key(1), claim(1, now)) && claims.add(key(1), claim(2, now)) && claims.add(key(2), claim(1, now))
        );
        let take = |at, is: LateSession<()>| claims.take(10, at, |_, _| is.clone());
        assert_eq!(take(now, LateSession::Detached), []);
        assert_eq!(take(now, LateSession::None), [], "it is about to come up");
        let taken = claims.take(1, now, |of, _| if of == key(1) { LateSession::Up(()) } else { LateSession::Detached });
        assert_eq!(taken, [(key(1), claim(2, now), ())], "the newest counts");
        claims.put_back(key(1), claim(2, now));
        assert!(claims.add(key(1), claim(3, now)));
        claims.put_back(key(1), claim(2, now));
        let later = now + ADMISSION_TIME;
        let taken = claims.take(10, later, |of, _| if of == key(1) { LateSession::Up(()) } else { LateSession::None });
        assert_eq!(taken, [(key(1), claim(3, now), ())]);
        assert_eq!(take(later, LateSession::Up(())), [], "the other one's session ended");
    }

    #[test]
    fn claims_have_a_bound_and_are_taken_in_batches() {
        let (claims, now) = (LateClaims::default(), tokio::time::Instant::now().into_std());
        assert!((0..WAITING_MAX).all(|number| claims.add(key(number + 1), claim(1, now))));
        assert_eq!(claims.len(), WAITING_MAX);
        assert!(!claims.add(key(WAITING_MAX + 1), claim(1, now)) && claims.add(key(1), claim(2, now)));
        let mut batches = 0;
        while !claims.take(500, now, |_, _| LateSession::Up(())).is_empty() {
            batches += 1;
        }
        assert_eq!((batches, claims.len()), (WAITING_MAX.div_ceil(500), 0));
    }
}
