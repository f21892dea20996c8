//! Raw TCP to a port of a workspace, inside a WebSocket at a reserved path: what `gateway forward` and `gateway ssh` use.
//!
//! The gateway does not look into the bytes: it parses neither SSH nor anything else. Only a request with an API token
//! gets this far. A browser attaches cookies on its own, and a page that could open raw TCP could speak any protocol to
//! any port.

use std::time::Duration;

use http::header::{HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL};
use http::request::Parts;
use http::{Request, Response, StatusCode, response};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use tunnel_link::channel_io::{ChannelError, ChannelIo};
use tunnel_link::drain::Drain;
use tunnel_link::raw::{
    CLOSE_TIMEOUT, CUT_TIMEOUT, CarriedBytes, Carrier, CarrierBroken, PATH, PING_INTERVAL, PROTOCOL, Piece, code,
};
use tunnel_proto::reason::Reason;

use super::activity::beats::Beats;
use super::body::ResponseBody;
use super::forward::{Forwarder, Route, failure_of_channel, failure_of_reason};
use super::watches::WatchUse;
use super::websocket::{self, BadUpgrade, Upgrade, upgrade_asked};
use gateway_auth::request::OfferedCredential;
use gateway_http::fields::has_token;
use gateway_http::respond::Failure;
use gateway_net::telemetry::{Metrics, TcpEnd};
use gateway_store::wall_clock;
use gateway_types::ActivityKind;
use gateway_types::Port;

/// Bounds of the time before the end of a drain at which a stream is closed: both of its ends hear why before
/// everything is cut.
const DRAIN_MARGIN_MIN: Duration = Duration::from_millis(300);
const DRAIN_MARGIN_MAX: Duration = Duration::from_secs(3);

const SUBPROTOCOL: HeaderName = SEC_WEBSOCKET_PROTOCOL;

/// Waits for a drain, and then until its streams are to be closed, by the time of its end as that is known then. Returns the time left
/// for closing them.
pub(super) async fn nearly_drained(draining: CancellationToken, end: watch::Receiver<Option<Instant>>) -> Duration {
    draining.cancelled().await;
    // On the heap: an idle stream, of which there are many, does not carry it.
    Box::pin(nearly_over(end)).await
}

async fn nearly_over(mut end: watch::Receiver<Option<Instant>>) -> Duration {
    loop {
        let known = end.wait_for(Option::is_some).await.ok().and_then(|at| *at);
        // Without an owner it never ends.
        let Some(at) = known else { return std::future::pending().await };
        let margin = drain_margin(at.saturating_duration_since(Instant::now()));
        tokio::select! {
            () = tokio::time::sleep_until(at.checked_sub(margin).unwrap_or(at)) => return margin,
            _ = end.changed() => {}
        }
    }
}

/// Returns the part of a drain in which all streams send their last message; a busy machine may be late. A drain
/// shorter than the least margin closes them at once.
fn drain_margin(drain: Duration) -> Duration {
    (drain / 5).clamp(DRAIN_MARGIN_MIN, DRAIN_MARGIN_MAX)
}

/// Returns whether a request is for raw TCP. Any other spelling of the path is a reserved path with nothing behind it.
pub(super) fn is_asked(parts: &Parts) -> bool {
    parts.uri.path() == PATH
}

/// Refuses requests without an API token, before anything is looked up: the answer must not tell what exists.
///
/// # Errors
/// [`Failure::SignInRequired`].
pub(super) fn require_token(offered: &OfferedCredential) -> Result<(), Failure> {
    match offered {
        OfferedCredential::Token(_) => Ok(()),
        OfferedCredential::Nothing | OfferedCredential::Session(_) | OfferedCredential::Refused => {
            Err(Failure::SignInRequired)
        }
    }
}

/// Checks the handshake.
///
/// # Errors
/// [`Failure::BadRequest`] names what is missing.
fn handshake(parts: &Parts) -> Result<Upgrade, Failure> {
    let asked = upgrade_asked(parts).map_err(BadUpgrade::failure)?;
    let is_ours = has_token(&parts.headers, &SUBPROTOCOL, PROTOCOL);
    match asked {
        Some(asked @ (Upgrade::WebSocket { .. } | Upgrade::WebSocketStream)) if is_ours => Ok(asked),
        Some(Upgrade::WebSocket { .. } | Upgrade::WebSocketStream) => {
            Err(Failure::BadRequest { reason: "tcp_subprotocol" })
        }
        Some(Upgrade::Other { .. }) | None => Err(Failure::BadRequest { reason: "tcp_websocket" }),
    }
}

