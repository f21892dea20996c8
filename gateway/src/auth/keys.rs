//! The secrets with which a session's agent may go on over another link.

use bytes::Bytes;
use parking_lot::Mutex;

use crate::auth::secret::{Digest, Opaque};
use crate::auth::token::NoRandomness;

/// The secrets that a session's next resume may show. Each welcome carries a new one; the one before stays good until
/// the agent has been heard over the link that brought it, because a welcome can be lost with its link.
#[derive(Debug, Default)]
pub struct ResumeKeys(Mutex<Keys>);

#[derive(Debug, Default)]
struct Keys {
    newest: Option<Digest>,
    before: Option<Digest>,
}

impl ResumeKeys {
    /// Makes the secret of the next welcome.
    ///
    /// # Errors
    /// [`NoRandomness`] when the system's generator fails.
    pub fn next(&self) -> Result<Bytes, NoRandomness> {
        let secret = Opaque::random()?;
        let mut keys = self.0.lock();
        keys.before = keys.newest.replace(secret.digest());
        Ok(Bytes::from(secret.reveal()))
    }

    /// Returns whether `shown` opens the session. `heard` says that the newest secret has reached the agent.
    #[must_use]
    pub fn accepts(&self, shown: &[u8], heard: bool) -> bool {
        let Some(shown) = std::str::from_utf8(shown).ok().and_then(Opaque::parse) else { return false };
        let digest = Some(shown.digest());
        let keys = self.0.lock();
        digest == keys.newest || (!heard && digest == keys.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_good_until_the_next_one_has_arrived() {
        let keys = ResumeKeys::default();
        assert!(!keys.accepts(b"", false), "nothing was handed out");
        let first = keys.next().expect("random");
        assert!(keys.accepts(&first, true));
        let second = keys.next().expect("random");
        assert!(keys.accepts(&first, false) && keys.accepts(&second, false), "the welcome may be lost");
        assert!(!keys.accepts(&first, true), "an old secret");
        assert!(keys.accepts(&second, true));
        let third = keys.next().expect("random");
        assert!(!keys.accepts(&first, false), "two welcomes ago");
        assert!(keys.accepts(&third, false));
        for wrong in [&b"x"[..], &[0xff; 43], &third[..42]] {
            assert!(!keys.accepts(wrong, false));
        }
    }
}
