//! The secrets with which a session's agent may go on over another link.

use bytes::Bytes;
use parking_lot::Mutex;

use crate::auth::secret::{Digest, Opaque};
use crate::auth::token::NoRandomness;

/// The secrets that a session's next resume may show. Each welcome carries a new one. Until the agent has been heard over
/// the link that brought it, two others stay good, because welcomes can be lost with their links and asks can overtake
/// each other: the one that the agent showed last, and the one of the welcome before.
#[derive(Debug, Default)]
pub struct ResumeKeys(Mutex<Keys>);

#[derive(Debug, Default)]
struct Keys {
    newest: Option<Digest>,
    before: Option<Digest>,
    shown: Option<Digest>,
}

impl ResumeKeys {
    /// Makes the secret of the next welcome, which answers an agent that has `shown` one, or none yet.
    ///
    /// # Errors
    /// [`NoRandomness`] when the system's generator fails.
    pub fn next(&self, shown: &[u8]) -> Result<Bytes, NoRandomness> {
        let secret = Opaque::random()?;
        let mut keys = self.0.lock();
        keys.before = keys.newest.replace(secret.digest());
        keys.shown = Opaque::digest_of(shown);
        Ok(Bytes::from(secret.reveal()))
    }

    /// Returns whether `shown` opens the session. `heard` says that the newest secret has reached the agent.
    #[must_use]
    pub fn accepts(&self, shown: &[u8], heard: bool) -> bool {
        let Some(digest) = Opaque::digest_of(shown) else { return false };
        let keys = self.0.lock();
        let of = |key: &Option<Digest>| key.as_ref() == Some(&digest);
        of(&keys.newest) || (!heard && (of(&keys.before) || of(&keys.shown)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_good_until_the_next_one_has_arrived() {
        let keys = ResumeKeys::default();
        assert!(!keys.accepts(b"", false), "nothing was handed out");
        let first = keys.next(b"").expect("random");
        assert!(keys.accepts(&first, true));
        let second = keys.next(&first).expect("random");
        assert!(keys.accepts(&first, false) && keys.accepts(&second, false), "the welcome may be lost");
        assert!(!keys.accepts(&first, true), "an old secret");
        assert!(keys.accepts(&second, true));
        let third = keys.next(&second).expect("random");
        assert!(!keys.accepts(&first, false), "two welcomes ago");
        assert!(keys.accepts(&third, false));
        for wrong in [&b"x"[..], &[0xff; 43], &third[..42]] {
            assert!(!keys.accepts(wrong, false));
        }
    }

    #[test]
    fn secret_outlives_any_number_of_lost_welcomes() {
        let keys = ResumeKeys::default();
        let first = keys.next(b"").expect("random");
        for _ in 0..5 {
            assert!(keys.accepts(&first, false), "no welcome has arrived yet");
            drop(keys.next(&first).expect("random"));
        }
        let arrived = keys.next(&first).expect("random");
        // An ask of before that comes late: the agent is told apart from it by what it shows next.
        assert!(keys.accepts(&first, false));
        drop(keys.next(&first).expect("random"));
        assert!(keys.accepts(&arrived, false));
    }
}
