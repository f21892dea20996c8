//! Refuses request heads of a shape that two parsers could read in two ways.
//!
//! The gateway parses a request once and writes it anew for the app, so there is no raw byte to smuggle past it. Only
//! heads whose meaning is open are left: they are refused with a named reason before any decision rests on them (RFC
//! 9112, sections 3, 6 and 11.2).
//!
//! # What the HTTP library does before this check
//!
//! For HTTP/1.1 pinned by the tests in `guard/pins.rs` (hyper 1.12 with httparse 1.10); for HTTP/2 as h2 0.4.20 is
//! written.
//!
//! Answered by the library with a bare 400 and a closed connection (no `gateway-error`, this check never runs):
//! Content-Length fields that differ; Content-Length that is not digits (`+5`, `5, 5`, empty); Transfer-Encoding whose
//! last coding is not `chunked`; Transfer-Encoding over HTTP/1.0; folded lines; blanks before the colon; a lone CR; NUL
//! and other controls; empty or broken field names; a broken request line or version; a target that begins
//! with `?` or `#`. Too many fields, or a section over
//! the configured size: a bare 431. A target over 65,534 bytes: a bare 414. In a chunked body a bad size, a bare LF, or
//! missing CRLF is an error of the body, after the service was called. HTTP/2: connection fields, Transfer-Encoding, `TE`
//! other than `trailers`, Content-Length that differs or does not match the body, and malformed pseudo fields reset the
//! stream.
//!
//! Silently normalised, so that this check cannot see it:
//! - Transfer-Encoding **and** Content-Length: Content-Length is dropped (unparsed if it comes second), the body is read
//!   as chunked, and the connection closes after the answer. That is what RFC 9112, section 6.1, asks at least for;
//! - Content-Length repeated with the same value: one is kept;
//! - bare LF as a line end in the head; empty lines before the request line;
//! - `#fragment` in the target, HTTP/1.1 and HTTP/2: cut off;
//! - chunk extensions, and blanks after a chunk size: dropped;
//! - trailer fields of any name, even Content-Length: passed on (`headers::trailers` cleans them).
//!
//! None of these reaches the app, because the head is written anew. `http1_guard` looks at the bytes before the library: it
//! refuses the ambiguous ones by name, and puts the gateway's answer in the place of the library's bare ones.

use http::header::{CONTENT_LENGTH, COOKIE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, Version};
use hyper::ext::Protocol;
use thiserror::Error;

use crate::forwarded::is_forwarding_field;
use crate::headers::is_gateway_field;
use gateway_http::fields::{has_token, tokens};
use gateway_http::host::authorities_agree;
use gateway_http::respond::Failure;
use gateway_types::Scheme;

/// Bytes that a field costs beside its name and value: colon, blank and line end.
const FIELD_BYTES_OVERHEAD: usize = 4;

/// Size limits of a head.
#[derive(Clone, Copy, Debug)]
pub struct ShapeLimits {
    /// Longest request target, in bytes.
    pub uri_bytes_max: usize,
    /// Most header fields.
    pub header_count_max: usize,
    /// Most bytes of all header fields together.
    pub header_bytes_max: usize,
}

/// The rule that a request head breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadRequestShape {
    /// The target is too long.
    #[error("the request target is too long")]
    UriTooLong,
    /// There are too many fields, or too many bytes in them.
    #[error("the header section is too large")]
    HeaderTooLarge,
    /// The header section is too large, and most of it is cookies.
    #[error("the cookies are too large")]
    CookiesTooLarge,
    /// CONNECT without `:protocol`: the gateway is no open proxy.
    #[error("CONNECT is not taken")]
    Connect,
    /// Extended CONNECT for something other than `websocket` (RFC 8441).
    #[error("extended CONNECT for an unknown protocol")]
    ConnectProtocol,
    /// The target is neither origin-form, nor absolute-form with an HTTP scheme, nor `*` with OPTIONS.
    #[error("the request target has no known form")]
    TargetForm,
    /// The absolute-form target names another host than the Host field.
    #[error("the request target and Host name different hosts")]
    TargetHost,
    /// More than one Host field.
    #[error("several Host fields")]
    HostDuplicate,
    /// Content-Length and Transfer-Encoding together.
    #[error("Content-Length and Transfer-Encoding together")]
    LengthAndEncoding,
    /// Content-Length fields that differ, or are no numbers.
    #[error("Content-Length is not one number")]
    Length,
    /// Transfer-Encoding other than `chunked` alone, or not over HTTP/1.1.
    #[error("Transfer-Encoding is not `chunked` alone")]
    Encoding,
    /// `h2c` together with another protocol in Upgrade.
    #[error("Upgrade mixes h2c with another protocol")]
    UpgradeMixed,
    /// A WebSocket handshake with a body: bytes that the app could take for frames.
    #[error("a WebSocket handshake with a body")]
    UpgradeBody,
    /// A field that would be one of the gateway's or a framing field if `_` were `-`, as many app servers read it.
    #[error("a field name spelled with `_`")]
    Underscore,
}

