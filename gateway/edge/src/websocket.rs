//! WebSocket upgrades over HTTP/1.1 (RFC 6455) and HTTP/2 (RFC 8441), and other upgrades.
//!
//! Towards the app every WebSocket is an HTTP/1.1 upgrade. Bytes flow raw only after the app answered 101; any other
//! answer is forwarded as an answer.

pub mod frames;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{
    CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, response};
use hyper::ext::Protocol;
use thiserror::Error;

use gateway_http::fields::{has_token, tokens};
use gateway_http::respond::Failure;

/// Appended to a key before it is hashed (RFC 6455, section 1.3).
const ACCEPT_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Protocol that a request asks its connection to switch to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// A WebSocket, over HTTP/1.1, with the client's key.
    WebSocket {
        /// The value of `Sec-WebSocket-Key`.
        key: HeaderValue,
    },
    /// A WebSocket on one HTTP/2 stream.
    WebSocketStream,
    /// Another protocol, over HTTP/1.1: passed on as asked.
    Other {
        /// The value of `Upgrade`.
        protocol: HeaderValue,
    },
}

/// Reason a WebSocket handshake is refused before the app sees it (RFC 6455, section 4.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadUpgrade {
    /// The method is not GET.
    #[error("a WebSocket handshake is a GET")]
    Method,
    /// `Sec-WebSocket-Key` is missing, repeated, or not 16 bytes in base64.
    #[error("Sec-WebSocket-Key is not 16 bytes in base64")]
    Key,
    /// `Sec-WebSocket-Version` is not 13.
    #[error("Sec-WebSocket-Version is not 13")]
    Version,
}

impl BadUpgrade {
    /// Returns the failure shown to the user.
    #[must_use]
    pub fn failure(self) -> Failure {
        match self {
            Self::Method => Failure::BadRequest { reason: "websocket_method" },
            Self::Key => Failure::BadRequest { reason: "websocket_key" },
            Self::Version => Failure::BadRequest { reason: "websocket_version" },
        }
    }
}

/// Reads the upgrade that a request asks for. `None`: an ordinary request, among them `Upgrade` that Connection does
/// not name, over HTTP/1.0, or for `h2c`, which a server may ignore (RFC 9110, section 7.8) and an app must never see.
///
/// # Errors
///
/// See [`BadUpgrade`].
pub fn upgrade_asked(parts: &Parts) -> Result<Option<Upgrade>, BadUpgrade> {
    if parts.method == Method::CONNECT {
        let is_websocket = parts.extensions.get::<Protocol>().is_some_and(|protocol| protocol.as_str() == "websocket");
        if is_websocket {
            // Same rules as over HTTP/1.1, except for the key (RFC 8441, section 5).
            check_version(&parts.headers)?;
        }
        return Ok(is_websocket.then_some(Upgrade::WebSocketStream));
    }
    let Some(protocol) = parts.headers.get(UPGRADE) else {
        return Ok(None);
    };
    let is_named = has_token(&parts.headers, &CONNECTION, "upgrade");
    if parts.version != Version::HTTP_11 || !is_named || has_token(&parts.headers, &UPGRADE, "h2c") {
        return Ok(None);
    }
    if !has_token(&parts.headers, &UPGRADE, "websocket") {
        return Ok(Some(Upgrade::Other { protocol: protocol.clone() }));
    }
    if parts.method != Method::GET {
        return Err(BadUpgrade::Method);
    }
    check_version(&parts.headers)?;
    let key = single(&parts.headers, &SEC_WEBSOCKET_KEY).filter(|key| is_key(key)).ok_or(BadUpgrade::Key)?;
    Ok(Some(Upgrade::WebSocket { key: key.clone() }))
}

/// Turns an extended CONNECT into the HTTP/1.1 handshake for the app (RFC 8441, section 5): the last step before it is
/// sent, after hop-by-hop fields are out. `key` comes from [`key_from`]; Host is set by the caller.
pub fn handshake_from_connect(parts: &mut Parts, key: HeaderValue) {
    parts.method = Method::GET;
    parts.version = Version::HTTP_11;
    parts.uri = parts.uri.path_and_query().cloned().map_or_else(|| Uri::from_static("/"), Uri::from);
    parts.extensions.remove::<Protocol>();
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    parts.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    parts.headers.insert(SEC_WEBSOCKET_KEY, key);
    parts.headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
}

/// Turns the app's 101 into the 200 that an extended CONNECT expects; any other answer is left as it is.
pub fn answer_for_connect(parts: &mut response::Parts) {
    if parts.status != StatusCode::SWITCHING_PROTOCOLS {
        return;
    }
    parts.status = StatusCode::OK;
    parts.version = Version::HTTP_2;
    for name in [CONNECTION, UPGRADE, SEC_WEBSOCKET_ACCEPT, CONTENT_LENGTH] {
        parts.headers.remove(name);
    }
}

/// Writes a key from 16 random bytes.
#[must_use]
pub fn key_from(nonce: [u8; 16]) -> HeaderValue {
    // Base64 is always a field value; the fallback cannot be reached.
    HeaderValue::try_from(BASE64.encode(nonce)).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Computes a server's required answer to a key (RFC 6455, section 4.2.2). SHA-1 proves here only that the server
/// speaks WebSocket.
#[must_use]
pub fn accept_value(key: &[u8]) -> String {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key);
    hash.update(ACCEPT_GUID);
    BASE64.encode(hash.finish())
}

/// Says whether a 101 is the answer to this key: `websocket`, once, with the right `Sec-WebSocket-Accept` (RFC 6455,
/// section 4.1).
#[must_use]
pub fn check_accept(headers: &HeaderMap, key: &[u8]) -> bool {
    let switched = tokens(headers, &UPGRADE).all(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
        && headers.contains_key(UPGRADE)
        && has_token(headers, &CONNECTION, "upgrade");
    switched
        && single(headers, &SEC_WEBSOCKET_ACCEPT).is_some_and(|found| found.as_bytes() == accept_value(key).as_bytes())
}

/// Says whether the bytes after a 101 are frames of RFC 6455: no extension was agreed on but compression of messages,
/// which leaves frames as they are (RFC 7692, section 4).
#[must_use]
pub fn keeps_framing(headers: &HeaderMap) -> bool {
    tokens(headers, &SEC_WEBSOCKET_EXTENSIONS).all(|extension| extension.starts_with(b"permessage-"))
}

fn check_version(headers: &HeaderMap) -> Result<(), BadUpgrade> {
    let is_known = single(headers, &SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
    is_known.then_some(()).ok_or(BadUpgrade::Version)
}

fn is_key(key: &HeaderValue) -> bool {
    BASE64.decode(key.as_bytes()).is_ok_and(|nonce| nonce.len() == 16)
}

fn single<'map>(headers: &'map HeaderMap, name: &HeaderName) -> Option<&'map HeaderValue> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value),
        (_, _) => None,
    }
}

#[cfg(test)]
mod tests;
