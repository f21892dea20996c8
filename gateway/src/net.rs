//! Listeners and connections: bind, accept, TLS; the dialing of the command line; and `fetch`, the client for servers that the
//! operator names, which is all the HTTP there is here.

pub mod certificate;
pub mod dial;
pub mod fetch;
pub mod listen;
pub mod stream;
pub mod tls;
pub mod workers;
