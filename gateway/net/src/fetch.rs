//! HTTP client for servers that the operator names: an identity provider, the keys of an issuer, a cluster's API.
//!
//! Nothing that a user or an agent sends chooses the address. No redirect is followed, because an answering server must
//! not be able to send the gateway, and its credentials, elsewhere. Every answer is bounded in time and size. The proxy
//! of `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` is used for all but this machine.

mod stream;
mod trust;

use std::fmt;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{ACCEPT, RANGE};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use reqwest::{Client, RequestBuilder, Response, redirect};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::time::Instant;
use tunnel_link::causes;

pub use self::stream::{FetchedStream, StreamAnswer};
pub use self::trust::{FetchSetupError, Trust};
use crate::telemetry::{Dependency, Latency};
use gateway_types::Endpoint;
use gateway_types::Secret;

/// Longest time for one request, from connecting to the last byte of the answer.
pub const TIME_MAX: Duration = Duration::from_secs(10);

/// Longest answer, in bytes. Key sets and tokens take a few KiB.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Accepted media types. A cluster's API server has its keys only as a key set (RFC 7517, section 8.5.2), and answers
/// 406 to a client that accepts only plain JSON.
const JSON: &str = "application/json, application/jwk-set+json;q=0.9";

/// Longest text whose end is read, in bytes: a job's log in GitLab has 100 MiB at most, most have far less, and all of
/// it comes over the network.
pub const TEXT_BYTES_MAX: u64 = 32 << 20;

/// Options that name an authority: of commands, and of a gateway's configuration.
const CA_OPTION: &str =
    "--ca-file; in a gateway's configuration with the ca_file beside the server's address, such as auth.oidc.ca_file";

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
const IDLE_CONNECTIONS_MAX: usize = 2;

/// Failed request. Names the server; repeats nothing that was received or sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FetchError {
    /// No connection, no handshake, or a connection that broke.
    #[error("{server} cannot be reached: {why}")]
    Unreachable {
        /// Scheme, host and port.
        server: String,
        /// Error of the system or of TLS.
        why: String,
    },
    /// It took longer than [`TIME_MAX`].
    #[error("{server} did not answer within {TIME_MAX:?}")]
    TimedOut {
        /// Scheme, host and port.
        server: String,
    },
    /// The answer is longer than [`ANSWER_BYTES_MAX`], or a text longer than [`TEXT_BYTES_MAX`].
    #[error("{server} answered with more bytes than are read")]
    TooLong {
        /// Scheme, host and port.
        server: String,
    },
    /// The status reports a failure, or is a redirect.
    #[error("{server} answered with status {status}")]
    Status {
        /// Scheme, host and port.
        server: String,
        /// Status of the answer.
        status: u16,
    },
    /// The answer is not JSON of the expected shape.
    #[error("{server} answered with something else than the JSON that was asked for (line {line}, column {column})")]
    Shape {
        /// Scheme, host and port.
        server: String,
        /// Line at which parsing failed.
        line: usize,
        /// Column at which parsing failed.
        column: usize,
    },
}

/// HTTP client. Clones share the connections.
#[derive(Clone)]
pub struct Fetch {
    /// Client for this machine.
    direct: Client,
    /// Client for all others, through the proxy of the environment.
    outside: Client,
    /// Histogram of the answers' times, and the system that they are of.
    timed: Option<(Latency, Dependency)>,
}

impl fmt::Debug for Fetch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Fetch").finish_non_exhaustive()
    }
}

/// Credentials of a request.
#[derive(Clone, Copy, Default)]
pub enum Credentials<'a> {
    /// None.
    #[default]
    Nothing,
    /// A bearer token (RFC 6750, section 2.1).
    Bearer(&'a Secret),
    /// A user and a password (RFC 7617), each already encoded as the server wants it.
    Basic(&'a str, &'a Secret),
}

