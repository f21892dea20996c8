//! Questions to a gateway, on a stream that is connected to it already. None of them shows a credential, and none begins a session.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, DATE, HOST, HeaderMap, HeaderName, HeaderValue, TE, UPGRADE};
use http::header::{SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;
use tunnel_link::causes;
use tunnel_link::connect::DialedStream;
use tunnel_link::grpc::{self, refusal};
use tunnel_link::websocket::PROTOCOL;

use crate::judge::front::{AgentsAnswer, CallEnd, Head, Tried, agents_answer};
use crate::judge::{ClockReading, http_date};

mod silence;

pub use silence::{Silence, silence};

/// Longest time for one question.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Longest text, in bytes: thousands of sessions.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// Most bytes of the answer to a call: a gateway's has a few hundred.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The service of gRPC that says which services there are (gRPC Server Reflection Protocol, version 1). Both listeners have it, for
/// every client.
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// The question for all services, with the prefix of gRPC: field 7 (`list_services`), empty.
const LIST_SERVICES: &[u8] = &[0, 0, 0, 0, 2, 0x3a, 0];

/// The key of RFC 6455, section 1.3: an upgrade that is refused needs no other.
const KEY: HeaderValue = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// A stream to a gateway, or to a front of one.
pub type Stream = Box<dyn DialedStream>;

/// Origin of a request.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Scheme.
    pub scheme: Scheme,
    /// Host, and a port if it is not the scheme's own.
    pub authority: Authority,
}

/// Answers of a listener for agents over HTTP/2.
#[derive(Clone, Debug)]
pub struct AgentsAsked {
    /// Answer to the agents' RPC, or why there is none.
    pub answer: Tried,
    /// End of a call of reflection, if the answer is a gateway's.
    pub end: Option<CallEnd>,
    /// The other side's clock.
    pub clock: Option<ClockReading>,
}

impl AgentsAsked {
    /// Makes the result of questions that could not be asked.
    #[must_use]
    pub fn failed(why: &str) -> Self {
        Self { answer: Err(why.to_owned()), end: None, clock: None }
    }

    /// Returns whether each question has got an answer, good or bad: one that has none is asked again, up to [`TRIES`] times.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.answer.is_ok() && !matches!(self.end, Some(CallEnd::Broken(_)))
    }
}

/// Asks reflection over HTTP/2, whose answer ends with trailers; then the agents' RPC, without a credential and without a Hello.
/// `now` reads this machine's clock, in milliseconds since 1970.
///
/// Cancel safety: safe.
pub async fn agents_http2(stream: Stream, origin: &Origin, now: fn() -> i64) -> AgentsAsked {
    let asked = timeout(2 * ANSWER_TIME, async {
        let builder = http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = match builder.handshake(TokioIo::new(stream)).await {
            Ok(connected) => connected,
            Err(error) => return AgentsAsked::failed(&causes::one_line(&error)),
        };
        let questions = async {
            let end = reflect(sender.send_request(call(origin, REFLECTION, LIST_SERVICES)).await).await;
            let before = now();
            let head = match sender.send_request(call(origin, grpc::PATH, &[])).await {
                Ok(response) => head_of(&response),
                Err(error) => return AgentsAsked::failed(&causes::one_line(&error)),
            };
            let answer = agents_answer(&head);
            let is_agents = matches!(answer, AgentsAnswer::AgentsListener | AgentsAnswer::Refused(_));
            let clock = date_of(&head).map(|other| ClockReading { before, after: now(), other });
            AgentsAsked { answer: Ok(answer), end: is_agents.then_some(end), clock }
        };
        driven(connection, questions).await.unwrap_or_else(|why| AgentsAsked::failed(&why))
    });
    asked.await.unwrap_or_else(|_elapsed| AgentsAsked::failed("no answer came in time"))
}

/// Times that the agents' RPC is asked over HTTP/2 while it gets no answer: a front may hand a stream to a connection that its gateway
/// is about to close, which is then refused untouched (RFC 9113, section 8.7), and says nothing of the front.
pub const TRIES: usize = 3;

fn date_of(head: &Head) -> Option<i64> {
    http_date(head.headers.get(DATE)?.to_str().ok()?)
}

/// Asks for a link in a WebSocket, without a credential, over HTTP/1.1.
///
/// # Errors
/// The reason that there is no answer.
///
/// Cancel safety: safe.
pub async fn agents_websocket(stream: Stream, origin: &Origin) -> Tried {
    let mut request = upgrade(grpc::PATH, origin);
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    ask_http1(stream, request).await.map(|head| agents_answer(&head))
}

