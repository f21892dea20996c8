//! bore: a port forwarder without encryption.

use std::net::{Ipv4Addr, SocketAddr};

use futures_util::FutureExt as _;

use super::program::{Invocation, PeerProgram, Programs, free_address, wait_for_listener};
use super::{Peer, RoutingKind};

/// bore's control port is a constant of the program.
const CONTROL_PORT: u16 = 7835;

/// Address of a link to that port: only the address can differ.
const FAR_IP: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// bore.
pub(super) const BORE: Peer = Peer {
    name: "bore",
    kind: RoutingKind::Port,
    encrypted: false,
    programs: Programs(&[PeerProgram { name: "bore", version: "--version", source: "cargo install bore-cli" }]),
    about: "bore, one connection through the server for each of a user's",
    raise: |crew| {
        async {
            let control = SocketAddr::from((Ipv4Addr::LOCALHOST, CONTROL_PORT));
            if tokio::net::TcpStream::connect(control).await.is_ok() {
                anyhow::bail!("port {CONTROL_PORT}, which bore cannot change, is taken");
            }
            let ip = control.ip().to_string();
            crew.server(Invocation::new("bore").args(["server", "--min-port", "20000", "--bind-addr"]).arg(&ip))?;
            wait_for_listener(control).await?;
            let far = crew.over_link_at(SocketAddr::from((FAR_IP, CONTROL_PORT)), control)?;
            let listen = free_address()?;
            let agent = Invocation::new("bore")
                .arg("local")
                .arg(crew.backend.port().to_string())
                .arg("--local-host")
                .arg(crew.backend.ip().to_string())
                .arg("--to")
                .arg(far.ip().to_string())
                .arg("--port")
                .arg(listen.port().to_string());
            crew.agent(agent)?;
            wait_for_listener(listen).await?;
            Ok(listen)
        }
        .boxed()
    },
};
