//! Signed tokens (JWT, RFC 7519) of issuers that the operator names: an identity provider, a cluster, a CI system.
//!
//! Follows RFC 8725 and the lessons of other implementations: the accepted algorithms are decided here and never by the
//! token; keys are public ones of the issuer's own key set and fit one algorithm each; every claim in use must have
//! exactly its type (a text `"false"` is no boolean); an issuer is compared character by character.

mod algorithm;
mod claims;
mod keys;
mod set;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use thiserror::Error;

use gateway_types::UnixSeconds;

pub use algorithm::Algorithm;
pub use claims::Claims;
pub use keys::{BadKeys, IssuerKeys, KEYS_MAX};
pub use set::{COOL_DOWN, IssuerHealth, KEYS_AGE_MAX, KeySet, KeySetObserver, LOAD_TIME_MAX, Moment, RETRY_AFTER};

/// Longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Tolerated error of the issuer's clock, in seconds.
pub const LEEWAY_SECONDS: i64 = 60;

/// Purpose of a token, which decides its required claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenUse {
    /// Identifies the user who signed in (`OpenID` Connect Core 1.0, section 3.1.3.7): with `exp`, `iat` and `sub`;
    /// with several audiences it must be made for this client (`azp`).
    IdToken,
    /// Identifies the user who has signed out (`OpenID` Connect Back-Channel Logout 1.0, section 2.4): with `iat`, and
    /// perhaps `exp`.
    LogoutToken,
    /// Identifies a program (a service account, a CI job): with `exp` and `sub`.
    Program,
}

/// Expected properties of a token.
#[derive(Clone, Copy, Debug)]
pub struct Expect<'a> {
    /// `iss`, character by character.
    pub issuer: &'a str,
    /// One of `aud`.
    pub audience: &'a str,
    /// The accepted algorithms.
    pub algorithms: &'a [Algorithm],
    /// Its purpose.
    pub token_use: TokenUse,
}

/// Reason why a token is refused. Repeats nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TokenRefused {
    /// Longer than [`TOKEN_BYTES_MAX`].
    #[error("the token is longer than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    /// Not three parts of base64url (RFC 7515, section 3.1), or no JSON objects in them.
    #[error("the token is malformed")]
    Malformed,
    /// Its algorithm is not accepted.
    #[error("the token is signed with an algorithm that is not accepted, or not at all")]
    Algorithm,
    /// Its header has rules that must be understood (`crit`, RFC 7515, section 4.1.11), and are not.
    #[error("the token has critical header fields")]
    Critical,
    /// The issuer has no such key.
    #[error("the token is signed with a key that the issuer does not have")]
    UnknownKey,
    /// The issuer had no such key in its last answer, and it is too soon to ask again: the key may be a new one.
    #[error("the token is signed with a key that the issuer did not have a moment ago")]
    UnknownKeySoFar,
    /// The issuer's keys are not known, because it cannot be reached.
    #[error("the issuer's keys are not known")]
    KeysUnavailable,
    /// The signature does not fit.
    #[error("the token's signature is wrong")]
    Signature,
    /// Made by another issuer.
    #[error("the token is of another issuer")]
    Issuer,
    /// Made for another audience.
    #[error("the token is for another audience")]
    Audience,
    /// Made for several audiences, and requested by another of them (`azp`).
    #[error("the token is for another party")]
    AuthorizedParty,
    /// The additional claims are about another subject than the token.
    #[error("the claims are of another subject")]
    Subject,
    /// Expired.
    #[error("the token has expired")]
    Expired,
    /// Not valid yet.
    #[error("the token is not valid yet")]
    NotYet,
    /// A claim that has to be there is not.
    #[error("the token has no claim `{0}`")]
    Missing(&'static str),
    /// A claim has another type than it must have.
    #[error("the token's claim `{0}` has the wrong type")]
    Claim(&'static str),
}

impl TokenRefused {
    /// Returns the stable code for programs, logs and audit records.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::TooLong | Self::Malformed | Self::Critical => "credential_damaged",
            Self::Algorithm | Self::UnknownKey | Self::UnknownKeySoFar | Self::Signature => "credential_signature",
            Self::KeysUnavailable => "credential_unchecked",
            Self::Issuer => "credential_issuer",
            Self::Audience | Self::AuthorizedParty => "credential_audience",
            Self::Expired => "credential_expired",
            Self::NotYet => "credential_not_yet",
            Self::Missing(_) | Self::Claim(_) | Self::Subject => "credential_claims",
        }
    }
}

/// A token taken apart; nothing of it is verified yet.
#[derive(Debug)]
struct TokenParts<'t> {
    algorithm: Algorithm,
    key_id: Option<String>,
    /// Header and claims as they were signed.
    signed: &'t str,
    claims: &'t str,
    signature: &'t str,
}

/// Checks a token against the given keys.
///
/// # Errors
///
/// [`TokenRefused`] says what is wrong; [`TokenRefused::UnknownKey`] may only mean that newer keys have to be fetched.
pub fn verify(token: &str, expect: &Expect<'_>, keys: &IssuerKeys, now: UnixSeconds) -> Result<Claims, TokenRefused> {
    let parts = TokenParts::of(token, expect.algorithms)?;
    let key = keys.find(parts.algorithm, parts.key_id.as_deref()).ok_or(TokenRefused::UnknownKey)?;
    if !key.is_signature(parts.signed, parts.signature) {
        return Err(TokenRefused::Signature);
    }
    let claims = Claims::read(object(parts.claims)?)?;
    claims.check(expect, now)?;
    Ok(claims)
}

impl<'t> TokenParts<'t> {
    fn of(token: &'t str, algorithms: &[Algorithm]) -> Result<Self, TokenRefused> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenRefused::TooLong);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenRefused::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenRefused::Malformed)?;
        if claims.contains('.') {
            return Err(TokenRefused::Malformed);
        }
        let header = object(header)?;
        let named = header.get("alg").and_then(Value::as_str).ok_or(TokenRefused::Malformed)?;
        let algorithm = algorithms.iter().find(|known| known.as_str() == named).ok_or(TokenRefused::Algorithm)?;
        if header.contains_key("crit") {
            return Err(TokenRefused::Critical);
        }
        let key_id = match header.get("kid") {
            None => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => return Err(TokenRefused::Malformed),
        };
        Ok(Self { algorithm: *algorithm, key_id, signed, claims, signature })
    }
}

/// Reads one part of a token as a JSON object.
fn object(part: &str) -> Result<Map<String, Value>, TokenRefused> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenRefused::Malformed)?;
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) | Err(_) => Err(TokenRefused::Malformed),
    }
}

#[cfg(test)]
pub(crate) mod tests;
