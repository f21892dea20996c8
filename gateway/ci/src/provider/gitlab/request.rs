//! Sends requests to GitLab with token and rate limit, and turns failed answers into errors.

use std::path::Path;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::super::ProviderError;
use super::answer::why;
use super::{GitlabSettings, GitlabToken};
use gateway_net::fetch::{Credentials, Fetch, FetchSetupError, FetchedResponse, Trust};
use gateway_store::wall_clock;
use gateway_types::{Endpoint, UnixSeconds};

/// Pause after too many requests, if GitLab does not name one.
const PAUSE: Duration = Duration::from_secs(30);

/// Longest pause, whatever GitLab asks for: a wrong clock must not end all runs.
const PAUSE_MAX: Duration = Duration::from_mins(15);

/// Longest token, in bytes. GitLab's have less than 100, its job tokens, which are signed, some 1,000.
const TOKEN_BYTES_MAX: u64 = 8192;

const PRIVATE_TOKEN: HeaderName = HeaderName::from_static("private-token");
const JOB_TOKEN: HeaderName = HeaderName::from_static("job-token");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// The API of one project.
#[derive(Debug)]
pub(super) struct ProjectApi {
    settings: GitlabSettings,
    fetch: Fetch,
    /// Time until which nothing is sent.
    pause: Mutex<Option<Instant>>,
}

impl ProjectApi {
    pub(super) fn new(settings: GitlabSettings) -> Result<Self, FetchSetupError> {
        let trust = settings.ca_file.clone().map_or(Trust::System, Trust::SystemAnd);
        Ok(Self { fetch: Fetch::new(&trust)?, settings, pause: Mutex::new(None) })
    }

    pub(super) fn settings(&self) -> &GitlabSettings {
        &self.settings
    }

    /// Sends a request below the project's address. Returns only successful answers.
    pub(super) async fn ask<T: Serialize + Sync>(
        &self,
        what: &'static str,
        method: Method,
        path: &str,
        body: Option<&T>,
    ) -> Result<FetchedResponse, ProviderError> {
        self.wait_is_over()?;
        let (at, headers) = (self.at(path)?, self.headers().await?);
        let answer = self.fetch.call(method, &at, headers, body, Credentials::Nothing).await?;
        self.success(what, answer).await
    }

    /// Requests the end of a text below the project's address. Returns only successful answers.
    pub(super) async fn ask_for_end(
        &self,
        what: &'static str,
        path: &str,
        bytes: usize,
    ) -> Result<FetchedResponse, ProviderError> {
        self.wait_is_over()?;
        let (at, headers) = (self.at(path)?, self.headers().await?);
        let answer = self.fetch.end_of_text(&at, headers, bytes).await?;
        self.success(what, answer).await
    }

    fn wait_is_over(&self) -> Result<(), ProviderError> {
        let left = self.pause.lock().map(|until| until.saturating_duration_since(Instant::now()));
        match left {
            Some(left) if !left.is_zero() => Err(ProviderError::Limited { after: Some(left) }),
            Some(_) | None => Ok(()),
        }
    }

    fn pause_for(&self, time: Duration) {
        *self.pause.lock() = Some(Instant::now() + time);
    }

    fn at(&self, path: &str) -> Result<Endpoint, ProviderError> {
        let tail = format!("/api/v4/projects/{}{path}", encoded(&self.settings.project));
        // Only a project or a reference that is too long makes this fail.
        self.settings.url.join(&tail).map_err(|_| self.no_project())
    }

    async fn headers(&self) -> Result<HeaderMap, ProviderError> {
        let name = match self.settings.token_kind {
            GitlabToken::Access => PRIVATE_TOKEN,
            GitlabToken::Job => JOB_TOKEN,
        };
        let path = &self.settings.token_file;
        let value = read_token(path).await.map_err(|why| ProviderError::TokenFile { path: path.clone(), why })?;
        Ok(HeaderMap::from_iter([(name, value)]))
    }

