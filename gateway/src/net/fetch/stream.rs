//! Answers that go on for as long as the server has something to say.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::Response;

use super::{Credentials, Fetch, FetchError, TIME_MAX, authorized, failure};
use crate::model::Endpoint;

/// The longest that a server may go on, however much it has to say.
const STREAM_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// A success whose body is read as it comes. `Debug` shows no byte of it.
pub struct Stream {
    server: String,
    response: Response,
}

impl fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Stream").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Stream {
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

    /// Reads what has come; `None` at the end. How long that may take is for whoever waits to say.
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
    /// Gets a document of some kind whose end is not waited for.
    ///
    /// # Errors
    ///
    /// [`FetchError::Status`] for anything but a success; [`FetchError::TimedOut`] if it does not begin within [`TIME_MAX`].
    pub async fn stream(
        &self,
        from: &Endpoint,
        kind: &'static str,
        credentials: Credentials<'_>,
    ) -> Result<Stream, FetchError> {
        let server = from.origin();
        let request = self.client(from).get(from.url().clone()).timeout(STREAM_TIME_MAX);
        let request = authorized(request.header(ACCEPT, HeaderValue::from_static(kind)), credentials);
        let answered = tokio::time::timeout(TIME_MAX, request.send()).await;
        let answered = answered.map_err(|_elapsed| FetchError::TimedOut { server: server.clone() })?;
        let response = answered.map_err(|error| failure(&server, error))?;
        if !response.status().is_success() {
            return Err(FetchError::Status { server, status: response.status().as_u16() });
        }
        Ok(Stream { server, response })
    }
}
