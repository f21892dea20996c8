//! Exchange of refresh tokens for access tokens (RFC 6749, section 6).

use std::fmt;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use thiserror::Error;

use gateway_config::GitOauth;
use gateway_net::fetch::{Credentials, Fetch, FetchSetupError, Trust};
use gateway_types::Secret;

/// Longest client secret, in bytes.
const SECRET_BYTES_MAX: usize = 4096;

/// Longest token that is taken, in bytes.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Longest code of a failure that is repeated, in characters.
const CODE_CHARS_MAX: usize = 60;

/// What a refresh token was exchanged for.
#[derive(Clone, Debug)]
pub struct ExchangedTokens {
    /// The access token.
    pub access: Secret,
    /// The refresh token that counts from now on, if the server changed it.
    pub refresh: Option<Secret>,
    /// Life of the access token, in seconds.
    pub expires_in: Option<u64>,
}

/// An exchange failed. Repeats no secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExchangeError {
    /// The server says `invalid_grant`: the refresh token does not count any more.
    #[error("the refresh token does not count any more (invalid_grant)")]
    Ended,
    /// The server refuses for another reason, which the operator can help.
    #[error("the token endpoint refused: {0}")]
    Refused(String),
    /// The server does not answer, or not as it should.
    #[error("{0}")]
    Failed(String),
}

/// A server that exchanges refresh tokens.
pub trait TokenEndpoint: fmt::Debug + Send + Sync {
    /// Exchanges a refresh token.
    fn exchange<'a>(&'a self, refresh: &'a Secret) -> BoxFuture<'a, Result<ExchangedTokens, ExchangeError>>;

    /// Returns the user's name that git sends beside an access token.
    fn user(&self) -> &str;
}

/// The token endpoint of a server that the operator named.
#[derive(Debug)]
pub struct OauthClient {
    fetch: Fetch,
    settings: GitOauth,
}

/// Answer of a token endpoint. Some say `error` with status 200.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    access_token: Option<String>,
    refresh_token: Option<String>,
    expires_in: Option<u64>,
    error: Option<String>,
}

impl OauthClient {
    /// Makes it; sends nothing yet.
    ///
    /// # Errors
    /// [`FetchSetupError`] names the file of authorities that cannot be used.
    pub fn new(settings: GitOauth, trust: &Trust) -> Result<Self, FetchSetupError> {
        Ok(Self { fetch: Fetch::new(trust)?, settings })
    }

    /// Reads the client's secret anew, so that it can be replaced.
    async fn secret(&self) -> Result<Option<Secret>, ExchangeError> {
        let Some(path) = &self.settings.client_secret_file else { return Ok(None) };
        let failed = |why: String| ExchangeError::Failed(format!("git client_secret_file {}: {why}", path.display()));
        let text = tokio::fs::read_to_string(path).await.map_err(|error| failed(error.to_string()))?;
        let text = text.trim();
        if text.is_empty() || text.len() > SECRET_BYTES_MAX {
            return Err(failed("has to hold a secret, and nothing else".to_owned()));
        }
        Ok(Some(Secret::new(text.to_owned())))
    }

    async fn post(&self, refresh: &Secret) -> Result<ExchangedTokens, ExchangeError> {
        let secret = self.secret().await?;
        let mut form = vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.reveal()),
            ("client_id", &*self.settings.client_id),
        ];
        // In the body: the forges take it there, and not all of them in a header.
        form.extend(secret.as_ref().map(|secret| ("client_secret", secret.reveal())));
        let answer = self.fetch.post_form(&self.settings.token_url, &form, Credentials::Nothing).await;
        let answer = answer.map_err(|error| ExchangeError::Failed(error.to_string()))?;
        let status = answer.status();
        match (status.is_success(), answer.json_of_any_status::<Answer>()) {
            (is_success, Ok(answer)) => read(answer, is_success, status.as_u16()),
            (true, Err(error)) => Err(ExchangeError::Failed(error.to_string())),
            (false, Err(_)) => Err(refused(&format!("status {}", status.as_u16()))),
        }
    }
}

fn read(answer: Answer, is_success: bool, status: u16) -> Result<ExchangedTokens, ExchangeError> {
    match answer {
        Answer { error: Some(error), .. } if error == "invalid_grant" => Err(ExchangeError::Ended),
        Answer { error: Some(error), .. } => Err(refused(&error)),
        Answer { access_token: Some(access), refresh_token, expires_in, .. } if is_success => {
            let is_token =
                |text: &str| text.len() <= TOKEN_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
            if access.is_empty() || !is_token(&access) || !refresh_token.as_deref().is_none_or(is_token) {
                return Err(ExchangeError::Failed(
                    "the token endpoint answered with something that is no token".to_owned(),
                ));
            }
            let refresh = refresh_token.filter(|text| !text.is_empty()).map(Secret::new);
            Ok(ExchangedTokens { access: Secret::new(access), refresh, expires_in })
        }
        Answer { .. } => Err(refused(&format!("status {status} without a token"))),
    }
}

/// Repeats a server's code as far as it is plain.
fn refused(code: &str) -> ExchangeError {
    let is_plain = |one: &char| one.is_ascii_alphanumeric() || matches!(one, '_' | '-' | ' ' | '.');
    ExchangeError::Refused(code.chars().filter(is_plain).take(CODE_CHARS_MAX).collect())
}

impl TokenEndpoint for OauthClient {
    fn exchange<'a>(&'a self, refresh: &'a Secret) -> BoxFuture<'a, Result<ExchangedTokens, ExchangeError>> {
        Box::pin(self.post(refresh))
    }

    fn user(&self) -> &str {
        &self.settings.user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_tokens_or_a_reason_and_never_a_half() {
        let told = |answer: Answer, status: u16| match read(answer, status == 200, status) {
            Ok(tokens) => Ok((tokens.access.reveal().to_owned(), tokens.refresh.is_some(), tokens.expires_in)),
            Err(error) => Err(error),
        };
        let text = |text: &str| Some(text.to_owned());
        let answer =
            || Answer { access_token: text("a"), refresh_token: text("r"), expires_in: Some(7200), error: None };
        assert_eq!(told(answer(), 200), Ok(("a".to_owned(), true, Some(7200))));
        assert_eq!(told(Answer { refresh_token: None, ..answer() }, 200), Ok(("a".to_owned(), false, Some(7200))));
        let ended = Answer { error: text("invalid_grant"), ..Answer::default() };
        assert_eq!(told(ended, 400), Err(ExchangeError::Ended));
        // GitHub says failures with status 200.
        let bad = Answer { error: text("bad_\u{1b}[2Jclient%"), ..Answer::default() };
        assert_eq!(told(bad, 200), Err(ExchangeError::Refused("bad_2Jclient".to_owned())));
        for bad in [Answer { access_token: None, ..answer() }, Answer { access_token: text(""), ..answer() }] {
            assert!(told(bad, 200).is_err());
        }
        assert!(told(Answer { access_token: text("a\nb"), ..answer() }, 200).is_err());
        assert!(told(Answer { refresh_token: text("a b"), ..answer() }, 200).is_err());
        assert!(told(answer(), 500).is_err());
    }
}
