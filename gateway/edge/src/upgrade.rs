//! Upgrades of connections: WebSocket over HTTP/1.1 and over HTTP/2, and other protocols.

mod stream;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use http::header::{HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tunnel_link::drain::Drain;

use self::stream::{Input, StreamFrames};
use super::body::{RequestBody, ResponseBody};
use super::forward::{Forwarder, Route, speakable};
use super::headers::{AppHttp, AppRequest};
use super::tcp::nearly_drained;
use super::websocket::frames::Frames;
use super::websocket::{self, Upgrade};
use gateway_http::respond::Failure;
use gateway_net::telemetry::Metrics;

impl Forwarder {
    /// Forwards a request for an upgrade. If the app agrees, the two connections are joined in a task of `streams`; if
    /// not, its answer goes to the user like any other.
    ///
    /// # Errors
    /// [`Failure`] when no answer came.
    pub(super) async fn upgrade(
        &self,
        mut request: Request<Incoming>,
        asked: Upgrade,
        route: Route,
        streams: &Drain,
        metrics: &Metrics,
    ) -> Result<Response<ResponseBody>, Failure> {
        let user = hyper::upgrade::on(&mut request);
        let (mut parts, body) = request.into_parts();
        let over_http2 = matches!(asked, Upgrade::WebSocketStream);
        let protocol = match &asked {
            Upgrade::WebSocket { .. } | Upgrade::WebSocketStream => HeaderValue::from_static("websocket"),
            Upgrade::Other { protocol } => protocol.clone(),
        };
        // Upgrades exist in HTTP/1.1 only, whatever the port's setting says.
        let mode = speakable(&route)?;
        let app = AppRequest { http: AppHttp::Http1, upgrade: Some(&protocol), trailers: false };
        self.prepare(&mut parts, &app, &route, mode);
        let key = match &asked {
            Upgrade::WebSocket { key } => Some(key.clone()),
            Upgrade::Other { .. } => None,
            Upgrade::WebSocketStream => {
                let key = websocket::key_from(nonce()?);
                websocket::handshake_from_connect(&mut parts, key.clone());
                Some(key)
            }
        };
        // An extended CONNECT has a stream, not a body; a handshake over HTTP/1.1 has no body either.
        let body = if over_http2 { RequestBody::Empty } else { RequestBody::new(body, 1, None).0 };
        let (mut head, pooled) = self.exchange_alone(&parts, body, &route).await?;
        if over_http2 && head.status.is_success() {
            // Over HTTP/2 a success would mean "switched" (RFC 8441, section 5), and the app did not switch.
            return Err(Failure::AppAnswerInvalid);
        }
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            self.finish(&mut head, None, &route, mode);
            return Ok(Response::from_parts(head, ResponseBody::app(pooled.into(), route.permits, route.watch)));
        }
        let accepts = key.as_ref().is_none_or(|key| websocket::check_accept(&head.headers, key.as_bytes()));
        if !accepts {
            return Err(Failure::AppAnswerInvalid);
        }
        // An extension that changes the framing would make it another protocol.
        let frames = (key.is_some() && websocket::keeps_framing(&head.headers)).then(Frames::default);
        let switched = head.headers.get(UPGRADE).cloned().unwrap_or(protocol);
        self.finish(&mut head, (!over_http2).then_some(&switched), &route, mode);
        if over_http2 {
            head.status = StatusCode::SWITCHING_PROTOCOLS;
            websocket::answer_for_connect(&mut head);
        }
        let (app, idle) = (pooled.connection, self.timeouts.stream_idle);
        let drained = nearly_drained(streams.draining().clone(), streams.end());
        let can_be_told = frames.is_some();
        let open = key.is_some().then(|| metrics.websocket());
        streams.spawn(async move {
            // Moved whole: grant and permits live as long as the bytes.
            let (route, _open) = (route, open);
            let drained = async {
                if !can_be_told {
                    // Its user cannot be told either way, so the stream keeps the rest of the time.
                    return std::future::pending().await;
                }
                drained.await
            };
            let input =
                route.watch.activity().map(|user| Input::new(user.clone(), route.grant.port(), frames.is_some()));
            stream::carry(user, app, StreamFrames { outward: frames, input }, idle, &route.watch, drained).await;
        });
        Ok(Response::from_parts(head, ResponseBody::from(bytes::Bytes::new())))
    }
}

fn nonce() -> Result<[u8; 16], Failure> {
    let mut nonce = [0; 16];
    SystemRandom::new().fill(&mut nonce).map_err(|_| Failure::Overloaded { limit: "randomness" })?;
    Ok(nonce)
}
