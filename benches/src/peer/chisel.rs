//! chisel's reverse mode: SSH inside a WebSocket.

use futures_util::FutureExt as _;

use super::program::{Invocation, PeerProgram, Programs, free_address, wait_for_listener};
use super::{Peer, RoutingKind};

const SOURCE: &str = "built from source: Go module github.com/jpillora/chisel, see benches/README.md";

/// chisel.
pub(super) const CHISEL: Peer = Peer {
    name: "chisel",
    kind: RoutingKind::Port,
    encrypted: true,
    programs: Programs(&[PeerProgram { name: "chisel", version: "--version", source: SOURCE }]),
    about: "chisel, reverse mode (SSH inside a WebSocket)",
    raise: |crew| {
        async {
            let (control, listen) = (free_address()?, free_address()?);
            let server =
                Invocation::new("chisel").args(["server", "--reverse", "--host"]).arg(control.ip().to_string());
            crew.server(server.arg("--port").arg(control.port().to_string()))?;
            wait_for_listener(control).await?;
            let far = crew.over_link(control)?;
            let forward = format!("R:{listen}:{}", crew.backend);
            crew.agent(Invocation::new("chisel").arg("client").arg(format!("http://{far}")).arg(forward))?;
            wait_for_listener(listen).await?;
            Ok(listen)
        }
        .boxed()
    },
};
