//! Back-channel logout: notices of the provider about ended sessions (`OpenID` Connect Back-Channel Logout 1.0).

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::Instant;

use super::ProviderSession;
use crate::expiring::Expiring;
use crate::jwt::{Claims, LEEWAY_SECONDS};
use gateway_types::UnixSeconds;

/// The member of `events` that makes a token one for logging out (section 2.4).
const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// Longest notice, in bytes: a form with one token.
pub const NOTICE_BYTES_MAX: usize = 32 * 1024;

/// Maximum age of a notice, in seconds. Providers send them at once.
pub const NOTICE_AGE_SECONDS_MAX: i64 = 5 * 60;

/// Retention of ended sessions: longer than a notice can be used, and than a sign-in can be under way.
const REMEMBERED: Duration = Duration::from_secs(15 * 60);

/// Entries remembered of each kind. Only the provider can make any; when there are more, the oldest is forgotten.
const REMEMBERED_MAX: usize = 16 * 1024;

/// Notice about ended sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The subject whose sessions ended, if named.
    pub subject: Option<String>,
    /// The ended session; `None` for all of the subject.
    pub session: Option<String>,
    /// Time at which the provider issued the notice.
    pub issued_at: UnixSeconds,
    /// The notice's own id, so that it is used only once.
    id: String,
}

/// Reason why a token is no notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadNotice {
    /// It is not about logging out.
    #[error("the token has no event of logging out")]
    Event,
    /// It has a nonce: an ID token, in the wrong place.
    #[error("the token has a nonce, which a notice must not have")]
    Nonce,
    /// It names neither a session nor a subject.
    #[error("the token names neither a session nor a subject")]
    Nobody,
    /// It has no id (`jti`).
    #[error("the token has no `jti`")]
    NoId,
    /// It is older than [`NOTICE_AGE_SECONDS_MAX`].
    #[error("the token is too old")]
    TooOld,
    /// It was used before.
    #[error("the token was used before")]
    Replayed,
}

impl Notice {
    /// Reads the claims of a token whose signature, issuer, audience and times were checked.
    ///
    /// # Errors
    ///
    /// [`BadNotice`].
    pub fn read(claims: Claims, now: UnixSeconds) -> Result<Self, BadNotice> {
        let event = claims.rest.get("events").and_then(|events| events.get(EVENT));
        if !event.is_some_and(serde_json::Value::is_object) {
            return Err(BadNotice::Event);
        }
        if claims.nonce.is_some() {
            return Err(BadNotice::Nonce);
        }
        if claims.subject.is_none() && claims.session.is_none() {
            return Err(BadNotice::Nobody);
        }
        let id = claims.id.filter(|id| !id.is_empty()).ok_or(BadNotice::NoId)?;
        let issued_at = claims.issued_at.ok_or(BadNotice::TooOld)?;
        if now.get().saturating_sub(issued_at.get()) > NOTICE_AGE_SECONDS_MAX + LEEWAY_SECONDS {
            return Err(BadNotice::TooOld);
        }
        Ok(Self { subject: claims.subject, session: claims.session, issued_at, id })
    }

    /// Returns whether the notice covers this session of the provider.
    #[must_use]
    pub fn is_about(&self, session: &ProviderSession) -> bool {
        let same_subject = self.subject.as_deref().is_none_or(|subject| subject == session.subject());
        match &self.session {
            Some(ended) => same_subject && session.session() == Some(ended),
            None => same_subject && self.subject.is_some(),
        }
    }
}

/// Recently ended sessions of the provider: used notices, and sessions that a sign-in under way may still be about to
/// open here.
#[derive(Debug)]
pub struct EndedAtProvider(Mutex<EndedSession>);

#[derive(Debug)]
struct EndedSession {
    notices: Expiring<DigestedName, ()>,
    sessions: Expiring<DigestedName, ()>,
    subjects: Expiring<DigestedName, UnixSeconds>,
}

/// The SHA-256 of a text of the provider's, so that its length does not matter.
type DigestedName = [u8; 32];

impl Default for EndedAtProvider {
    fn default() -> Self {
        Self(Mutex::new(EndedSession {
            notices: Expiring::new(REMEMBERED, REMEMBERED_MAX),
            sessions: Expiring::new(REMEMBERED, REMEMBERED_MAX),
            subjects: Expiring::new(REMEMBERED, REMEMBERED_MAX),
        }))
    }
}

impl EndedAtProvider {
    /// Remembers a notice. Call it before ending sessions, so that [`EndedAtProvider::includes`] finds one opened
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// [`BadNotice::Replayed`] for one that was remembered before.
    pub fn remember(&self, notice: &Notice, now: Instant) -> Result<(), BadNotice> {
        let mut ended = self.0.lock();
        let id = name(&notice.id);
        if ended.notices.get(&id, now).is_some() {
            return Err(BadNotice::Replayed);
        }
        ended.notices.insert(id, (), now);
        match (&notice.session, &notice.subject) {
            (Some(session), _) => ended.sessions.insert(name(session), (), now),
            (None, Some(subject)) => ended.subjects.insert(name(subject), notice.issued_at, now),
            (None, None) => {}
        }
        Ok(())
    }

