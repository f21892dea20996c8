//! Dials a gateway and greets it, over the transport that gets through.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::uri::{Authority, Scheme};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use tunnel_link::grpc::{self, ConnectError, DialedLink, Via};
use tunnel_link::websocket;
use tunnel_proto::hello::Hello;

use super::connect::{GatewayConnection, Offer};
use super::decide::with_sources;
use super::network::Network;
use super::transport::{TransportPlan, cannot_pass};
use super::{DialFailure, GOODBYE_TIMEOUT};

/// Drives a link's connection; ends with it, and cuts it when dropped.
pub(super) type LinkConnection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Greeting of a gateway, and the patience for its answer.
pub(super) struct Greeting {
    pub(super) token: Option<String>,
    pub(super) hello: Hello,
    /// Longest wait for the answer to a Hello.
    pub(super) patience: Duration,
}

/// Dials once: over the plan's first transport, and over its second if the first cannot pass. Returns `None` if it was
/// told to give up: at once while the gateway knows nothing of it. Once a Hello may have arrived, its answer is still
/// waited for, for a moment: a gateway that let the agent in would keep the session of an agent that left without a
/// word until its grace is over.
///
/// Cancel safety: safe; a half-made connection is closed.
pub(super) async fn dial<N: Network>(
    network: &N,
    plan: TransportPlan,
    greeting: Greeting,
    give_up: &CancellationToken,
) -> Option<Result<(LinkConnection, DialedLink), DialFailure>> {
    let greeted = AtomicBool::new(false);
    let mut dialing = pin!(try_all(network, plan, &greeting, &greeted));
    tokio::select! {
        linked = dialing.as_mut() => Some(linked),
        () = give_up.cancelled() => {
            let moment = if greeted.load(Ordering::Relaxed) { GOODBYE_TIMEOUT } else { Duration::ZERO };
            // The reason of a refusal is of no interest any more.
            timeout(moment, dialing).await.ok().filter(Result::is_ok)
        }
    }
}

async fn try_all<N: Network>(
    network: &N,
    plan: TransportPlan,
    greeting: &Greeting,
    greeted: &AtomicBool,
) -> Result<(LinkConnection, DialedLink), DialFailure> {
    let failure = match attempt(network, plan.first, plan.then, greeting, greeted).await {
        Err(failure) => failure,
        linked => return linked,
    };
    let Some(then) = plan.then.filter(|_| cannot_pass(&failure)) else { return Err(failure) };
    info!(cause = with_sources(&failure), "HTTP/2 does not get through, trying a WebSocket");
    match attempt(network, then, None, greeting, greeted).await {
        // A refusal of the gateway itself; the first failure is of no interest any more.
        Err(refused @ DialFailure::Rpc(ConnectError::Refused(_))) => Err(refused),
        Err(second) => Err(DialFailure::Neither { http2: with_sources(&failure), websocket: with_sources(&second) }),
        linked => linked,
    }
}

async fn attempt<N: Network>(
    network: &N,
    via: Via,
    or: Option<Via>,
    greeting: &Greeting,
    greeted: &AtomicBool,
) -> Result<(LinkConnection, DialedLink), DialFailure> {
    greeted.store(false, Ordering::Relaxed);
    let offer = match (via, or) {
        (Via::Http2, None | Some(Via::Http2)) => Offer::Http2,
        (Via::Http2, Some(Via::WebSocket)) => Offer::Either,
        (Via::WebSocket, _) => Offer::Http1,
    };
    let connected = network.dial(offer).await?;
    greeted.store(true, Ordering::Relaxed);
    // The TLS handshake settled on HTTP/1.1: HTTP/2 needs no trial.
    let via = if connected.is_http1 { or.unwrap_or(via) } else { via };
    let (authority, scheme) = network.origin();
    match via {
        Via::Http2 => over_http2(authority, scheme, connected, greeting).await,
        Via::WebSocket => over_websocket(authority, connected, greeting).await,
    }
}

async fn over_http2(
    authority: Authority,
    scheme: Scheme,
    GatewayConnection { stream, pace, .. }: GatewayConnection,
    greeting: &Greeting,
) -> Result<(LinkConnection, DialedLink), DialFailure> {
    let Greeting { token, hello, patience } = greeting;
    let dialing = grpc::dial(stream, pace, authority, scheme, token.as_deref(), hello.clone());
    let (connection, answer) = dialing.await.map_err(DialFailure::Rpc)?;
    let connection = async move {
        let result = connection.await;
        debug!(?result, "the link's connection ended");
    };
    welcomed(Box::pin(connection), answer, *patience).await
}

async fn over_websocket(
    authority: Authority,
    GatewayConnection { stream, pace, .. }: GatewayConnection,
    greeting: &Greeting,
) -> Result<(LinkConnection, DialedLink), DialFailure> {
    let Greeting { token, hello, patience } = greeting;
    let dialing = timeout(*patience, websocket::dial(stream, pace, authority, token.as_deref(), hello.clone()));
    let (carrier, answer) =
        dialing.await.map_err(|_elapsed| DialFailure::WelcomeTimedOut)?.map_err(DialFailure::Rpc)?;
    let connection = async move {
        let result = carrier.await;
        debug!(?result, "the link's WebSocket ended");
    };
    welcomed(Box::pin(connection), answer, *patience).await
}

/// Waits for the Welcome while the connection is driven.
async fn welcomed(
    mut connection: LinkConnection,
    answer: impl Future<Output = Result<DialedLink, ConnectError>>,
    limit: Duration,
) -> Result<(LinkConnection, DialedLink), DialFailure> {
    let mut answer = pin!(timeout(limit, answer));
    let answer = tokio::select! {
        biased;
        answer = answer.as_mut() => answer,
        () = connection.as_mut() => {
            // Frames received before the end are still there to be read.
            let read = timeout(Duration::ZERO, answer).await;
            connection = Box::pin(std::future::ready(()));
            read.map_err(|_elapsed| DialFailure::Rpc(ConnectError::NoWelcome))?
        }
    };
    match answer {
        Ok(Ok(dialed)) => Ok((connection, dialed)),
        Ok(Err(error)) => Err(DialFailure::Rpc(error)),
        Err(_elapsed) => Err(DialFailure::WelcomeTimedOut),
    }
}
