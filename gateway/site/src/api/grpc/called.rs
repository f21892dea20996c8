//! Handles one call: the caller is identified first, then its message is read, the answer written, a refusal
//! translated.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use futures_util::Stream;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use prost::Message;
use tonic::Status;
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic_prost::ProstCodec;

use super::TEMPLATE_BYTES_MAX;
use super::status::status_of;
use crate::api::BODY_BYTES_MAX;
use crate::api::problem::Problem;

/// Code with which a call was refused, if it was: for metrics and the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Failed(Arc<OnceLock<&'static str>>);

impl Failed {
    /// Returns the code.
    pub(super) fn code(&self) -> Option<&'static str> {
        self.0.get().copied()
    }

    /// Notes a code, if none is yet.
    pub(super) fn with(&self, code: &'static str) {
        self.0.get_or_init(|| code);
    }

    fn of(request: &Request<Body>) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_default()
    }

    /// Notes a refusal, and returns the status for the caller.
    fn status(&self, problem: &Problem) -> Status {
        let (status, code) = status_of(problem);
        self.with(code);
        status
    }
}

/// Messages of an answer, as they come.
pub(super) type Messages<A> = Pin<Box<dyn Stream<Item = Result<A, Status>> + Send>>;

/// Work of a method on the message of a call.
type Doing<A> = BoxFuture<'static, Result<A, Problem>>;

/// A call whose message has not been read.
pub(super) struct Unread<W> {
    request: Request<Body>,
    bytes_max: usize,
    who: Result<W, Problem>,
}

impl<W> Unread<W> {
    /// Takes a call of a caller who is known, or refused: a refused caller's message is not read.
    pub(super) fn of(request: Request<Body>, who: Result<W, Problem>) -> Self {
        Self { request, bytes_max: BODY_BYTES_MAX, who }
    }

    /// Takes a call that may bring a template.
    pub(super) fn large(request: Request<Body>, who: Result<W, Problem>) -> Self {
        Self { bytes_max: TEMPLATE_BYTES_MAX, ..Self::of(request, who) }
    }

    /// Answers with one message.
    pub(super) async fn one<Q, A, F>(self, handler: F) -> Response<tonic::body::Body>
    where
        Q: Message + Default + Send + 'static,
        A: Message + Send + Sync + 'static,
        F: FnOnce(W, Q) -> Doing<A> + Send + 'static,
        W: Send + 'static,
    {
        let (failed, mut grpc) = (Failed::of(&self.request), self.grpc::<A, Q>());
        match self.who {
            Ok(who) => grpc.unary(Once { parts: Some((who, handler)), failed }, self.request).await,
            Err(problem) => answer_of(&failed.status(&problem)),
        }
    }

    /// Answers with messages as they come.
    pub(super) async fn many<Q, A, F>(self, handler: F) -> Response<tonic::body::Body>
    where
        Q: Message + Default + Send + 'static,
        A: Message + Send + Sync + 'static,
        F: FnOnce(W, Q) -> Doing<Messages<A>> + Send + 'static,
        W: Send + 'static,
    {
        let (failed, mut grpc) = (Failed::of(&self.request), self.grpc::<A, Q>());
        match self.who {
            Ok(who) => grpc.server_streaming(Once { parts: Some((who, handler)), failed }, self.request).await,
            Err(problem) => answer_of(&failed.status(&problem)),
        }
    }

    fn grpc<A, Q>(&self) -> Grpc<ProstCodec<A, Q>>
    where
        Q: Message + Default + Send + 'static,
        A: Message + Send + 'static,
    {
        Grpc::new(ProstCodec::default()).max_decoding_message_size(self.bytes_max)
    }
}

/// Makes an answer of a status alone.
pub(super) fn answer_of(status: &Status) -> Response<tonic::body::Body> {
    status.clone().into_http()
}

/// A method that is called once, by a known caller.
struct Once<W, F> {
    parts: Option<(W, F)>,
    failed: Failed,
}

impl<W, F> Once<W, F> {
    fn answer<Q, A>(&mut self, message: Q) -> BoxFuture<'static, Result<tonic::Response<A>, Status>>
    where
        F: FnOnce(W, Q) -> Doing<A>,
        A: 'static,
    {
        let Some((who, handler)) = self.parts.take() else {
            return Box::pin(async { Err(Status::internal("a call is answered once")) });
        };
        let (doing, failed) = (handler(who, message), self.failed.clone());
        Box::pin(async move { doing.await.map(tonic::Response::new).map_err(|problem| failed.status(&problem)) })
    }
}

impl<Q, A, W, F> UnaryService<Q> for Once<W, F>
where
    F: FnOnce(W, Q) -> Doing<A>,
    A: 'static,
{
    type Response = A;
    type Future = BoxFuture<'static, Result<tonic::Response<A>, Status>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        self.answer(request.into_inner())
    }
}

impl<Q, A, W, F> ServerStreamingService<Q> for Once<W, F>
where
    F: FnOnce(W, Q) -> Doing<Messages<A>>,
    A: 'static,
{
    type Response = A;
    type ResponseStream = Messages<A>;
    type Future = BoxFuture<'static, Result<tonic::Response<Messages<A>>, Status>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        self.answer(request.into_inner())
    }
}
