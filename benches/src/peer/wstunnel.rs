//! wstunnel's reverse mode over WebSocket, WebSocket in TLS, and HTTP/2.

use std::net::SocketAddr;

use futures_util::FutureExt as _;

use super::crew::Crew;
use super::program::{Invocation, PeerProgram, Programs, free_address, wait_for_listener};
use super::{Peer, RoutingKind};

const PROGRAMS: Programs = Programs(&[PeerProgram {
    name: "wstunnel",
    version: "--version",
    source: "built from its repository; it is in no package registry",
}]);

/// wstunnel over WebSocket.
pub(super) const WSTUNNEL_WS: Peer = Peer {
    name: "wstunnel-ws",
    kind: RoutingKind::Port,
    encrypted: false,
    programs: PROGRAMS,
    about: "wstunnel, reverse mode over plain WebSocket",
    raise: |crew| forward(crew, "ws", "ws").boxed(),
};

/// wstunnel over WebSocket in TLS.
pub(super) const WSTUNNEL_WSS: Peer = Peer {
    name: "wstunnel-wss",
    kind: RoutingKind::Port,
    encrypted: true,
    programs: PROGRAMS,
    about: "wstunnel, reverse mode over WebSocket in TLS",
    raise: |crew| forward(crew, "wss", "wss").boxed(),
};

/// wstunnel over HTTP/2.
pub(super) const WSTUNNEL_H2: Peer = Peer {
    name: "wstunnel-h2",
    kind: RoutingKind::Port,
    encrypted: false,
    programs: PROGRAMS,
    about: "wstunnel, reverse mode over HTTP/2 without TLS",
    raise: |crew| forward(crew, "ws", "http").boxed(),
};

async fn forward(crew: &mut Crew, serves: &str, dials: &str) -> anyhow::Result<SocketAddr> {
    let (control, listen) = (free_address()?, free_address()?);
    let quiet = || Invocation::new("wstunnel").args(["--log-lvl", "ERROR"]);
    crew.server(quiet().arg("server").arg(format!("{serves}://{control}")))?;
    wait_for_listener(control).await?;
    let far = crew.over_link(control)?;
    let forward = format!("tcp://{listen}:{}", crew.backend);
    crew.agent(quiet().arg("client").arg("-R").arg(forward).arg(format!("{dials}://{far}")))?;
    wait_for_listener(listen).await?;
    Ok(listen)
}
