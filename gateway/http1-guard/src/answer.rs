//! Answers to requests that never reach the service: the caller's as bytes, and the library's recognised.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderValue, Response};

use crate::watcher::HeadFault;

/// Room for the status line and the fields of a failure, in bytes.
const HEAD_BYTES: usize = 1024;

/// Writes an answer that ends its connection, as HTTP/1.1.
#[must_use]
pub fn to_bytes(mut response: Response<Bytes>) -> Bytes {
    let status = response.status();
    let length = HeaderValue::from(response.body().len());
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    let mut bytes = BytesMut::with_capacity(HEAD_BYTES + response.body().len());
    bytes.put_slice(b"HTTP/1.1 ");
    bytes.put_slice(status.as_str().as_bytes());
    bytes.put_slice(b" ");
    bytes.put_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    for (name, value) in response.headers() {
        bytes.put_slice(b"\r\n");
        bytes.put_slice(name.as_str().as_bytes());
        bytes.put_slice(b": ");
        bytes.put_slice(value.as_bytes());
    }
    bytes.put_slice(b"\r\n\r\n");
    bytes.put_slice(response.body());
    bytes.freeze()
}

/// Longest answer that the library makes on its own, in bytes.
const OWN_ERROR_BYTES_MAX: usize = 160;

/// Recognises the library's own answer to a head that it cannot read, by its whole text: status line, no body, no field
/// but those of framing and time.
pub(crate) fn own_error(written: &[u8]) -> Option<HeadFault> {
    if written.len() > OWN_ERROR_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(written).ok()?.strip_suffix("\r\n\r\n")?;
    let mut lines = text.strip_prefix("HTTP/1.").and_then(|text| text.get(2..))?.split("\r\n");
    let fault = match lines.next()?.get(..3)? {
        "400" => HeadFault::Malformed,
        "414" => HeadFault::TargetTooLong,
        "431" => HeadFault::HeadTooLarge,
        _ => return None,
    };
    let is_plain =
        |line: &str| line == "connection: close" || line == "content-length: 0" || line.starts_with("date: ");
    lines.all(is_plain).then_some(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_librarys_whole_error_is_recognised() {
        let error = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: Sat, 21 Nov 2026 00:00:00 GMT\r\n\r\n";
        assert_eq!(own_error(error.as_bytes()), Some(HeadFault::Malformed));
        assert_eq!(own_error(error.replace("400 Bad Request", "431 Too").as_bytes()), Some(HeadFault::HeadTooLarge));
        assert_eq!(own_error(error.replace("400 Bad Request", "414 Too").as_bytes()), Some(HeadFault::TargetTooLong));
        assert_eq!(own_error(error.replace("400", "404").as_bytes()), None);
        assert_eq!(own_error(error.replace("connection: close", "server: app").as_bytes()), None);
        assert_eq!(own_error(error.replace("length: 0", "length: 5").as_bytes()), None);
        assert_eq!(own_error(format!("{error}x").as_bytes()), None);
        assert_eq!(own_error(&error.as_bytes()[..40]), None);
        assert_eq!(own_error(b""), None);
    }
}
