//! Client of a gateway's API.

mod events;
mod quota;
mod sse;

use std::fmt;
use std::path::Path;

use http::header::{ETAG, IF_MATCH};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

pub(super) use self::events::EventSource;
use self::quota::QuotaRefusal;
use gateway_net::fetch::{Credentials, Fetch, FetchError, FetchSetupError, FetchedResponse, Trust};
use gateway_types::token::Token;
use gateway_types::{BadEndpoint, Endpoint};
use gateway_types::{PublicUrl, Secret};

/// Path of the API at a gateway.
const PREFIX: &str = "/api/v1";

/// Longest text of a gateway that is shown, in characters.
const SHOWN_CHARS_MAX: usize = 400;

/// Client of one gateway, as one user or without a sign-in.
#[derive(Debug)]
pub(super) struct GatewayClient {
    fetch: Fetch,
    base: Endpoint,
    token: Option<Secret>,
}

/// Reason why a request to a gateway failed.
#[derive(Debug, Error)]
pub(super) enum ClientError {
    /// The gateway's URL is not one that a token may be sent to.
    #[error("a token cannot be sent to {0}: {1}")]
    Url(PublicUrl, #[source] BadEndpoint),
    /// The client cannot be made.
    #[error(transparent)]
    Setup(#[from] FetchSetupError),
    /// No answer, or one of another kind.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The gateway refused.
    #[error("{0}")]
    Refused(Box<ApiRefusal>),
}

/// Refusal by a gateway (RFC 9457).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ApiRefusal {
    status: u16,
    /// The code.
    pub(super) code: String,
    title: String,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
    /// Time to wait between polls, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) interval: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Mistake>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<ProblemLocation>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    object_errors: Vec<ObjectError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<QuotaRefusal>,
}

/// A problem of an object in a cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ObjectError {
    /// Null for a problem of all of them.
    pub(super) object: Option<ClusterObject>,
    /// The code.
    pub(super) code: String,
    /// For people.
    pub(super) message: String,
}

/// An object in a cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ClusterObject {
    kind: String,
    namespace: String,
    name: String,
}

impl fmt::Display for ClusterObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ", shown(&self.kind))?;
        if !self.namespace.is_empty() {
            write!(formatter, "{}/", shown(&self.namespace))?;
        }
        formatter.write_str(&shown(&self.name))
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(object) = &self.object {
            write!(formatter, "{object}: ")?;
        }
        write!(formatter, "{} ({})", shown(&self.message), shown(&self.code))
    }
}

/// A problem of a devfile.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct ProblemLocation {
    path: String,
    line: Option<u32>,
    column: Option<u32>,
    message: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Mistake {
    pointer: String,
    detail: String,
}

impl fmt::Display for ApiRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.code == "sign_in_required" {
            return formatter.write_str("the gateway does not know this token (any more): run gateway login");
        }
        write!(formatter, "the gateway refused: {}", shown(&self.detail))?;
        let named = self.reason.as_ref().or(self.limit.as_ref()).unwrap_or(&self.code);
        write!(formatter, " ({}, status {})", shown(named), self.status)?;
        for Mistake { pointer, detail } in &self.errors {
            write!(formatter, "\n  {}: {}", shown(pointer), shown(detail))?;
        }
        for ProblemLocation { path, line, column, message } in &self.problems {
            formatter.write_str("\n  ")?;
            if let Some(line) = line {
                write!(formatter, "line {line}, column {}: ", column.unwrap_or(1))?;
            }
            if !path.is_empty() {
                write!(formatter, "{}: ", shown(path))?;
            }
            formatter.write_str(&shown(message))?;
        }
        for error in &self.object_errors {
            write!(formatter, "\n  {error}")?;
        }
        if let Some(quota) = &self.quota {
            write!(formatter, "{quota}")?;
        }
        Ok(())
    }
}

/// Cuts a server's text to what a terminal can show without being steered.
pub(super) fn shown(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(SHOWN_CHARS_MAX).collect()
}

impl GatewayClient {
    /// Makes a client.
    ///
    /// # Errors
    /// [`ClientError::Url`] for plain text to another machine; [`ClientError::Setup`].
    pub(super) fn new(gateway: &PublicUrl, token: Option<&Token>, ca_file: Option<&Path>) -> Result<Self, ClientError> {
        Self::with_bearer(gateway, token.map(|token| Secret::new(token.reveal().to_owned())), ca_file)
    }

    /// Makes a client that speaks with any token, such as a job's.
    ///
    /// # Errors
    /// As [`GatewayClient::new`].
    pub(super) fn with_bearer(
        gateway: &PublicUrl,
        token: Option<Secret>,
        ca_file: Option<&Path>,
    ) -> Result<Self, ClientError> {
        let base = format!("{gateway}{PREFIX}").parse();
        let base = base.map_err(|error| ClientError::Url(gateway.clone(), error))?;
        let trust = ca_file.map_or(Trust::System, |path| Trust::SystemAnd(path.to_owned()));
        Ok(Self { fetch: Fetch::new(&trust)?, base, token })
    }

