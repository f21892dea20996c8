//! A raw stream to a port of a workspace, opened with a user's token: the transport of `forward` and `ssh`.

mod refusal;

use std::time::Duration;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{
    ACCEPT, CONNECTION, HOST, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE, USER_AGENT,
};
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, Uri, response};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tunnel_link::connect::DialedStream;
use tunnel_link::raw::{
    self, CLOSE_TIMEOUT, CUT_TIMEOUT, CarriedBytes, Carrier, CarrierBroken, Local, PING_INTERVAL, PROTOCOL, code,
};

use super::credentials::SignedIn;
use gateway_net::dial::{DialError, Dialer};
use gateway_types::PublicUrl;
use gateway_types::token::Token;
use gateway_types::{Port, WorkspaceName, Zone};

pub(super) use self::refusal::{PortTarget, TunnelRefusal};

/// Path at which the public host tells the zone.
const ZONE_PATH: &str = "/.gateway/zone";

/// Deadline of the gateway's answer: longer than it waits for an agent to open a channel.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Largest head and body of an answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Carries the token beside whatever else a request has.
const GATEWAY_AUTHORIZATION: HeaderName = HeaderName::from_static("gateway-authorization");

const AGENT: HeaderValue = HeaderValue::from_static(concat!("gateway/", env!("CARGO_PKG_VERSION")));

/// The way to a gateway's workspaces.
#[derive(Debug)]
pub(super) struct Tunnel {
    dialer: Dialer,
    gateway: PublicUrl,
    zone: Zone,
    token: Token,
}

