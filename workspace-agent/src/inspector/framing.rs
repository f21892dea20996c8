//! Ends of bodies in HTTP/1.1 (RFC 9112, section 6), read from bytes that come in any pieces. Pure.

/// Longest line of a chunk's size, and longest trailer section, in bytes: apps that send more are not followed.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// How a body ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// After so many bytes more.
    Length(u64),
    /// With a chunk of length zero.
    Chunked(Chunk),
    /// With the connection.
    Close,
}

/// State within a chunked body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// In the line that says its size: the size so far, and how many bytes the line has.
    Size { size: u64, digits: u8, is_extension: bool, length: usize },
    /// So many bytes of it are to come.
    Data(u64),
    /// In the line break behind it.
    End,
    /// In the trailer section: how many bytes it has, and how many the line has.
    Trailers { length: usize, line: usize },
}

/// A step through a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many bytes were framing.
    Framing(usize),
    /// So many bytes are the body's.
    Data(usize),
    /// It has ended, before these bytes.
    Ended,
    /// The bytes are no such body.
    Broken,
}

impl Body {
    /// Makes one of chunks.
    pub(super) fn chunked() -> Self {
        Self::Chunked(Chunk::new())
    }

    /// Takes the next step; `bytes` are not empty, unless it has ended.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Step {
        match self {
            Self::Length(0) => Step::Ended,
            Self::Length(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                Step::Data(taken)
            }
            Self::Close => Step::Data(bytes.len()),
            Self::Chunked(chunk) => {
                let step = chunk.step(bytes);
                if step == Step::Ended {
                    *self = Self::Length(0);
                    // The last line break belongs to it.
                    return Step::Framing(1);
                }
                step
            }
        }
    }

    /// Returns whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        *self == Self::Length(0)
    }
}

impl Chunk {
    fn new() -> Self {
        Self::Size { size: 0, digits: 0, is_extension: false, length: 0 }
    }

    /// Takes one step. [`Step::Ended`] stands for the last byte of all.
    fn step(&mut self, bytes: &[u8]) -> Step {
        let Some(first) = bytes.first().copied() else { return Step::Framing(0) };
        match self {
            Self::Data(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                if *left == 0 {
                    *self = Self::End;
                }
                Step::Data(taken)
            }
            Self::End => match first {
                b'\r' => Step::Framing(1),
                b'\n' => {
                    *self = Self::new();
                    Step::Framing(1)
                }
                _ => Step::Broken,
            },
            Self::Trailers { length, line } => {
                *length += 1;
                match first {
                    b'\n' if *line == 0 => return Step::Ended,
                    b'\n' => *line = 0,
                    b'\r' => {}
                    _ => *line += 1,
                }
                if *length > LINE_BYTES_MAX { Step::Broken } else { Step::Framing(1) }
            }
            Self::Size { .. } => self.size(first),
        }
    }

    /// Takes one byte of the line with the size.
    fn size(&mut self, byte: u8) -> Step {
        let Self::Size { size, digits, is_extension, length } = self else { return Step::Broken };
        *length += 1;
        match (byte, char::from(byte).to_digit(16)) {
            (b'\n', _) if *digits > 0 => {
                *self = if *size == 0 { Self::Trailers { length: 0, line: 0 } } else { Self::Data(*size) };
            }
            (b'\r', _) if *digits > 0 => {}
            (_, Some(digit)) if !*is_extension && *digits < 16 => {
                *size = (*size << 4) | u64::from(digit);
                *digits += 1;
            }
            (b';' | b' ' | b'\t', _) if *digits > 0 => *is_extension = true,
            (_, _) if *is_extension && *length < LINE_BYTES_MAX => {}
            (_, _) => return Step::Broken,
        }
        Step::Framing(1)
    }
}