    /// Gets the resource at a path below the API.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        Ok(self.send(Method::GET, path, None, None).await?.json()?)
    }

    /// Gets the resource at a path, and its entity tag.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) async fn get_tagged<T: DeserializeOwned>(&self, path: &str) -> Result<(T, Option<String>), ClientError> {
        let answer = self.send(Method::GET, path, None, None).await?;
        Ok((answer.json()?, answer.header(&ETAG).map(str::to_owned)))
    }

    /// Posts a body to a path.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, ClientError> {
        Ok(self.send(Method::POST, path, None, Some(body)).await?.json()?)
    }

    /// Posts a body to a path whose answer has none.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) async fn post_done(&self, path: &str, body: &Value) -> Result<(), ClientError> {
        self.send(Method::POST, path, None, Some(body)).await.map(drop)
    }

    /// Changes a part of the resource at a path.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) async fn patch<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, ClientError> {
        Ok(self.send(Method::PATCH, path, None, Some(body)).await?.json()?)
    }

    /// Replaces the resource at a path, if its tag is still the same.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) async fn put(&self, path: &str, tag: Option<&str>, body: &Value) -> Result<(), ClientError> {
        self.send(Method::PUT, path, tag, Some(body)).await.map(drop)
    }

    /// Deletes the resource at a path.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(Method::DELETE, path, None, None).await.map(drop)
    }

    /// Deletes the resource at a path, and returns the gateway's answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) async fn delete_told<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        Ok(self.send(Method::DELETE, path, None, None).await?.json()?)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        tag: Option<&str>,
        body: Option<&Value>,
    ) -> Result<FetchedResponse, ClientError> {
        let to = self.at(path)?;
        let mut headers = HeaderMap::new();
        if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(tag).ok()) {
            headers.insert(IF_MATCH, tag);
        }
        let answer = self.fetch.call(method, &to, headers, body, self.credentials()).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(refused(&answer))
    }
}

impl GatewayClient {
    fn at(&self, path: &str) -> Result<Endpoint, FetchError> {
        self.base.join(path).map_err(|_| FetchError::Status { server: self.base.origin(), status: 404 })
    }

    fn credentials(&self) -> Credentials<'_> {
        self.token.as_ref().map_or(Credentials::Nothing, Credentials::Bearer)
    }
}

/// Reads the reason; an answer that is no problem document of a gateway counts by its status alone.
fn refused(answer: &FetchedResponse) -> ClientError {
    match answer.json_of_any_status::<ApiRefusal>() {
        Ok(refusal) if !refusal.code.is_empty() => {
            ClientError::Refused(Box::new(ApiRefusal { status: answer.status().as_u16(), ..refusal }))
        }
        Ok(_) | Err(_) => match answer.json::<Value>() {
            Err(error) => error.into(),
            Ok(_) => ClientError::Refused(Box::default()),
        },
    }
}

impl ClientError {
    /// Returns the gateway's refusal, for programs.
    pub(super) fn said(&self) -> Option<Value> {
        match self {
            Self::Refused(refusal) => serde_json::to_value(refusal).ok(),
            Self::Url(..) | Self::Setup(_) | Self::Fetch(_) => None,
        }
    }

    /// Returns the code with which the gateway refused.
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => Some(&refusal.code),
            Self::Url(..) | Self::Setup(_) | Self::Fetch(_) => None,
        }
    }

    /// Returns whether the gateway refused because the resource has changed since it was read.
    pub(super) fn is_changed_meanwhile(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.status == StatusCode::PRECONDITION_FAILED.as_u16(),
            Self::Url(..) | Self::Setup(_) | Self::Fetch(_) => false,
        }
    }

    /// Returns whether trying again may help.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Fetch(error) => match error {
                FetchError::Unreachable { .. } | FetchError::TimedOut { .. } => true,
                FetchError::Status { status, .. } => *status >= 500,
                FetchError::TooLong { .. } | FetchError::Shape { .. } => false,
            },
            Self::Refused(refusal) => refusal.status >= 500,
            Self::Url(..) | Self::Setup(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_told_in_one_place_and_cannot_steer_the_terminal() {
        let text =
            r#"{"status":422,"code":"invalid","detail":"\u001b[2JEach","errors":[{"pointer":"/a","detail":"x"}]}"#;
        let refusal: ApiRefusal = serde_json::from_str(text).unwrap();
        assert_eq!(refusal.to_string(), "the gateway refused: [2JEach (invalid, status 422)\n  /a: x");
        let text = r#"{"status":422,"code":"invalid","detail":"Each","problems":[
            {"path":"components[0].name","line":3,"column":5,"message":"is no\u0007 name"},{"path":"","line":null,"column":null,"message":"y"}]}"#;
        let refusal: ApiRefusal = serde_json::from_str(text).unwrap();
        let told =
            "the gateway refused: Each (invalid, status 422)\n  line 3, column 5: components[0].name: is no name\n  y";
        assert_eq!(refusal.to_string(), told);
        let refusal: ApiRefusal = serde_json::from_str(r#"{"code":"sign_in_required"}"#).unwrap();
        assert!(refusal.to_string().contains("gateway login"));
    }

    #[test]
    fn token_is_not_sent_in_plain_text_to_another_machine() {
        let url = |text: &str| text.parse::<PublicUrl>().unwrap();
        let refused = GatewayClient::new(&url("http://gw.example"), None, None).unwrap_err();
        assert!(matches!(refused, ClientError::Url(..)), "{refused}");
        assert!(GatewayClient::new(&url("http://127.0.0.1:1"), None, None).is_ok());
    }
}
