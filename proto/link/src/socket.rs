//! Options of all TCP sockets: no byte waits in a kernel queue without need.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::pace::QUEUE_BYTES_MAX;

/// Longest time that sent bytes stay unacknowledged before the kernel gives a link up: half-dead NAT paths.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Silence after which the kernel asks whether the machine at the other end is still there, the interval of its
/// questions, and their number.
const PROBE_AFTER: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(15);
const PROBES: u32 = 4;

/// Sets the options of every connection: small writes leave at once (measured: without it, 40 ms stalls on loopback).
///
/// # Errors
/// The kernel's, when the socket is gone already.
pub fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)
}

/// Sets the options of a link on top: a short kernel queue, and an end to paths that swallow everything.
///
/// # Errors
/// The kernel's, when the socket is gone already.
pub fn tune_link(stream: &TcpStream) -> io::Result<()> {
    tune(stream)?;
    #[cfg(target_os = "linux")]
    SockRef::from(stream).set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    limit_queue(stream, QUEUE_BYTES_MAX);
    Ok(())
}

/// Bounds the unsent bytes that the kernel holds for a link: above it the socket is not writable. Returns the largest
/// segment that it sends, in bytes.
pub fn limit_queue(stream: &TcpStream, bytes: usize) -> Option<usize> {
    let socket = SockRef::from(stream);
    #[cfg(target_os = "linux")]
    {
        // A socket that is gone says so at the next read or write.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        socket.set_tcp_notsent_lowat(bytes).ok();
    }
    #[cfg(not(target_os = "linux"))]
    let _ = bytes;
    usize::try_from(socket.tcp_mss().ok()?).ok()
}

/// Bounds the time that sent bytes stay unacknowledged, or unread at the other end, before the kernel gives a
/// connection up.
pub fn limit_stall(stream: &TcpStream, limit: Duration) {
    #[cfg(target_os = "linux")]
    SockRef::from(stream).set_tcp_user_timeout(Some(limit)).ok();
    #[cfg(not(target_os = "linux"))]
    let _ = (stream, limit);
}

/// Makes the kernel notice that a machine at the other end is gone without a word: a lid that was closed, a NAT entry that
/// was forgotten. For connections on which the protocol above has no ping of its own, such as HTTP/1.1 with an event
/// stream that says nothing.
///
/// # Errors
/// The kernel's, when the socket is gone already.
pub fn probe(stream: &TcpStream) -> io::Result<()> {
    let probes = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY).with_retries(PROBES);
    SockRef::from(stream).set_tcp_keepalive(&probes)
}
