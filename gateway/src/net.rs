//! Listeners and connections: bind, accept, TLS. Knows no HTTP.

pub mod acme;
pub mod listen;
pub mod stream;
pub mod tls;
pub mod workers;
