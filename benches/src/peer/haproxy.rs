//! Two HAProxy in a row, in HTTP mode.

use std::net::SocketAddr;

use futures_util::FutureExt as _;

use super::crew::Crew;
use super::program::{Invocation, PeerProgram, Programs, free_address, wait_for_listener};
use super::{HOST, Peer, RoutingKind};

/// Two HAProxy in a row.
pub(super) const HAPROXY_HAPROXY: Peer = Peer {
    name: "haproxy-haproxy",
    kind: RoutingKind::Host,
    encrypted: false,
    programs: Programs(&[PeerProgram { name: "haproxy", version: "-v", source: "Debian package haproxy" }]),
    about: "two HAProxy in a row, HTTP mode",
    raise: |crew| {
        async {
            let (near, far) = (free_address()?, free_address()?);
            let second = hop(crew, "second", far, crew.backend)?;
            crew.agent(second)?;
            wait_for_listener(far).await?;
            let to = crew.over_link(far)?;
            let first = hop(crew, "first", near, to)?;
            crew.server(first)?;
            wait_for_listener(near).await?;
            Ok(near)
        }
        .boxed()
    },
};

fn hop(crew: &Crew, name: &str, listen: SocketAddr, to: SocketAddr) -> anyhow::Result<Invocation> {
    let text = format!(
        "global\n  nbthread 2\n  maxconn 9000\n\
         defaults\n  mode http\n  http-reuse always\n  timeout connect 5s\n  timeout client 900s\n  \
         timeout server 900s\n  timeout http-keep-alive 900s\n\
         frontend users\n  bind {listen}\n  use_backend app if {{ hdr(host) -i {HOST} }}\n\
         backend app\n  server next {to} maxconn 9000\n"
    );
    let file = crew.write(&format!("{name}.cfg"), &text)?;
    Ok(Invocation::new("haproxy").arg("-db").arg("-f").arg(file))
}
