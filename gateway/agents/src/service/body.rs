//! The bodies that the agents' listener sends: the tunnel's, and those of small services beside it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;
use tracing::debug;
use tunnel_link::grpc::{Chunk, Code, Outgoing, PacedBody, RpcRefused};
use tunnel_link::lane_window::LaneTaking;

use crate::admission::{RETRY_AFTER, refused, shutting_down};

/// The half of a relay lane that goes to its agent, as it comes from the replica at which the lane ends. It ends early when
/// this replica drains: the agent then dials another one, and the lane goes on.
#[derive(Debug)]
pub struct RelayedHalf {
    body: Incoming,
    draining: Pin<Box<WaitForCancellationFutureOwned>>,
    taking: Arc<LaneTaking>,
    /// Length of the last piece, which has left when the next one is asked for: carriers wait for their turn first.
    handed: usize,
}

impl RelayedHalf {
    /// Makes it of the other replica's answer.
    #[must_use]
    pub fn new(body: Incoming, draining: CancellationToken, taking: Arc<LaneTaking>) -> Self {
        Self { body, draining: Box::pin(draining.cancelled_owned()), taking, handed: 0 }
    }
}

impl Body for RelayedHalf {
    type Data = Bytes;
    type Error = RpcRefused;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RpcRefused>>> {
        if self.draining.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(shutting_down())));
        }
        match std::mem::take(&mut self.handed) {
            0 => {}
            bytes => self.taking.taken(bytes),
        }
        let broken = |error: hyper::Error| {
            debug!(%error, "a relay lane broke between replicas");
            refused(Code::Unavailable, "the replica of this lane cannot be reached", Some(RETRY_AFTER))
        };
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.handed = frame.data_ref().map_or(0, Bytes::len);
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(broken)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// A response body of the agents' listener.
#[derive(Debug, Default)]
pub enum AgentBody {
    /// Nothing.
    #[default]
    Empty,
    /// A session.
    Tunnel(Outgoing),
    /// A relay lane that ends at another replica.
    Relay(PacedBody<RelayedHalf>),
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
            Self::Relay(half) => Pin::new(half).poll_frame(context).map(|frame| {
                let frame = frame.map(|frame| frame.map(|frame| frame.map_data(Chunk::from)));
                frame.map(|frame| frame.map_err(|refused| Status::unavailable(refused.message)))
            }),
            Self::Tonic(body) => Pin::new(body)
                .poll_frame(context)
                .map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(Chunk::from)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Tunnel(_) => false,
            Self::Relay(half) => half.is_end_stream(),
            Self::Tonic(body) => body.is_end_stream(),
        }
    }
}
