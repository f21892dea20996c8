//! HTTP in: everything between a user's connection and the channel to the app.
//!
//! The way of one request, and the module that owns each step:
//!
//! ```text
//!  accept, TLS, HTTP/1.1 or HTTP/2          (the shells)
//!    1. guard      is this head one request, and only one?          no  -> bad_request, header_too_large
//!    2. host       which workspace and port, or the public site?    no  -> no_such_host
//!       preflight   may a page of another port of the same workspace ask?   answered here, before any caller is known
//!    3. authenticate and authorise the caller  (gateway_auth)        no  -> sign_in_required, port_not_allowed
//!    4. expect     does the client wait for `100 Continue`?         unknown expectation -> bad_request
//!    5. cookies, headers, forwarded, rewrite   the head as the app gets it: ours taken out, hop-by-hop taken out,
//!                  clean forwarding fields put in, Host as the port's setting says
//!    6. websocket  an upgrade, or an extended CONNECT turned into one
//!       raw TCP, for programs with a token, leaves here: tcp
//!       the channel, the app, its answer       (the shells)         no  -> port_closed, open_timeout, session_lost, ...
//!    7. headers, cookies, rewrite              the head as the user gets it
//!  respond         every failure above becomes one page or one problem document
//! ```
//!
//! Steps 1 and 2 come before any decision, step 3 before any protocol branch. What is removed is removed *before* the
//! gateway adds its own fields, so that no field of a request can take one of ours away.
//!
//! The modules listed first are pure: functions on heads, without clock, sockets or tasks.

pub(crate) mod address;
/// Finds and removes the gateway's own cookies, and keeps apps from setting them or tossing others to their neighbours.
pub mod cookies;
/// Recognises `Expect: 100-continue`.
pub mod expect;
/// Tells the app who asked and how: `X-Forwarded-*` and `Forwarded`, made fresh.
pub mod forwarded;
/// Refuses request heads of a shape that two parsers could read in two ways.
pub mod guard;
/// Takes out the fields that belong to one connection or to the gateway.
pub mod headers;
mod http2_meter;
mod insists;
/// CORS preflights between ports of one workspace.
pub mod preflight;
/// Host rewriting for dev servers, and the way back for their redirects.
pub mod rewrite;
/// WebSocket upgrades over HTTP/1.1 and HTTP/2, and other upgrades.
pub mod websocket;

// The shells: modules with tasks, sockets and clocks.

/// Health, metrics and live sessions, for the operator.
pub mod admin;
/// Bodies on their way through.
pub mod body;
/// A user's connection.
pub mod connection;
pub mod followers;
pub mod forward;
pub mod living;
pub(crate) mod misdial;
/// Every request's way through the edge.
pub mod service;
mod tcp;
mod upgrade;
/// Connections to apps over channels.
pub mod upstream;
