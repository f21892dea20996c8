//! Network as an agent needs it. The simulation puts another one in its place.

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;

use http::uri::{Authority, Scheme};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::Instant;
use tracing::debug;
use tunnel_proto::inspector::INSPECTOR_PORT;
use tunnel_proto::listening::{LISTENING_BYTES_MAX, LISTENING_PORT, Listening};
use tunnel_proto::reason::Reason;
use tunnel_proto::ssh::SSH_PORT;
use tunnel_proto::target::{AppTls, Target};
use tunnel_proto::terminal::TERMINAL_PORT;

use super::connect::{Gateway, GatewayConnection, Offer};
use super::decide::DialFailure;
use super::socket::AppSocket;
use crate::Terminals;
use crate::inspector::{Inspector, WatchedApp};
use crate::ports::{self, OwnPorts, Ports};
use crate::ssh::SshServer;
use crate::{app_tls, busy, labels, start_commands};

/// Access of an agent to its gateway, and to the ports of its own machine.
pub trait Network: Send + Sync + 'static {
    /// A connection to a local port.
    type Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Connects to the gateway. A TLS handshake offers the versions of HTTP in `offer`.
    ///
    /// # Errors
    /// [`DialFailure`] names the step that failed.
    fn dial(&self, offer: Offer) -> impl Future<Output = Result<GatewayConnection, DialFailure>> + Send;

    /// Returns the request's `:authority` and `:scheme`.
    fn origin(&self) -> (Authority, Scheme);

    /// Returns the proxy that leads to the gateway, for people.
    fn proxy(&self) -> Option<String> {
        None
    }

    /// Connects to a port of this machine, and speaks TLS there if that is wanted.
    ///
    /// # Errors
    /// The reason that the other side is told.
    fn port(&self, target: Target) -> impl Future<Output = Result<Self::Socket, Reason>> + Send;

    /// Returns the TLS of an app, as this agent's own settings say it: for gateways that do not know that an app may speak it.
    fn own_tls(&self, _port: u16) -> AppTls {
        AppTls::None
    }

    /// Breaks a connection to a local port, so that its app does not take it for one that ended.
    fn reset(socket: Self::Socket) {
        drop(socket);
    }
}

/// The machine that this process runs on.
#[derive(Clone, Debug)]
pub struct LocalMachine {
    /// The gateway.
    pub gateway: Gateway,
    /// Ports that may be reached.
    pub ports: Arc<Ports>,
    /// The terminals behind [`TERMINAL_PORT`], if there are any.
    pub terminals: Option<Terminals>,
    /// The SSH server behind [`SSH_PORT`], if there is one.
    pub ssh: Option<SshServer>,
    /// The request inspector behind [`INSPECTOR_PORT`], if there is one.
    pub inspector: Option<Inspector>,
    /// Folder of the logs of the workspace's containers, if it is in a pod.
    pub logs: Option<Arc<Path>>,
}

impl LocalMachine {
    /// Answers the gateway's question for the ports on which something listens, and for the commands of the start.
    async fn listening(&self) -> Result<DuplexStream, Reason> {
        let (ports, logs) = (self.ports.clone(), self.logs.clone());
        let own = OwnPorts {
            terminal: self.terminals.is_some(),
            ssh: self.ssh.is_some(),
            inspector: self.inspector.is_some(),
        };
        let read = tokio::task::spawn_blocking(move || {
            let commands = logs.as_deref().map(start_commands::read).unwrap_or_default();
            let busy = busy::read(&busy::folder()).map(|age| u32::try_from(age.as_secs()).unwrap_or(u32::MAX));
            let found = ports::listening(&ports, own)?;
            let labels = labels::of(&found, &ports.names);
            Ok::<_, io::Error>(Listening { ports: found, labels, commands, busy_seconds: busy })
        });
        let found = read.await.map_err(|_broken| Reason::Cancelled)?.map_err(|error| {
            debug!(%error, "the ports that listen cannot be read");
            Reason::Cancelled
        })?;
        let (near, mut far) = duplex(LISTENING_BYTES_MAX);
        // There is room for all of it, and dropping this end ends the message.
        far.write_all(&found.encode()).await.map_err(|_closed| Reason::Cancelled)?;
        Ok(near)
    }
}

