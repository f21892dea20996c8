//! What arrives on a link, whatever carries it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use thiserror::Error;

use crate::websocket::{CarryError, Messages};

/// The incoming body of a link.
#[derive(Debug)]
pub enum Received {
    /// Of a stream of HTTP/2.
    Http2(Incoming),
    /// Of a WebSocket.
    WebSocket(Messages),
}

/// Why nothing more arrives.
#[derive(Debug, Error)]
pub enum ReceiveError {
    /// The stream or its connection broke.
    #[error(transparent)]
    Http2(#[from] hyper::Error),
    /// The WebSocket broke.
    #[error(transparent)]
    WebSocket(#[from] CarryError),
}

impl From<Incoming> for Received {
    fn from(body: Incoming) -> Self {
        Self::Http2(body)
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = ReceiveError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReceiveError>>> {
        match self.get_mut() {
            Self::Http2(body) => {
                Pin::new(body).poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(ReceiveError::Http2)))
            }
            Self::WebSocket(messages) => messages
                .poll_frame(context)
                .map(|frame| frame.map(|frame| frame.map_err(ReceiveError::WebSocket))),
        }
    }
}
