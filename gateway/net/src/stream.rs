//! Byte stream of a connection, with or without TLS, as one type: no allocation and no virtual call per read or write.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tunnel_link::socket;

use super::certificate::{BadCertificate, Certificate};

/// An accepted connection.
#[derive(Debug)]
pub enum ClientStream {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS, after the handshake.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Result of the handshake (RFC 7301 and RFC 6066).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandshakeResult {
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// Protocol that ALPN chose, if the client offered any.
    pub alpn: Option<Alpn>,
    /// Name that the client asked for (SNI).
    pub server_name: Option<Box<str>>,
}

/// Protocol that a handshake chose. No other is spoken then (RFC 7301, section 3.2; RFC 9113, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// `http/1.1`
    Http1,
    /// `h2`
    Http2,
}

impl ClientStream {
    /// Returns the result of the handshake.
    #[must_use]
    pub fn negotiated(&self) -> HandshakeResult {
        match self {
            Self::Plain(_) => HandshakeResult::default(),
            Self::Tls(stream) => {
                let (_, connection) = stream.get_ref();
                HandshakeResult {
                    tls: true,
                    alpn: connection
                        .alpn_protocol()
                        .map(|chosen| if chosen == b"h2" { Alpn::Http2 } else { Alpn::Http1 }),
                    server_name: connection.server_name().map(Into::into),
                }
            }
        }
    }
}

impl ClientStream {
    /// Returns the fields of the client's certificate, if it sent one. TLS has verified its chain.
    ///
    /// # Errors
    /// [`BadCertificate`] if it cannot be read in one way only.
    pub fn certificate(&self) -> Result<Option<Certificate>, BadCertificate> {
        match self {
            Self::Plain(_) => Ok(None),
            Self::Tls(stream) => Certificate::of_chain(stream.get_ref().1.peer_certificates().unwrap_or_default()),
        }
    }

    /// Bounds the unsent bytes in the kernel's queue, for a link.
    pub fn limit_queue(&self, bytes: usize) -> Option<usize> {
        match self {
            Self::Plain(stream) => socket::limit_queue(stream, bytes),
            Self::Tls(stream) => socket::limit_queue(stream.get_ref().0, bytes),
        }
    }
}

macro_rules! either {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            ClientStream::Plain($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            ClientStream::Tls($stream) => {
                let $stream = Pin::new(&mut **$stream);
                $call
            }
        }
    };
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_shutdown(context))
    }
}
