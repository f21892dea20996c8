//! The secrets with which a session's agent may go on over another link.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::auth::secret::{Digest, Opaque};
use crate::auth::token::NoRandomness;

/// The secrets that a session's next resume may show. Each welcome carries a new one. The one that the agent showed last
/// stays good until the agent has been heard over a link that brought another, because welcomes can be lost with their
/// links, and more than one in a row.
#[derive(Debug, Default)]
pub struct ResumeKeys(Mutex<Keys>);

#[derive(Debug, Default)]
struct Keys {
    /// What the agent showed last.
    shown: Option<Digest>,
    /// What the welcomes after that carried, the newest last.
    given: VecDeque<Digest>,
}

/// Secrets of welcomes that may all be on their way, or lost. The one that the agent holds for certain is not among them.
const GIVEN_MAX: usize = 8;

impl ResumeKeys {
    /// Makes the secret of the first welcome.
    ///
    /// # Errors
    /// [`NoRandomness`] when the system's generator fails.
    pub fn first(&self) -> Result<Bytes, NoRandomness> {
        self.give(None)
    }

    /// Makes the secret of the welcome for an agent that [showed](Self::accepts) an earlier one.
    ///
    /// # Errors
    /// [`NoRandomness`] when the system's generator fails.
    pub fn next(&self, shown: &[u8]) -> Result<Bytes, NoRandomness> {
        self.give(digest(shown))
    }

    fn give(&self, shown: Option<Digest>) -> Result<Bytes, NoRandomness> {
        let secret = Opaque::random()?;
        let mut keys = self.0.lock();
        if let Some(at) = keys.given.iter().position(|given| Some(given) == shown.as_ref()) {
            // What was given before it is nobody's any more.
            keys.given.drain(..=at);
        }
        keys.shown = shown;
        if keys.given.len() >= GIVEN_MAX {
            keys.given.pop_front();
        }
        keys.given.push_back(secret.digest());
        Ok(Bytes::from(secret.reveal()))
    }

    /// Returns whether `shown` opens the session. `heard` says that the newest secret has reached the agent.
    #[must_use]
    pub fn accepts(&self, shown: &[u8], heard: bool) -> bool {
        let Some(shown) = digest(shown) else { return false };
        let keys = self.0.lock();
        if heard {
            return keys.given.back() == Some(&shown);
        }
        keys.shown.as_ref() == Some(&shown) || keys.given.contains(&shown)
    }
}

fn digest(secret: &[u8]) -> Option<Digest> {
    std::str::from_utf8(secret).ok().and_then(Opaque::parse).map(|secret| secret.digest())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_good_until_the_next_one_has_arrived() {
        let keys = ResumeKeys::default();
        assert!(!keys.accepts(b"", false), "nothing was handed out");
        let first = keys.first().expect("random");
        assert!(keys.accepts(&first, true));
        let second = keys.next(&first).expect("random");
        assert!(keys.accepts(&first, false) && keys.accepts(&second, false), "the welcome may be lost");
        assert!(!keys.accepts(&first, true), "an old secret");
        assert!(keys.accepts(&second, true));
        let third = keys.next(&second).expect("random");
        assert!(!keys.accepts(&first, false), "two welcomes ago");
        assert!(keys.accepts(&second, false) && keys.accepts(&third, false));
        for wrong in [&b"x"[..], &[0xff; 43], &third[..42]] {
            assert!(!keys.accepts(wrong, false));
        }
    }

    #[test]
    fn secret_that_the_agent_holds_outlives_any_number_of_lost_welcomes() {
        let keys = ResumeKeys::default();
        let first = keys.first().expect("random");
        let lost: Vec<_> = (0..3 * GIVEN_MAX).map(|_| keys.next(&first).expect("random")).collect();
        assert!(keys.accepts(&first, false));
        let given = lost.iter().filter(|lost| keys.accepts(lost, false)).count();
        assert_eq!(given, GIVEN_MAX, "welcomes may overtake each other, but memory has a bound");
        // One of them did arrive, though not the last.
        let arrived = &lost[lost.len() - 2];
        let next = keys.next(arrived).expect("random");
        assert!(!keys.accepts(&first, false) && !keys.accepts(&lost[lost.len() - 3], false));
        assert!(keys.accepts(arrived, false) && keys.accepts(&next, false));
        assert!(keys.accepts(&next, true) && !keys.accepts(arrived, true));
    }
}
