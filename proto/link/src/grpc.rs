//! The tunnel's RPC on hyper's HTTP/2, both ends: gRPC on the wire, so that any HTTP/2 load balancer carries it.
//!
//! tonic is not in this path: it copies each payload once per direction and hides the knobs that bound what waits
//! below the scheduler (decision record 2026-11-21, tunnel RPC on hyper).

mod client;
mod decode;
mod encode;
mod server;

pub use self::client::{ConnectError, Dialed, dial};
pub use self::decode::{FrameReader, ReadError};
pub use self::encode::{Chunk, Outgoing};
pub use self::server::{Code, Refused, accept_response, is_tunnel_request, refuse_response, server_builder};

use crate::session::Session;
use hyper::body::{Body, Bytes};
use tunnel_proto::mux::SessionError;

/// Path of the RPC: `/package.Service/Method`.
pub const PATH: &str = "/tunnel.v1.Tunnel/Connect";

/// What HTTP/2 may hold for one stream and for one connection, in bytes. Large, because per-channel credit is what
/// bounds memory, and because small unread frames are charged against half of it (stack notes, 2.2).
const H2_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// Largest HTTP/2 frame that is accepted: a whole bulk frame and small ones before it fit into one.
const H2_FRAME_BYTES: u32 = 128 * 1024;

/// What may wait in HTTP/2 below the scheduler. One bulk frame: with more, a keystroke would queue there.
const H2_SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Bound on the headers of the RPC.
const H2_HEADER_BYTES: u32 = 16 * 1024;

/// Feeds a session with what arrives on its link, until either ends. Returns why.
///
/// Cancel safety: not resumable; dropping it leaves the session without input, so call [`Session::link_lost`] then.
pub async fn drive<B>(session: &Session, mut reader: FrameReader<B>) -> SessionError
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let error = loop {
        let step = tokio::select! {
            () = session.ended() => break session.end().unwrap_or(SessionError::Ended),
            more = reader.fill() => match more {
                Ok(true) => session.handle_frames(|| reader.next_buffered()),
                Ok(false) => break SessionError::Ended,
                Err(error) => {
                    tracing::debug!(%error, "the link broke");
                    break SessionError::Ended;
                }
            },
            () = sleep_until(session.poll_timeout()) => session.handle_timeout(),
        };
        if let Err(error) = step {
            break error;
        }
    };
    match error {
        // The link is gone, so nothing more can be said on it.
        SessionError::Ended => session.link_lost(),
        SessionError::Frame(_)
        | SessionError::Sequence { .. }
        | SessionError::Acknowledged { .. }
        | SessionError::Unexpected { .. }
        | SessionError::ChannelOrder { .. }
        | SessionError::ChannelUnknown { .. }
        | SessionError::Exhausted
        | SessionError::KeepaliveTimedOut
        | SessionError::Closed { .. } => session.fail(error.clone()),
    }
    session.end().unwrap_or(error)
}

async fn sleep_until(deadline: Option<std::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
