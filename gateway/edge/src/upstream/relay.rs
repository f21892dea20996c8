//! Relays answers that come before their request is sent. A user who reads the answer slowly must not hold the request
//! back, so a task moves both, and keeps one part of the answer ready.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc;
use tunnel_link::drain::Drain;

use super::http1::{Error, Http1Connection};

/// A part of an answer. The end is explicit: a task that was cut must not look like one.
#[derive(Debug)]
enum AnswerPart {
    Frame(Frame<Bytes>),
    End,
}

/// The answer's body, as the task hands it on. Dropping it before the end ends the connection.
#[derive(Debug)]
pub(crate) struct Relayed {
    parts: mpsc::Receiver<Result<AnswerPart, Error>>,
    /// Bytes to come, if that is known.
    left: Option<u64>,
    is_over: bool,
}

impl Relayed {
    /// Gives a connection to a task of `tasks`. It is not used again.
    pub(super) fn start(connection: Box<Http1Connection>, tasks: &Drain) -> Self {
        let (sender, parts) = mpsc::channel(1);
        let (left, is_over) = (connection.left(), connection.is_answered());
        tasks.spawn(run(connection, sender));
        Self { parts, left, is_over }
    }

    /// Waits for the next part. `None` at the end.
    ///
    /// Cancel safety: nothing is lost.
    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.parts.poll_recv(context)) {
            Some(Ok(AnswerPart::Frame(frame))) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                self.left = self.left.map(|left| left.saturating_sub(bytes));
                self.is_over = self.left == Some(0);
                Some(Ok(frame))
            }
            Some(Ok(AnswerPart::End)) => {
                self.is_over = true;
                None
            }
            Some(Err(error)) => Some(Err(error)),
            None => Some(Err(Error::Incomplete)),
        })
    }

    /// Returns whether nothing more comes.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns how many bytes are to come, if that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.left
    }
}

async fn run(mut connection: Box<Http1Connection>, parts: mpsc::Sender<Result<AnswerPart, Error>>) {
    let failed = match answer(&mut connection, &parts).await {
        Ok(Answered::Whole) => return rest(connection).await,
        Ok(Answered::Abandoned) => return,
        Err(error) => error,
    };
    // The app hears of it first.
    drop(connection);
    parts.send(Err(failed)).await.ok();
}

/// Outcome of handing an answer on.
enum Answered {
    Whole,
    /// The user went away.
    Abandoned,
}

async fn answer(
    connection: &mut Http1Connection,
    parts: &mpsc::Sender<Result<AnswerPart, Error>>,
) -> Result<Answered, Error> {
    while !connection.is_answered() {
        let place = tokio::select! {
            biased;
            place = parts.reserve() => place,
            sent = poll_fn(|context| connection.poll_upload(context)), if connection.is_uploading() => {
                sent?;
                continue;
            }
        };
        let Ok(place) = place else { return Ok(Answered::Abandoned) };
        let frame = tokio::select! {
            biased;
            () = parts.closed() => return Ok(Answered::Abandoned),
            frame = poll_fn(|context| connection.poll_frame(context)) => frame,
        };
        match frame.transpose()? {
            Some(frame) => place.send(Ok(AnswerPart::Frame(frame))),
            None => break,
        }
    }
    loop {
        tokio::select! {
            biased;
            end = parts.reserve() => {
                // A receiver that knew the length no longer takes it.
                if let Ok(end) = end {
                    end.send(Ok(AnswerPart::End));
                }
                return Ok(Answered::Whole);
            }
            sent = poll_fn(|context| connection.poll_upload(context)), if connection.is_uploading() => sent?,
        }
    }
}

/// Sends what is left of the request, for as long as the app listens.
async fn rest(mut connection: Box<Http1Connection>) {
    poll_fn(|context| {
        if connection.poll_upload(context).is_ready() {
            return Poll::Ready(());
        }
        connection.poll_anything(context)
    })
    .await;
}