/// Reason why there is no stream, or no longer. Each text stands for itself, on one line.
#[derive(Debug, Error)]
pub(super) enum TunnelError {
    /// The gateway cannot be reached.
    #[error("the gateway cannot be reached")]
    Dial(#[from] DialError),
    /// It did not answer in time.
    #[error("the gateway did not answer within {} s", ANSWER_TIMEOUT.as_secs())]
    TimedOut,
    /// The connection broke before there was an answer.
    #[error("no answer from the gateway")]
    Http(#[source] hyper::Error),
    /// The answer is from no gateway, or from an older one.
    #[error("what answers there ({status}) is not a gateway that knows raw TCP: check the URL")]
    NotGateway {
        /// The status of the answer.
        status: StatusCode,
    },
    /// The gateway refused, or cannot serve the request.
    #[error("{0}")]
    Refused(TunnelRefusal),
    /// The local end of the stream broke.
    #[error("the local connection broke")]
    Local(#[source] std::io::Error),
    /// The stream was ended from the other side.
    #[error("{0}")]
    Ended(TunnelRefusal),
    /// The way in between broke.
    #[error("the connection with the gateway broke")]
    Broken(#[source] CarrierBroken),
    /// The system gives no random bytes, or a text cannot stand in a header.
    #[error("the request cannot be made")]
    Request,
}

/// Problem document of a gateway.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TunnelProblem {
    detail: String,
    limit: Option<String>,
    reason: Option<String>,
}

/// The public host's answer about the zone.
#[derive(Debug, Deserialize)]
struct ZoneAnswer {
    zone: String,
}

type DialAnswer = (response::Parts, AnswerBody);

enum AnswerBody {
    Switched(TokioIo<Upgraded>),
    Bytes(Bytes),
}

impl Tunnel {
    /// Asks the gateway for its zone, which the public URL does not tell.
    ///
    /// # Errors
    /// [`TunnelError`], mostly that the gateway is not there.
    pub(super) async fn new(signed_in: SignedIn) -> Result<Self, TunnelError> {
        let SignedIn { gateway, token, ca_file } = signed_in;
        let dialer = Dialer::new(&gateway, ca_file.as_deref(), |name| std::env::var(name).ok())?;
        let host = gateway.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let mut request = request(ZONE_PATH, &authority(gateway.host(), &gateway))?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        let (head, body) = answer(dialer.connect(&host).await?, request).await?;
        let not_gateway = || TunnelError::NotGateway { status: head.status };
        let AnswerBody::Bytes(body) = body else { return Err(not_gateway()) };
        let said: ZoneAnswer = serde_json::from_slice(&body).map_err(|_| not_gateway())?;
        let zone = said.zone.parse().map_err(|_| not_gateway())?;
        Ok(Self { dialer, gateway, zone, token })
    }

    /// Opens a stream to a port, once the port has answered.
    ///
    /// # Errors
    /// [`TunnelError::Refused`] has the gateway's code.
    ///
    /// Cancel safety: safe; what was opened is closed.
    pub(super) async fn open(&self, target: &PortTarget) -> Result<TokioIo<Upgraded>, TunnelError> {
        let host = host(&self.zone, &target.workspace, target.port);
        let mut request = request(raw::PATH, &authority(&host, &self.gateway))?;
        let key = key()?;
        let headers = request.headers_mut();
        let mut bearer =
            HeaderValue::try_from(format!("Bearer {}", self.token.reveal())).map_err(|_| TunnelError::Request)?;
        bearer.set_sensitive(true);
        headers.insert(GATEWAY_AUTHORIZATION, bearer);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
        headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::try_from(&key).map_err(|_| TunnelError::Request)?);
        let (head, body) = answer(self.dialer.connect(&host).await?, request).await?;
        match body {
            AnswerBody::Switched(stream) if accepts(&head.headers, &key) => Ok(stream),
            AnswerBody::Switched(_) => Err(TunnelError::NotGateway { status: head.status }),
            AnswerBody::Bytes(body) => Err(refused(target, &head, &body)),
        }
    }

    /// Opens a stream and joins it with the local end, until both directions have finished. Returns the local end, and
    /// the outcome.
    pub(super) async fn carry<L: Local>(
        &self,
        target: &PortTarget,
        local: L,
    ) -> (L, Result<CarriedBytes, TunnelError>) {
        let stream = match self.open(target).await {
            Ok(stream) => stream,
            Err(error) => return (local, Err(error)),
        };
        let mut carrier = Carrier::new(stream, Role::Client, local, PING_INTERVAL).await;
        let ended = carrier.run().await;
        let (goodbye, local) = carrier.part();
        match &ended {
            Ok(_) => goodbye.say(code::FINISHED, "", CLOSE_TIMEOUT).await,
            Err(CarrierBroken::Rule(_)) => goodbye.say(code::PROTOCOL, "bad_message", CUT_TIMEOUT).await,
            Err(
                CarrierBroken::Here(_)
                | CarrierBroken::There { .. }
                | CarrierBroken::Lost(_)
                | CarrierBroken::Gone
                | CarrierBroken::Silent,
            ) => {
                goodbye.say(code::RESET, "user_reset", CUT_TIMEOUT).await;
            }
        }
        (local, ended.map_err(|broken| ended_by(target, broken)))
    }
}

fn refused(target: &PortTarget, head: &response::Parts, body: &[u8]) -> TunnelError {
    let code = head.headers.get("gateway-error").and_then(|code| code.to_str().ok());
    let Some(code) = code else { return TunnelError::NotGateway { status: head.status } };
    let TunnelProblem { detail, limit, reason } = serde_json::from_slice(body).unwrap_or_default();
    TunnelError::Refused(TunnelRefusal::of_answer(target, code, &detail, limit.or(reason).as_deref()))
}

fn ended_by(target: &PortTarget, broken: CarrierBroken) -> TunnelError {
    match broken {
        CarrierBroken::Here(error) => TunnelError::Local(error),
        CarrierBroken::There { code, reason } => TunnelError::Ended(TunnelRefusal::of_end(target, code, &reason)),
        broken @ (CarrierBroken::Lost(_) | CarrierBroken::Gone | CarrierBroken::Silent | CarrierBroken::Rule(_)) => {
            TunnelError::Broken(broken)
        }
    }
}

/// Returns the host of a port of a workspace, as `edge::host` reads it.
fn host(zone: &Zone, workspace: &WorkspaceName, port: Port) -> String {
    format!("{port}-{workspace}.{zone}")
}

/// Returns the value of `Host`: every host of a gateway is on the port of its public URL.
fn authority(host: &str, gateway: &PublicUrl) -> String {
    if gateway.port() == gateway.scheme().default_port() {
        return host.to_owned();
    }
    format!("{host}:{}", gateway.port())
}

fn request(path: &'static str, authority: &str) -> Result<Request<Empty<Bytes>>, TunnelError> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = Uri::from_static(path);
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::try_from(authority).map_err(|_| TunnelError::Request)?);
    headers.insert(USER_AGENT, AGENT);
    Ok(request)
}

/// Makes a key for the handshake (RFC 6455, section 4.1).
fn key() -> Result<String, TunnelError> {
    let mut nonce = [0; 16];
    SystemRandom::new().fill(&mut nonce).map_err(|_| TunnelError::Request)?;
    Ok(BASE64.encode(nonce))
}

/// Checks the answer to the key, and that both ends mean the same bytes.
fn accepts(headers: &HeaderMap, key: &str) -> bool {
    let has = |name, value: &str| headers.get(name).is_some_and(|found| found.as_bytes() == value.as_bytes());
    has(SEC_WEBSOCKET_ACCEPT, &derive_accept_key(key.as_bytes())) && has(SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
}

/// Sends the request, and reads the answer whole unless the connection switches.
async fn answer(stream: Box<dyn DialedStream>, request: Request<Empty<Bytes>>) -> Result<DialAnswer, TunnelError> {
    let asked = tokio::time::timeout(ANSWER_TIMEOUT, ask(stream, request));
    asked.await.map_err(|_elapsed| TunnelError::TimedOut)?
}

async fn ask(stream: Box<dyn DialedStream>, request: Request<Empty<Bytes>>) -> Result<DialAnswer, TunnelError> {
    let mut builder = http1::Builder::new();
    let shaken = builder.max_buf_size(ANSWER_BYTES_MAX).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(TunnelError::Http)?;
    // Ends with the answer, or hands its stream over.
    let mut connections = JoinSet::new();
    connections.spawn(connection.with_upgrades());
    let response: Response<Incoming> = sender.send_request(request).await.map_err(TunnelError::Http)?;
    let (head, body) = response.into_parts();
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        let upgraded = hyper::upgrade::on(Response::from_parts(head.clone(), body)).await;
        return Ok((head, AnswerBody::Switched(TokioIo::new(upgraded.map_err(TunnelError::Http)?))));
    }
    // A body that is too long, or broke off, is worth no more than none: the head has what counts.
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    Ok((head, AnswerBody::Bytes(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(gateway: &str, zone: &str, expected: &str) {
        let gateway: PublicUrl = gateway.parse().expect("a URL");
        let zone = zone.parse().expect("a zone");
        let host = host(&zone, &"my-app".parse().expect("a name"), Port::new(22).expect("a port"));
        assert_eq!(authority(&host, &gateway), expected);
    }

    #[test]
    fn workspace_is_asked_for_in_the_zone_and_on_the_gateways_port() {
        check("http://localhost:8080", "localhost", "22-my-app.localhost:8080");
        check("https://gateway.example.net", "ws.example.com", "22-my-app.ws.example.com");
        check("https://gateway.example.net:8443", "ws.example.com", "22-my-app.ws.example.com:8443");
    }

    #[test]
    fn answer_has_to_fit_the_key_and_name_the_protocol() {
        let mut headers = HeaderMap::new();
        assert!(!accepts(&headers, "dGhlIHNhbXBsZSBub25jZQ=="));
        headers.insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::from_static("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert!(!accepts(&headers, "dGhlIHNhbXBsZSBub25jZQ=="));
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
        assert!(accepts(&headers, "dGhlIHNhbXBsZSBub25jZQ=="));
        assert!(!accepts(&headers, "AAAAAAAAAAAAAAAAAAAAAA=="));
    }
}
