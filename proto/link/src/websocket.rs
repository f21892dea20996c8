//! The same RPC inside a WebSocket (RFC 6455), for networks that HTTP/2 cannot pass.
//!
//! Each binary message holds whole gRPC messages, byte for byte the contents of one piece of HTTP/2 data. HTTP/2's
//! trailers become a binary message of their own that begins with the flag 0x80, as gRPC-Web has it. The request is a
//! GET of the RPC's path; an agent that is turned away before the switch reads the same `grpc-…` headers as from
//! HTTP/2.

mod carry;
mod client;
mod server;
mod trailers;
mod whole;

use std::time::Duration;

use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tunnel_proto::limit::FRAME_BYTES_MAX;

pub use self::carry::{CarryError, MessageBody};
pub use self::client::dial;
pub use self::server::{Handshake, HelloAnswer, NoHandshake, refuse_response, serve, switch_response};

use crate::grpc::PREFIX_BYTES;

/// The subprotocol that both ends name (`Sec-WebSocket-Protocol`).
pub const PROTOCOL: &str = "tunnel.v1";

/// Largest message that is accepted, whole or in fragments: the largest frame, with its prefix.
const MESSAGE_BYTES_MAX: usize = PREFIX_BYTES + FRAME_BYTES_MAX;

/// Most bytes that are read at once. Each WebSocket holds them also when idle.
const READ_BYTES: usize = 16 * 1024;

/// Room for answers to pings beside the one message that is being written.
const CONTROL_BYTES: usize = 1024;

/// Messages that wait for the session. Its reader never waits for a peer, so they wait for a turn of its task only.
const MESSAGES_MAX: usize = 4;

/// Longest time that a WebSocket goes on after its link is over: to write the last frames and to hear that it is
/// closed.
const LINGER: Duration = Duration::from_secs(2);

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        // Nothing is gathered here: the session decides what waits.
        .write_buffer_size(0)
        .max_write_buffer_size(MESSAGE_BYTES_MAX + CONTROL_BYTES)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
}
