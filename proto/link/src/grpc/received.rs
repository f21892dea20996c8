//! Incoming half of a link, over either transport.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use thiserror::Error;

use super::FrameReader;
use crate::websocket::{CarryError, MessageBody};

/// The incoming body of a link.
#[derive(Debug)]
pub enum IncomingBody {
    /// Body of an HTTP/2 stream.
    Http2(Incoming),
    /// Messages of a WebSocket.
    WebSocket(MessageBody),
}

/// Transport of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// gRPC as it is.
    Http2,
    /// gRPC's messages inside a WebSocket.
    WebSocket,
}

impl fmt::Display for Via {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Http2 => "http2",
            Self::WebSocket => "websocket",
        })
    }
}

impl FrameReader<IncomingBody> {
    /// Returns the transport of the link.
    #[must_use]
    pub fn via(&self) -> Via {
        match self.body() {
            IncomingBody::Http2(_) => Via::Http2,
            IncomingBody::WebSocket(_) => Via::WebSocket,
        }
    }
}

/// Reason why no more frames arrive.
#[derive(Debug, Error)]
pub enum ReceiveError {
    /// The stream or its connection broke.
    #[error(transparent)]
    Http2(#[from] hyper::Error),
    /// The WebSocket broke.
    #[error(transparent)]
    WebSocket(#[from] CarryError),
}

impl From<Incoming> for IncomingBody {
    fn from(body: Incoming) -> Self {
        Self::Http2(body)
    }
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = ReceiveError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ReceiveError>>> {
        match self.get_mut() {
            Self::Http2(body) => {
                Pin::new(body).poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(ReceiveError::Http2)))
            }
            Self::WebSocket(messages) => {
                messages.poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(ReceiveError::WebSocket)))
            }
        }
    }
}
