//! Table of failures for gRPC: codes of the protocol, and ours beside them.

use std::error::Error as _;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use super::body::ascii;
use crate::problem::{ApiProblem, ProblemRow};
use gateway_http::fields::{GATEWAY_ERROR, GATEWAY_TRACE};

/// Our code of a status, kept beside what is sent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct OurCode(&'static str);

impl From<ProblemRow> for Status {
    fn from(problem: ProblemRow) -> Self {
        let (code, status, words) = problem.in_a_line();
        with_code(Self::new(grpc_code(code, status), words), code)
    }
}

impl From<ApiProblem> for Status {
    fn from(refused: ApiProblem) -> Self {
        ProblemRow::from(refused).into()
    }
}

/// Adds our code to a status.
pub(super) fn with_code(status: Status, code: &'static str) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert("gateway-error", MetadataValue::from_static(code));
    let mut status = Status::with_metadata(status.code(), status.message(), metadata);
    status.set_source(Arc::new(OurCode(code)));
    status
}

/// Returns our code of an answer that is a refusal and nothing else, for metrics and the log.
pub(super) fn code_of<B>(response: &Response<B>) -> Option<&'static str> {
    let source = response.extensions().get::<Status>()?.source()?;
    source.downcast_ref::<OurCode>().map(|code| code.0)
}

/// Our code of a call whose deadline has passed: ours, or the caller's own.
const RESPONSE_TIMEOUT: &str = "response_timeout";

/// Says that a call's time is over.
pub(super) fn late(words: &str) -> Status {
    with_code(Status::new(Code::DeadlineExceeded, words), RESPONSE_TIMEOUT)
}

/// Translates a code of ours, and the status that HTTP has for it.
pub(super) fn grpc_code(code: &str, status: StatusCode) -> Code {
    match (code, status) {
        ("overloaded", _) => Code::ResourceExhausted,
        ("agent_too_old", _) => Code::FailedPrecondition,
        ("environment_busy", _) => Code::Aborted,
        (_, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::UNSUPPORTED_MEDIA_TYPE) => {
            Code::InvalidArgument
        }
        (_, StatusCode::UNAUTHORIZED) => Code::Unauthenticated,
        (_, StatusCode::FORBIDDEN) => Code::PermissionDenied,
        (_, StatusCode::NOT_FOUND) => Code::NotFound,
        (_, StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED) => Code::FailedPrecondition,
        (_, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS) => Code::ResourceExhausted,
        (_, StatusCode::SERVICE_UNAVAILABLE) => Code::Unavailable,
        (_, StatusCode::GATEWAY_TIMEOUT) => Code::DeadlineExceeded,
        _ => Code::Unknown,
    }
}

/// Adds the headers of every answer.
pub(super) fn seal(headers: &mut HeaderMap, trace: &str) {
    headers.insert(GATEWAY_TRACE, ascii(trace));
    // Refusals of the library have no code of ours: a message that is invalid, too large, or for no method.
    if headers.get("grpc-status").is_some_and(|status| status != "0") && !headers.contains_key(GATEWAY_ERROR) {
        headers.insert(GATEWAY_ERROR, HeaderValue::from_static(ApiProblem::BadRequest { reason: "no_call" }.code()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_environments::refusal::RefusalCode;

    #[test]
    fn every_refusal_has_a_code_of_the_protocol_and_ours() {
        for code in RefusalCode::ALL {
            let status = Status::from(ApiProblem::Environment(code));
            assert!(status.code() != Code::Unknown && status.code() != Code::Ok, "{code}");
            assert_eq!(status.metadata().get("gateway-error").unwrap(), code.as_str());
            assert_eq!(code_of(&status.into_http::<()>()), Some(code.as_str()));
        }
        let code = |refused: ApiProblem| Status::from(refused).code();
        assert_eq!(code(ApiProblem::SignInRequired), Code::Unauthenticated);
        assert_eq!(code(ApiProblem::NotSuchJob { reason: "credential_expired" }), Code::Unauthenticated);
        assert_eq!(code(ApiProblem::NotOperator), Code::PermissionDenied);
        assert_eq!(code(ApiProblem::Environment(RefusalCode::AgentAbsent)), Code::Unavailable);
        assert_eq!(code(ApiProblem::Environment(RefusalCode::NoSuchTemplate)), Code::NotFound);
        assert_eq!(code(ApiProblem::Environment(RefusalCode::CallTimeout)), Code::DeadlineExceeded);
    }
}
