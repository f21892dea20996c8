//! Listeners and connections: bind, accept, TLS. Knows no HTTP.

pub mod listen;
mod proxy;
pub mod stream;
pub mod tls;
pub mod workers;