impl Forwarder {
    /// Opens a channel to the port, and once the port has answered, joins it with the user's WebSocket in a task of
    /// `streams`. An earlier failure is an answer with a code like any other.
    ///
    /// # Errors
    /// [`Failure`] when there is no channel.
    ///
    /// Cancel safety: dropping it closes the channel.
    pub(super) async fn tcp(
        &self,
        mut request: Request<Incoming>,
        route: Route,
        streams: &Drain,
        metrics: &Metrics,
    ) -> Result<Response<ResponseBody>, Failure> {
        let user = hyper::upgrade::on(&mut request);
        let (parts, _body) = request.into_parts();
        let asked = handshake(&parts)?;
        let opened = route.session.open(route.grant.port());
        let (channel, accepted) = opened.map_err(|error| failure_of_channel(ChannelError::Open(error)))?;
        self.accepted(route.grant.port(), accepted).await?;
        let head = switched(&asked);
        let metrics = metrics.clone();
        metrics.tcp_opened();
        let drained = nearly_drained(streams.draining().clone(), streams.end());
        streams.spawn(async move {
            // Moved whole: grant and permits live as long as the bytes.
            let route = route;
            let (end, copied) = join(user, channel, &route.watch, drained).await;
            metrics.tcp_ended(end);
            let CarriedBytes { inward, outward } = copied;
            debug!(workspace = %route.grant.workspace(), port = %route.grant.port(), ?end, inward, outward, "raw stream ended");
        });
        Ok(Response::from_parts(head, ResponseBody::from(bytes::Bytes::new())))
    }

    /// Waits until the port has answered.
    async fn accepted(&self, port: Port, accepted: oneshot::Receiver<Result<(), Reason>>) -> Result<(), Failure> {
        match tokio::time::timeout(self.timeouts.channel_open, accepted).await {
            // What the agent starts there is no app.
            Ok(Ok(Err(Reason::AppReset))) if port.is_ssh() => Err(Failure::SshNotStarted),
            Ok(Ok(answer)) => answer.map_err(failure_of_reason),
            // The session ended meanwhile.
            Ok(Err(_gone)) => Err(Failure::SessionLost),
            Err(_elapsed) => Err(Failure::OpenTimeout),
        }
    }
}

/// Makes the answer that the connection becomes a WebSocket.
fn switched(asked: &Upgrade) -> response::Parts {
    let (mut head, ()) = Response::new(()).into_parts();
    head.status = StatusCode::SWITCHING_PROTOCOLS;
    head.headers.insert(http::header::CONNECTION, HeaderValue::from_static("upgrade"));
    head.headers.insert(http::header::UPGRADE, HeaderValue::from_static("websocket"));
    head.headers.insert(SUBPROTOCOL, HeaderValue::from_static(PROTOCOL));
    match asked {
        Upgrade::WebSocket { key } => {
            if let Ok(accept) = HeaderValue::try_from(websocket::accept_value(key.as_bytes())) {
                head.headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
            }
        }
        Upgrade::WebSocketStream | Upgrade::Other { .. } => websocket::answer_for_connect(&mut head),
    }
    head
}

/// Last messages to the user's end and to the app's.
struct Farewell {
    code: u16,
    reason: &'static str,
    timeout: Duration,
    /// Reason with which the channel is reset; `None` if it is over.
    reset: Option<Reason>,
    end: TcpEnd,
}

/// Moves bytes until both directions have finished, one end broke, or access ended; then tells each end the outcome.
async fn join(
    user: OnUpgrade,
    channel: ChannelIo,
    watch: &WatchUse,
    drained: impl Future<Output = Duration>,
) -> (TcpEnd, CarriedBytes) {
    let user = tokio::select! {
        biased;
        () = watch.wait() => {
            channel.reset(Reason::Revoked);
            return (TcpEnd::Access, CarriedBytes::default());
        }
        user = user => user,
    };
    let Ok(user) = user else {
        channel.reset(Reason::AppReset);
        return (TcpEnd::User, CarriedBytes::default());
    };
    let mut carrier = Carrier::new(TokioIo::new(user), Role::Server, channel, PING_INTERVAL).await;
    if let Some(user) = watch.activity() {
        let (user, mut beats) = (user.clone(), Beats::default());
        carrier.on_piece(move |piece| {
            let now = wall_clock().get();
            match piece {
                Piece::Outward(bytes) => beats.output(bytes, now),
                Piece::Inward(bytes) if beats.input(bytes, now) => user.note(ActivityKind::Stream),
                Piece::Inward(_) => {}
            }
        });
    }
    let farewell = tokio::select! {
        biased;
        () = watch.wait() => Farewell {
            code: code::ACCESS_ENDED,
            reason: watch.why().code(),
            timeout: CUT_TIMEOUT,
            reset: Some(Reason::Revoked),
            end: TcpEnd::Access,
        },
        timeout = drained => Farewell {
            code: code::DRAINING,
            reason: Failure::Draining.code(),
            timeout,
            reset: Some(Reason::AppReset),
            end: TcpEnd::Draining,
        },
        ended = carrier.run() => farewell(ended),
    };
    let copied = carrier.copied();
    let (goodbye, channel) = carrier.part();
    match farewell.reset {
        // The app's end first: whatever the user's end does, no byte passes any more.
        Some(reason) => channel.reset(reason),
        None => drop(channel),
    }
    goodbye.say(farewell.code, farewell.reason, farewell.timeout).await;
    (farewell.end, copied)
}

