//! The public host: which service answers a request, the layers around it, and the sign-in pages.
//!
//! * [`public_host`] takes each request of the edge for this host, and passes it through one of three stacks of layers: to
//!   the API (`gateway_api`) and the pages (`gateway_dashboard`), to the gRPC services, or to what every visitor gets.
//!   * `public_host/layers.rs`: finds out who asks, leads to the sign-in, counts what was refused, follows streams.
//! * `sign_in_pages`: pages that need the identity provider, the store or a body; the others are
//!   `gateway_auth::sign_in`.
//! * `zone`: the domain of workspaces, for programs that know the public address only.
//!
//! The edge calls this crate through `gateway_edge::service::PublicSite`, and does not know it.

pub mod public_host;
mod sign_in_pages;
mod zone;
