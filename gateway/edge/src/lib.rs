//! HTTP in: everything between a user's connection and the channel to the app.
//!
//! ```text
//!  connection      HTTP/1.1 or HTTP/2 of a user; http1_guard and http2_meter see its bytes first
//!    service       answers each request: a response of an app, of the public host, or a row of the table of failures
//!      route       the steps of a request to a workspace, in order; guard, address, preflight and misdial are used there
//!      access      which caller may use which port, now and for as long as something is open (watches)
//!    forward, upgrade, tcp     the last step, by protocol, with body, expect, insists and websocket beside it
//!      upstream    connections to apps over channels
//!  admin           the operator's listener: health, metrics, live sessions
//!  activity        which requests and bytes count as use of a workspace
//!  event_streams   open event streams of the public host, re-authorised
//! ```
//!
//! The head of a request on its way to the app: ours taken out ([`cookies`]), hop-by-hop fields taken out ([`headers`]),
//! clean forwarding fields put in ([`forwarded`]), `Host` as the port's setting says ([`rewrite`]). The head of the answer takes
//! `headers`, `cookies` and `rewrite` back. What is removed is removed *before* the gateway adds its own fields, so that
//! no field of a request can take one of ours away.
//!
//! The pure files, which read no clock and start no task, are listed in `xtask/pure.txt`.

pub mod activity;
pub(crate) mod address;
mod by_path;
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

/// Health, metrics and live sessions, for the operator.
pub mod admin;
/// Bodies on their way through.
pub mod body;
/// A user's connection.
pub mod connection;
pub mod event_streams;
pub mod forward;
pub(crate) mod misdial;
/// Answers each request; its steps are in `service/route.rs`.
pub mod service;
mod tcp;
pub mod traces;
mod upgrade;
/// Connections to apps over channels.
pub mod upstream;
pub mod watches;