fn farewell(ended: Result<CarriedBytes, CarrierBroken>) -> Farewell {
    let timeout = CLOSE_TIMEOUT;
    let user_is_gone = |code, reason| Farewell {
        code,
        reason,
        timeout: CUT_TIMEOUT,
        // The app must not take a broken connection for one that ended.
        reset: Some(Reason::AppReset),
        end: TcpEnd::User,
    };
    let error = match ended {
        Ok(_copied) => {
            return Farewell { code: code::FINISHED, reason: "", timeout, reset: None, end: TcpEnd::Finished };
        }
        Err(CarrierBroken::Here(error)) => error,
        Err(CarrierBroken::There { .. } | CarrierBroken::Lost(_) | CarrierBroken::Gone) => {
            return user_is_gone(code::FINISHED, "");
        }
        Err(CarrierBroken::Silent) => return user_is_gone(code::LOST, "silent"),
        Err(CarrierBroken::Rule(_)) => return user_is_gone(code::PROTOCOL, "bad_message"),
    };
    let (code, reason, end) = match ChannelError::find(&error) {
        Some(ChannelError::Reset(Reason::AppReset | Reason::Cancelled)) => (code::RESET, "app_reset", TcpEnd::App),
        Some(ChannelError::Reset(Reason::Shutdown)) => (code::DRAINING, Failure::Draining.code(), TcpEnd::Draining),
        Some(error) => (code::LOST, failure_of_channel(error).code(), TcpEnd::Lost),
        None => (code::LOST, Failure::SessionLost.code(), TcpEnd::Lost),
    };
    Farewell { code, reason, timeout, reset: None, end }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(fields: &[(&'static str, &'static str)], expected: Result<(), &str>) {
        let mut request = Request::get(PATH);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let found = handshake(&parts).map(drop).map_err(|failure| failure.detail().unwrap_or_default());
        assert_eq!(found, expected, "{fields:?}");
    }

    #[test]
    fn handshake_is_a_websocket_with_the_subprotocol() {
        let switch = [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let with = |more: &[(&'static str, &'static str)]| [&switch[..], more].concat();
        check(&with(&[key, ("sec-websocket-protocol", "tcp.gateway.v1")]), Ok(()));
        check(&with(&[key, ("sec-websocket-protocol", "chat, tcp.gateway.v1")]), Ok(()));
        check(&with(&[key]), Err("tcp_subprotocol"));
        check(&with(&[key, ("sec-websocket-protocol", "tunnel.v1")]), Err("tcp_subprotocol"));
        check(&with(&[("sec-websocket-protocol", "tcp.gateway.v1")]), Err("websocket_key"));
        check(&[], Err("tcp_websocket"));
        check(&[("connection", "upgrade"), ("upgrade", "tcp")], Err("tcp_websocket"));
    }

    #[test]
    fn streams_have_a_part_of_the_drain_to_say_why_they_end() {
        let told = |seconds| drain_margin(Duration::from_secs(seconds));
        assert_eq!(told(30), DRAIN_MARGIN_MAX);
        assert_eq!(told(600), DRAIN_MARGIN_MAX, "the rest is the streams'");
        assert_eq!(told(10), Duration::from_secs(2));
        assert_eq!([told(1), told(0)], [DRAIN_MARGIN_MIN; 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn streams_are_closed_before_the_end_of_a_drain_also_when_that_comes_nearer() {
        let drain = Drain::default();
        let (long, began) = (nearly_drained(drain.draining().clone(), drain.end()), Instant::now());
        drop(tokio::time::timeout(Duration::from_secs(5), drain.run(Duration::from_secs(3_600))).await);
        let mut long = std::pin::pin!(long);
        assert!(tokio::time::timeout(Duration::from_secs(60), &mut long).await.is_err());
        drain.spawn(std::future::pending());
        let (margin, _cut) = tokio::join!(long, drain.run(Duration::from_secs(30)));
        assert_eq!(margin, DRAIN_MARGIN_MAX);
        assert_eq!(began.elapsed().as_secs(), 60 + 30);
    }

    #[test]
    fn only_a_token_opens_raw_tcp() {
        assert_eq!(require_token(&OfferedCredential::Token([0; 32])), Ok(()));
        for offered in [OfferedCredential::Nothing, OfferedCredential::Refused] {
            assert_eq!(require_token(&offered), Err(Failure::SignInRequired));
        }
    }

    #[test]
    fn each_end_is_told_what_became_of_the_other() {
        let told = |reason| {
            let Farewell { code, reason, reset, .. } =
                farewell(Err(CarrierBroken::Here(ChannelError::Reset(reason).into())));
            (code, reason, reset)
        };
        assert_eq!(told(Reason::AppReset), (code::RESET, "app_reset", None));
        assert_eq!(told(Reason::Shutdown), (code::DRAINING, "draining", None));
        assert_eq!(told(Reason::SessionLost), (code::LOST, "session_lost", None));
        let user = farewell(Err(CarrierBroken::Gone));
        assert_eq!((user.reset, user.end), (Some(Reason::AppReset), TcpEnd::User));
        assert_eq!(farewell(Ok(CarriedBytes::default())).code, code::FINISHED);
    }
}