    /// Forgets that a notice was used. What it said of ended sessions stays.
    pub(crate) fn retract(&self, notice: &Notice, now: Instant) {
        self.0.lock().notices.remove(&name(&notice.id), now);
    }

    /// Returns whether a session of the provider was ended; `issued_at` is the time of issue of its ID token. Call it
    /// after opening a session for it.
    #[must_use]
    pub fn includes(&self, session: &ProviderSession, issued_at: UnixSeconds, now: Instant) -> bool {
        let ended = self.0.lock();
        let by_session = session.session().is_some_and(|session| ended.sessions.get(&name(session), now).is_some());
        let by_subject = ended.subjects.get(&name(session.subject()), now);
        by_session || by_subject.is_some_and(|(ended_at, _)| issued_at <= *ended_at)
    }
}

fn name(text: &str) -> DigestedName {
    let mut name = [0; 32];
    name.iter_mut().zip(digest(&SHA256, text.as_bytes()).as_ref()).for_each(|(slot, byte)| *slot = *byte);
    name
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: UnixSeconds = UnixSeconds::new(1_800_000_000);

    fn claims(subject: Option<&str>, session: Option<&str>) -> Claims {
        let rest = json!({"events": {EVENT: {}}});
        Claims {
            subject: subject.map(str::to_owned),
            session: session.map(str::to_owned),
            id: Some("n-1".to_owned()),
            issued_at: Some(NOW),
            rest: rest.as_object().unwrap().clone(),
            ..Claims::default()
        }
    }

    fn notice(subject: Option<&str>, session: Option<&str>) -> Notice {
        Notice::read(claims(subject, session), NOW).unwrap()
    }

    fn session(subject: &str, session: Option<&str>) -> ProviderSession {
        ProviderSession::new(subject, session, "")
    }

    #[test]
    fn token_that_is_not_about_logging_out_is_refused_by_name() {
        let good = || claims(Some("u"), None);
        let events = |value: Value| {
            let mut claims = good();
            claims.rest.insert("events".to_owned(), value);
            claims
        };
        for (claims, expected) in [
            (Claims { rest: serde_json::Map::new(), ..good() }, BadNotice::Event),
            (events(json!({EVENT: true})), BadNotice::Event),
            (events(json!([EVENT])), BadNotice::Event),
            (events(json!({"http://schemas.openid.net/event/other": {}})), BadNotice::Event),
            (Claims { nonce: Some("n".to_owned()), ..good() }, BadNotice::Nonce),
            (Claims { subject: None, ..good() }, BadNotice::Nobody),
            (Claims { id: None, ..good() }, BadNotice::NoId),
            (Claims { id: Some(String::new()), ..good() }, BadNotice::NoId),
            (Claims { issued_at: Some(UnixSeconds::new(NOW.get() - 361)), ..good() }, BadNotice::TooOld),
        ] {
            assert_eq!(Notice::read(claims, NOW), Err(expected));
        }
    }

    #[test]
    fn notice_is_about_one_session_or_all_of_one_subject() {
        let one = session("u", Some("s"));
        for (subject, named, expected) in [
            (Some("u"), None, true),
            (None, Some("s"), true),
            (Some("u"), Some("s"), true),
            (Some("u"), Some("other"), false),
            (Some("other"), Some("s"), false),
            (Some("other"), None, false),
        ] {
            assert_eq!(notice(subject, named).is_about(&one), expected, "{subject:?} {named:?}");
        }
        assert!(!notice(None, Some("s")).is_about(&session("u", None)));
    }

    #[test]
    fn notice_counts_once_for_as_long_as_it_could_be_used() {
        let (ended, now) = (EndedAtProvider::default(), Instant::now());
        let notice = notice(Some("u"), None);
        assert_eq!(ended.remember(&notice, now), Ok(()));
        assert_eq!(ended.remember(&notice, now), Err(BadNotice::Replayed));
        let last = u64::try_from(NOTICE_AGE_SECONDS_MAX + 2 * LEEWAY_SECONDS).unwrap();
        assert_eq!(ended.remember(&notice, now + Duration::from_secs(last)), Err(BadNotice::Replayed));
    }

    #[test]
    fn sign_in_that_was_under_way_when_its_session_ended_is_found() {
        let (ended, now) = (EndedAtProvider::default(), Instant::now());
        ended.remember(&notice(None, Some("s")), now).unwrap();
        assert!(ended.includes(&session("u", Some("s")), NOW, now));
        assert!(!ended.includes(&session("u", Some("t")), NOW, now));
        let mut all = notice(Some("u"), None);
        all.id = "n-2".to_owned();
        ended.remember(&all, now).unwrap();
        assert!(ended.includes(&session("u", Some("t")), NOW, now));
        let later = UnixSeconds::new(NOW.get() + 1);
        assert!(!ended.includes(&session("u", Some("t")), later, now), "they signed in anew");
        assert!(!ended.includes(&session("v", None), NOW, now));
    }
}
