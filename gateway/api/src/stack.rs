//! What layers and handlers of the public host have in common: the service that they make up, and what an answer tells
//! the edge in its extensions.

use std::convert::Infallible;

use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use tower::Service;
use tower::util::{BoxCloneSyncService, ServiceExt as _};

use gateway_http::respond::Failure;

/// Largest answer that is gathered before it is sent, in bytes; a page of a list is far below.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Service that answers each request, failed ones too.
pub type Stack = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// Transfer of an answer's body, in its extensions. A body without one is gathered before it is sent.
#[derive(Clone, Copy, Debug)]
pub enum Delivery {
    /// Goes on for as long as its reader listens and is authorised.
    Events,
    /// A file of that many bytes.
    File(u64),
    /// Messages of a gRPC call.
    Messages,
}

/// Failure for the edge, in the extensions of an answer. The edge counts, logs and answers it as on every other host.
#[derive(Clone, Copy, Debug)]
pub struct EdgeFailure(pub Failure);

impl IntoResponse for EdgeFailure {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Failure> for EdgeFailure {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

/// Calls a service that cannot fail.
///
/// Cancel safety: that of the service.
pub async fn call<S>(service: S, request: Request<Body>) -> Response<Body>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    match service.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Gathers a body that the gateway has made. One that is too large is a defect, and comes out empty.
///
/// Cancel safety: safe.
pub async fn gather(body: Body) -> Bytes {
    let gathered = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    gathered.map(http_body_util::Collected::to_bytes).unwrap_or_default()
}