    /// Returns a successful answer, or else its error.
    async fn success(&self, what: &'static str, answer: FetchedResponse) -> Result<FetchedResponse, ProviderError> {
        let status = answer.status();
        let wait = wait_of(&answer, wall_clock());
        if status == StatusCode::TOO_MANY_REQUESTS {
            let wait = wait.unwrap_or(PAUSE);
            self.pause_for(wait);
            return Err(ProviderError::Limited { after: Some(wait) });
        }
        if status.is_success() {
            if answer.header(&REMAINING) == Some("0") {
                // The next request would be refused.
                self.pause_for(wait.unwrap_or(Duration::ZERO));
            }
            return Ok(answer);
        }
        if status.is_server_error() {
            let after = answer.header(&RETRY_AFTER).and_then(seconds);
            return Err(ProviderError::Unavailable { status: status.as_u16(), after });
        }
        match status {
            StatusCode::UNAUTHORIZED => Err(ProviderError::TokenRefused { path: self.settings.token_file.clone() }),
            StatusCode::FORBIDDEN => Err(ProviderError::Forbidden { what, why: why(answer.body()) }),
            StatusCode::NOT_FOUND if !self.sees_project().await? => Err(self.no_project()),
            _ => Err(ProviderError::Refused { what, status: status.as_u16(), why: why(answer.body()) }),
        }
    }

    /// Returns whether the project is visible: GitLab answers 404 for a missing project and for a missing resource.
    async fn sees_project(&self) -> Result<bool, ProviderError> {
        let (at, headers) = (self.at("")?, self.headers().await?);
        let answer = self.fetch.call(Method::GET, &at, headers, None::<&()>, Credentials::Nothing).await?;
        Ok(answer.status() != StatusCode::NOT_FOUND)
    }

    fn no_project(&self) -> ProviderError {
        ProviderError::NoProject { project: self.settings.project.clone() }
    }
}

/// Returns the pause that GitLab asks for: `Retry-After` in seconds (RFC 9110, section 10.2.3), or `RateLimit-Reset`,
/// which is a time.
fn wait_of(answer: &FetchedResponse, now: UnixSeconds) -> Option<Duration> {
    let until_reset = || {
        let reset: i64 = answer.header(&RESET)?.parse().ok()?;
        let left = u64::try_from(reset.saturating_sub(now.get())).unwrap_or(0);
        // The limit counts whole seconds, and clocks differ by some.
        Some(Duration::from_secs(left.saturating_add(1)).min(PAUSE_MAX))
    };
    answer.header(&RETRY_AFTER).and_then(seconds).or_else(until_reset)
}

fn seconds(text: &str) -> Option<Duration> {
    Some(Duration::from_secs(text.trim().parse().ok()?).min(PAUSE_MAX))
}

async fn read_token(path: &Path) -> Result<HeaderValue, String> {
    let file = tokio::fs::File::open(path).await.map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(TOKEN_BYTES_MAX + 1).read_to_string(&mut text).await.map_err(|error| error.to_string())?;
    let token = text.trim();
    if token.is_empty() {
        return Err("it is empty".to_owned());
    }
    let is_long = u64::try_from(text.len()).map_or(true, |length| length > TOKEN_BYTES_MAX);
    if is_long || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("it holds something else than one token".to_owned());
    }
    let mut value = HeaderValue::from_str(token).map_err(|error| error.to_string())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Encodes a text as one part of a path or a query (RFC 3986, section 2.1): all but unreserved characters.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_path_becomes_one_part_of_the_path() {
        assert_eq!(encoded("group/sub group/p.r-o_j~1"), "group%2Fsub%20group%2Fp.r-o_j~1");
        assert_eq!(encoded("42"), "42");
        assert_eq!(encoded("../a?b#ä"), "..%2Fa%3Fb%23%C3%A4");
    }
}
