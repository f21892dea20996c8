//! Raw streams: the bytes of one TCP connection inside a WebSocket (RFC 6455), between a user's program and the gateway.
//!
//! ```text
//! binary message      bytes, 1 to 64 KiB of them; where a message ends means nothing
//! text `finish`       no more bytes this way; the other way goes on, as after TCP's FIN
//! ping, pong          this end is there; each end says so on its own account
//! close 1000          both ways have finished: the one good end
//! close, any other    the stream broke; the reason is a name such as `session_lost`
//! ```
//!
//! Neither end looks into the bytes. Each end holds at most one message that the other has not taken.

mod carrier;
mod local;
mod pulse;

use std::time::Duration;

use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

pub use self::carrier::{CarriedBytes, Carrier, CarrierBroken, Goodbye, Piece};
pub use self::local::{Local, RawSocket};

/// The subprotocol that both ends name (`Sec-WebSocket-Protocol`).
pub const PROTOCOL: &str = "tcp.gateway.v1";

/// Path of a workspace's raw streams. Reserved on every workspace host, so it hides nothing of an app.
pub const PATH: &str = "/.gateway/tcp";

/// The text message that ends one direction.
const FINISH: &str = "finish";

/// Largest message, in bytes: the payload of a bulk frame of the tunnel fits in.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Most bytes that are read at once. Each stream holds them also when idle; a bulk message takes two reads.
const READ_BYTES: usize = 32 * 1024;

/// Room for pings and a close beside the one message that is being written, in bytes.
const CONTROL_BYTES: usize = 1024;

/// Longest piece, in bytes, that gets memory of its own: it would otherwise hold a whole read buffer for as long as it
/// is kept for a resume.
const PIECE_BYTES_SMALL: usize = 4 * 1024;

/// Interval at which each end says that it is there. Balancers and NAT gateways cut connections that are silent for a
/// minute or more.
pub const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Silent intervals in a row after which the other end counts as gone.
const SILENCES_MAX: u32 = 2;

/// Longest time for the other end to answer a good end.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest time for an end that was cut off to take the reason: with it a revocation still cuts within five seconds.
pub const CUT_TIMEOUT: Duration = Duration::from_millis(500);

/// Close codes (RFC 6455, section 7.4; those from 4000 are private).
pub mod code {
    /// Both directions have finished.
    pub const FINISHED: u16 = 1000;
    /// This gateway is shutting down.
    pub const DRAINING: u16 = 1001;
    /// The other end broke the rules above.
    pub const PROTOCOL: u16 = 1002;
    /// Access ended.
    pub const ACCESS_ENDED: u16 = 1008;
    /// The TCP connection behind the end that says this was reset.
    pub const RESET: u16 = 4000;
    /// The way to the TCP connection is gone.
    pub const LOST: u16 = 4001;
}

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        // Nothing is gathered here: bytes wait in the tunnel, where they are scheduled.
        .write_buffer_size(0)
        .max_write_buffer_size(MESSAGE_BYTES_MAX + CONTROL_BYTES)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
}

const _: () = assert!(tunnel_proto::limit::PAYLOAD_BYTES_MAX <= MESSAGE_BYTES_MAX);
