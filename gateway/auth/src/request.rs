//! Derives the principal of a request from its headers.

use std::fmt::Display;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use crate::browser::{BrowserSessions, SessionName};
use crate::cache::{Cache, Unavailable};
use crate::cookie::{self, CookieLookup, CookieNames};
use crate::last_offered::LastOffered;
use gateway_net::availability::Availability;
use gateway_types::opaque::Digest;
use gateway_types::principal::{Principal, Via};
use gateway_types::token::TokenKind;
use gateway_types::{UnixSeconds, UserName};

/// Carries an API token beside the app's own `Authorization`. No app ever sees it.
pub const GATEWAY_AUTHORIZATION: HeaderName = HeaderName::from_static("gateway-authorization");

/// The credential of a request, not yet looked up. Holds hashes only, so a long-lived stream can keep it and check
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferedCredential {
    /// No credential.
    Nothing,
    /// A session cookie.
    Session(Digest),
    /// An API token, by its hash.
    Token([u8; 32]),
    /// A credential that cannot be used: a malformed token, one of an agent, a cookie that occurs twice. The request
    /// has no principal; no other credential in it is tried instead.
    Refused,
}

impl OfferedCredential {
    /// Reads the credential of a request. The first one present decides: `gateway-authorization`; an `authorization`
    /// with a token of ours (any other is the app's); the session cookie. What the same connection offered last is not hashed again.
    #[must_use]
    pub fn read(headers: &HeaderMap, names: CookieNames, last: &LastOffered) -> Self {
        let mut own = headers.get_all(GATEWAY_AUTHORIZATION).iter();
        let mut shared = headers.get_all(AUTHORIZATION).iter().filter(|value| is_gateway_bearer(value));
        let tokens = match own.next() {
            Some(first) => (Some(first), own.next()),
            None => (shared.next(), shared.next()),
        };
        match tokens {
            (None, _) => match cookie::find(headers, names.session) {
                CookieLookup::Nothing => Self::Nothing,
                CookieLookup::One(id) => Self::Session(last.session(id)),
                CookieLookup::Unusable => Self::Refused,
            },
            (Some(value), None) => {
                bearer(value).and_then(|text| last.user_token(text)).map_or(Self::Refused, Self::Token)
            }
            (Some(_), Some(_)) => Self::Refused,
        }
    }
}

/// Returns whether an `authorization` value is one of the gateway's tokens, well-formed or not. Those are for the gateway
/// and must not reach an app; every other value must reach it unchanged.
#[must_use]
pub fn is_gateway_bearer(value: &HeaderValue) -> bool {
    bearer(value).is_some_and(|text| TokenKind::ALL.iter().any(|kind| text.starts_with(kind.prefix().as_bytes())))
}

/// Returns the bearer token of a request that is not one of the gateway's own, unless a credential of higher precedence
/// is there. CI jobs authenticate with such tokens.
#[must_use]
pub fn foreign_bearer(headers: &HeaderMap) -> Option<&str> {
    if headers.contains_key(GATEWAY_AUTHORIZATION) {
        return None;
    }
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    if is_gateway_bearer(value) {
        return None;
    }
    str::from_utf8(bearer(value)?).ok()
}

/// Returns the text after the scheme `Bearer`, which is compared without regard to case (RFC 9110, section 11.1).
fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, rest) = value.as_bytes().trim_ascii_start().split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| rest.trim_ascii())
}

/// The host at which a credential was offered. A session is valid at one host only.
#[derive(Clone, Copy, Debug)]
pub enum OfferedAt<'a> {
    /// The public host.
    Public,
    /// A workspace host in its one spelling: lower case, without the listener's port.
    Workspace(&'a str),
}

/// Looks credentials up.
#[derive(Debug)]
pub struct Identities {
    sessions: Arc<BrowserSessions>,
    tokens: Cache<[u8; 32], LiveToken>,
}

/// A valid API token, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveToken {
    /// Its user.
    pub user: UserName,
    /// End of its validity, which holds also while it is cached.
    pub expires_at: Option<UnixSeconds>,
}

impl Identities {
    /// Creates a look-up with an empty token cache.
    #[must_use]
    pub fn new(sessions: Arc<BrowserSessions>) -> Self {
        Self { sessions, tokens: Cache::new() }
    }

    /// Creates a look-up with tokens that stay valid during outages of the store.
    #[must_use]
    pub fn bridging(sessions: Arc<BrowserSessions>, availability: Availability) -> Self {
        Self { sessions, tokens: Cache::bridging(availability) }
    }

    /// Returns the principal that `offered` proves at `at`. `load` asks the store for the user of a live token by its
    /// hash; it runs only for a token that is not in the cache.
    ///
    /// # Errors
    ///
    /// [`Unavailable`] when the store had to be asked and did not answer.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn principal<L, F, E>(
        &self,
        offered: &OfferedCredential,
        at: OfferedAt<'_>,
        now: Instant,
        wall: UnixSeconds,
        load: L,
    ) -> Result<Option<Principal>, Unavailable>
    where
        L: FnOnce([u8; 32]) -> F,
        F: Future<Output = Result<Option<LiveToken>, E>>,
        E: Display,
    {
        match offered {
            OfferedCredential::Nothing | OfferedCredential::Refused => Ok(None),
            OfferedCredential::Session(id) => {
                let known = || match at {
                    OfferedAt::Public => self.sessions.public(id, now),
                    OfferedAt::Workspace(host) => self.sessions.host(id, host, now),
                };
                let user = match known() {
                    None => {
                        self.sessions.find(id, now).await?;
                        known()
                    }
                    known => known,
                };
                Ok(user.map(|user| Principal { user, via: Via::Browser, groups: Arc::default() }))
            }
            OfferedCredential::Token(hash) => {
                let token = self.tokens.get(hash, now, || load(*hash)).await?;
                let live = token.filter(|token| token.expires_at.is_none_or(|expires_at| wall < expires_at));
                Ok(live.map(|live| Principal { user: live.user, via: Via::ApiToken, groups: Arc::default() }))
            }
        }
    }

    /// Returns whether identifying `offered` needs a query to the store.
    #[must_use]
    pub fn needs_lookup(&self, offered: &OfferedCredential, now: Instant) -> bool {
        match offered {
            OfferedCredential::Nothing | OfferedCredential::Refused => false,
            OfferedCredential::Session(id) => !self.sessions.knows(id, now),
            OfferedCredential::Token(hash) => !self.tokens.holds(hash, now),
        }
    }

    /// Returns the name of the public session behind a session of a workspace host.
    #[must_use]
    pub fn session_of_host(&self, id: &Digest) -> Option<SessionName> {
        self.sessions.name_of_host(id)
    }

    /// Forgets a session that has ended at another replica. Returns whether it was known.
    pub fn forget_session(&self, id: &Digest, now: Instant) -> bool {
        self.sessions.ended_elsewhere(id, now)
    }

    /// Forgets all sessions that can be looked up again.
    pub fn forget_sessions(&self) {
        self.sessions.forget_all();
    }

    /// Forgets all tokens.
    pub fn forget_tokens(&self) {
        self.tokens.forget_all();
    }

    /// Forgets a token that was just revoked here, so that it ends at once and not with the cache entry.
    /// Returns whether it was known.
    pub fn forget_token(&self, hash: &[u8; 32], now: Instant) -> bool {
        self.tokens.forget(hash, now)
    }
}

#[cfg(test)]
mod tests;
