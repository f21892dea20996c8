//! The call for credentials of git servers, both ends: one message each way, over HTTP/2 as gRPC has it, or over HTTP/1.1 where HTTP/2
//! does not pass.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, TE, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tunnel_proto::git::{
    GIT_CREDENTIALS_PATH, GIT_MESSAGE_BYTES_MAX, GitCredential, GitCredentialRequest, GitProtocol,
};

use crate::grpc::{AGENT, Code, ConnectError, PREFIX_BYTES, bearer, is_grpc, message_length, refusal};

/// Status of a call that the other side does not know (gRPC, `UNIMPLEMENTED`).
const UNIMPLEMENTED: &str = "12";

/// Code with which a gateway refuses a question that it cannot read, or not to this agent; only after it has accepted the credential.
pub const UNREADABLE: Code = Code::InvalidArgument;

/// Header field with the gateway's version, in a refusal with [`UNREADABLE`].
pub const VERSION_FIELD: HeaderName = HeaderName::from_static("gateway-version");

/// Reason why there is no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// The gateway is older than this call.
    #[error("the gateway is of an older version, which gives no credentials for git")]
    TooOld,
    /// The call could not be made, or was refused.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The answer is none.
    #[error("the gateway's answer cannot be read")]
    Answer,
}

/// Returns whether a request is this call.
#[must_use]
pub fn is_git_request<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && request.uri().path() == GIT_CREDENTIALS_PATH && is_grpc(request.headers())
}

/// Reads the one message of a body; `None` for anything else.
pub async fn read_message<B>(body: B) -> Option<Bytes>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, GIT_MESSAGE_BYTES_MAX + PREFIX_BYTES).collect().await.ok()?.to_bytes();
    let length = message_length(&body).ok()??;
    (body.len() == PREFIX_BYTES + length).then(|| body.slice(PREFIX_BYTES..))
}

/// Puts the prefix of gRPC before a message.
#[must_use]
pub fn message(encoded: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(PREFIX_BYTES + encoded.len());
    message.put_u8(0);
    message.put_u32(u32::try_from(encoded.len()).unwrap_or(u32::MAX));
    message.put_slice(encoded);
    message.freeze()
}

/// Asks on a connected stream, over HTTP/1.1 or HTTP/2, with a bearer token if there is one.
///
/// # Errors
/// [`AskError`], with the gateway's words if it refused.
///
/// # Cancel safety
/// Safe: the gateway finishes what it has begun.
pub async fn ask<S>(
    stream: S,
    is_http1: bool,
    authority: Authority,
    scheme: Scheme,
    token: Option<&str>,
    asked: &GitCredentialRequest,
) -> Result<GitCredential, AskError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = request(authority, scheme, is_http1, token, asked)?;
    let message = sent(stream, is_http1, request, read_answer).await?;
    GitCredential::decode(&message).map_err(|_| AskError::Answer)
}

/// Answer to a credential that was only tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedCredential {
    /// Version of the gateway; `None` of an older one, which does not say it.
    pub version: Option<String>,
}

/// Tries a credential, and begins nothing: asks a question that cannot be read, which a gateway refuses once it has looked at the
/// credential, and before it records anything.
///
/// # Errors
/// [`AskError`]; a credential that is not accepted is refused with the gateway's words.
///
/// # Cancel safety
/// Safe.
pub async fn try_credential<S>(
    stream: S,
    is_http1: bool,
    authority: Authority,
    scheme: Scheme,
    token: Option<&str>,
) -> Result<AcceptedCredential, AskError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let unreadable = GitCredentialRequest { protocol: GitProtocol::Https, host: String::new(), is_refused: false };
    let request = request(authority, scheme, is_http1, token, &unreadable)?;
    let read = async |response: Response<Incoming>| {
        let version =
            response.headers().get(VERSION_FIELD).and_then(|version| version.to_str().ok()).map(str::to_owned);
        match read_answer(response).await {
            Err(AskError::Connect(ConnectError::Refused(refused))) if refused.code == UNREADABLE => {
                Ok(AcceptedCredential { version })
            }
            Err(error) => Err(error),
            Ok(_) => Err(AskError::Answer),
        }
    };
    sent(stream, is_http1, request, read).await
}

/// Sends a request and reads its answer.
async fn sent<S, T>(
    stream: S,
    is_http1: bool,
    request: Request<Full<Bytes>>,
    read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, AskError>,
) -> Result<T, AskError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(stream);
    if is_http1 {
        let (mut sender, connection) = http1::handshake(stream).await.map_err(ConnectError::Http1)?;
        let answer = async { read(sender.send_request(request).await.map_err(ConnectError::Http1)?).await };
        driven(connection, answer).await
    } else {
        let builder = http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = builder.handshake(stream).await.map_err(ConnectError::Http2)?;
        let answer = async { read(sender.send_request(request).await.map_err(ConnectError::Http2)?).await };
        driven(connection, answer).await
    }
}

/// Waits for an answer while its connection is driven.
async fn driven<T>(
    connection: impl Future<Output = Result<(), hyper::Error>>,
    answer: impl Future<Output = Result<T, AskError>>,
) -> Result<T, AskError> {
    let drive = async {
        // What is wrong with it, the answer says.
        drop(connection.await);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = answer => answer,
        () = drive => Err(AskError::Answer),
    }
}

async fn read_answer(response: Response<Incoming>) -> Result<Bytes, AskError> {
    let (parts, body) = response.into_parts();
    if parts.headers.get("grpc-status").is_some_and(|status| status == UNIMPLEMENTED) {
        return Err(AskError::TooOld);
    }
    // Over HTTP/1.1 a refusal has a status of its own beside gRPC's headers.
    if let Some(refused) = refusal(&parts.headers).filter(|_| is_grpc(&parts.headers)) {
        return Err(ConnectError::Refused(refused).into());
    }
    let is_not_found = parts.status == http::StatusCode::NOT_FOUND && parts.headers.contains_key("gateway-error");
    if is_not_found {
        return Err(AskError::TooOld);
    }
    if !parts.status.is_success() || !is_grpc(&parts.headers) {
        return Err(ConnectError::NotGateway { status: parts.status.as_u16() }.into());
    }
    read_message(body).await.ok_or(AskError::Answer)
}

fn request(
    authority: Authority,
    scheme: Scheme,
    is_http1: bool,
    token: Option<&str>,
    asked: &GitCredentialRequest,
) -> Result<Request<Full<Bytes>>, ConnectError> {
    let bad = |_| ConnectError::Argument("the gateway's address");
    let mut request = Request::new(Full::new(message(&asked.encode())));
    *request.method_mut() = Method::POST;
    let mut headers = HeaderMap::new();
    let path = PathAndQuery::from_static(GIT_CREDENTIALS_PATH);
    if is_http1 {
        headers.insert(
            HOST,
            HeaderValue::try_from(authority.as_str()).map_err(|_| ConnectError::Argument("the gateway's address"))?,
        );
        *request.uri_mut() = path.into();
    } else {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(scheme);
        parts.authority = Some(authority);
        parts.path_and_query = Some(path);
        *request.uri_mut() = Uri::from_parts(parts).map_err(bad)?;
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(token) = token {
        headers.insert(AUTHORIZATION, bearer(token)?);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(USER_AGENT, AGENT);
    *request.headers_mut() = headers;
    Ok(request)
}
