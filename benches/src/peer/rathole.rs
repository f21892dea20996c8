//! rathole, with each of its transports.

use std::net::SocketAddr;

use anyhow::Context as _;
use futures_util::FutureExt as _;

use super::crew::Crew;
use super::nginx::{NGINX_PROGRAM, front};
use super::program::{Invocation, PeerProgram, Programs, free_address, wait_for_listener};
use super::{Peer, RoutingKind};

const PROGRAM: PeerProgram = PeerProgram { name: "rathole", version: "--version", source: "cargo install rathole" };
const OPENSSL: PeerProgram = PeerProgram { name: "openssl", version: "", source: "Debian package openssl" };

/// rathole over plain TCP.
pub(super) const RATHOLE: Peer = Peer {
    name: "rathole",
    kind: RoutingKind::Port,
    encrypted: false,
    programs: Programs(&[PROGRAM]),
    about: "rathole, plain TCP",
    raise: |crew| forward(crew, Transport::Tcp).boxed(),
};

/// rathole over TLS.
pub(super) const RATHOLE_TLS: Peer = Peer {
    name: "rathole-tls",
    kind: RoutingKind::Port,
    encrypted: true,
    programs: Programs(&[PROGRAM, OPENSSL]),
    about: "rathole, TLS (a handshake for each connection)",
    raise: |crew| forward(crew, Transport::Tls).boxed(),
};

/// rathole over Noise.
pub(super) const RATHOLE_NOISE: Peer = Peer {
    name: "rathole-noise",
    kind: RoutingKind::Port,
    encrypted: true,
    programs: Programs(&[PROGRAM]),
    about: "rathole, Noise",
    raise: |crew| forward(crew, Transport::Noise).boxed(),
};

/// nginx in front of rathole.
pub(super) const NGINX_RATHOLE: Peer = Peer {
    name: "nginx+rathole",
    kind: RoutingKind::Host,
    encrypted: false,
    programs: Programs(&[NGINX_PROGRAM, PROGRAM]),
    about: "nginx routing by host in front of rathole over plain TCP",
    raise: |crew| {
        async {
            let port = forward(crew, Transport::Tcp).await?;
            front(crew, port).await
        }
        .boxed()
    },
};

#[derive(Clone, Copy)]
enum Transport {
    Tcp,
    Tls,
    Noise,
}

/// Lines of the two files about the transport.
struct Sections {
    kind: &'static str,
    server: String,
    client: String,
}

async fn forward(crew: &mut Crew, transport: Transport) -> anyhow::Result<SocketAddr> {
    let Sections { kind, server, client } = match transport {
        Transport::Tcp => Sections { kind: "tcp", server: String::new(), client: String::new() },
        Transport::Tls => tls(crew).await?,
        Transport::Noise => noise(crew).await?,
    };
    let (control, listen) = (free_address()?, free_address()?);
    let text = format!(
        "[server]\nbind_addr = \"{control}\"\ndefault_token = \"loadlab\"\n[server.transport]\ntype = \"{kind}\"\n\
         {server}[server.services.app]\nbind_addr = \"{listen}\"\n"
    );
    let file = crew.write("server.toml", &text)?;
    crew.server(Invocation::new("rathole").arg("--server").arg(file).env("RUST_LOG", "error"))?;
    wait_for_listener(control).await?;
    let far = crew.over_link(control)?;
    let text = format!(
        "[client]\nremote_addr = \"{far}\"\ndefault_token = \"loadlab\"\n[client.transport]\ntype = \"{kind}\"\n\
         {client}[client.services.app]\nlocal_addr = \"{}\"\n",
        crew.backend
    );
    let file = crew.write("client.toml", &text)?;
    crew.agent(Invocation::new("rathole").arg("--client").arg(file).env("RUST_LOG", "error"))?;
    wait_for_listener(listen).await?;
    Ok(listen)
}

/// Makes the certificate. rathole reads it from a PKCS #12 file only, hence openssl.
async fn tls(crew: &Crew) -> anyhow::Result<Sections> {
    let directory = crew.directory();
    crew.write("extensions", "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n")?;
    let commands = [
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=loadlab",
        "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost",
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile extensions",
        "pkcs12 -export -out server.pfx -inkey server.key -in server.crt -certfile ca.crt -passout pass:loadlab",
    ];
    for command in commands {
        Invocation::new("openssl").args(command.split(' ')).output(directory).await?;
    }
    let folder = directory.display();
    Ok(Sections {
        kind: "tls",
        server: format!("[server.transport.tls]\npkcs12 = \"{folder}/server.pfx\"\npkcs12_password = \"loadlab\"\n"),
        client: format!("[client.transport.tls]\ntrusted_root = \"{folder}/ca.crt\"\nhostname = \"localhost\"\n"),
    })
}

async fn noise(crew: &Crew) -> anyhow::Result<Sections> {
    let printed = Invocation::new("rathole").arg("--genkey").output(crew.directory()).await?;
    let after = |title: &str| {
        let mut lines = printed.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.by_ref().find(|line| *line == title)?;
        lines.next().map(str::to_owned)
    };
    let private = after("Private Key:").context("rathole printed no private key")?;
    let public = after("Public Key:").context("rathole printed no public key")?;
    Ok(Sections {
        kind: "noise",
        server: format!("[server.transport.noise]\nlocal_private_key = \"{private}\"\n"),
        client: format!("[client.transport.noise]\nremote_public_key = \"{public}\"\n"),
    })
}
