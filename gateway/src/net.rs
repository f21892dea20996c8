//! Listeners and connections: bind, accept, TLS; and the dialing of the command line. Knows no HTTP.

pub mod dial;
pub mod listen;
pub mod stream;
pub mod tls;
pub mod workers;