/// Expected kind of answer.
#[derive(Clone, Copy)]
enum Expected {
    /// JSON, read as a whole.
    Json,
    /// Text of which only this many bytes at the end are kept.
    EndOfText(usize),
}

/// A server's answer, whatever its status. `Debug` shows no byte of the body.
pub struct FetchedResponse {
    server: String,
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl fmt::Debug for FetchedResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Answer");
        shown.field("server", &self.server).field("status", &self.status).field("bytes", &self.body.len());
        shown.finish()
    }
}

impl FetchedResponse {
    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns a header's first value, if it is text.
    #[must_use]
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the body.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Reads the body of a success as JSON.
    ///
    /// # Errors
    ///
    /// [`FetchError::Status`] for any other status, [`FetchError::Shape`] for another shape.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, FetchError> {
        if !self.status.is_success() {
            return Err(FetchError::Status { server: self.server.clone(), status: self.status.as_u16() });
        }
        self.json_of_any_status()
    }

    /// Reads the body as JSON, also that of a failure, which may give its reason.
    ///
    /// # Errors
    ///
    /// [`FetchError::Shape`].
    pub fn json_of_any_status<T: DeserializeOwned>(&self) -> Result<T, FetchError> {
        // The library's error text can repeat a part of the body, which may be a token.
        serde_json::from_slice(&self.body).map_err(|error| FetchError::Shape {
            server: self.server.clone(),
            line: error.line(),
            column: error.column(),
        })
    }
}

impl Fetch {
    /// Makes a client.
    ///
    /// # Errors
    ///
    /// [`FetchSetupError`] names the file that cannot be used.
    pub fn new(trust: &Trust) -> Result<Self, FetchSetupError> {
        let tls = trust::tls(trust)?;
        let client = |is_direct: bool| {
            let builder = Client::builder()
                .tls_backend_preconfigured(tls.clone())
                .redirect(redirect::Policy::none())
                .referer(false)
                .user_agent(concat!("workspace-gateway/", env!("CARGO_PKG_VERSION")))
                .timeout(TIME_MAX)
                .connect_timeout(CONNECT_TIME_MAX)
                .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX);
            let builder = if is_direct { builder.no_proxy() } else { builder };
            builder.build().map_err(|error| FetchSetupError::Client(causes::one_line(&error)))
        };
        Ok(Self { direct: client(true)?, outside: client(false)?, timed: None })
    }

    /// Returns the same client, whose answers are counted by the time that they take.
    #[must_use]
    pub fn timed(self, latency: Latency, of: Dependency) -> Self {
        Self { timed: Some((latency, of)), ..self }
    }

    /// Gets a document, which is expected to be JSON.
    ///
    /// # Errors
    ///
    /// [`FetchError`], except for what only [`FetchedResponse::json`] finds.
    pub async fn get(&self, from: &Endpoint, credentials: Credentials<'_>) -> Result<FetchedResponse, FetchError> {
        self.send(from, self.client(from).get(from.url().clone()), credentials, Expected::Json).await
    }

    /// Posts a form (`application/x-www-form-urlencoded`).
    ///
    /// # Errors
    ///
    /// [`FetchError`], except for what only [`FetchedResponse::json`] finds.
    pub async fn post_form(
        &self,
        to: &Endpoint,
        form: &[(&str, &str)],
        credentials: Credentials<'_>,
    ) -> Result<FetchedResponse, FetchError> {
        self.send(to, self.client(to).post(to.url().clone()).form(form), credentials, Expected::Json).await
    }

    /// Posts JSON.
    ///
    /// # Errors
    ///
    /// [`FetchError`], except for what only [`FetchedResponse::json`] finds.
    pub async fn post_json<T: Serialize + Sync>(
        &self,
        to: &Endpoint,
        body: &T,
        credentials: Credentials<'_>,
    ) -> Result<FetchedResponse, FetchError> {
        self.send(to, self.client(to).post(to.url().clone()).json(body), credentials, Expected::Json).await
    }

    /// Sends any request, with a JSON body or none.
    ///
    /// # Errors
    ///
    /// [`FetchError`], except for what only [`FetchedResponse::json`] finds.
    pub async fn call<T: Serialize + Sync>(
        &self,
        method: Method,
        to: &Endpoint,
        headers: HeaderMap,
        body: Option<&T>,
        credentials: Credentials<'_>,
    ) -> Result<FetchedResponse, FetchError> {
        let request = self.client(to).request(method, to.url().clone()).headers(headers);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        self.send(to, request, credentials, Expected::Json).await
    }

    /// Gets a text and keeps its last bytes, `bytes` at most and never more than [`ANSWER_BYTES_MAX`]. A server that knows ranges
    /// (RFC 9110, section 14.2) sends no more than these.
    ///
    /// # Errors
    ///
    /// [`FetchError`].
    pub async fn end_of_text(
        &self,
        from: &Endpoint,
        headers: HeaderMap,
        bytes: usize,
    ) -> Result<FetchedResponse, FetchError> {
        let request =
            self.client(from).get(from.url().clone()).headers(headers).header(RANGE, format!("bytes=-{bytes}"));
        let expected = Expected::EndOfText(bytes.min(ANSWER_BYTES_MAX));
        self.send(from, request, Credentials::Nothing, expected).await
    }

    fn client(&self, to: &Endpoint) -> &Client {
        if to.is_loopback() { &self.direct } else { &self.outside }
    }

    async fn send(
        &self,
        to: &Endpoint,
        request: RequestBuilder,
        credentials: Credentials<'_>,
        expected: Expected,
    ) -> Result<FetchedResponse, FetchError> {
        let server = to.origin();
        let request = match expected {
            Expected::Json => request.header(ACCEPT, JSON),
            Expected::EndOfText(_) => request.header(ACCEPT, "text/plain, */*;q=0.1"),
        };
        let request = authorized(request, credentials);
        let began = Instant::now();
        let answer = async {
            let response = request.send().await.map_err(|error| failure(&server, error))?;
            read(server.clone(), response, expected).await
        };
        let answer = answer.await;
        if let Some((latency, of)) = &self.timed {
            latency.observe(*of, began.elapsed());
        }
        answer
    }
}

