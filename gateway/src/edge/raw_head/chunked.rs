//! Where a chunked body ends (RFC 9112, section 7.1): a little more is taken here than the library takes, so that
//! whatever it reads to the end is followed to the same byte.

/// How far a chunked body is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chunked {
    /// In the digits of a chunk's size.
    Size { bytes: u64, any_digit: bool },
    /// In the rest of that line.
    Extension { bytes: u64 },
    /// In a chunk or the line end behind it, with so many bytes to go.
    Data { left: u64 },
    /// Behind the last chunk, in lines that end with CRLF, up to an empty one.
    Trailers { line_is_empty: bool, after_cr: bool },
}

/// The line end behind a chunk, in bytes.
const LINE_END: u64 = 2;

impl Default for Chunked {
    fn default() -> Self {
        Self::Size { bytes: 0, any_digit: false }
    }
}

impl Chunked {
    /// Takes what belongs to the body off `rest`. Returns whether its end was reached, or `None` when this is no chunked
    /// body.
    pub(super) fn skip(&mut self, rest: &mut &[u8]) -> Option<bool> {
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
                return Some(true);
            }
        }
        Some(false)
    }

    fn take(&mut self, byte: u8) -> Option<bool> {
        *self = match (*self, byte) {
            (Self::Size { any_digit: false, .. }, b'\n') => return None,
            (Self::Size { bytes, .. } | Self::Extension { bytes }, b'\n') => Self::behind_size(bytes)?,
            (Self::Size { bytes, any_digit }, _) => match char::from(byte).to_digit(16) {
                Some(digit) => {
                    let bytes = bytes.checked_mul(16)?.checked_add(u64::from(digit))?;
                    Self::Size { bytes, any_digit: true }
                }
                None if any_digit => Self::Extension { bytes },
                None => return None,
            },
            (Self::Trailers { line_is_empty: true, after_cr: true }, b'\n') => return Some(true),
            (Self::Trailers { after_cr: true, .. }, b'\n') => Self::Trailers { line_is_empty: true, after_cr: false },
            (Self::Trailers { line_is_empty, after_cr: false }, b'\r') => {
                Self::Trailers { line_is_empty, after_cr: true }
            }
            (Self::Trailers { .. }, _) => Self::Trailers { line_is_empty: false, after_cr: byte == b'\r' },
            (state @ (Self::Extension { .. } | Self::Data { .. }), _) => state,
        };
        Some(false)
    }

    fn behind_size(bytes: u64) -> Option<Self> {
        Some(match bytes {
            0 => Self::Trailers { line_is_empty: true, after_cr: false },
            _ => Self::Data { left: bytes.checked_add(LINE_END)? },
        })
    }
}
