//! Claims of a token: those with fixed names have exactly their types, the rest stays as it came.

use serde_json::{Map, Value};

use super::{Expect, LEEWAY_SECONDS, TokenRefused, TokenUse};
use gateway_types::UnixSeconds;

/// The claims of a token whose signature was checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims {
    /// `iss`: the issuer.
    pub issuer: Option<String>,
    /// `sub`: the subject, by a name that the issuer never gives to another one.
    pub subject: Option<String>,
    /// `aud`: the audiences; a single text counts as a list of one.
    pub audience: Vec<String>,
    /// `azp`: the one of several audiences that asked for it.
    pub authorized_party: Option<String>,
    /// `exp`: end of its validity.
    pub expires_at: Option<UnixSeconds>,
    /// `iat`: time of issue.
    pub issued_at: Option<UnixSeconds>,
    /// `nbf`: begin of its validity.
    pub not_before: Option<UnixSeconds>,
    /// `jti`: its own id.
    pub id: Option<String>,
    /// `nonce`: the client's nonce.
    pub nonce: Option<String>,
    /// `sid`: the issuer's session.
    pub session: Option<String>,
    /// `email`.
    pub email: Option<String>,
    /// `email_verified`.
    pub email_verified: Option<bool>,
    /// All other claims.
    pub rest: Map<String, Value>,
}

impl Claims {
    /// Reads the claims.
    ///
    /// # Errors
    ///
    /// [`TokenRefused::Claim`] for one that has another type than it must have. `null` is a wrong type, and not an
    /// absence.
    pub(super) fn read(mut from: Map<String, Value>) -> Result<Self, TokenRefused> {
        let claims = Self {
            issuer: text(&mut from, "iss")?,
            subject: text(&mut from, "sub")?,
            audience: audience(&mut from)?,
            authorized_party: text(&mut from, "azp")?,
            expires_at: time(&mut from, "exp")?,
            issued_at: time(&mut from, "iat")?,
            not_before: time(&mut from, "nbf")?,
            id: text(&mut from, "jti")?,
            nonce: text(&mut from, "nonce")?,
            session: text(&mut from, "sid")?,
            email: text(&mut from, "email")?,
            email_verified: truth(&mut from, "email_verified")?,
            rest: Map::new(),
        };
        Ok(Self { rest: from, ..claims })
    }

    /// Adds claims that the issuer makes elsewhere about the same subject; the token's own claims take precedence.
    ///
    /// # Errors
    ///
    /// [`TokenRefused::Subject`] if it is about another subject (`OpenID` Connect Core 1.0, section 5.3.2),
    /// [`TokenRefused::Claim`] for a claim that has another type than it must have.
    pub fn complete(self, more: Map<String, Value>) -> Result<Self, TokenRefused> {
        let more = Self::read(more)?;
        if more.subject.is_none() || more.subject != self.subject {
            return Err(TokenRefused::Subject);
        }
        // `email_verified` applies to the address beside it only.
        let (email, email_verified) = match self.email {
            Some(email) => (Some(email), self.email_verified),
            None => (more.email, more.email_verified),
        };
        let mut rest = more.rest;
        rest.extend(self.rest);
        Ok(Self { email, email_verified, rest, ..self })
    }

    /// Returns a claim by its name, if it is a text; the ones with a field of their own included.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match name {
            "sub" => self.subject.as_deref(),
            "email" => self.email.as_deref(),
            _ => self.rest.get(name).and_then(Value::as_str),
        }
    }

    /// Checks all claims whose rules do not depend on the token's purpose.
    pub(super) fn check(&self, expect: &Expect<'_>, now: UnixSeconds) -> Result<(), TokenRefused> {
        if self.issuer.as_deref().ok_or(TokenRefused::Missing("iss"))? != expect.issuer {
            return Err(TokenRefused::Issuer);
        }
        if self.audience.is_empty() {
            return Err(TokenRefused::Missing("aud"));
        }
        if !self.audience.iter().any(|audience| audience == expect.audience) {
            return Err(TokenRefused::Audience);
        }
        self.check_presence(expect)?;
        self.check_times(now)
    }

    fn check_presence(&self, expect: &Expect<'_>) -> Result<(), TokenRefused> {
        let required = |there: bool, name| if there { Ok(()) } else { Err(TokenRefused::Missing(name)) };
        match expect.token_use {
            TokenUse::IdToken => {
                required(self.expires_at.is_some(), "exp")?;
                required(self.issued_at.is_some(), "iat")?;
                required(self.subject.is_some(), "sub")?;
                let is_ours = |party: &String| party == expect.audience;
                match &self.authorized_party {
                    Some(party) if !is_ours(party) => Err(TokenRefused::AuthorizedParty),
                    None if self.audience.len() > 1 => Err(TokenRefused::AuthorizedParty),
                    Some(_) | None => Ok(()),
                }
            }
            TokenUse::LogoutToken => required(self.issued_at.is_some(), "iat"),
            TokenUse::Program => {
                required(self.expires_at.is_some(), "exp")?;
                required(self.subject.is_some(), "sub")
            }
        }
    }

    fn check_times(&self, now: UnixSeconds) -> Result<(), TokenRefused> {
        let past = |time: UnixSeconds| time.get().saturating_add(LEEWAY_SECONDS) <= now.get();
        let future = |time: UnixSeconds| time.get().saturating_sub(LEEWAY_SECONDS) > now.get();
        if self.expires_at.is_some_and(past) {
            return Err(TokenRefused::Expired);
        }
        if self.not_before.is_some_and(future) || self.issued_at.is_some_and(future) {
            return Err(TokenRefused::NotYet);
        }
        Ok(())
    }
}

fn text(from: &mut Map<String, Value>, name: &'static str) -> Result<Option<String>, TokenRefused> {
    match from.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(TokenRefused::Claim(name)),
    }
}

fn truth(from: &mut Map<String, Value>, name: &'static str) -> Result<Option<bool>, TokenRefused> {
    match from.remove(name) {
        None => Ok(None),
        Some(Value::Bool(truth)) => Ok(Some(truth)),
        Some(_) => Err(TokenRefused::Claim(name)),
    }
}

/// Reads a `NumericDate` (RFC 7519, section 2), which may have a fraction; it is cut off.
fn time(from: &mut Map<String, Value>, name: &'static str) -> Result<Option<UnixSeconds>, TokenRefused> {
    /// Whole numbers up to here are exact in floating point, and far beyond any year that matters.
    const SECONDS_MAX: f64 = 9_007_199_254_740_991.0;
    let Some(value) = from.remove(name) else { return Ok(None) };
    let seconds = match (value.as_i64(), value.as_f64()) {
        (Some(seconds), _) => seconds,
        #[expect(clippy::cast_possible_truncation, reason = "the fraction is to go, and the bound was checked")]
        (None, Some(seconds)) if seconds.abs() <= SECONDS_MAX => seconds.floor() as i64,
        (None, _) => return Err(TokenRefused::Claim(name)),
    };
    Ok(Some(UnixSeconds::new(seconds)))
}

fn audience(from: &mut Map<String, Value>) -> Result<Vec<String>, TokenRefused> {
    let wrong = || TokenRefused::Claim("aud");
    match from.remove("aud") {
        None => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![one]),
        Some(Value::Array(listed)) => {
            let read = |value: Value| match value {
                Value::String(text) => Ok(text),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Err(wrong()),
            };
            listed.into_iter().map(read).collect()
        }
        Some(_) => Err(wrong()),
    }
}
