//! What an agent needs of the network. The simulation puts another one in its place.

use std::future::Future;
use std::sync::Arc;

use http::uri::{Authority, Scheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tunnel_proto::reason::Reason;

use super::connect::{Connected, Gateway, Offer};
use super::decide::DialFailure;
use crate::ports::{self, Ports};

/// How an agent reaches its gateway, and the ports of its own machine.
pub trait Network: Send + Sync + 'static {
    /// A connection to a local port.
    type Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Connects to the gateway. A TLS handshake offers what the link may be carried by.
    ///
    /// # Errors
    /// [`DialFailure`] names the step that failed.
    fn dial(&self, offer: Offer) -> impl Future<Output = Result<Connected, DialFailure>> + Send;

    /// Returns what stands in the request's `:authority` and `:scheme`.
    fn origin(&self) -> (Authority, Scheme);

    /// Returns the proxy that leads to the gateway, for people.
    fn proxy(&self) -> Option<String> {
        None
    }

    /// Connects to a port of this machine.
    ///
    /// # Errors
    /// The reason that the other side is told.
    fn port(&self, port: u16) -> impl Future<Output = Result<Self::Socket, Reason>> + Send;

    /// Breaks a connection to a local port, so that its app does not take it for one that ended.
    fn reset(socket: Self::Socket) {
        drop(socket);
    }
}

/// The machine that this process runs on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The gateway.
    pub gateway: Gateway,
    /// Which ports may be reached.
    pub ports: Arc<Ports>,
}

impl Network for Machine {
    type Socket = TcpStream;

    async fn dial(&self, offer: Offer) -> Result<Connected, DialFailure> {
        self.gateway.connect(offer).await
    }

    fn proxy(&self) -> Option<String> {
        self.gateway.proxy().map(ToString::to_string)
    }

    fn origin(&self) -> (Authority, Scheme) {
        self.gateway.origin()
    }

    async fn port(&self, port: u16) -> Result<TcpStream, Reason> {
        ports::connect(&self.ports, port).await
    }

    fn reset(socket: TcpStream) {
        // A socket that is gone needs no reset.
        socket.set_zero_linger().ok();
    }
}
