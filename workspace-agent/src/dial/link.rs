//! From a gateway's URL to a link after its Welcome, through whatever is on the way.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use http::uri::{Authority, Scheme};
use tokio::time::timeout;
use tracing::{debug, info};
use tunnel_link::grpc::{self, ConnectError, Dialed, Via};
use tunnel_link::websocket;
use tunnel_proto::hello::Hello;

use super::DialFailure;
use super::connect::{Connected, Offer};
use super::decide::with_sources;
use super::network::Network;
use super::transport::{Plan, cannot_pass};

/// Drives a link's connection; ends with it, and cuts it when dropped.
pub(super) type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Dials once: what the plan has first, and what it has then if the first cannot pass. Each has `patience` for the answer
/// to its Hello.
///
/// Cancel safety: safe; a half-made connection is closed.
pub(super) async fn dial<N: Network>(
    network: &N,
    plan: Plan,
    token: Option<&str>,
    hello: Hello,
    patience: Duration,
) -> Result<(Connection, Dialed), DialFailure> {
    let failure = match attempt(network, plan.first, plan.then, token, hello.clone(), patience).await {
        Err(failure) => failure,
        linked => return linked,
    };
    let Some(then) = plan.then.filter(|_| cannot_pass(&failure)) else { return Err(failure) };
    info!(cause = with_sources(&failure), "HTTP/2 does not get through, trying a WebSocket");
    match attempt(network, then, None, token, hello, patience).await {
        // The gateway's own word; what was on the way is of no interest any more.
        Err(refused @ DialFailure::Rpc(ConnectError::Refused(_))) => Err(refused),
        Err(second) => Err(DialFailure::Neither { http2: with_sources(&failure), websocket: with_sources(&second) }),
        linked => linked,
    }
}

async fn attempt<N: Network>(
    network: &N,
    via: Via,
    or: Option<Via>,
    token: Option<&str>,
    hello: Hello,
    patience: Duration,
) -> Result<(Connection, Dialed), DialFailure> {
    let offer = match (via, or) {
        (Via::Http2, None | Some(Via::Http2)) => Offer::Http2,
        (Via::Http2, Some(Via::WebSocket)) => Offer::Either,
        (Via::WebSocket, _) => Offer::Http1,
    };
    let connected = network.dial(offer).await?;
    // What the handshake settled needs no trial.
    let via = if connected.is_http1 { or.unwrap_or(via) } else { via };
    match via {
        Via::Http2 => over_http2(network.origin(), connected, token, hello, patience).await,
        Via::WebSocket => over_websocket(network.origin(), connected, token, hello, patience).await,
    }
}

async fn over_http2(
    (authority, scheme): (Authority, Scheme),
    Connected { stream, pace, .. }: Connected,
    token: Option<&str>,
    hello: Hello,
    patience: Duration,
) -> Result<(Connection, Dialed), DialFailure> {
    let dialing = grpc::dial(stream, pace, authority, scheme, token, hello);
    let (connection, answer) = dialing.await.map_err(DialFailure::Rpc)?;
    let connection = async move {
        let result = connection.await;
        debug!(?result, "the link's connection ended");
    };
    welcomed(Box::pin(connection), answer, patience).await
}

async fn over_websocket(
    (authority, _scheme): (Authority, Scheme),
    Connected { stream, pace, .. }: Connected,
    token: Option<&str>,
    hello: Hello,
    patience: Duration,
) -> Result<(Connection, Dialed), DialFailure> {
    let dialing = timeout(patience, websocket::dial(stream, pace, authority, token, hello));
    let (carrier, answer) =
        dialing.await.map_err(|_elapsed| DialFailure::WelcomeTimedOut)?.map_err(DialFailure::Rpc)?;
    let connection = async move {
        let result = carrier.await;
        debug!(?result, "the link's WebSocket ended");
    };
    welcomed(Box::pin(connection), answer, patience).await
}

/// Waits for the Welcome while the connection is driven.
async fn welcomed(
    mut connection: Connection,
    answer: impl Future<Output = Result<Dialed, ConnectError>>,
    limit: Duration,
) -> Result<(Connection, Dialed), DialFailure> {
    let mut answer = pin!(timeout(limit, answer));
    let answer = tokio::select! {
        biased;
        answer = answer.as_mut() => answer,
        () = connection.as_mut() => {
            // What was received before the end is still there to be read.
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
