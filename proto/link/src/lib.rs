//! The shell around [`tunnel_proto`] that both programs share. It moves bytes and wakes tasks; it decides nothing.
//!
//! * [`session`]: a [`Session`](session::Session) handle around the pure machine, and the loop that feeds it
//! * [`channel_io`]: one channel as an async byte stream
//! * [`splice`]: a channel joined with a socket, or with a channel of another session
//! * [`grpc`]: the tunnel's RPC on hyper's HTTP/2, both ends
//! * [`git`]: the call for credentials of git servers, beside it
//! * [`websocket`]: the tunnel's RPC inside a WebSocket, for networks that HTTP/2 cannot pass
//! * [`switch`]: from a request over HTTP/1.1 to a bare stream
//! * [`raw`]: one TCP connection of a user inside a WebSocket
//! * [`connect`], [`proxy`]: to a gateway's socket, also through a proxy
//! * [`pace`], [`lane_window`]: bytes below the scheduler, on a link and on a lane that another replica carries
//! * [`backoff`], [`drain`], [`socket`]: redial, shutdown and socket options
//! * [`memory`]: freed memory goes back to the system

pub mod backoff;
pub mod causes;
pub mod channel_io;
pub mod connect;
pub mod drain;
pub mod git;
pub mod grpc;
pub mod lane_window;
pub mod memory;
pub mod pace;
pub mod proxy;
pub mod raw;
pub mod session;
#[cfg(test)]
mod shuttle;
pub mod socket;
pub mod splice;
pub mod switch;
pub mod websocket;
