//! Parses and checks the provider's redirect back.

use thiserror::Error;

use super::metadata::Metadata;
use gateway_types::Endpoint;
use gateway_types::opaque::Opaque;

/// Longest code, in bytes. Codes are opaque; some providers use tokens as codes.
pub const CODE_BYTES_MAX: usize = 4096;

/// Longest part of the provider's error code that is logged.
const ERROR_CHARS_MAX: usize = 40;

/// The parameters of the redirect (RFC 6749, section 4.1.2; RFC 9207, section 2).
#[derive(Debug)]
pub struct RedirectParameters {
    /// `state`: the sign-in that it answers.
    pub state: Opaque,
    /// `iss`: the answering issuer, if stated.
    pub issuer: Option<String>,
    /// `code`, or `error`.
    pub outcome: RedirectOutcome,
}

/// Outcome of the provider's answer.
pub enum RedirectOutcome {
    /// `code`: to be exchanged. A secret, once.
    Code(String),
    /// `error`, cut to what can be logged.
    Denied(String),
}

impl std::fmt::Debug for RedirectOutcome {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(_) => formatter.write_str("Code(..)"),
            Self::Denied(error) => formatter.debug_tuple("Denied").field(error).finish(),
        }
    }
}

/// The answer makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the provider's answer is malformed")]
pub struct BadAnswer;

/// The answer comes from another provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the answer is of another provider")]
pub struct OtherProvider;

impl RedirectParameters {
    /// Reads the query. A parameter that occurs twice makes it malformed, as RFC 6749, section 3.1 asks.
    ///
    /// # Errors
    ///
    /// [`BadAnswer`].
    pub fn parse(query: &str) -> Result<Self, BadAnswer> {
        let (mut state, mut issuer, mut code, mut error) = (None, None, None, None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let slot = match &*name {
                "state" => &mut state,
                "iss" => &mut issuer,
                "code" => &mut code,
                "error" => &mut error,
                _ => continue,
            };
            if slot.replace(value.into_owned()).is_some() {
                return Err(BadAnswer);
            }
        }
        let state = state.and_then(|text| Opaque::parse(&text)).ok_or(BadAnswer)?;
        let outcome = match (code, error) {
            (Some(code), None) if (1..=CODE_BYTES_MAX).contains(&code.len()) => RedirectOutcome::Code(code),
            (None, Some(error)) => RedirectOutcome::Denied(loggable(&error)),
            (Some(_) | None, _) => return Err(BadAnswer),
        };
        Ok(Self { state, issuer, outcome })
    }

    /// Checks the answering issuer: an answer of another provider, made for a client of the same name, must not be
    /// exchanged at ours (RFC 9207, section 2.4).
    ///
    /// # Errors
    ///
    /// [`OtherProvider`].
    pub fn check_issuer(&self, metadata: &Metadata, issuer: &Endpoint) -> Result<(), OtherProvider> {
        match &self.issuer {
            Some(named) if named == issuer.as_str() => Ok(()),
            None if !metadata.answers_name_issuer => Ok(()),
            Some(_) | None => Err(OtherProvider),
        }
    }
}

/// Cuts an error code to the characters that such codes have.
#[must_use]
pub fn loggable(error: &str) -> String {
    let plain = |letter: &char| letter.is_ascii_lowercase() || *letter == '_';
    error.chars().take_while(plain).take(ERROR_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state() -> String {
        Opaque::random().unwrap().reveal()
    }

    #[test]
    fn answer_has_one_state_and_either_a_code_or_an_error() {
        let state = state();
        let read = RedirectParameters::parse(&format!("code=a%2Bb&state={state}&session_state=x")).unwrap();
        assert_eq!(read.state.reveal(), state);
        assert!(matches!(&read.outcome, RedirectOutcome::Code(code) if code == "a+b"));
        assert!(!format!("{read:?}").contains("a+b"));
        let read =
            RedirectParameters::parse(&format!("error=access_denied&error_description=%3Cb%3E&state={state}")).unwrap();
        assert!(matches!(&read.outcome, RedirectOutcome::Denied(error) if error == "access_denied"));
        let long = "x".repeat(CODE_BYTES_MAX + 1);
        for query in [
            String::new(),
            "code=a".to_owned(),
            "code=a&state=short".to_owned(),
            format!("state={state}"),
            format!("state={state}&code="),
            format!("state={state}&code={long}"),
            format!("state={state}&code=a&error=b"),
            format!("state={state}&code=a&code=b"),
            format!("state={state}&state={state}&code=a"),
            format!("state={state}&code=a&iss=x&iss=y"),
        ] {
            assert!(RedirectParameters::parse(&query).is_err(), "{query}");
        }
    }

    #[test]
    fn issuer_is_checked_when_it_is_named_and_required_when_that_is_announced() {
        let issuer: Endpoint = "https://id.example".parse().unwrap();
        let metadata = |announced: bool| {
            let document = json!({
                "issuer": "https://id.example", "jwks_uri": "https://id.example/k",
                "authorization_response_iss_parameter_supported": announced,
            });
            Metadata::parse(&document, &issuer).unwrap()
        };
        let check = |more: &str, announced| {
            let answer = RedirectParameters::parse(&format!("code=a&state={}{more}", state())).unwrap();
            answer.check_issuer(&metadata(announced), &issuer)
        };
        assert_eq!(check("&iss=https://id.example", true), Ok(()));
        assert_eq!(check("", true), Err(OtherProvider));
        assert_eq!(check("", false), Ok(()));
        for announced in [true, false] {
            assert_eq!(check("&iss=https://evil.example", announced), Err(OtherProvider));
            assert_eq!(check("&iss=https://id.example/", announced), Err(OtherProvider));
            assert_eq!(check("&iss=", announced), Err(OtherProvider));
        }
    }

    #[test]
    fn errors_are_logged_as_a_word_and_nothing_else() {
        assert_eq!(loggable("invalid_grant"), "invalid_grant");
        assert_eq!(loggable("access_denied\nuser=root"), "access_denied");
        assert_eq!(loggable("<script>"), "");
        assert_eq!(loggable(&"a".repeat(100)).len(), ERROR_CHARS_MAX);
    }
}
