//! Options of every TCP socket: nothing waits in a kernel queue that need not.

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

/// Unsent bytes that the kernel may hold on a link. Above it the socket is not writable, so that urgent frames
/// do not queue behind megabytes there (stack notes, 2.3).
const NOT_SENT_BYTES: u32 = 128 * 1024;

/// How long sent bytes may stay unacknowledged before the kernel gives a link up: half-dead NAT paths.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Sets what every connection needs: small writes leave at once (measured: without it, 40 ms stalls on loopback).
///
/// # Errors
/// The kernel's, when the socket is gone already.
pub fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)
}

/// Sets what a link needs on top: a short kernel queue, and an end to paths that swallow everything.
///
/// # Errors
/// The kernel's, when the socket is gone already.
pub fn tune_link(stream: &TcpStream) -> io::Result<()> {
    tune(stream)?;
    #[cfg(target_os = "linux")]
    {
        let socket = SockRef::from(stream);
        socket.set_tcp_notsent_lowat(NOT_SENT_BYTES)?;
        socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    }
    Ok(())
}
