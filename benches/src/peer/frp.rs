//! frp: its HTTP proxy, which routes by host, and its TCP proxy.

use std::net::SocketAddr;

use futures_util::FutureExt as _;

use super::crew::Crew;
use super::program::{Invocation, PeerProgram, Programs, free_address, wait_for_listener};
use super::{HOST, Peer, RoutingKind};

const SOURCE: &str = "built from source: Go module github.com/fatedier/frp, see benches/README.md";
const PROGRAMS: Programs = Programs(&[
    PeerProgram { name: "frps", version: "--version", source: SOURCE },
    PeerProgram { name: "frpc", version: "", source: SOURCE },
]);

/// frp's HTTP proxy.
pub(super) const FRP_HTTP: Peer = Peer {
    name: "frp-http",
    kind: RoutingKind::Host,
    encrypted: true,
    programs: PROGRAMS,
    about: "frp, HTTP proxy routing by host, TLS on (its default)",
    raise: |crew| forward(crew, Proxy::Http, true).boxed(),
};

/// frp's HTTP proxy without TLS.
pub(super) const FRP_HTTP_PLAIN: Peer = Peer {
    name: "frp-http-plain",
    kind: RoutingKind::Host,
    encrypted: false,
    programs: PROGRAMS,
    about: "frp, HTTP proxy routing by host, TLS off",
    raise: |crew| forward(crew, Proxy::Http, false).boxed(),
};

/// frp's TCP proxy.
pub(super) const FRP_TCP: Peer = Peer {
    name: "frp-tcp",
    kind: RoutingKind::Port,
    encrypted: true,
    programs: PROGRAMS,
    about: "frp, TCP proxy, TLS on (its default)",
    raise: |crew| forward(crew, Proxy::Tcp, true).boxed(),
};

#[derive(Clone, Copy)]
enum Proxy {
    Http,
    Tcp,
}

async fn forward(crew: &mut Crew, proxy: Proxy, encrypted: bool) -> anyhow::Result<SocketAddr> {
    let (control, listen) = (free_address()?, free_address()?);
    let (ip, port) = (control.ip(), listen.port());
    let virtual_hosts = match proxy {
        Proxy::Http => format!("vhostHTTPPort = {port}\n"),
        Proxy::Tcp => String::new(),
    };
    let text = format!(
        "bindAddr = \"{ip}\"\nproxyBindAddr = \"{ip}\"\nbindPort = {}\n{virtual_hosts}auth.token = \"loadlab\"\n\
         log.level = \"error\"\n",
        control.port()
    );
    let file = crew.write("frps.toml", &text)?;
    crew.server(Invocation::new("frps").arg("-c").arg(file))?;
    wait_for_listener(control).await?;
    let far = crew.over_link(control)?;
    let reached = match proxy {
        Proxy::Http => format!("type = \"http\"\ncustomDomains = [\"{HOST}\"]\n"),
        Proxy::Tcp => format!("type = \"tcp\"\nremotePort = {port}\n"),
    };
    let text = format!(
        "serverAddr = \"{}\"\nserverPort = {}\nauth.token = \"loadlab\"\nlog.level = \"error\"\nloginFailExit = false\n\
         transport.tls.enable = {encrypted}\n[[proxies]]\nname = \"app\"\nlocalIP = \"{}\"\nlocalPort = {}\n{reached}",
        far.ip(),
        far.port(),
        crew.backend.ip(),
        crew.backend.port()
    );
    let file = crew.write("frpc.toml", &text)?;
    crew.agent(Invocation::new("frpc").arg("-c").arg(file))?;
    wait_for_listener(listen).await?;
    Ok(listen)
}
