//! Bodies of a lane between two replicas.
//!
//! The request of a relay lane has the description of its agent, then pieces: what the agent sends, and between it grants for the
//! other direction (`tunnel_link::lane_window`). That of a hop lane has the description and what its half of the session sends.
//! The answers have what is for the agent, as it is.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use gateway_agents::service::PassingBody;
use http_body::{Body, Frame};
use tunnel_link::grpc::{Chunk, Outgoing, ReceiveError};
use tunnel_link::lane_window::{LaneTaking, Piece, PieceDecoder, PieceEncoder};
use tunnel_link::pace::Pace;

use crate::carried::CarriedAgent;

/// A body with bytes before it: the rest of what was read too far, or a message to send first.
#[derive(Debug)]
pub struct Preceded<B> {
    first: Option<Bytes>,
    body: B,
}

/// Body of the request that carries a hop lane: the agent, the Hello for it, and its half of the lane's session.
pub type HopBody = Preceded<Outgoing>;

impl<B> Preceded<B> {
    pub(crate) fn new(first: Option<Bytes>, body: B) -> Self {
        Self { first, body }
    }
}

impl HopBody {
    /// Makes the body for an agent, from the half that begins with a Hello.
    #[must_use]
    pub fn of_hop(agent: &CarriedAgent, half: Outgoing) -> Self {
        Self::new(Some(agent.encode()), half)
    }
}

impl<B: Body + Unpin> Body for Preceded<B>
where
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first.into())))),
            None => Pin::new(&mut self.body).poll_frame(context),
        }
    }
}

/// Body of the request that carries a relay lane to its replica.
#[derive(Debug)]
pub struct LaneBody {
    /// What was not sent of the beginning: the agent, and its Hello.
    agent: Option<Bytes>,
    hello: Option<Bytes>,
    body: PassingBody,
    taking: Arc<LaneTaking>,
    encoder: PieceEncoder,
}

impl LaneBody {
    /// Makes the body for an agent, from its Hello and the rest of its stream.
    #[must_use]
    pub fn new(agent: &CarriedAgent, hello: Bytes, body: PassingBody, taking: Arc<LaneTaking>) -> Self {
        Self { agent: Some(agent.encode()), hello: Some(hello), body, taking, encoder: PieceEncoder::default() }
    }

    fn piece(&mut self, bytes: Bytes) -> Frame<Chunk> {
        Frame::data(Chunk::new(self.encoder.head(bytes.len()), bytes))
    }
}

impl Body for LaneBody {
    type Data = Chunk;
    type Error = ReceiveError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, ReceiveError>>> {
        if let Some(agent) = self.agent.take() {
            return Poll::Ready(Some(Ok(Frame::data(agent.into()))));
        }
        if let Some(hello) = self.hello.take() {
            return Poll::Ready(Some(Ok(self.piece(hello))));
        }
        // A grant goes first: the other direction waits for it.
        if let Poll::Ready(grant) = self.taking.poll_grant(context) {
            return Poll::Ready(Some(Ok(Frame::data(self.encoder.grant(grant).into()))));
        }
        let next = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(next.map(|frame| {
            Ok(match frame?.into_data() {
                Ok(data) => self.piece(data),
                Err(other) => other.map_data(Chunk::from),
            })
        }))
    }
}

/// What arrives of a relay lane: the agent's bytes. Grants go to the pace of what is sent to it.
#[derive(Debug)]
pub(crate) struct WindowedBody<B> {
    body: B,
    pace: Arc<Pace>,
    decoder: PieceDecoder,
}

impl<B> WindowedBody<B> {
    pub(crate) fn new(body: B, pace: Arc<Pace>) -> Self {
        Self { body, pace, decoder: PieceDecoder::default() }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for WindowedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        loop {
            match self.decoder.next_piece() {
                Some(Piece::Bytes(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Piece::Grant(grant)) => {
                    self.pace.granted(grant);
                    continue;
                }
                None => {}
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.decoder.feed(data),
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
    }
}
