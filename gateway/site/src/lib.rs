//! The public host: sign-in pages, the HTTP API, gRPC services for CI jobs, and the pages for users.
//!
//! * `public_host` takes each request of the edge for this host, identifies its user, and passes it on.
//! * `sign_in_pages` are those that need the identity provider, the store or a body; the others are `gateway_auth::sign_in`.
//! * [`api`]: JSON under `/api/v1`, described by `api/openapi.json`, and the services of `proto/schema/environments/v1`.
//! * `ui`: pages that work without JavaScript. `zone`: the domain of workspaces, for programs that know the public address
//!   only.

pub mod api;
pub mod public_host;
mod sign_in_pages;
mod ui;
mod zone;
