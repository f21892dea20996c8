//! Encodes a request as bytes: its head in one piece (RFC 9112, sections 3 and 5), its body framed piece by piece
//! (sections 6 and 7).

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, MAX_FORWARDS, TRAILER, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use tunnel_proto::limit::SLICE_BYTES_MIN;

use super::Error;
use super::digits::{decimal, list};

/// Bytes around a field: colon, blank and line end.
const FIELD_BYTES_OVERHEAD: usize = 4;

/// Room for the request line's blanks and version, for a framing field and the empty line, in bytes.
const REST_BYTES: usize = 64;

/// Chunks up to this length are copied into one piece with their framing: three pieces cost more.
const CHUNK_BYTES_COPIED: usize = 1024;

/// Length of a body, as far as it is known before the body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// There is no body.
    None,
    /// That many bytes, if the head does not say otherwise.
    Known(u64),
    /// Not known before its end.
    Unknown,
}

/// Framing of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is no body.
    None,
    /// With `left` bytes to go.
    Sized { left: u64 },
    /// In chunks, followed by the announced trailers.
    Chunked { trailers: Vec<HeaderName> },
}

/// Writes a head, and decides the framing of the body.
///
/// A Content-Length that the head has counts; Transfer-Encoding is this connection's own business, whatever the head has.
///
/// # Errors
/// [`Error::Request`] for a target that would not stay on its line, and for a Content-Length that is no number or is not
/// the body's.
pub(super) fn encode(parts: &Parts, length: Length) -> Result<(Bytes, Framing), Error> {
    let told = told_length(&parts.headers)?;
    let framing = match (told, length) {
        (None | Some(0), Length::None) | (Some(0), _) => Framing::None,
        (Some(_), Length::None) => return Err(Error::Request),
        (Some(left), _) | (None, Length::Known(left)) => Framing::Sized { left },
        (None, Length::Unknown) => Framing::Chunked { trailers: announced(&parts.headers) },
    };
    let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    // The library's types promise this already; one check costs little beside what a split request could do.
    if target.bytes().any(|byte| byte <= b' ' || byte == b'\x7f') {
        return Err(Error::Request);
    }
    let bytes =
        |(name, value): (&HeaderName, &http::HeaderValue)| name.as_str().len() + value.len() + FIELD_BYTES_OVERHEAD;
    let fields: usize = parts.headers.iter().map(bytes).sum();
    let mut head = BytesMut::with_capacity(parts.method.as_str().len() + target.len() + fields + REST_BYTES);
    head.put_slice(parts.method.as_str().as_bytes());
    head.put_slice(b" ");
    if !target.starts_with(['/', '*']) {
        head.put_slice(b"/");
    }
    head.put_slice(target.as_bytes());
    head.put_slice(b" HTTP/1.1\r\n");
    for (name, value) in &parts.headers {
        // Only chunks have trailers that could be announced.
        let announces_nothing = *name == TRAILER && !matches!(framing, Framing::Chunked { .. });
        if *name == TRANSFER_ENCODING || *name == CONTENT_LENGTH || announces_nothing {
            continue;
        }
        put_field(&mut head, name, value.as_bytes());
    }
    match (&framing, told.as_ref()) {
        (Framing::Sized { left: length }, _) | (Framing::None, Some(length)) => put_length(&mut head, *length),
        (Framing::Chunked { .. }, _) => put_field(&mut head, &TRANSFER_ENCODING, b"chunked"),
        (Framing::None, None) => {}
    }
    head.put_slice(b"\r\n");
    Ok((head.freeze(), framing))
}

/// Gives a small piece of a body memory of its own: it may be kept for long, and would keep all of the buffer that it came in
/// with a large head.
fn owned(data: Bytes) -> Bytes {
    if data.len() < SLICE_BYTES_MIN { Bytes::copy_from_slice(&data) } else { data }
}

impl Framing {
    /// Returns whether nothing is left to write.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::None | Self::Sized { left: 0 })
    }

    /// Writes a piece of the body.
    ///
    /// [`Error::Request`] for more bytes than the head announced.
    /// [`Error::Request`] for more than was told.
    pub(super) fn data(&mut self, data: Bytes, mut write: impl FnMut(Bytes)) -> Result<(), Error> {
        if data.is_empty() {
            return Ok(());
        }
        match self {
            Self::None => return Err(Error::Request),
            Self::Sized { left } => {
                *left = left.checked_sub(data.len() as u64).ok_or(Error::Request)?;
                write(owned(data));
            }
            Self::Chunked { .. } => {
                let copied = if data.len() <= CHUNK_BYTES_COPIED { data.len() } else { 0 };
                let mut line = BytesMut::with_capacity(copied + 2 * size_of::<usize>() + 2 * b"\r\n".len());
                put_hex(&mut line, data.len());
                line.put_slice(b"\r\n");
                if copied > 0 {
                    line.put_slice(&data);
                    line.put_slice(b"\r\n");
                    write(line.freeze());
                } else {
                    write(line.freeze());
                    write(owned(data));
                    write(Bytes::from_static(b"\r\n"));
                }
            }
        }
        Ok(())
    }

    /// Writes the end of the body. Only announced trailers are sent (RFC 9110, section 6.6.2).
    ///
    /// # Errors
    /// [`Error::Request`] for fewer bytes than the head announced.
    pub(super) fn end(&mut self, trailers: Option<&HeaderMap>, mut write: impl FnMut(Bytes)) -> Result<(), Error> {
        match self {
            Self::None | Self::Sized { left: 0 } => {}
            Self::Sized { .. } => return Err(Error::Request),
            Self::Chunked { trailers: announced } => {
                let mut end = BytesMut::from(&b"0\r\n"[..]);
                for (name, value) in trailers.into_iter().flatten() {
                    if announced.contains(name) && *name != MAX_FORWARDS && *name != TRANSFER_ENCODING {
                        put_field(&mut end, name, value.as_bytes());
                    }
                }
                end.put_slice(b"\r\n");
                write(end.freeze());
            }
        }
        *self = Self::None;
        Ok(())
    }
}

/// Reads Content-Length, which may be repeated but not differ (RFC 9112, section 6.3).
fn told_length(headers: &HeaderMap) -> Result<Option<u64>, Error> {
    let mut told = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let length = decimal(value.as_bytes()).ok_or(Error::Request)?;
        if told.is_some_and(|told| told != length) {
            return Err(Error::Request);
        }
        told = Some(length);
    }
    Ok(told)
}

fn announced(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(TRAILER).iter();
    lines.flat_map(|line| list(line.as_bytes())).filter_map(|name| HeaderName::from_bytes(name).ok()).collect()
}

fn put_field(head: &mut BytesMut, name: &HeaderName, value: &[u8]) {
    head.put_slice(name.as_str().as_bytes());
    head.put_slice(b": ");
    head.put_slice(value);
    head.put_slice(b"\r\n");
}

fn put_length(head: &mut BytesMut, length: u64) {
    put_field(head, &CONTENT_LENGTH, http::HeaderValue::from(length).as_bytes());
}

fn put_hex(line: &mut BytesMut, number: usize) {
    let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        let digit = u32::try_from(number >> (digit * 4) & 0xf).unwrap_or_default();
        line.put_slice(char::from_digit(digit, 16).unwrap_or('0').encode_utf8(&mut [0; 4]).as_bytes());
    }
}

#[cfg(test)]
mod tests;