/// Visits a page as a browser without a sign-in does.
///
/// # Errors
/// The reason that there is no answer.
///
/// Cancel safety: safe.
pub async fn visit(stream: Stream, origin: &Origin) -> Result<Head, String> {
    ask_http1(stream, get("/", origin)).await
}

/// Asks for a WebSocket where [`visit`] has asked for a page.
///
/// # Errors
/// The reason that there is no answer.
///
/// Cancel safety: safe.
pub async fn visit_upgrading(stream: Stream, origin: &Origin) -> Result<Head, String> {
    ask_http1(stream, upgrade("/", origin)).await
}

/// Gets a text of a server on this machine, whole.
///
/// # Errors
/// The reason that there is none.
///
/// Cancel safety: safe.
pub async fn text(stream: Stream, path: &'static str, host: &str) -> Result<String, String> {
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = Uri::from_static(path);
    insert(request.headers_mut(), HOST, host);
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| causes::one_line(&error))?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| causes::one_line(&error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("HTTP {}", status.as_u16()));
        }
        let body =
            Limited::new(response.into_body(), TEXT_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
        String::from_utf8(body.to_bytes().into()).map_err(|error| error.to_string())
    };
    driven(connection, answer).await?
}

fn get(path: &'static str, origin: &Origin) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = Uri::from_static(path);
    let headers = request.headers_mut();
    insert(headers, HOST, origin.authority.as_str());
    headers.insert(ACCEPT, HeaderValue::from_static("text/html"));
    request
}

fn upgrade(path: &'static str, origin: &Origin) -> Request<Empty<Bytes>> {
    let mut request = get(path, origin);
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    headers.insert(SEC_WEBSOCKET_KEY, KEY);
    request
}

/// Makes a call of gRPC for HTTP/2.
fn call(origin: &Origin, path: &'static str, message: &'static [u8]) -> Request<Full<Bytes>> {
    addressed(Request::new(Full::new(Bytes::from_static(message))), origin, path)
}

/// Makes a request a call of gRPC, for HTTP/2.
fn addressed<B>(mut request: Request<B>, origin: &Origin, path: &'static str) -> Request<B> {
    *request.method_mut() = Method::POST;
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(origin.scheme.clone());
    parts.authority = Some(origin.authority.clone());
    parts.path_and_query = Some(PathAndQuery::from_static(path));
    // All three are there, so that it is a URI.
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    request.headers_mut().insert(CONTENT_TYPE, GRPC);
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    request
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::try_from(text) {
        headers.insert(name, value);
    }
}

fn head_of<B>(response: &Response<B>) -> Head {
    Head { status: response.status(), headers: response.headers().clone() }
}

async fn ask_http1<B>(stream: Stream, request: Request<B>) -> Result<Head, String>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let asked = async {
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| causes::one_line(&error))?;
        let answer = async { sender.send_request(request).await.map(|response| head_of(&response)) };
        driven(connection, answer).await?.map_err(|error| causes::one_line(&error))
    };
    timeout(ANSWER_TIME, asked).await.unwrap_or_else(|_elapsed| Err("no answer came in time".to_owned()))
}

/// Reads an answer of reflection to its end.
async fn reflect(answer: Result<Response<Incoming>, hyper::Error>) -> CallEnd {
    let response = match answer {
        Ok(response) => response,
        Err(error) => return CallEnd::Broken(causes::one_line(&error)),
    };
    let (parts, body) = response.into_parts();
    // Whatever has a status of gRPC in its head has no trailers: the service is not there.
    if !parts.status.is_success() || !grpc::is_grpc(&parts.headers) || refusal(&parts.headers).is_some() {
        return CallEnd::Refused(parts.status);
    }
    match timeout(ANSWER_TIME, Limited::new(body, ANSWER_BYTES_MAX).collect()).await {
        Ok(Ok(read)) => match read.trailers() {
            Some(trailers) if trailers.contains_key("grpc-status") => CallEnd::Trailers,
            Some(_) | None => CallEnd::None,
        },
        Ok(Err(error)) => CallEnd::Broken(error.to_string()),
        Err(_elapsed) => CallEnd::Broken("it does not end".to_owned()),
    }
}

/// Does work on a connection while that is driven.
async fn driven<T>(
    connection: impl Future<Output = Result<(), hyper::Error>>,
    work: impl Future<Output = T>,
) -> Result<T, String> {
    let mut ended = None;
    let drive = async {
        ended = connection.await.err();
        // What was received before the end is still read.
        tokio::time::sleep(ANSWER_TIME).await;
    };
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = drive => Err(ended.map_or_else(|| "the connection was closed".to_owned(), |error| causes::one_line(&error))),
    }
}
