//! Connects to a host and a port: the part that all programs which dial a gateway share.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Longest time for resolving and connecting together.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time for the TLS handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Sets the options of a socket that has just connected: [`socket::tune`](crate::socket::tune), or
/// [`socket::tune_link`](crate::socket::tune_link) for an agent's link.
pub type Tune = fn(&TcpStream) -> io::Result<()>;

/// A connected stream, with or without TLS.
pub trait DialedStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> DialedStream for S {}

/// Resolves and connects, trying every address of a name.
///
/// # Errors
/// The system's, of the last address that was tried; [`io::ErrorKind::TimedOut`] after [`CONNECT_TIMEOUT`].
///
/// Cancel safety: safe; a half-made connection is closed.
pub async fn tcp(host: &str, port: u16, tune: Tune) -> io::Result<TcpStream> {
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port)));
    let stream = connecting.await.map_err(|_elapsed| io::ErrorKind::TimedOut)??;
    tune(&stream)?;
    Ok(stream)
}
