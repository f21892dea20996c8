//! Listeners and connections: bind, accept, TLS; the dialing of the command line; and, speaking HTTP as clients only, `fetch`
//! for servers that the operator names and `acme` for certificates.

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
