//! Writes a refusal as bytes, for connections without a request that the HTTP library could answer.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderValue, Response};

/// Room for the status line and the fields of a failure, in bytes.
const HEAD_BYTES: usize = 1024;

/// Writes an answer that ends its connection, as HTTP/1.1.
pub(crate) fn to_bytes(mut response: Response<Bytes>) -> Bytes {
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