impl LocalMachine {
    /// Connects to an app.
    async fn app(&self, Target { port, tls }: Target) -> Result<AppSocket, Reason> {
        let stream = ports::connect(&self.ports, port).await?;
        match tls {
            AppTls::None => Ok(AppSocket::Tcp(stream)),
            AppTls::Http1 | AppTls::Http2 => Box::pin(app_tls::connect(stream, tls)).await.map(AppSocket::Tls),
        }
    }

    /// The same for an agent with an inspector: serves its pages, or connects to an app with a recorder beside the connection.
    async fn inspected(&self, target: Target, inspector: &Inspector) -> Result<AppSocket, Reason> {
        let Target { port, tls } = target;
        if port == INSPECTOR_PORT && !self.ports.denied.contains(&port) {
            return inspector.open(&self.ports).map(AppSocket::Own);
        }
        let began = Instant::now();
        let socket = self.app(target).await?;
        let is_tls = match tls {
            AppTls::None => false,
            AppTls::Http1 | AppTls::Http2 => true,
        };
        Ok(AppSocket::Recorded(Box::new(inspector.watch(socket, WatchedApp { port, is_tls }, began))))
    }
}

impl Network for LocalMachine {
    type Socket = AppSocket;

    async fn dial(&self, offer: Offer) -> Result<GatewayConnection, DialFailure> {
        self.gateway.connect(offer).await
    }

    fn proxy(&self) -> Option<String> {
        self.gateway.proxy().map(ToString::to_string)
    }

    fn origin(&self) -> (Authority, Scheme) {
        self.gateway.origin()
    }

    async fn port(&self, Target { port, tls }: Target) -> Result<AppSocket, Reason> {
        if port == LISTENING_PORT {
            return self.listening().await.map(AppSocket::Own);
        }
        if let Some(ssh) = self.ssh.as_ref().filter(|_| port == SSH_PORT && !self.ports.denied.contains(&port)) {
            // Boxed, as TLS below: every channel would keep room for what few need.
            return Box::pin(ssh.open()).await.map(AppSocket::Ssh);
        }
        match &self.terminals {
            // The terminals' port is none of the machine's, so it is open even if other ports are named.
            Some(terminals) if port == TERMINAL_PORT && !self.ports.denied.contains(&port) => {
                terminals.open().map(AppSocket::Own)
            }
            // Without an inspector, this is all that it costs: one look at an option for each channel.
            Some(_) | None => match &self.inspector {
                None => self.app(Target { port, tls }).await,
                Some(inspector) => Box::pin(self.inspected(Target { port, tls }, inspector)).await,
            },
        }
    }

    fn own_tls(&self, port: u16) -> AppTls {
        self.ports.tls_of(port)
    }

    fn reset(socket: AppSocket) {
        match socket {
            // A socket that is gone needs no reset.
            AppSocket::Tcp(socket) => socket.set_zero_linger().unwrap_or_default(),
            AppSocket::Tls(socket) => socket.get_ref().0.set_zero_linger().unwrap_or_default(),
            AppSocket::Recorded(tee) => Self::reset(tee.into_socket("the user's connection broke")),
            AppSocket::Own(io) => drop(io),
            AppSocket::Ssh(connection) => drop(connection),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::client::TlsStream;

    use super::*;
    use crate::ssh::SshConnection;

    /// Sockets of an agent without an inspector.
    #[expect(dead_code, reason = "its size is what counts")]
    enum BareSocket {
        Tcp(TcpStream),
        Tls(Box<TlsStream<TcpStream>>),
        Own(DuplexStream),
        Ssh(SshConnection),
    }

    #[tokio::test]
    async fn channels_of_an_agent_without_an_inspector_have_the_sockets_that_they_always_had() {
        let app = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let target = Target { port: app.local_addr().expect("bound").port(), tls: AppTls::None };
        let machine = |inspector| LocalMachine {
            gateway: Gateway::parse("http://127.0.0.1:1", None).expect("an address"),
            ports: Arc::default(),
            terminals: None,
            ssh: None,
            inspector,
            logs: None,
        };
        assert!(matches!(machine(None).port(target).await, Ok(AppSocket::Tcp(_))));
        let inspector = machine(Some(Inspector::new()));
        assert!(matches!(inspector.port(target).await, Ok(AppSocket::Recorded(_))));
        assert_eq!(size_of::<AppSocket>(), size_of::<BareSocket>(), "and no larger ones");
    }
}
