//! Standard input and output as the local end of a stream, for ssh's ProxyCommand.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tunnel_link::raw::{CarriedBytes, RawSocket};

use super::super::tunnel::{PortTarget, Tunnel, TunnelError};

/// Standard input to read from, standard output to write to. Reading waits in a thread of its own, which cannot be
/// cancelled: the process must not wait for it at its end.
struct Stdio {
    input: File,
    output: Option<File>,
}

/// Carries bytes until both directions have finished.
pub(super) async fn carry(tunnel: &Tunnel, target: &PortTarget) -> Result<CarriedBytes, TunnelError> {
    let stdio = Stdio::open().map_err(TunnelError::Local)?;
    let (_stdio, ended) = tunnel.carry(target, RawSocket::new(stdio)).await;
    ended
}

impl Stdio {
    fn open() -> io::Result<Self> {
        // Not the standard library's own handles: those gather lines.
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        let file = |fd| File::from_std(std::fs::File::from(fd));
        Ok(Self { input: file(input), output: Some(file(output)) })
    }
}

impl AsyncRead for Stdio {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stdio {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.output {
            Some(output) => Pin::new(output).poll_write(context, bytes),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.output {
            Some(output) => Pin::new(output).poll_flush(context),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Closes standard output, so that its reader sees the end while standard input goes on.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(context))?;
        if self.output.take().is_some() {
            // The descriptor itself stays taken, by something harmless.
            let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
            rustix::stdio::dup2_stdout(&nowhere)?;
        }
        Poll::Ready(Ok(()))
    }
}
