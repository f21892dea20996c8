//! Local end of a channel: a connection to a port of this machine, or a stream that this process serves by itself.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::inspector::Tee;
use crate::ssh::SshConnection;

/// Local end of a channel. Telling the kinds apart costs a comparison for each read and write, and no allocation.
#[derive(Debug)]
pub enum AppSocket {
    /// An app's port.
    Tcp(TcpStream),
    /// The port of an app that speaks TLS.
    Tls(Box<TlsStream<TcpStream>>),
    /// Stream of this process: its terminals, or its answer about ports.
    Own(DuplexStream),
    /// An SSH server of this process.
    Ssh(SshConnection),
    /// An app's port, with the recorder of the request inspector beside it.
    Recorded(Box<Tee<Self>>),
}

impl AsyncRead for AppSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_read(context, buffer),
            Self::Tls(socket) => Pin::new(socket.as_mut()).poll_read(context, buffer),
            Self::Own(io) => Pin::new(io).poll_read(context, buffer),
            Self::Ssh(ssh) => Pin::new(&mut ssh.stream).poll_read(context, buffer),
            Self::Recorded(tee) => Pin::new(tee.as_mut()).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for AppSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write(context, bytes),
            Self::Tls(socket) => Pin::new(socket.as_mut()).poll_write(context, bytes),
            Self::Own(io) => Pin::new(io).poll_write(context, bytes),
            Self::Ssh(ssh) => Pin::new(&mut ssh.stream).poll_write(context, bytes),
            Self::Recorded(tee) => Pin::new(tee.as_mut()).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write_vectored(context, buffers),
            Self::Tls(socket) => Pin::new(socket.as_mut()).poll_write_vectored(context, buffers),
            Self::Own(io) => Pin::new(io).poll_write_vectored(context, buffers),
            Self::Ssh(ssh) => Pin::new(&mut ssh.stream).poll_write_vectored(context, buffers),
            Self::Recorded(tee) => Pin::new(tee.as_mut()).poll_write_vectored(context, buffers),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(socket) => socket.is_write_vectored(),
            Self::Tls(socket) => socket.is_write_vectored(),
            Self::Own(io) => io.is_write_vectored(),
            Self::Ssh(ssh) => ssh.stream.is_write_vectored(),
            Self::Recorded(tee) => tee.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_flush(context),
            Self::Tls(socket) => Pin::new(socket.as_mut()).poll_flush(context),
            Self::Own(io) => Pin::new(io).poll_flush(context),
            Self::Ssh(ssh) => Pin::new(&mut ssh.stream).poll_flush(context),
            Self::Recorded(tee) => Pin::new(tee.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_shutdown(context),
            Self::Tls(socket) => Pin::new(socket.as_mut()).poll_shutdown(context),
            Self::Own(io) => Pin::new(io).poll_shutdown(context),
            Self::Ssh(ssh) => Pin::new(&mut ssh.stream).poll_shutdown(context),
            Self::Recorded(tee) => Pin::new(tee.as_mut()).poll_shutdown(context),
        }
    }
}
