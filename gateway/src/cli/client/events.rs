//! Listens to what a gateway tells of a workspace as it happens.

use std::time::Duration;

use http::Method;
use http::header::CONTENT_TYPE;
use serde_json::Value;
use tokio::time::Instant;

use super::sse::{Event, Reader};
use super::{Client, ClientError, refused};
use crate::model::WorkspaceName;
use crate::net::fetch::{FetchError, Opened, Stream};

/// What the stream is asked for as.
const KIND: &str = "text/event-stream";

/// How long a gateway may say nothing: it says that it is there three times as often.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// What is told of one workspace, or one environment.
#[derive(Debug)]
pub(in crate::cli) struct Events {
    stream: Stream,
    reader: Reader,
    heard_at: Instant,
}

impl Client {
    /// Begins to listen. The first thing that is told is how it is now.
    ///
    /// # Errors
    /// [`ClientError`], also for a gateway that has nothing to tell any more.
    pub(in crate::cli) async fn events(&self, workspace: &WorkspaceName) -> Result<Events, ClientError> {
        let from = self.at(&format!("/workspaces/{workspace}/events"))?;
        let stream = self.fetch.stream(&from, KIND, self.credentials()).await?;
        if !stream.header(&CONTENT_TYPE).is_some_and(|kind| kind.starts_with(KIND)) {
            return Err(FetchError::Status { server: from.origin(), status: stream.status().as_u16() }.into());
        }
        Ok(Events { stream, reader: Reader::default(), heard_at: Instant::now() })
    }

    /// Sends a request and begins to listen to what comes of it.
    ///
    /// # Errors
    /// [`ClientError`], also for a gateway that tells nothing of it.
    pub(in crate::cli) async fn listen(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Events, ClientError> {
        let to = self.at(path)?;
        match self.fetch.open(method, &to, KIND, body, self.credentials()).await? {
            Opened::Stream(stream) => Ok(Events { stream, reader: Reader::default(), heard_at: Instant::now() }),
            Opened::Answer(answer) => Err(refused(&answer)),
        }
    }
}

impl Events {
    /// Waits for the next event; `None` when no more will come: the stream has ended or broke, or the gateway says nothing.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub(in crate::cli) async fn next(&mut self) -> Option<Event> {
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
