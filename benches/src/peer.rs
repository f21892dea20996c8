//! Programs that a user could choose instead of the gateway: how each is started, and whether its answers are right.
//!
//! A peer stands between the load and the app: its serving half listens for users, its dialling half sits beside the
//! app. Every start is followed by [`check::Checker::verify`]; a peer that changes a byte is not measured.

pub mod bore;
pub mod check;
pub mod chisel;
pub mod compare;
pub mod crew;
pub mod direct;
pub mod frp;
pub mod haproxy;
pub mod meter;
pub mod nginx;
pub mod program;
pub mod rathole;
pub mod ssh;
pub mod subject;
pub mod wrk;
pub mod wstunnel;

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context as _;
use futures_util::future::BoxFuture;

use crate::relay::LinkSpec;
use crate::target::LoadTarget;
use crew::{Crew, RunningPeer};
use program::Programs;

/// Host name under which every peer serves the app.
pub const HOST: &str = "app.loadlab.test";

/// Routing of a peer to one of several apps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoutingKind {
    /// By the `Host` header, on one port for all apps, as the gateway does.
    Host,
    /// By the port: each app has one of its own, and HTTP is opaque bytes.
    Port,
}

impl RoutingKind {
    /// Returns the word for tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Port => "port",
        }
    }
}

/// Starts a peer's processes in order and returns the address for users.
type Raise = for<'a> fn(&'a mut Crew) -> BoxFuture<'a, anyhow::Result<SocketAddr>>;

/// One way to reach an app behind a machine that dials out.
pub struct Peer {
    /// The name on the command line and in tables.
    pub name: &'static str,
    /// Routing of the peer.
    pub kind: RoutingKind,
    /// Whether the hop between its two halves is encrypted.
    pub encrypted: bool,
    /// The programs that it is made of.
    pub programs: Programs,
    /// One line for the list.
    pub about: &'static str,
    raise: Raise,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Peer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Every peer the lab knows, in the order of the tables.
pub static PEERS: &[Peer] = &[
    direct::DIRECT,
    nginx::NGINX,
    nginx::NGINX_NGINX,
    nginx::NGINX_NGINX_TLS,
    nginx::NGINX_THREE,
    nginx::NGINX_THREE_TLS,
    haproxy::HAPROXY_HAPROXY,
    ssh::SSH,
    ssh::NGINX_SSH,
    rathole::RATHOLE,
    rathole::RATHOLE_TLS,
    rathole::RATHOLE_NOISE,
    rathole::NGINX_RATHOLE,
    frp::FRP_HTTP,
    frp::FRP_HTTP_PLAIN,
    frp::FRP_TCP,
    chisel::CHISEL,
    bore::BORE,
    wstunnel::WSTUNNEL_WS,
    wstunnel::WSTUNNEL_WSS,
    wstunnel::WSTUNNEL_H2,
];

/// Finds a peer by name.
///
/// # Errors
/// Names the known ones if there is no such peer.
pub fn find(name: &str) -> anyhow::Result<&'static Peer> {
    PEERS.iter().find(|peer| peer.name == name).with_context(|| {
        let known: Vec<_> = PEERS.iter().map(|peer| peer.name).collect();
        format!("no peer is called {name:?}; known are {}", known.join(", "))
    })
}

impl Peer {
    /// Returns the reason that this peer cannot run here; `None` if it can.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        self.programs.missing()
    }

    /// Returns the versions of its programs, as they print them.
    pub async fn version(&self) -> String {
        self.programs.versions().await
    }

    /// Starts this peer in front of `backend`, with its files in `directory`, and waits until it answers.
    ///
    /// With a `link`, its two halves talk through a relay of that shape.
    ///
    /// # Errors
    /// Fails if a program is missing, does not start, or does not answer in time; the tail of the peer's log is in the
    /// message. Started processes are stopped.
    pub async fn start(
        &self,
        backend: SocketAddr,
        directory: &Path,
        link: Option<&LinkSpec>,
    ) -> anyhow::Result<RunningPeer> {
        if let Some(why) = self.missing() {
            anyhow::bail!("{}: {why}", self.name);
        }
        let mut crew = Crew::new(backend, directory, link.copied())?;
        let started = match (self.raise)(&mut crew).await {
            Ok(address) => {
                let target = LoadTarget::plain(address, HOST);
                check::wait_until_answering(&target).await.map(|()| target)
            }
            Err(error) => Err(error),
        };
        match started {
            Ok(target) => Ok(crew.into_running(target)),
            Err(error) => {
                let log = crew.log_tail();
                crew.stop().await;
                Err(error.context(format!("{} did not start{log}", self.name)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_a_name_of_its_own() {
        let mut names: Vec<_> = PEERS.iter().map(|peer| peer.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PEERS.len());
    }

    #[test]
    fn unknown_peer_is_answered_with_the_known_ones() {
        let message = find("nginxx").unwrap_err().to_string();
        assert!(message.contains("\"nginxx\"") && message.contains("nginx-nginx-tls"), "{message}");
    }
}
