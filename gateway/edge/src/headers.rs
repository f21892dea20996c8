//! Takes out the fields that belong to one connection, and those that belong to the gateway, in both directions.
//!
//! A proxy speaks for itself on each side (RFC 9110, section 7.6.1). Removal comes first, and the gateway's own fields
//! are added after, so a Connection field cannot name one of ours away.
//!
//! `Trailer` stays: it is no hop-by-hop field (RFC 9110, section 6.6.2), and HTTP/1.1 sends only the trailers it
//! announces. It names no field that would not be passed on as a trailer.

use bytes::BytesMut;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE,
    EXPECT, HOST, MAX_FORWARDS, ORIGIN, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use tunnel_proto::terminal::{ACCESS_FIELD, ACCESS_OWNER, ACCESS_SHARED, USER_FIELD};

use crate::forwarded::is_forwarding_field;
use gateway_auth::policy::{Because, Grant};
use gateway_auth::request::is_gateway_bearer;
use gateway_http::fields::{has_token, tokens};

/// Names the requesting user to a page of an agent.
pub const GATEWAY_USER: HeaderName = HeaderName::from_static(USER_FIELD);
/// Tells such a page the access of that user.
pub const GATEWAY_ACCESS: HeaderName = HeaderName::from_static(ACCESS_FIELD);

/// Fields of one connection (RFC 9110, section 7.6.1; RFC 9113, section 8.2.2), besides those that Connection names.
static HOP_BY_HOP: [HeaderName; 8] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Fields meant for the far end, which a Connection field must not name (RFC 9110, section 7.6.1): it names them only to
/// hide from an app what the app's own checks need.
static NEVER_HOP_BY_HOP: [HeaderName; 9] =
    [HOST, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, SET_COOKIE, AUTHORIZATION, ORIGIN, CACHE_CONTROL, CONNECTION];

/// Fields that mean nothing, or harm, in a trailer section (RFC 9110, section 6.5.1): framing, routing, credentials.
static NEVER_IN_TRAILERS: [HeaderName; 12] = [
    CONTENT_LENGTH,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    CONTENT_RANGE,
    HOST,
    COOKIE,
    SET_COOKIE,
    AUTHORIZATION,
    CACHE_CONTROL,
    TRAILER,
    EXPECT,
    MAX_FORWARDS,
];

/// The protocol spoken with the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppHttp {
    /// HTTP/1.1
    Http1,
    /// HTTP/2 with prior knowledge, for gRPC apps.
    Http2,
}

/// Protocol, upgrade and trailers of a request to the app.
#[derive(Clone, Copy, Debug)]
pub struct AppRequest<'a> {
    /// The protocol spoken with the app.
    pub http: AppHttp,
    /// The protocol to ask the app to switch to; only with HTTP/1.1.
    pub upgrade: Option<&'a HeaderValue>,
    /// Whether a user's `TE: trailers` is repeated to the app; gRPC needs it.
    pub trailers: bool,
}

/// Turns the head a user sent into the head the app gets.
///
/// Out: hop-by-hop fields, every `gateway-*` and `x-gateway-*` field in any spelling, and `Authorization` if it holds a
/// token of the gateway. Cookie fields become one towards HTTP/1.1 (RFC 9113, section 8.2.3). In: what the gateway
/// itself asks of the app's connection. Allocates only if there are several Cookie fields.
pub fn to_app(headers: &mut HeaderMap, request: &AppRequest<'_>) {
    let kinds = Kinds::of(headers);
    let asks_trailers = kinds.hop_by_hop && request.trailers && has_token(headers, &TE, "trailers");
    kinds.remove_from(headers);
    if headers.get_all(AUTHORIZATION).iter().any(is_gateway_bearer) {
        headers.remove(AUTHORIZATION);
    }
    match (request.http, request.upgrade) {
        (AppHttp::Http1, Some(protocol)) => {
            join_cookies(headers);
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, protocol.clone());
        }
        (AppHttp::Http1, None) => {
            join_cookies(headers);
            if asks_trailers {
                headers.insert(CONNECTION, HeaderValue::from_static("te"));
                headers.insert(TE, HeaderValue::from_static("trailers"));
            }
        }
        (AppHttp::Http2, _) => {
            if asks_trailers {
                headers.insert(TE, HeaderValue::from_static("trailers"));
            }
        }
    }
}

/// Tells an agent's own page, that of its terminals or of its request inspector, the user and their access. Runs after [`to_app`], so
/// that only the gateway can have set these fields.
pub fn to_agents_page(headers: &mut HeaderMap, grant: &Grant) {
    let access = match grant.because() {
        Because::Owner => ACCESS_OWNER,
        Because::Shared(_) => ACCESS_SHARED,
    };
    headers.insert(GATEWAY_ACCESS, HeaderValue::from_static(access));
    // A name is printable ASCII, so it is always a value.
    if let Some(Ok(user)) = grant.user().map(|user| HeaderValue::from_str(user.as_str())) {
        headers.insert(GATEWAY_USER, user);
    }
}

/// Turns the head an app sent into the head the user gets; `switched` is the protocol of a 101 over HTTP/1.1.
///
/// An app cannot speak for the gateway: `gateway-error` and its kin are dropped.
pub fn to_user(headers: &mut HeaderMap, switched: Option<&HeaderValue>) {
    Kinds::of(headers).remove_from(headers);
    if let Some(protocol) = switched {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol.clone());
    }
}

