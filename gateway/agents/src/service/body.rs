//! The bodies that the agents' listener sends: the tunnel's, and those of small services beside it.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame};
use tonic::Status;
use tunnel_link::grpc::{Chunk, Outgoing};

/// A response body of the agents' listener.
#[derive(Debug, Default)]
pub(super) enum AgentBody {
    /// Nothing.
    #[default]
    Empty,
    /// A session.
    Tunnel(Outgoing),
    /// A service that tonic answers.
    Tonic(tonic::body::Body),
}

impl Body for AgentBody {
    type Data = Chunk;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunk>, Status>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Tunnel(outgoing) => Pin::new(outgoing)
                .poll_frame(context)
                .map(|frame| frame.map(|frame| frame.map_err(|never| match never {}))),
            Self::Tonic(body) => Pin::new(body)
                .poll_frame(context)
                .map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(Chunk::from)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Tunnel(_) => false,
            Self::Tonic(body) => body.is_end_stream(),
        }
    }
}
