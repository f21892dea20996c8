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
    Chunked { at: ChunkPosition, extensions: u32 },
    /// Until the connection's end.
    UntilEnd,
    /// Nothing more comes.
    Over,
}

/// Position in a chunked body.
#[derive(Debug)]
pub(super) enum ChunkPosition {
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
pub(super) enum BodyPart {
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
            Coming::Chunked => Self::Chunked { at: ChunkPosition::start(), extensions: 0 },
            Coming::UntilEnd => Self::UntilEnd,
        }
    }

    /// Takes the next part off `unread`.
    ///
    /// # Errors
    /// [`Error::Body`] for what is no chunked body.
    pub(super) fn take(&mut self, unread: &mut Bytes) -> Result<BodyPart, Error> {
        let found = match self {
            Self::Over => return Ok(BodyPart::End),
            _ if unread.is_empty() => return Ok(BodyPart::More),
            Self::UntilEnd => return Ok(BodyPart::Data(std::mem::take(unread))),
            Self::Sized { left } => {
                let data = take_data(left, unread);
                if *left == 0 {
                    *self = Self::Over;
                }
                return Ok(BodyPart::Data(data));
            }
            Self::Chunked { at, extensions } => take_chunked(at, extensions, unread)?,
        };
        if matches!(found, BodyPart::End | BodyPart::Trailers(_)) {
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

impl ChunkPosition {
    fn start() -> Self {
        Self::Size { bytes: 0, any_digit: false }
    }
}

fn take_data(left: &mut u64, unread: &mut Bytes) -> Bytes {
    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(unread.len());
    *left -= taken as u64;
    if taken == unread.len() { std::mem::take(unread) } else { unread.split_to(taken) }
}

fn take_chunked(at: &mut ChunkPosition, extensions: &mut u32, unread: &mut Bytes) -> Result<BodyPart, Error> {
    while let Some(byte) = unread.first().copied() {
        match at {
            ChunkPosition::Data { left } => {
                let data = take_data(left, unread);
                if *left == 0 {
                    *at = ChunkPosition::DataReturn;
                }
                return Ok(BodyPart::Data(data));
            }
            ChunkPosition::Trailers { section } => {
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
            ChunkPosition::Size { .. }
            | ChunkPosition::Blanks { .. }
            | ChunkPosition::Extension { .. }
            | ChunkPosition::SizeLineFeed { .. }
            | ChunkPosition::DataReturn
            | ChunkPosition::DataLineFeed => {
                unread.advance(1);
                *at = step(at, byte, extensions)?;
            }
        }
    }
    Ok(BodyPart::More)
}

/// Follows one byte between the chunks' data. Stricter than RFC 9112 asks: every line ends with CRLF.
fn step(at: &ChunkPosition, byte: u8, extensions: &mut u32) -> Result<ChunkPosition, Error> {
    let mut skip = |next| {
        *extensions += 1;
        if *extensions > EXTENSIONS_BYTES_MAX { Err(Error::Body) } else { Ok(next) }
    };
    match (at, byte) {
        (
            ChunkPosition::Size { bytes, any_digit: true }
            | ChunkPosition::Blanks { bytes }
            | ChunkPosition::Extension { bytes },
            b'\r',
        ) => Ok(ChunkPosition::SizeLineFeed { bytes: *bytes }),
        (ChunkPosition::Size { bytes, any_digit: true } | ChunkPosition::Blanks { bytes }, b' ' | b'\t') => {
            skip(ChunkPosition::Blanks { bytes: *bytes })
        }
        (ChunkPosition::Size { bytes, any_digit: true } | ChunkPosition::Blanks { bytes }, b';') => {
            skip(ChunkPosition::Extension { bytes: *bytes })
        }
        (ChunkPosition::Size { bytes, .. }, _) => {
            let digit = char::from(byte).to_digit(16).ok_or(Error::Body)?;
            let bytes = bytes.checked_mul(16).and_then(|bytes| bytes.checked_add(u64::from(digit)));
            Ok(ChunkPosition::Size { bytes: bytes.ok_or(Error::Body)?, any_digit: true })
        }
        (ChunkPosition::Extension { .. }, b'\n' | b'\0') => Err(Error::Body),
        (ChunkPosition::Extension { bytes }, _) => skip(ChunkPosition::Extension { bytes: *bytes }),
        (ChunkPosition::SizeLineFeed { bytes: 0 }, b'\n') => Ok(ChunkPosition::Trailers { section: BytesMut::new() }),
        (ChunkPosition::SizeLineFeed { bytes }, b'\n') => Ok(ChunkPosition::Data { left: *bytes }),
        (ChunkPosition::DataReturn, b'\r') => Ok(ChunkPosition::DataLineFeed),
        (ChunkPosition::DataLineFeed, b'\n') => Ok(ChunkPosition::start()),
        (
            ChunkPosition::Blanks { .. }
            | ChunkPosition::SizeLineFeed { .. }
            | ChunkPosition::DataReturn
            | ChunkPosition::DataLineFeed
            | ChunkPosition::Data { .. }
            | ChunkPosition::Trailers { .. },
            _,
        ) => Err(Error::Body),
    }
}

fn end(section: &mut BytesMut) -> Result<BodyPart, Error> {
    if section.len() == b"\r\n".len() {
        return Ok(BodyPart::End);
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
    Ok(BodyPart::Trailers(trailers))
}