/// Cleans a trailer section, in either direction: the HTTP library passes on any field a peer puts there.
pub fn trailers(trailers: &mut HeaderMap) {
    Kinds::of(trailers).remove_from(trailers);
    for name in &NEVER_IN_TRAILERS {
        trailers.remove(name);
    }
    let forwarding = |name: &&HeaderName| is_forwarding_field(name.as_str());
    while let Some(name) = trailers.keys().find(forwarding).cloned() {
        trailers.remove(name);
    }
}

/// Says whether a field belongs to the gateway: `gateway-*` or `x-gateway-*`, `_` counting as `-`.
#[must_use]
pub fn is_gateway_field(name: &str) -> bool {
    // Almost every name is settled by its first letter.
    matches!(name.as_bytes().first(), Some(b'g' | b'x')) && (spelled(name, "gateway-") || spelled(name, "x-gateway-"))
}

/// Says whether a name begins with a prefix, `_` counting as `-`. Both are lower case.
pub(crate) fn spelled(name: &str, prefix: &str) -> bool {
    let same = |(found, wanted): (u8, u8)| found == wanted || (found == b'_' && wanted == b'-');
    name.len() >= prefix.len() && name.bytes().zip(prefix.bytes()).all(same)
}

/// Kinds of fields in a head that have to be removed. One pass over the names costs less than one search for each.
#[derive(Clone, Copy, Debug, Default)]
struct Kinds {
    connection: bool,
    /// One of [`HOP_BY_HOP`].
    hop_by_hop: bool,
    gateway: bool,
    /// Trailers are announced.
    trailer: bool,
}

impl Kinds {
    fn of(headers: &HeaderMap) -> Self {
        let mut kinds = Self::default();
        for name in headers.keys().map(HeaderName::as_str) {
            kinds.connection |= name == "connection";
            kinds.hop_by_hop |= is_hop_by_hop(name);
            kinds.gateway |= is_gateway_field(name);
            kinds.trailer |= name == "trailer";
        }
        kinds
    }

    fn remove_from(self, headers: &mut HeaderMap) {
        if self.connection {
            remove_named_by_connection(headers);
        }
        if self.hop_by_hop {
            for name in &HOP_BY_HOP {
                headers.remove(name);
            }
        }
        if self.gateway {
            remove_gateway_fields(headers);
        }
        if self.trailer {
            announce_what_passes(headers);
        }
    }
}

/// Removes from Trailer the names that [`trailers`] would remove from the trailers. Allocates only if there are any.
fn announce_what_passes(headers: &mut HeaderMap) {
    if tokens(headers, &TRAILER).all(passes_as_trailer) {
        return;
    }
    let passed: Vec<&[u8]> = tokens(headers, &TRAILER).filter(|name| passes_as_trailer(name)).collect();
    let passed = HeaderValue::from_bytes(&passed.join(&b", "[..])).ok().filter(|passed| !passed.is_empty());
    match passed {
        Some(passed) => drop(headers.insert(TRAILER, passed)),
        None => drop(headers.remove(TRAILER)),
    }
}

fn passes_as_trailer(name: &[u8]) -> bool {
    HeaderName::from_bytes(name).is_ok_and(|name| {
        let is_of_the_connection = name == CONNECTION || is_hop_by_hop(name.as_str());
        let is_reserved = is_gateway_field(name.as_str()) || is_forwarding_field(name.as_str());
        !is_of_the_connection && !is_reserved && !NEVER_IN_TRAILERS.contains(&name)
    })
}

fn is_hop_by_hop(name: &str) -> bool {
    HOP_BY_HOP.iter().any(|known| known.as_str() == name)
}

/// Removes Connection and the fields that it names.
fn remove_named_by_connection(headers: &mut HeaderMap) {
    let mut line = 0;
    // The lines are visited by number because removing a field ends every borrow; a clone of a value is a count up.
    while let Some(value) = headers.get_all(CONNECTION).iter().nth(line).cloned() {
        line += 1;
        for option in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if let Ok(name) = std::str::from_utf8(option)
                && !name.is_empty()
                && !NEVER_HOP_BY_HOP.iter().any(|kept| kept.as_str().eq_ignore_ascii_case(name))
            {
                headers.remove(name);
            }
        }
    }
    headers.remove(CONNECTION);
}

fn remove_gateway_fields(headers: &mut HeaderMap) {
    while let Some(name) = headers.keys().find(|name| is_gateway_field(name.as_str())).cloned() {
        headers.remove(name);
    }
}

fn join_cookies(headers: &mut HeaderMap) {
    let lines = headers.get_all(COOKIE);
    if lines.iter().nth(1).is_none() {
        return;
    }
    let mut joined = BytesMut::with_capacity(lines.iter().map(|line| line.len() + 2).sum());
    for line in lines {
        if !joined.is_empty() {
            joined.extend_from_slice(b"; ");
        }
        joined.extend_from_slice(line.as_bytes());
    }
    if let Ok(joined) = HeaderValue::from_maybe_shared(joined.freeze()) {
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests;
