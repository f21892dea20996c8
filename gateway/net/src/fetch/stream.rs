//! Answers that are read as they arrive, for as long as the server sends.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use reqwest::Response;
use serde::Serialize;

use super::{Credentials, Expected, Fetch, FetchError, FetchedResponse, TIME_MAX, authorized, failure, read};
use gateway_types::Endpoint;

/// Longest time that a server may keep sending.
const STREAM_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// A success whose body is read as it comes. `Debug` shows no byte of it.
pub struct FetchedStream {
    server: String,
    response: Response,
}

impl fmt::Debug for FetchedStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Stream").field("server", &self.server).finish_non_exhaustive()
    }
}

impl FetchedStream {
    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Returns a header's first value, if it is text.
    #[must_use]
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Reads the next bytes; `None` at the end. The caller sets its own time limit.
    ///
    /// # Errors
    ///
    /// [`FetchError::Unreachable`] for a connection that broke.
    ///
    /// # Cancel safety
    ///
    /// Safe: what has come is either returned or still there.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, FetchError> {
        self.response.chunk().await.map_err(|error| failure(&self.server, error))
    }
}

impl Fetch {
    /// Gets a document of some kind without waiting for its end.
    ///
    /// # Errors
    ///
    /// [`FetchError::Status`] for anything but a success; [`FetchError::TimedOut`] if it does not begin within [`TIME_MAX`].
    pub async fn stream(
        &self,
        from: &Endpoint,
        kind: &'static str,
        credentials: Credentials<'_>,
    ) -> Result<FetchedStream, FetchError> {
        match self.open::<()>(Method::GET, from, kind, None, credentials).await? {
            StreamAnswer::Stream(stream) => Ok(stream),
            StreamAnswer::Answer(answer) => {
                Err(FetchError::Status { server: from.origin(), status: answer.status().as_u16() })
            }
        }
    }

    /// Sends any request, with a JSON body or none, for a document of some kind without waiting for its end. Any other
    /// answer is read to its end, as for [`Fetch::call`].
    ///
    /// # Errors
    ///
    /// [`FetchError`]; [`FetchError::TimedOut`] if it does not begin within [`TIME_MAX`].
    pub async fn open<T: Serialize + Sync>(
        &self,
        method: Method,
        to: &Endpoint,
        kind: &'static str,
        body: Option<&T>,
        credentials: Credentials<'_>,
    ) -> Result<StreamAnswer, FetchError> {
        let server = to.origin();
        let request = self.client(to).request(method, to.url().clone()).timeout(STREAM_TIME_MAX);
        let request = authorized(request.header(ACCEPT, HeaderValue::from_static(kind)), credentials);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let answered = tokio::time::timeout(TIME_MAX, request.send()).await;
        let answered = answered.map_err(|_elapsed| FetchError::TimedOut { server: server.clone() })?;
        let response = answered.map_err(|error| failure(&server, error))?;
        let is_of_kind = |value: &HeaderValue| value.as_bytes().starts_with(kind.as_bytes());
        if response.status().is_success() && response.headers().get(CONTENT_TYPE).is_some_and(is_of_kind) {
            return Ok(StreamAnswer::Stream(FetchedStream { server, response }));
        }
        let read = read(server.clone(), response, Expected::Json);
        let read = tokio::time::timeout(TIME_MAX, read).await.map_err(|_elapsed| FetchError::TimedOut { server })?;
        read.map(StreamAnswer::Answer)
    }
}

/// Answer to a request for a stream.
#[derive(Debug)]
pub enum StreamAnswer {
    /// The document has begun.
    Stream(FetchedStream),
    /// Another answer, whole: mostly the reason of a refusal.
    Answer(FetchedResponse),
}
