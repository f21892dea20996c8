//! The public host: sign-in pages, the HTTP API, gRPC services for CI jobs, and the pages for users.
//!
//! * [`public_host`] takes each request of the edge for this host, identifies its user, and passes it on.
//! * [`api`]: JSON under `/api/v1` and gRPC.
//!   * `api/*.rs`: one file for each resource; `api/openapi.json` is generated from their types.
//!   * `api/grpc`: the services of `proto/schema/environments/v1`, on tonic's generated traits.
//! * `sign_in_pages`: pages that need the identity provider, the store or a body; the others are
//!   `gateway_auth::sign_in`.
//! * `dashboard`: pages for users, which work without JavaScript.
//! * `zone`: the domain of workspaces, for programs that know the public address only.
//!
//! The edge calls this crate through `gateway_edge::service::PublicSite`, and does not know it.

pub mod api;
mod dashboard;
pub mod public_host;
mod sign_in_pages;
mod zone;
