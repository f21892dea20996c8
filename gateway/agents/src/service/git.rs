//! Answers the call for credentials of git servers. It shows the credential of an agent, which names a workspace, and so an owner;
//! nothing that it says chooses whose credential it gets.
//!
//! A call beside the tunnel and not a frame in a session: the clone of a workspace's projects comes before its agent.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::time::timeout;
use tonic::Status;
use tracing::debug;
use tunnel_link::git::{UNREADABLE, VERSION_FIELD, message, read_message};
use tunnel_link::grpc::{Code, RpcRefused, refuse_response};
use tunnel_proto::git::GitCredentialRequest;

use super::body::AgentBody;
use super::handshake_limit::HandshakeLimit;
use super::{AgentService, Remote, did};
use crate::admission::{RETRY_AFTER, refused, shutting_down};
use gateway_git::credentials::{Asker, NoGitCredential};
use gateway_net::audit::{AuditEvent, Text};

/// Longest time for a question to arrive.
const QUESTION_TIME: Duration = Duration::from_secs(5);

impl AgentService {
    /// Answers a call over HTTP/2.
    pub(super) async fn answer_git(
        self: &Arc<Self>,
        request: Request<Incoming>,
        remote: &Remote,
        limit: Option<&HandshakeLimit>,
    ) -> Response<AgentBody> {
        match self.git_credential(request, remote, limit).await {
            Ok(answer) => {
                let ended =
                    HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from(0))]);
                let trailers = async move { Some(Ok::<_, Infallible>(ended)) };
                let body = Full::new(answer).with_trailers(trailers).map_err(|never| -> Status { match never {} });
                of_grpc(Response::new(AgentBody::Tonic(tonic::body::Body::new(body))))
            }
            Err(refused) => {
                debug!(peer = %remote.peer, code = ?refused.code, reason = %refused.message, "no credential for git");
                saying_version(&refused, refuse_response(&refused))
            }
        }
    }

    /// Answers the same call over HTTP/1.1.
    pub(super) async fn answer_git_http1(
        self: &Arc<Self>,
        request: Request<Incoming>,
        remote: &Remote,
    ) -> Response<Full<Bytes>> {
        match self.git_credential(request, remote, None).await {
            Ok(answer) => of_grpc(Response::new(Full::new(answer))),
            Err(refused) => {
                debug!(peer = %remote.peer, code = ?refused.code, reason = %refused.message, "no credential for git");
                saying_version(&refused, tunnel_link::websocket::refuse_response(&refused))
            }
        }
    }

    /// Authenticates the one that asks, and records each answer.
    async fn git_credential(
        self: &Arc<Self>,
        request: Request<Incoming>,
        remote: &Remote,
        limit: Option<&HandshakeLimit>,
    ) -> Result<Bytes, RpcRefused> {
        limit.inspect(|limit| limit.call());
        if self.admission.factory().is_closed() {
            return Err(shutting_down());
        }
        let identity = self.identities.authenticate(request.headers(), &remote.certificate).await;
        let identity = identity.map_err(RpcRefused::from).inspect_err(|why| self.record_refused(why, remote.peer))?;
        // As an agent that waits for its turn: a token endpoint may take as long.
        limit.inspect(|limit| limit.greet());
        let owned = self.identities.owned_by_agent(&identity).await?;
        let Some((workspace, id, owner)) = owned else {
            return Err(refused(UNREADABLE, "only the agent of a workspace gets credentials for git", None));
        };
        let late = || refused(Code::DeadlineExceeded, "no question came in time", Some(RETRY_AFTER));
        let body = timeout(QUESTION_TIME, read_message(request.into_body())).await.map_err(|_elapsed| late())?;
        let asked = body.and_then(|bytes| GitCredentialRequest::decode(&bytes).ok());
        let unread = || refused(UNREADABLE, "the question for a credential cannot be read", None);
        let asked = asked.ok_or_else(unread)?;
        let answer = self.git.answer(Asker { workspace: id, owner: &owner }, &asked).await;
        let event = AuditEvent::GitCredentialAsked {
            workspace: Text::of(&workspace),
            owner: Text::of(&owner),
            host: Text::new(&asked.host),
            outcome: match &answer {
                Ok(_) if asked.is_refused => "refused_by_host",
                Ok(_) => "given",
                Err(why) => why.code(),
            },
        };
        self.audit.record(did(&identity, event, remote.peer));
        answer.map(|credential| message(&credential.encode())).map_err(|why| told(&why))
    }
}

fn of_grpc<B>(mut response: Response<B>) -> Response<B> {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Adds this program's version to a refusal that only an agent with a good credential gets: one that looks for the cause of trouble
/// asks for it.
fn saying_version<B>(refused: &RpcRefused, mut response: Response<B>) -> Response<B> {
    if refused.code == UNREADABLE {
        response.headers_mut().insert(VERSION_FIELD, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    }
    response
}

/// Makes the refusal that a reason is on the wire.
fn told(why: &NoGitCredential) -> RpcRefused {
    let code = match why {
        NoGitCredential::NotStored => Code::NotFound,
        NoGitCredential::PlainHttp
        | NoGitCredential::OwnerDisabled
        | NoGitCredential::SignInAgain
        | NoGitCredential::NotConfigured
        | NoGitCredential::Refused(_) => Code::FailedPrecondition,
        NoGitCredential::TooOften => Code::ResourceExhausted,
        NoGitCredential::Failed | NoGitCredential::Unavailable => Code::Unavailable,
    };
    refused(code, &why.to_string(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_texts_that_a_header_can_carry() {
        let all = [
            NoGitCredential::NotStored,
            NoGitCredential::PlainHttp,
            NoGitCredential::OwnerDisabled,
            NoGitCredential::SignInAgain,
            NoGitCredential::NotConfigured,
            NoGitCredential::Refused("invalid_client".to_owned()),
            NoGitCredential::Failed,
            NoGitCredential::TooOften,
            NoGitCredential::Unavailable,
        ];
        for why in all {
            let refused = told(&why);
            let is_plain = refused.message.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'%');
            assert!(is_plain && !refused.message.is_empty(), "{why:?}");
        }
    }
}