/// Reads an answer to its end.
async fn read(server: String, mut response: Response, expected: Expected) -> Result<FetchedResponse, FetchError> {
    let failed = |error: reqwest::Error| failure(&server, error);
    let (mut body, mut read_bytes) = (BytesMut::new(), 0_u64);
    // A length claimed in the head is not believed: only received bytes are held.
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        read_bytes = read_bytes.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        body.extend_from_slice(&chunk);
        let is_too_long = match expected {
            Expected::Json => body.len() > ANSWER_BYTES_MAX,
            Expected::EndOfText(bytes) => {
                body.advance(body.len().saturating_sub(bytes));
                read_bytes > TEXT_BYTES_MAX
            }
        };
        if is_too_long {
            return Err(FetchError::TooLong { server });
        }
    }
    let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
    Ok(FetchedResponse { server, status, headers, body: body.freeze() })
}

fn authorized(request: RequestBuilder, credentials: Credentials<'_>) -> RequestBuilder {
    match credentials {
        Credentials::Nothing => request,
        Credentials::Bearer(token) => request.bearer_auth(token.reveal()),
        Credentials::Basic(user, password) => request.basic_auth(user, Some(password.reveal())),
    }
}

fn failure(server: &str, error: reqwest::Error) -> FetchError {
    let server = server.to_owned();
    if error.is_timeout() {
        return FetchError::TimedOut { server };
    }
    // The address can hold what only the two parties should know.
    FetchError::Unreachable { server, why: causes::with_remedy(&error.without_url(), CA_OPTION) }
}

#[cfg(test)]
mod tests;
