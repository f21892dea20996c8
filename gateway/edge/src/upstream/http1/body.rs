//! Takes a response's body out of the bytes of its connection (RFC 9112, sections 6.3 and 7.1).

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use httparse::Status;

use super::Error;
use super::response::{Coming, FIELDS_MAX};

/// Most bytes of chunk extensions and of blanks beside a chunk's size, in all chunks of a body together. They are
/// skipped, and cost the app little and the gateway much.
const EXTENSIONS_BYTES_MAX: u32 = 16 * 1024;

/// Longest trailer section, in bytes.
pub(super) const TRAILERS_BYTES_MAX: usize = 16 * 1024;

/// Position in a body.
#[derive(Debug)]
pub(super) enum Body {
    /// With `left` bytes to go.
    Sized { left: u64 },
    /// Somewhere in a chunked one.
    Chunked { at: At, extensions: u32 },
    /// Until the connection's end.
    UntilEnd,
    /// Nothing more comes.
    Over,
}

/// Position in a chunked body.
#[derive(Debug)]
pub(super) enum At {
    /// In the digits of a chunk's size.
    Size { bytes: u64, any_digit: bool },
    /// In blanks behind a chunk's size.
    Blanks { bytes: u64 },
    /// In a chunk's extensions.
    Extension { bytes: u64 },
    /// Behind the CR of that line.
    SizeLineFeed { bytes: u64 },
    /// In a chunk's data.
    Data { left: u64 },
    /// Behind a chunk's data.
    DataReturn,
    /// Behind the CR there.
    DataLineFeed,
    /// In the trailer section, as far as it came: up to and with the empty line.
    Trailers { section: BytesMut },
}

/// Part of a body that was found.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// A part of the body.
    Data(Bytes),
    /// Trailers behind it; nothing more comes.
    Trailers(HeaderMap),
    /// The end.
    End,
    /// Nothing until more bytes arrive. None of those given is left.
    More,
}

impl Body {
    pub(super) fn new(coming: Coming) -> Self {
        match coming {
            Coming::Nothing | Coming::Sized(0) => Self::Over,
            Coming::Sized(left) => Self::Sized { left },
            Coming::Chunked => Self::Chunked { at: At::start(), extensions: 0 },
            Coming::UntilEnd => Self::UntilEnd,
        }
    }

    /// Takes the next part off `unread`.
    ///
    /// # Errors
    /// [`Error::Body`] for what is no chunked body.
    pub(super) fn take(&mut self, unread: &mut Bytes) -> Result<Found, Error> {
        let found = match self {
            Self::Over => return Ok(Found::End),
            _ if unread.is_empty() => return Ok(Found::More),
            Self::UntilEnd => return Ok(Found::Data(std::mem::take(unread))),
            Self::Sized { left } => {
                let data = take_data(left, unread);
                if *left == 0 {
                    *self = Self::Over;
                }
                return Ok(Found::Data(data));
            }
            Self::Chunked { at, extensions } => take_chunked(at, extensions, unread)?,
        };
        if matches!(found, Found::End | Found::Trailers(_)) {
            *self = Self::Over;
        }
        Ok(found)
    }

    /// The app finished the connection: the end of a body that has no other, and too early for any other.
    ///
    /// # Errors
    /// [`Error::Incomplete`] in a body that was to be longer.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        match self {
            Self::UntilEnd | Self::Over => {
                *self = Self::Over;
                Ok(())
            }
            Self::Sized { .. } | Self::Chunked { .. } => Err(Error::Incomplete),
        }
    }
}

impl At {
    fn start() -> Self {
        Self::Size { bytes: 0, any_digit: false }
    }
}

fn take_data(left: &mut u64, unread: &mut Bytes) -> Bytes {
    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(unread.len());
    *left -= taken as u64;
    if taken == unread.len() { std::mem::take(unread) } else { unread.split_to(taken) }
}

