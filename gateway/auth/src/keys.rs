//! Resume keys: the secrets with which an agent resumes its session over another link.

use bytes::Bytes;
use parking_lot::Mutex;

use gateway_types::opaque::{Digest, Opaque};
use gateway_types::token::NoRandomness;

/// The secrets valid for a session's next resume. Each welcome carries a new one. Until the agent has been heard over
/// the link that brought it, two older ones stay valid, because welcomes can be lost with their links and resume
/// requests can overtake each other: the one that the agent showed last, and the one of the welcome before.
#[derive(Debug, Default)]
pub struct ResumeKeys(Mutex<Keys>);

#[derive(Debug, Default)]
struct Keys {
    newest: Option<Digest>,
    before: Option<Digest>,
    shown: Option<Digest>,
}

impl ResumeKeys {
    /// Makes the secret of the first welcome.
    ///
    /// # Errors
    /// [`NoRandomness`] when the system's generator fails.
    pub fn first(&self) -> Result<Bytes, NoRandomness> {
        let secret = Opaque::random()?;
        self.0.lock().turn(&secret, None);
        Ok(Bytes::from(secret.reveal()))
    }

    /// Lets an agent that has `shown` a good secret resume, and makes the secret of its next welcome. `heard` tells
    /// whether the newest secret has reached the agent. `None` for a secret that is not good: nothing has changed then.
    ///
    /// Invariants: the whole trade is one step. Of two concurrent requests, the link that stays is the one whose
    /// welcome has the newest secret; otherwise the agent would be heard over a link whose secret already counts as
    /// old.
    ///
    /// # Errors
    /// [`NoRandomness`] when the system's generator fails; nothing has changed.
    pub fn trade<R>(
        &self,
        shown: &[u8],
        heard: impl FnOnce() -> bool,
        go_on: impl FnOnce() -> R,
    ) -> Result<Option<(Bytes, R)>, NoRandomness> {
        let secret = Opaque::random()?;
        let Some(shown) = Opaque::digest_of(shown) else { return Ok(None) };
        let mut keys = self.0.lock();
        if !keys.accept(&shown, heard()) {
            return Ok(None);
        }
        keys.turn(&secret, Some(shown));
        Ok(Some((Bytes::from(secret.reveal()), go_on())))
    }
}

impl Keys {
    /// Makes a secret the newest one, for an agent that has `shown` one, or none yet.
    fn turn(&mut self, secret: &Opaque, shown: Option<Digest>) {
        self.before = self.newest.replace(secret.digest());
        self.shown = shown;
    }

    /// Returns whether `shown` resumes the session. `heard` says that the newest secret has reached the agent.
    fn accept(&self, shown: &Digest, heard: bool) -> bool {
        let of = |key: &Option<Digest>| key.as_ref() == Some(shown);
        of(&self.newest) || (!heard && (of(&self.before) || of(&self.shown)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn accepts(keys: &ResumeKeys, shown: &[u8], heard: bool) -> bool {
        Opaque::digest_of(shown).is_some_and(|shown| keys.0.lock().accept(&shown, heard))
    }

    /// The secret of a welcome for an agent that has not been heard since the last one.
    fn next(keys: &ResumeKeys, shown: &[u8]) -> Bytes {
        keys.trade(shown, || false, || ()).expect("random").expect("a good secret").0
    }

    #[test]
    fn secret_is_good_until_the_next_one_has_arrived() {
        let keys = ResumeKeys::default();
        assert!(!accepts(&keys, b"", false), "nothing was handed out");
        let first = keys.first().expect("random");
        assert!(accepts(&keys, &first, true));
        let second = next(&keys, &first);
        assert!(accepts(&keys, &first, false) && accepts(&keys, &second, false), "the welcome may be lost");
        assert!(!accepts(&keys, &first, true), "an old secret");
        assert!(accepts(&keys, &second, true));
        let third = next(&keys, &second);
        assert!(!accepts(&keys, &first, false), "two welcomes ago");
        assert!(accepts(&keys, &third, false));
        for wrong in [&b"x"[..], &[0xff; 43], &third[..42]] {
            assert!(!accepts(&keys, wrong, false));
        }
    }

    #[test]
    fn secret_outlives_any_number_of_lost_welcomes() {
        let keys = ResumeKeys::default();
        let first = keys.first().expect("random");
        for _ in 0..5 {
            assert!(accepts(&keys, &first, false), "no welcome has arrived yet");
            drop(next(&keys, &first));
        }
        let arrived = next(&keys, &first);
        // An earlier request that comes late: the agent is told apart from it by the secret that it shows next.
        assert!(accepts(&keys, &first, false));
        drop(next(&keys, &first));
        assert!(accepts(&keys, &arrived, false));
    }

    #[test]
    fn wrong_secret_changes_nothing() {
        let keys = ResumeKeys::default();
        let first = keys.first().expect("random");
        let second = next(&keys, &first);
        for _ in 0..3 {
            assert!(keys.trade(&first, || true, || unreachable!("an old secret")).expect("random").is_none());
            assert!(keys.trade(b"", || false, || unreachable!("no secret")).expect("random").is_none());
        }
        assert!(accepts(&keys, &second, true) && accepts(&keys, &first, false));
    }

    #[test]
    fn of_two_asks_at_once_the_link_that_stays_has_the_newest_secret() {
        for round in 0..500 {
            let (keys, links, start) = (ResumeKeys::default(), AtomicU64::new(0), Barrier::new(2));
            let first = keys.first().expect("random");
            let ask = || {
                start.wait();
                let go_on = || {
                    // As long as it takes another ask to come between, if it could.
                    std::thread::yield_now();
                    links.fetch_add(1, Ordering::SeqCst)
                };
                keys.trade(&first, || false, go_on).expect("random").expect("nobody was heard yet")
            };
            let mut answers = std::thread::scope(|scope| {
                let other = scope.spawn(ask);
                [ask(), other.join().expect("it did not panic")]
            });
            answers.sort_by_key(|(_, link)| *link);
            let [_, (secret, _)] = answers;
            assert!(accepts(&keys, &secret, true), "round {round}: the agent is heard, and locked out");
        }
    }
}
