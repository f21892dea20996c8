//! Sign-in without an identity provider: a reader of the gateway's terminal or log is the one user.
//!
//! The gateway prints a link with a one-time code. A code is good once and for [`LINK_AGE_MAX`], so that a link in an
//! old log is worth nothing. A visitor with an invalid or used link causes a fresh one to be printed if no valid one is
//! outstanding, at most once per [`FRESH_LINK_INTERVAL`]. A valid unused link is never replaced that way: otherwise a
//! stranger could keep the operator from ever using one.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use gateway_types::UserName;
use gateway_types::opaque::{Digest, Opaque};

/// Validity of a printed link.
pub const LINK_AGE_MAX: Duration = Duration::from_secs(15 * 60);
/// The least time between links that visitors cause to be printed, so that no visitor can fill the log.
pub const FRESH_LINK_INTERVAL: Duration = Duration::from_secs(60);

/// The state of development sign-in: at most one code is good at any time.
#[derive(Debug)]
pub struct DevSignIn {
    user: UserName,
    state: Mutex<DevSignInState>,
}

#[derive(Debug, Default)]
struct DevSignInState {
    good: Option<OneTimeCode>,
    printed_for_visitor: Option<Instant>,
    /// Codes that were taken out of the store that replicas share, for the visits that brought them.
    taken: Vec<OneTimeCode>,
}

#[derive(Debug)]
struct OneTimeCode {
    digest: Digest,
    issued: Instant,
}

impl OneTimeCode {
    fn is_good(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.issued) < LINK_AGE_MAX
    }
}

impl DevSignIn {
    /// Creates a sign-in that makes every visitor `user`. No code is valid yet.
    #[must_use]
    pub fn new(user: UserName) -> Self {
        Self { user, state: Mutex::default() }
    }

    /// Makes `code` the valid one, for the operator; an earlier one becomes invalid.
    pub fn issue(&self, code: &Opaque, now: Instant) {
        self.state.lock().good = Some(OneTimeCode { digest: code.digest(), issued: now });
    }

    /// Redeems a code: returns the user if it was the valid one. A wrong code does not use up the valid one.
    #[must_use]
    pub fn redeem(&self, code: &Opaque, now: Instant) -> Option<UserName> {
        let mut state = self.state.lock();
        let offered = code.digest();
        let redeemed = state.good.take_if(|good| good.digest == offered)?;
        redeemed.is_good(now).then(|| self.user.clone())
    }

    /// Notes that a visit has taken a valid code out of the store that replicas share.
    pub(super) fn taken(&self, code: &Opaque, now: Instant) {
        let mut state = self.state.lock();
        state.taken.retain(|taken| taken.is_good(now));
        state.taken.push(OneTimeCode { digest: code.digest(), issued: now });
    }

    /// Redeems a code that a visit has taken.
    pub(super) fn redeem_taken(&self, code: &Opaque, now: Instant) -> Option<UserName> {
        let mut state = self.state.lock();
        let (offered, before) = (code.digest(), state.taken.len());
        state.taken.retain(|taken| taken.digest != offered && taken.is_good(now));
        (state.taken.len() < before).then(|| self.user.clone())
    }

    /// Returns whether a visitor may have a fresh link printed now, and notes that it is. Replicas do not know which links of the
    /// others are still good, and a fresh one replaces none.
    pub(super) fn is_renewal_due(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let printed = state.printed_for_visitor;
        let is_due = printed.is_none_or(|printed| now.saturating_duration_since(printed) >= FRESH_LINK_INTERVAL);
        if is_due {
            state.printed_for_visitor = Some(now);
        }
        is_due
    }

    /// Makes `fresh` the valid code if a visitor needs one and may have one now; returns whether it is to be printed.
    #[must_use]
    pub fn renew(&self, fresh: &Opaque, now: Instant) -> bool {
        let mut state = self.state.lock();
        let is_outstanding = state.good.as_ref().is_some_and(|code| code.is_good(now));
        let is_soon = state
            .printed_for_visitor
            .is_some_and(|printed| now.saturating_duration_since(printed) < FRESH_LINK_INTERVAL);
        if is_outstanding || is_soon {
            return false;
        }
        state.printed_for_visitor = Some(now);
        state.good = Some(OneTimeCode { digest: fresh.digest(), issued: now });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_nanos(1);

    fn fixture() -> (DevSignIn, Opaque, Instant) {
        let (sign_in, code, now) = (DevSignIn::new("dev".parse().unwrap()), Opaque::random().unwrap(), Instant::now());
        sign_in.issue(&code, now);
        (sign_in, code, now)
    }

    fn fresh() -> Opaque {
        Opaque::random().unwrap()
    }

    #[test]
    fn code_signs_in_once() {
        let (sign_in, code, now) = fixture();
        assert_eq!(sign_in.redeem(&fresh(), now), None);
        assert_eq!(sign_in.redeem(&code, now).unwrap().as_str(), "dev");
        assert_eq!(sign_in.redeem(&code, now), None);
    }

    #[test]
    fn code_ends_exactly_at_its_bound() {
        let (sign_in, code, now) = fixture();
        assert_eq!(sign_in.redeem(&code, now + LINK_AGE_MAX), None);
        let (sign_in, code, now) = fixture();
        assert!(sign_in.redeem(&code, now + LINK_AGE_MAX - MOMENT).is_some());
    }

    #[test]
    fn code_issued_later_replaces_the_earlier_one() {
        let (sign_in, first, now) = fixture();
        let second = fresh();
        sign_in.issue(&second, now);
        assert_eq!(sign_in.redeem(&first, now), None);
        assert!(sign_in.redeem(&second, now).is_some());
    }

    #[test]
    fn visitor_cannot_replace_a_link_that_is_still_good() {
        let (sign_in, code, now) = fixture();
        assert!(!sign_in.renew(&fresh(), now + LINK_AGE_MAX - MOMENT));
        assert!(sign_in.redeem(&code, now).is_some());
    }

    #[test]
    fn fresh_link_is_printed_at_most_once_per_interval_and_works() {
        let (sign_in, code, now) = fixture();
        assert!(sign_in.redeem(&code, now).is_some());
        let second = fresh();
        assert!(sign_in.renew(&second, now));
        assert!(sign_in.redeem(&second, now).is_some());
        assert!(!sign_in.renew(&fresh(), now + FRESH_LINK_INTERVAL - MOMENT));
        let third = fresh();
        assert!(sign_in.renew(&third, now + FRESH_LINK_INTERVAL));
        assert!(sign_in.redeem(&third, now + FRESH_LINK_INTERVAL).is_some());
    }

    #[test]
    fn link_that_expired_unused_may_be_renewed() {
        let (sign_in, _, now) = fixture();
        assert!(sign_in.renew(&fresh(), now + LINK_AGE_MAX));
    }
}
