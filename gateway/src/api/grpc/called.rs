//! One call: its message is read, the answer written, a refusal translated.

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

use super::MESSAGE_BYTES_MAX;
use super::status::status_of;
use crate::api::problem::Problem;

/// With which of our codes a call was refused, if it was: for metrics and the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Failed(Arc<OnceLock<&'static str>>);

impl Failed {
    /// Returns the code.
    pub(super) fn code(&self) -> Option<&'static str> {
        self.0.get().copied()
    }
}

/// Messages of an answer, as they come.
pub(super) type Messages<A> = Pin<Box<dyn Stream<Item = Result<A, Status>> + Send>>;

/// What a method does with the message of a call.
type Doing<A> = BoxFuture<'static, Result<A, Problem>>;

/// Answers with one message.
pub(super) async fn one<Q, A, F>(request: Request<Body>, handler: F) -> Response<tonic::body::Body>
where
    Q: Message + Default + Send + 'static,
    A: Message + Send + Sync + 'static,
    F: FnOnce(Q) -> Doing<A> + Send + 'static,
{
    grpc::<A, Q>().unary(Once::new(handler, &request), request).await
}

/// Answers with messages as they come.
pub(super) async fn many<Q, A, F>(request: Request<Body>, handler: F) -> Response<tonic::body::Body>
where
    Q: Message + Default + Send + 'static,
    A: Message + Send + Sync + 'static,
    F: FnOnce(Q) -> Doing<Messages<A>> + Send + 'static,
{
    grpc::<A, Q>().server_streaming(Once::new(handler, &request), request).await
}

fn grpc<A, Q>() -> Grpc<ProstCodec<A, Q>>
where
    Q: Message + Default + Send + 'static,
    A: Message + Send + 'static,
{
    Grpc::new(ProstCodec::default()).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

/// Makes an answer of a status alone.
pub(super) fn answer_of(status: &Status) -> Response<tonic::body::Body> {
    status.clone().into_http()
}

/// A method that is called once.
struct Once<F> {
    handler: Option<F>,
    failed: Failed,
}

impl<F> Once<F> {
    fn new(handler: F, request: &Request<Body>) -> Self {
        Self { handler: Some(handler), failed: request.extensions().get::<Failed>().cloned().unwrap_or_default() }
    }

    fn answer<Q, A>(&mut self, message: Q) -> BoxFuture<'static, Result<tonic::Response<A>, Status>>
    where
        F: FnOnce(Q) -> Doing<A>,
        A: 'static,
    {
        let Some(handler) = self.handler.take() else {
            return Box::pin(async { Err(Status::internal("a call is answered once")) });
        };
        let (doing, failed) = (handler(message), self.failed.clone());
        Box::pin(async move {
            doing.await.map(tonic::Response::new).map_err(|problem| {
                let (status, code) = status_of(&problem);
                failed.0.get_or_init(|| code);
                status
            })
        })
    }
}

impl<Q, A, F> UnaryService<Q> for Once<F>
where
    F: FnOnce(Q) -> Doing<A>,
    A: 'static,
{
    type Response = A;
    type Future = BoxFuture<'static, Result<tonic::Response<A>, Status>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        self.answer(request.into_inner())
    }
}

impl<Q, A, F> ServerStreamingService<Q> for Once<F>
where
    F: FnOnce(Q) -> Doing<Messages<A>>,
    A: 'static,
{
    type Response = A;
    type ResponseStream = Messages<A>;
    type Future = BoxFuture<'static, Result<tonic::Response<Messages<A>>, Status>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        self.answer(request.into_inner())
    }
}