impl BadRequestShape {
    /// Returns the name of the rule, as the refusal carries it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::UriTooLong => "uri_too_long",
            Self::HeaderTooLarge => "header_too_large",
            Self::CookiesTooLarge => "cookies",
            Self::Connect => "connect",
            Self::ConnectProtocol => "connect_protocol",
            Self::TargetForm => "target_form",
            Self::TargetHost => "target_host",
            Self::HostDuplicate => "host_duplicate",
            Self::LengthAndEncoding => "length_and_encoding",
            Self::Length => "content_length",
            Self::Encoding => "transfer_encoding",
            Self::UpgradeMixed => "upgrade_mixed",
            Self::UpgradeBody => "upgrade_body",
            Self::Underscore => "underscore_field",
        }
    }

    /// Returns the failure shown to the user.
    #[must_use]
    pub fn failure(self) -> Failure {
        match self {
            Self::UriTooLong => Failure::UriTooLong,
            Self::HeaderTooLarge => Failure::HeaderTooLarge,
            Self::CookiesTooLarge => Failure::CookiesTooLarge,
            Self::Connect => Failure::MethodNotAllowed,
            Self::ConnectProtocol
            | Self::TargetForm
            | Self::TargetHost
            | Self::HostDuplicate
            | Self::LengthAndEncoding
            | Self::Length
            | Self::Encoding
            | Self::UpgradeMixed
            | Self::UpgradeBody
            | Self::Underscore => Failure::BadRequest { reason: self.reason() },
        }
    }
}

/// Checks the shape of a request head; runs before the host is read.
///
/// `Upgrade: h2c` alone is let through: a server may ignore an upgrade (RFC 9110, section 7.8), clients that offer it go
/// on over HTTP/1.1, and the app never sees the offer.
///
/// # Errors
///
/// The first rule that is broken.
pub fn check(parts: &Parts, limits: &ShapeLimits) -> Result<(), BadRequestShape> {
    check_size(parts, limits)?;
    check_connect(parts)?;
    if parts.headers.get_all(HOST).iter().nth(1).is_some() {
        return Err(BadRequestShape::HostDuplicate);
    }
    check_target(parts)?;
    check_framing(parts)?;
    check_upgrade(&parts.headers)?;
    let is_disguised = |name: &str| {
        name.contains('_')
            && (is_forwarding_field(name)
                || is_gateway_field(name)
                || matches!(name, "content_length" | "transfer_encoding" | "proxy_connection"))
    };
    if parts.headers.keys().any(|name| is_disguised(name.as_str())) {
        return Err(BadRequestShape::Underscore);
    }
    Ok(())
}

fn check_size(parts: &Parts, limits: &ShapeLimits) -> Result<(), BadRequestShape> {
    let authority_bytes = parts.uri.authority().map_or(0, |authority| authority.as_str().len());
    let path_bytes = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if authority_bytes + path_bytes > limits.uri_bytes_max {
        return Err(BadRequestShape::UriTooLong);
    }
    let bytes = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + FIELD_BYTES_OVERHEAD;
    let total: usize = parts.headers.iter().map(bytes).sum();
    if total > limits.header_bytes_max {
        let cookies: usize = parts.headers.get_all(COOKIE).iter().map(HeaderValue::len).sum();
        let by_cookies = cookies > total / 2;
        return Err(if by_cookies { BadRequestShape::CookiesTooLarge } else { BadRequestShape::HeaderTooLarge });
    }
    if parts.headers.len() > limits.header_count_max {
        // Over HTTP/2 each cookie may be a field of its own (RFC 9113, section 8.2.3); together they are one.
        let cookies = parts.headers.get_all(COOKIE).iter().count();
        if parts.headers.len() - cookies.saturating_sub(1) > limits.header_count_max {
            return Err(BadRequestShape::HeaderTooLarge);
        }
    }
    Ok(())
}

fn check_connect(parts: &Parts) -> Result<(), BadRequestShape> {
    if parts.method != Method::CONNECT {
        return Ok(());
    }
    let protocol = parts.extensions.get::<Protocol>().filter(|_| parts.version == Version::HTTP_2);
    match protocol.map(Protocol::as_str) {
        None => Err(BadRequestShape::Connect),
        Some("websocket") => Ok(()),
        Some(_) => Err(BadRequestShape::ConnectProtocol),
    }
}

fn check_target(parts: &Parts) -> Result<(), BadRequestShape> {
    let path = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let is_asterisk = path == "*" && parts.method == Method::OPTIONS;
    if !path.starts_with('/') && !is_asterisk {
        return Err(BadRequestShape::TargetForm);
    }
    let Some(authority) = parts.uri.authority() else {
        return Ok(());
    };
    let scheme = Scheme::of(&parts.uri).ok_or(BadRequestShape::TargetForm)?;
    if parts.version == Version::HTTP_2 {
        // `:authority` against Host is a matter of `host::authority_of`.
        return Ok(());
    }
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    match host {
        Some(host) if !authorities_agree(scheme, authority.as_str(), host) => Err(BadRequestShape::TargetHost),
        Some(_) | None => Ok(()),
    }
}

fn check_framing(parts: &Parts) -> Result<(), BadRequestShape> {
    let headers = &parts.headers;
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let first_length = lengths.next();
    if headers.contains_key(TRANSFER_ENCODING) {
        if first_length.is_some() {
            return Err(BadRequestShape::LengthAndEncoding);
        }
        let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
        let first = codings.next().is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
        if !first || codings.next().is_some() || parts.version != Version::HTTP_11 {
            return Err(BadRequestShape::Encoding);
        }
    }
    if let Some(first) = first_length {
        let is_number = !first.is_empty() && first.as_bytes().iter().all(u8::is_ascii_digit);
        if !is_number || lengths.any(|other| other != first) {
            return Err(BadRequestShape::Length);
        }
    }
    Ok(())
}

fn check_upgrade(headers: &HeaderMap) -> Result<(), BadRequestShape> {
    if has_token(headers, &UPGRADE, "h2c") && tokens(headers, &UPGRADE).nth(1).is_some() {
        return Err(BadRequestShape::UpgradeMixed);
    }
    let has_body =
        headers.contains_key(TRANSFER_ENCODING) || headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
    if has_body && has_token(headers, &UPGRADE, "websocket") {
        return Err(BadRequestShape::UpgradeBody);
    }
    Ok(())
}

#[cfg(test)]
mod pins;

#[cfg(test)]
mod tests;
