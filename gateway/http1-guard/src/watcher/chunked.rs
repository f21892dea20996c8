//! Finds the end of a chunked body (RFC 9112, section 7.1). A little more is accepted here than the library accepts, so
//! that any body that the library reads to the end is followed to the same byte. The exception is a bare LF in the
//! trailers, which ends a line for some readers and not for others.

/// Position in a chunked body.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chunked {
    /// In the digits of a chunk's size.
    Size { bytes: u64, any_digit: bool },
    /// In the rest of that line.
    Extension { bytes: u64 },
    /// In a chunk or the line end behind it, with `left` bytes to go.
    Data { left: u64 },
    /// Behind the last chunk, in lines that end with CRLF, up to an empty one.
    Trailers { line_is_empty: bool, after_cr: bool },
}

/// Reason bytes are no chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadChunk {
    /// Fault that the library finds too.
    Evident,
    /// Fault that the library would not find.
    Hidden,
}

/// The line end behind a chunk, in bytes.
const LINE_END: u64 = 2;

impl Default for Chunked {
    fn default() -> Self {
        Self::Size { bytes: 0, any_digit: false }
    }
}

impl Chunked {
    /// Takes the body's bytes off `rest`. Returns whether its end was reached.
    ///
    /// # Errors
    /// [`BadChunk`] when this is no chunked body; the byte that shows it is the last one that was taken.
    pub(super) fn skip(&mut self, rest: &mut &[u8]) -> Result<bool, BadChunk> {
        while let Some((byte, after)) = rest.split_first() {
            if let Self::Data { left } = self {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                *left -= taken as u64;
                *rest = rest.get(taken..).unwrap_or_default();
                if *left == 0 {
                    *self = Self::default();
                }
                continue;
            }
            *rest = after;
            if self.take(*byte)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn take(&mut self, byte: u8) -> Result<bool, BadChunk> {
        *self = match (*self, byte) {
            (Self::Size { any_digit: false, .. }, b'\n') => return Err(BadChunk::Evident),
            (Self::Size { bytes, .. } | Self::Extension { bytes }, b'\n') => Self::behind_size(bytes)?,
            (Self::Size { bytes, any_digit }, _) => match char::from(byte).to_digit(16) {
                Some(digit) => {
                    let bytes = bytes.checked_mul(16).and_then(|bytes| bytes.checked_add(u64::from(digit)));
                    Self::Size { bytes: bytes.ok_or(BadChunk::Evident)?, any_digit: true }
                }
                None if any_digit => Self::Extension { bytes },
                None => return Err(BadChunk::Evident),
            },
            (Self::Trailers { line_is_empty: true, after_cr: true }, b'\n') => return Ok(true),
            (Self::Trailers { after_cr: true, .. }, b'\n') => Self::Trailers { line_is_empty: true, after_cr: false },
            (Self::Trailers { after_cr: false, .. }, b'\n') => return Err(BadChunk::Hidden),
            (Self::Trailers { line_is_empty, after_cr: false }, b'\r') => {
                Self::Trailers { line_is_empty, after_cr: true }
            }
            (Self::Trailers { .. }, _) => Self::Trailers { line_is_empty: false, after_cr: byte == b'\r' },
            (state @ (Self::Extension { .. } | Self::Data { .. }), _) => state,
        };
        Ok(false)
    }

    fn behind_size(bytes: u64) -> Result<Self, BadChunk> {
        Ok(match bytes {
            0 => Self::Trailers { line_is_empty: true, after_cr: false },
            _ => Self::Data { left: bytes.checked_add(LINE_END).ok_or(BadChunk::Evident)? },
        })
    }
}