fn take_chunked(at: &mut At, extensions: &mut u32, unread: &mut Bytes) -> Result<Found, Error> {
    while let Some(byte) = unread.first().copied() {
        match at {
            At::Data { left } => {
                let data = take_data(left, unread);
                if *left == 0 {
                    *at = At::DataReturn;
                }
                return Ok(Found::Data(data));
            }
            At::Trailers { section } => {
                section.extend_from_slice(&[byte]);
                unread.advance(1);
                let is_bare = byte == b'\n' && !section.ends_with(b"\r\n");
                if is_bare || section.len() > TRAILERS_BYTES_MAX {
                    return Err(Error::Body);
                }
                if byte == b'\n' && (section.len() == b"\r\n".len() || section.ends_with(b"\n\r\n")) {
                    return end(section);
                }
            }
            At::Size { .. }
            | At::Blanks { .. }
            | At::Extension { .. }
            | At::SizeLineFeed { .. }
            | At::DataReturn
            | At::DataLineFeed => {
                unread.advance(1);
                *at = step(at, byte, extensions)?;
            }
        }
    }
    Ok(Found::More)
}

/// Follows one byte between the chunks' data. Stricter than RFC 9112 asks: every line ends with CRLF.
fn step(at: &At, byte: u8, extensions: &mut u32) -> Result<At, Error> {
    let mut skip = |next| {
        *extensions += 1;
        if *extensions > EXTENSIONS_BYTES_MAX { Err(Error::Body) } else { Ok(next) }
    };
    match (at, byte) {
        (At::Size { bytes, any_digit: true } | At::Blanks { bytes } | At::Extension { bytes }, b'\r') => {
            Ok(At::SizeLineFeed { bytes: *bytes })
        }
        (At::Size { bytes, any_digit: true } | At::Blanks { bytes }, b' ' | b'\t') => {
            skip(At::Blanks { bytes: *bytes })
        }
        (At::Size { bytes, any_digit: true } | At::Blanks { bytes }, b';') => skip(At::Extension { bytes: *bytes }),
        (At::Size { bytes, .. }, _) => {
            let digit = char::from(byte).to_digit(16).ok_or(Error::Body)?;
            let bytes = bytes.checked_mul(16).and_then(|bytes| bytes.checked_add(u64::from(digit)));
            Ok(At::Size { bytes: bytes.ok_or(Error::Body)?, any_digit: true })
        }
        (At::Extension { .. }, b'\n' | b'\0') => Err(Error::Body),
        (At::Extension { bytes }, _) => skip(At::Extension { bytes: *bytes }),
        (At::SizeLineFeed { bytes: 0 }, b'\n') => Ok(At::Trailers { section: BytesMut::new() }),
        (At::SizeLineFeed { bytes }, b'\n') => Ok(At::Data { left: *bytes }),
        (At::DataReturn, b'\r') => Ok(At::DataLineFeed),
        (At::DataLineFeed, b'\n') => Ok(At::start()),
        (
            At::Blanks { .. }
            | At::SizeLineFeed { .. }
            | At::DataReturn
            | At::DataLineFeed
            | At::Data { .. }
            | At::Trailers { .. },
            _,
        ) => Err(Error::Body),
    }
}

fn end(section: &mut BytesMut) -> Result<Found, Error> {
    if section.len() == b"\r\n".len() {
        return Ok(Found::End);
    }
    let section = section.split().freeze();
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let Ok(Status::Complete((length, found))) = httparse::parse_headers(&section, &mut fields) else {
        return Err(Error::Body);
    };
    // The section ends where its parser says, or two readers of it could disagree about what follows.
    if length != section.len() {
        return Err(Error::Body);
    }
    let mut trailers = HeaderMap::with_capacity(found.len());
    for field in found {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Error::Body)?;
        let value = HeaderValue::from_maybe_shared(section.slice_ref(field.value)).map_err(|_| Error::Body)?;
        trailers.append(name, value);
    }
    Ok(Found::Trailers(trailers))
}
