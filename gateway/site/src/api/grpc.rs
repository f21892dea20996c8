//! Services that programs call over gRPC on the public host: those of `proto/schema/environments/v1`, which do what the
//! HTTP API does, and reflection, which is public, as `openapi.json` is.
//!
//! The caller is identified before a call gets here, by the same rules. A cookie never counts.

mod body;
mod called;
mod prerequisites;
mod provisioner;
mod status;
mod told;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, Response};
use tokio::time::Instant;
use tonic::service::{Routes, RoutesBuilder};
use tower_service::Service as _;

use self::body::UntilDeadline;
use self::called::{Failed, answer_of};
use self::status::{RESPONSE_TIMEOUT, late};
use super::{BODY_BYTES_MAX, Caller, Shared};

/// Largest message with a template, in bytes: the rendered text, and facts. Others are no larger than in the HTTP API.
const TEMPLATE_BYTES_MAX: usize = 512 * 1024;

/// Time limit for a call to be sent and answered, apart from streamed answers.
const CALL_TIME_MAX: Duration = Duration::from_secs(30);

/// Longest duration of a stream. A client that waits for longer calls again.
const STREAM_TIME_MAX: Duration = Duration::from_secs(60 * 60);

/// Longest conversation with reflection.
const REFLECTION_TIME_MAX: Duration = Duration::from_secs(60);

/// The schema as an encoded `FileDescriptorSet`.
const DESCRIPTORS: &[u8] = include_bytes!("../../../../proto/schema/environments.v1.binpb");

/// Returns whether a request is a call (gRPC over HTTP/2, requests).
pub(super) fn is_call(method: &Method, headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let rest = kind.strip_prefix(b"application/grpc").unwrap_or(b"x");
    method == Method::POST && matches!(rest.first(), None | Some(b'+' | b';'))
}

/// Services that answer calls.
#[derive(Clone)]
pub(super) struct Services {
    shared: Arc<Shared>,
    reflection: Routes,
}

/// Answers the calls of one method.
type Answerer = fn(Arc<Shared>, Caller, Request<Body>) -> BoxFuture<'static, Response<tonic::body::Body>>;

impl Services {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
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

    /// Answers a call, and returns the code with which it was refused, if it was.
    ///
    /// Cancel safety: a change that was begun is made or not made, as a whole.
    pub(super) async fn answer<B>(&self, request: Request<B>, caller: Caller) -> (Response<Body>, Option<&'static str>)
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let began = Instant::now();
        let trace = caller.trace();
        let asked_for = body::timeout_of(request.headers());
        let method = find(request.uri().path());
        let is_of_ours = method.is_some();
        let mut request = request.map(Body::new);
        let failed = Failed::default();
        request.extensions_mut().insert(failed.clone());
        let answering = async {
            match method {
                Some(method) => method(self.shared.clone(), caller, request).await,
                None => match self.reflection.clone().call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                },
            }
        };
        let time_max = if is_of_ours { STREAM_TIME_MAX } else { REFLECTION_TIME_MAX };
        let by = began + asked_for.map_or(time_max, |asked| asked.min(time_max));
        let answered = tokio::time::timeout_at(by.min(began + CALL_TIME_MAX), answering).await;
        let mut response = answered.unwrap_or_else(|_elapsed| {
            failed.with(RESPONSE_TIMEOUT);
            answer_of(&late("the call was not answered in time"))
        });
        status::seal(response.headers_mut(), &trace);
        (response.map(|body| Body::new(UntilDeadline::new(body, by))), failed.code())
    }
}

/// Finds the method of a path.
fn find(path: &str) -> Option<Answerer> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    match service {
        "environments.v1.Provisioner" => provisioner::find(method),
        "environments.v1.Prerequisites" => prerequisites::find(method),
        _ => None,
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

    #[test]
    fn every_method_of_the_schema_is_answered_and_no_other() {
        let methods = methods_of(DESCRIPTORS);
        assert_eq!(methods.len(), 9, "{methods:?}");
        for path in methods {
            assert!(find(&path).is_some(), "{path}");
        }
        for path in ["/environments.v1.Provisioner/Nothing", "/environments.v1.Other/Unmet", "/x", "environments.v1"] {
            assert!(find(path).is_none(), "{path}");
        }
    }

    /// Reads the paths of all methods out of descriptors (`google/protobuf/descriptor.proto`).
    fn methods_of(bytes: &[u8]) -> Vec<String> {
        #[derive(Clone, PartialEq, prost::Message)]
        struct Set {
            #[prost(message, repeated, tag = "1")]
            file: Vec<File>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct File {
            #[prost(string, tag = "2")]
            package: String,
            #[prost(message, repeated, tag = "6")]
            service: Vec<Named>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct Named {
            #[prost(string, tag = "1")]
            name: String,
            #[prost(message, repeated, tag = "2")]
            method: Vec<Only>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct Only {
            #[prost(string, tag = "1")]
            name: String,
        }
        let set: Set = prost::Message::decode(bytes).unwrap();
        let mut paths = Vec::new();
        for file in &set.file {
            for service in &file.service {
                paths.extend(service.method.iter().map(|m| format!("/{}.{}/{}", file.package, service.name, m.name)));
            }
        }
        paths
    }
}
