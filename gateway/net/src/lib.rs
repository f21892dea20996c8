//! Base of every surface of the gateway: connections, their limits, and the records of what happens.
//!
//! * [`listen`] binds and accepts: the PROXY protocol of balancers (`proxy`), the limits on a new connection, TLS, and the worker
//!   that serves it. [`inherited`] takes sockets of a service manager. [`stream`] is an accepted connection.
//! * [`tls`] picks certificates by name and reloads them when files change, which [`acme`] may write; [`certificate`] reads
//!   what a verified client certificate says. [`chain`] judges files as a client would.
//! * [`peers`]: TLS between replicas. [`host_sockets`] is the same between the processes of one host, of which [`handover`] lets one
//!   take another's place.
//! * [`workers`]: one thread per core, each with a runtime of its own.
//! * [`limits`]: counts and rates by address, user and port, in bounded memory.
//! * [`fetch`] asks servers that the operator names, and is the only HTTP client; [`dial`] opens connections for the command
//!   line.
//! * [`telemetry`]: logs, counters and durations. [`audit`]: who did what, in a file. [`availability`]: whether the store
//!   answers.

pub mod acme;
pub mod audit;
pub mod availability;
pub mod certificate;
pub mod chain;
pub mod dial;
pub mod fetch;
pub mod handover;
pub mod host_sockets;
pub mod inherited;
pub mod limits;
pub mod listen;
pub mod peers;
mod proxy;
pub mod stream;
pub mod telemetry;
pub mod tls;
pub mod workers;
