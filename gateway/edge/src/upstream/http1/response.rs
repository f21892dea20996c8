//! Parses a response's head (RFC 9112, sections 4 and 5), and derives from it the end of the response (section 6.3).

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use httparse::{ParserConfig, Status};

use super::Error;
use super::digits::{decimal, list};

/// Longest head of a response, in bytes. Servers send 8 to 64 KiB at most; this bounds what one answer makes the
/// gateway gather.
pub(super) const HEAD_BYTES_MAX: usize = 256 * 1024;

/// Most fields in a head.
pub(super) const FIELDS_MAX: usize = 100;

/// A head.
#[derive(Debug, PartialEq)]
pub(crate) struct Head {
    /// The status.
    pub(crate) status: StatusCode,
    /// The fields. Content-Length is there at most once, and only if it frames the body or tells of one that is not sent.
    pub(crate) headers: HeaderMap,
}

/// Extent of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coming {
    /// No body.
    Nothing,
    /// That many bytes.
    Sized(u64),
    /// In chunks.
    Chunked,
    /// Until the app finishes the connection.
    UntilEnd,
}

/// A head, and its consequences for the connection.
#[derive(Debug, PartialEq)]
pub(super) struct Parsed {
    pub(super) head: Head,
    pub(super) coming: Coming,
    /// Another request may follow on the connection, as far as this head goes.
    pub(super) is_kept: bool,
}

/// Takes a head off `unread`. `None` while it is not whole.
///
/// # Errors
/// [`Error::Head`] for anything that is not one HTTP/1 response head with one meaning.
pub(super) fn parse(unread: &mut Bytes, answers_head: bool) -> Result<Option<Parsed>, Error> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parsed = ParserConfig::default().parse_response_with_uninit_headers(&mut response, unread, &mut fields);
    let length = match parsed.map_err(|_| Error::Head)? {
        Status::Partial if unread.len() > HEAD_BYTES_MAX => return Err(Error::Head),
        Status::Partial => return Ok(None),
        Status::Complete(length) if length > HEAD_BYTES_MAX => return Err(Error::Head),
        Status::Complete(length) => length,
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(Error::Head)?;
    let version = if response.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let (headers, framing) = fields_of(unread, response.headers)?;
    let parsed = framing.settle(Head { status, headers }, version, answers_head)?;
    unread.advance(length);
    Ok(Some(parsed))
}

fn fields_of(whole: &Bytes, found: &[httparse::Header<'_>]) -> Result<(HeaderMap, ConnectionFields), Error> {
    let mut framing = ConnectionFields::default();
    let mut headers = HeaderMap::with_capacity(found.len());
    for field in found {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Error::Head)?;
        if name == CONTENT_LENGTH {
            // A repeated one that agrees is one (RFC 9112, section 6.3).
            framing.length(field.value)?;
            continue;
        }
        if name == CONNECTION {
            framing.connection(field.value);
        } else if name == TRANSFER_ENCODING {
            framing.encoding(field.value);
        }
        // A part of the bytes that came, not a copy.
        let value = HeaderValue::from_maybe_shared(whole.slice_ref(field.value)).map_err(|_| Error::Head)?;
        headers.append(name, value);
    }
    Ok((headers, framing))
}

/// Facts in the fields about the connection.
#[derive(Debug, Default)]
struct ConnectionFields {
    length: Option<u64>,
    has_encoding: bool,
    /// Transfer-Encoding was something other than `chunked`, once.
    odd_encoding: bool,
    close: bool,
    keep_alive: bool,
}

impl ConnectionFields {
    fn length(&mut self, value: &[u8]) -> Result<(), Error> {
        for length in value.split(|byte| *byte == b',') {
            let length = decimal(length.trim_ascii()).ok_or(Error::Head)?;
            if self.length.is_some_and(|before| before != length) {
                return Err(Error::Head);
            }
            self.length = Some(length);
        }
        Ok(())
    }

    fn encoding(&mut self, value: &[u8]) {
        self.odd_encoding |= self.has_encoding || !value.eq_ignore_ascii_case(b"chunked");
        self.has_encoding = true;
    }

    fn connection(&mut self, value: &[u8]) {
        for option in list(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Decides the end of the response (RFC 9112, section 6.3) and the fate of the connection (section 9.3).
    fn settle(self, mut head: Head, version: Version, answers_head: bool) -> Result<Parsed, Error> {
        let mut is_kept = !self.close && (version == Version::HTTP_11 || self.keep_alive);
        let never_has_body = head.status.is_informational() || head.status == StatusCode::NO_CONTENT;
        let coming = if never_has_body {
            // A server that announces a body here may well send it, and then it would be taken for the next answer.
            is_kept &= !self.has_encoding && self.length.is_none_or(|length| length == 0);
            Coming::Nothing
        } else if answers_head || head.status == StatusCode::NOT_MODIFIED {
            Coming::Nothing
        } else if self.has_encoding {
            if self.odd_encoding || version != Version::HTTP_11 {
                return Err(Error::Head);
            }
            is_kept &= self.length.is_none();
            Coming::Chunked
        } else {
            self.length.map_or(Coming::UntilEnd, Coming::Sized)
        };
        if let Some(length) = self.length
            && coming != Coming::Chunked
        {
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        is_kept &= coming != Coming::UntilEnd;
        Ok(Parsed { head, coming, is_kept })
    }
}
