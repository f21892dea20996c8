//! Listens to a gateway's events about a workspace as they happen.

use std::time::Duration;

use http::Method;
use http::header::CONTENT_TYPE;
use serde_json::Value;
use tokio::time::Instant;

use super::sse::{Reader, StreamEvent};
use super::{ClientError, GatewayClient, refused};
use gateway_net::fetch::{FetchError, FetchedStream, StreamAnswer};
use gateway_types::WorkspaceName;

/// Media type of the stream.
const KIND: &str = "text/event-stream";

/// Longest silence of a gateway: it sends a sign of life three times as often.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// Events of one workspace, or one environment.
#[derive(Debug)]
pub(crate) struct EventSource {
    stream: FetchedStream,
    reader: Reader,
    heard_at: Instant,
}

impl GatewayClient {
    /// Begins to listen. The first event is the present state.
    ///
    /// # Errors
    /// [`ClientError`], also for a gateway that has no more events.
    pub(crate) async fn events(&self, workspace: &WorkspaceName) -> Result<EventSource, ClientError> {
        let from = self.at(&format!("/workspaces/{workspace}/events"))?;
        let stream = self.fetch.stream(&from, KIND, self.credentials()).await?;
        if !stream.header(&CONTENT_TYPE).is_some_and(|kind| kind.starts_with(KIND)) {
            return Err(FetchError::Status { server: from.origin(), status: stream.status().as_u16() }.into());
        }
        Ok(EventSource { stream, reader: Reader::default(), heard_at: Instant::now() })
    }

    /// Sends a request and begins to listen to its events.
    ///
    /// # Errors
    /// [`ClientError`], also for a gateway that sends no events about it.
    pub(crate) async fn listen(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<EventSource, ClientError> {
        let to = self.at(path)?;
        match self.fetch.open(method, &to, KIND, body, self.credentials()).await? {
            StreamAnswer::Stream(stream) => {
                Ok(EventSource { stream, reader: Reader::default(), heard_at: Instant::now() })
            }
            StreamAnswer::Answer(answer) => Err(refused(&answer)),
        }
    }
}

impl EventSource {
    /// Waits for the next event; `None` when no more will come: the stream has ended or broke, or the gateway is
    /// silent.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub(crate) async fn next(&mut self) -> Option<StreamEvent> {
        loop {
            if let Some(event) = self.reader.pop() {
                return Some(event);
            }
            let silent = tokio::time::timeout_at(self.heard_at + SILENCE_MAX, self.stream.chunk()).await;
            let chunk = silent.ok()?.ok()??;
            self.heard_at = Instant::now();
            self.reader.push(&chunk).ok()?;
        }
    }
}
