//! Stands between a connection and the HTTP library, and refuses the HTTP/1.1 heads that could be read in two ways.
//!
//! The library answers most malformed heads itself, with a bare status, and silently takes some that another parser could
//! read differently. This crate makes every such head a refusal with a name, before the library sees it. It passes bytes on
//! as they are and builds nothing from them; what a request means is still read by the library alone.
//!
//! * [`Watcher`] follows the requests of a connection at the byte level and names the [`HeadFault`]s. Pure.
//! * [`GuardedStream`] puts it around a stream: requests before an ambiguous head are served, then the refusal is sent.
//!   The library's own answers to malformed heads go out as those of the caller.
//! * [`RequestCounts`] is shared by that stream and the service: a refusal waits for the requests before it.
//! * [`answer`] writes a refusal as bytes, and recognises the library's.
//!
//! Nothing here knows the product: the caller makes the answers. Of HTTP/2 this crate knows the preface alone: a
//! connection that begins with it is passed on, and its bytes are shown to the caller's [`Http2Watch`].

pub mod answer;
mod in_flight;
mod stream;
mod watcher;

pub use self::in_flight::{CountedBody, InFlight, RequestCounts};
pub use self::stream::{GuardedStream, Http2End, Http2Watch};
pub use self::watcher::{Ambiguity, HeadFault, RefusedRequest, Watcher};
