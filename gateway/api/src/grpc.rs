//! Services that programs call over gRPC on the public host: those of `proto/schema/environments/v1`, which do what the
//! HTTP API does, and reflection, which is public, as `openapi.json` is.
//!
//! The caller is identified before a call gets here, by the same rules. A cookie never counts.

mod admission;
mod body;
mod events;
mod prerequisites;
mod provisioner;
mod status;
mod wire;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::middleware::Next;
use futures_util::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, Response};
use tokio::time::Instant;
use tonic::Status;
use tonic::service::{Routes, RoutesBuilder};
use tower::{Service, ServiceExt as _};

use self::admission::Admission;
use self::body::UntilDeadline;
use super::answer::RefusalCode;
use super::problem::ApiProblem;
use super::{ApiShared, BODY_BYTES_MAX, Caller};
use crate::stack::Delivery;

/// Largest message with a template, in bytes: the rendered text, and facts. Others are no larger than in the HTTP API.
const TEMPLATE_BYTES_MAX: usize = 512 * 1024;

/// Time limit for a call to be sent and answered, apart from streamed answers.
const CALL_TIME_MAX: Duration = Duration::from_secs(30);

/// Longest duration of a stream. A client that waits for longer calls again.
const STREAM_TIME_MAX: Duration = Duration::from_secs(60 * 60);

/// Longest conversation with reflection.
const REFLECTION_TIME_MAX: Duration = Duration::from_secs(60);

/// The schema as an encoded `FileDescriptorSet`.
const DESCRIPTORS: &[u8] = include_bytes!("../../../proto/schema/environments.v1.binpb");

/// Returns whether a request is a call (gRPC over HTTP/2, requests).
pub(super) fn is_call(method: &Method, headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let rest = kind.strip_prefix(b"application/grpc").unwrap_or(b"x");
    method == Method::POST && matches!(rest.first(), None | Some(b'+' | b';'))
}

/// Services that answer calls.
#[derive(Clone)]
pub(super) struct Services {
    shared: Arc<ApiShared>,
    reflection: Routes,
}

impl Services {
    pub(super) fn new(shared: Arc<ApiShared>) -> Self {
        let mut routes = RoutesBuilder::default();
        let service =
            tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(DESCRIPTORS).build_v1();
        match service {
            Ok(service) => {
                // Any client may ask, so messages are kept small.
                routes.add_service(service.max_decoding_message_size(BODY_BYTES_MAX));
            }
            // The descriptors are compiled in and covered by a test.
            Err(error) => tracing::error!(%error, "reflection is off: the descriptors cannot be read"),
        }
        Self { shared, reflection: routes.routes().prepare() }
    }

    /// Answers a call.
    async fn answer(self, caller: Caller, request: Request<Body>) -> Response<Body> {
        let began = Instant::now();
        let trace = caller.trace();
        let asked_for = body::timeout_of(request.headers());
        let admission = Admission::of(request.uri().path());
        let answering = async {
            match admission {
                Some(admission) => match admission.admit(self.shared, caller) {
                    Ok(admitted) => admitted.answer(request).await,
                    Err(problem) => Status::from(problem).into_http(),
                },
                None => match self.reflection.oneshot(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                },
            }
        };
        let time_max = if admission.is_some() { STREAM_TIME_MAX } else { REFLECTION_TIME_MAX };
        let by = began + asked_for.map_or(time_max, |asked| asked.min(time_max));
        let answered = tokio::time::timeout_at(by.min(began + CALL_TIME_MAX), answering).await;
        let mut response =
            answered.unwrap_or_else(|_elapsed| status::late("the call was not answered in time").into_http());
        if let Some(code) = status::code_of(&response) {
            response.extensions_mut().insert(RefusalCode::new(code, None, "call of a service failed"));
        }
        response.extensions_mut().insert(Delivery::Messages);
        status::seal(response.headers_mut(), &trace);
        response.map(|body| Body::new(UntilDeadline::new(body, by)))
    }
}

/// Layer that makes cookies count for nothing. No page can make a browser send a call without a preflight; none counts all
/// the same.
pub(super) async fn drop_cookies(caller: Caller, mut request: Request<Body>, next: Next) -> Response<Body> {
    request.extensions_mut().insert(caller.without_cookie());
    next.run(request).await
}

impl Service<Request<Body>> for Services {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// Cancel safety: a change that was begun is made or not made, as a whole.
    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let services = self.clone();
        Box::pin(async move {
            Ok(match request.extensions_mut().remove::<Caller>() {
                Some(caller) => services.answer(caller, request).await,
                // Layers put one into each request; without it, no user is signed in.
                None => Status::from(ApiProblem::SignInRequired).into_http(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn call_is_a_post_of_a_grpc_kind() {
        let is = |method: &Method, kind: &'static str| {
            is_call(method, &[(CONTENT_TYPE, HeaderValue::from_static(kind))].into_iter().collect())
        };
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
            assert!(is(&Method::POST, kind), "{kind}");
            assert!(!is(&Method::GET, kind), "{kind}");
        }
        for kind in ["application/grpc-web", "application/json", "", "application/grpcx"] {
            assert!(!is(&Method::POST, kind), "{kind}");
        }
        assert!(!is_call(&Method::POST, &HeaderMap::new()));
    }
}
