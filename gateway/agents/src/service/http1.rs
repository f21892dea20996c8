//! Serves the agents' listener over HTTP/1.1: one request, which becomes a link inside a WebSocket or is refused.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::{debug, info};
use tunnel_link::git::is_git_request;
use tunnel_link::pace::PacedStream;
use tunnel_link::websocket::{self, Handshake, NoHandshake};

use super::detect::PeekedStream;
use super::{AgentBody, AgentService, Greeting, NewLink, Remote, ShownAgent, log_refused};
use gateway_net::limits::Guest;

/// Bound on the head of the request.
const HEAD_BYTES: usize = 16 * 1024;

/// Code for clients that mistook this listener for the users' one.
const WRONG_LISTENER: &str = "wrong_listener";

/// The admitted agent, and the connection that is about to be its own.
type AdmittedUpgrade = Mutex<Option<(ShownAgent, OnUpgrade)>>;

/// A connection's share of the limits: it counts for as long as this lives.
pub(super) struct Presence {
    pub(super) guest: Arc<Guest>,
    pub(super) _permit: OwnedSemaphorePermit,
}

/// Serves a connection that speaks HTTP/1.1 until it ends.
pub(super) async fn serve(service: Arc<AgentService>, stream: PeekedStream, remote: Remote, presence: Presence) {
    let (peer, guest) = (remote.peer, &presence.guest);
    let admitted = Arc::new(AdmittedUpgrade::default());
    let (stream, pace) = PacedStream::new(stream, PeekedStream::limit_queue);
    let handler = service_fn(|request| {
        let (service, admitted, remote, guest) = (service.clone(), admitted.clone(), remote.clone(), guest.clone());
        async move { Ok::<_, Infallible>(service.answer_http1(request, &remote, &guest, &admitted).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(service.timeouts.agent_hello)
        .max_buf_size(HEAD_BYTES)
        // A second request would be another agent's place on this connection.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), handler)
        .with_upgrades();
    tokio::select! {
        result = connection => debug!(%peer, ?result, "HTTP/1.1 on an agent connection ended"),
        () = service.patience(guest) => debug!(%peer, "no session came up on this connection"),
    }
    let Some((identity, upgrade)) = admitted.lock().take() else { return };
    match upgrade.await {
        Ok(stream) => {
            let (carrier, reader, answer) = websocket::serve(TokioIo::new(stream)).await;
            let handshake = async {
                let greeting = Greeting { until: Instant::now() + service.timeouts.agent_hello, limit: None };
                match service.attach(identity, NewLink { reader, peer, pace, greeting }).await {
                    Ok(response) => match response.into_body() {
                        AgentBody::Tunnel(outgoing) => {
                            guest.prove();
                            answer.accept(outgoing);
                        }
                        AgentBody::Relay(half) => {
                            guest.prove();
                            let (half, pace) = half.into_parts();
                            answer.relay(half, pace);
                        }
                        // No link: dropped, the answer closes the WebSocket.
                        AgentBody::Empty | AgentBody::Tonic(_) => {}
                    },
                    Err(refused) => {
                        log_refused(peer, &refused);
                        answer.refuse(&refused);
                    }
                }
            };
            let (result, ()) = tokio::join!(carrier, handshake);
            debug!(%peer, ?result, "agent connection ended");
        }
        Err(error) => debug!(%peer, %error, "the connection did not become a WebSocket"),
    }
}

impl AgentService {
    async fn answer_http1(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        remote: &Remote,
        guest: &Guest,
        admitted: &AdmittedUpgrade,
    ) -> Response<Full<Bytes>> {
        if is_git_request(&request) {
            return Box::pin(self.answer_git_http1(request, remote)).await;
        }
        let handshake = match Handshake::read(&request) {
            Ok(handshake) => handshake,
            Err(why) => return explained(remote.peer, guest, why, &self.public_url),
        };
        match self.authenticate(request.headers(), remote).await {
            Ok(identity) => {
                *admitted.lock() = Some((identity, hyper::upgrade::on(&mut request)));
                websocket::switch_response(handshake)
            }
            Err(refused) => {
                log_refused(remote.peer, &refused);
                websocket::refuse_response(&refused)
            }
        }
    }
}

/// Explains why there is no link. A client that asks for something else has mistaken the listener for the users' one;
/// programs get the answer in the form that the API uses (RFC 9457).
fn explained(peer: SocketAddr, guest: &Guest, why: NoHandshake, public_url: &str) -> Response<Full<Bytes>> {
    let mut response = why.response::<Full<Bytes>>();
    let (content_type, body) = if matches!(why, NoHandshake::NotHere) {
        if guest.may_be_told_of(Instant::now().into_std()) {
            info!(%peer, %public_url, "a user's request came to the listener for agents");
        }
        response.headers_mut().insert("gateway-error", HeaderValue::from_static(WRONG_LISTENER));
        let detail = format!("This is the gateway's listener for agents; users and their commands go to {public_url}.");
        let (code, title, status) = (WRONG_LISTENER, "Wrong listener", response.status().as_u16());
        let problem = json!({"type": "about:blank", "title": title, "status": status, "code": code, "detail": detail});
        ("application/problem+json", format!("{problem}\n"))
    } else {
        debug!(%peer, %why, "HTTP/1.1 on the listener for agents");
        ("text/plain; charset=utf-8", format!("{why}\n"))
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    *response.body_mut() = Full::from(body);
    response
}
