//! Listeners and connections: bind, accept, TLS; dialing for the command line; and two HTTP clients, `fetch` for
//! servers that the operator names and `acme` for certificates.

pub mod acme;
pub mod certificate;
pub mod dial;
pub mod fetch;
pub mod inherited;
pub mod listen;
mod proxy;
pub mod stream;
pub mod tls;
pub mod workers;
