//! Listeners and connections: bind, accept, TLS. Knows no HTTP.

pub mod certificate;
pub mod listen;
pub mod stream;
pub mod tls;
pub mod workers;
