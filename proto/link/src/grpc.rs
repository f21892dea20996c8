//! The tunnel's RPC on hyper's HTTP/2, both ends: gRPC on the wire, so that any HTTP/2 load balancer carries it.
//!
//! tonic is not in this path: it copies each payload once per direction and hides the knobs that bound the bytes below
//! the scheduler (`docs/decisions/2026-11-21-tunnel-rpc-on-hyper.md`).

use tunnel_proto::limit::{FRAME_OVERHEAD_BYTES_MAX, PAYLOAD_BYTES_MAX, SLICE_BYTES_MIN};

mod client;
mod decode;
mod drive;
mod encode;
mod paced_body;
mod received;
mod server;

pub use self::client::{ConnectError, DialedLink, dial, refusal, request_body, welcomed};
pub use self::decode::{FrameReader, ReadError, message_length};
pub use self::drive::{drive, drive_by};
pub use self::encode::{Chunk, Filler, Outgoing, PREFIX_BYTES, hello_message};
pub use self::paced_body::PacedBody;
pub use self::received::{IncomingBody, ReceiveError, Via};
pub use self::server::{
    Code, RpcRefused, accept_response, is_grpc, is_tunnel_request, refuse_response, server_builder,
};

pub(crate) use self::client::{AGENT, bearer};

/// Path of the RPC: `/package.Service/Method`.
pub const PATH: &str = "/tunnel.v1.Tunnel/Connect";

/// Beginning of the words in which the listener for users refuses an agent.
pub const MISDIALED: &str = "this is the gateway's listener for users";

/// Most bytes that HTTP/2 may hold for one stream, and for one connection. Large, because per-channel credit bounds
/// memory, and because small unread frames are charged against half of it.
const H2_WINDOW_BYTES: u32 = 32 * 1024 * 1024;

/// Largest HTTP/2 frame that is accepted: a whole bulk frame. With small ones before it, it takes two, and is joined
/// again: bytes that are read into one buffer are kept together (see [`tunnel_proto::limit::SLICE_BYTES_MIN`]).
const H2_FRAME_BYTES: u32 = 64 * 1024;

const _: () = assert!(PAYLOAD_BYTES_MAX + FRAME_OVERHEAD_BYTES_MAX <= H2_FRAME_BYTES as usize);
const _: () = assert!(H2_FRAME_BYTES as usize <= 2 * SLICE_BYTES_MIN);

/// Most bytes that wait in HTTP/2 below the scheduler. One bulk frame: with more, a keystroke would queue there.
const H2_SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Bound on the headers of the RPC.
const H2_HEADER_BYTES: u32 = 16 * 1024;
