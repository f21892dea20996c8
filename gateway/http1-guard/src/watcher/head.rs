//! One head, line by line, across any split of its bytes.

use super::{HeadFault, Sender};

/// One head, as far as it has been read.
#[derive(Debug)]
pub(super) struct Head {
    part: HeadPart,
    /// Bytes so far, line ends included.
    bytes: usize,
    /// Those of whole lines with cookies.
    cookie_bytes: usize,
    /// The beginning of a line whose end has not come yet. Empty, and without memory, while heads come whole.
    carry: Vec<u8>,
    length: Option<u64>,
    chunked: bool,
    host: bool,
    switching: bool,
    http10: bool,
    is_head: bool,
    navigates: bool,
}

/// Beginning of a line with cookies.
const COOKIE: &[u8] = b"cookie:";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadPart {
    /// Nothing but empty lines so far (RFC 9112, section 2.2).
    Start,
    Fields,
}

/// Message part that a head announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadEnd {
    /// It is the first line of HTTP/2.
    Http2,
    /// A body of `length` bytes, maybe none.
    Sized {
        length: u64,
        /// The head asks for another protocol.
        switching: bool,
    },
    /// A chunked body.
    Chunked {
        /// The head asks for another protocol.
        switching: bool,
    },
}

impl Default for Head {
    fn default() -> Self {
        Self {
            part: HeadPart::Start,
            bytes: 0,
            cookie_bytes: 0,
            carry: Vec::new(),
            length: None,
            chunked: false,
            host: false,
            switching: false,
            http10: false,
            is_head: false,
            navigates: false,
        }
    }
}

impl Head {
    pub(super) fn has_started(&self) -> bool {
        self.part != HeadPart::Start || !matches!(self.carry.as_slice(), b"" | b"\r")
    }

    /// Returns whether the first line has begun and has not ended.
    pub(super) fn is_in_first_line(&self) -> bool {
        self.part == HeadPart::Start && self.has_started()
    }

    pub(super) fn sender(&self) -> Sender {
        Sender { is_navigation: self.navigates, is_head: self.is_head }
    }

    /// Reads lines off `rest` up to the blank one. `None` when that has not come yet.
    pub(super) fn read(&mut self, rest: &mut &[u8], bytes_max: usize) -> Result<Option<HeadEnd>, HeadFault> {
        while let Some((line, after)) = split_line(rest) {
            *rest = after;
            self.count(line, 1, bytes_max)?;
            let end = if self.carry.is_empty() {
                self.line(line)?
            } else {
                let mut whole = std::mem::take(&mut self.carry);
                whole.extend_from_slice(line);
                self.line(&whole)?
            };
            if end.is_some() {
                return Ok(end);
            }
        }
        self.count(rest, 0, bytes_max)?;
        self.carry.extend_from_slice(rest);
        *rest = &[];
        Ok(None)
    }

    /// Counts the bytes received of a line, and `end` bytes of its end.
    fn count(&mut self, came: &[u8], end: usize, bytes_max: usize) -> Result<(), HeadFault> {
        self.bytes += came.len() + end;
        if self.bytes <= bytes_max { Ok(()) } else { Err(self.too_large(came)) }
    }

    #[cold]
    fn too_large(&self, came: &[u8]) -> HeadFault {
        if self.part == HeadPart::Start {
            return HeadFault::TargetTooLong;
        }
        let line: usize = self.carry.len() + came.len();
        let is_cookie = is_cookie(if self.carry.len() < COOKIE.len() { came } else { &self.carry });
        let cookies = self.cookie_bytes + if is_cookie { line } else { 0 };
        if cookies > self.bytes / 2 { HeadFault::CookiesTooLarge } else { HeadFault::HeadTooLarge }
    }

    /// Reads one line without its LF.
    fn line(&mut self, line: &[u8]) -> Result<Option<HeadEnd>, HeadFault> {
        let part = self.part;
        let ended = line.strip_suffix(b"\r");
        if part == HeadPart::Start && ended != Some(b"") && !line.is_empty() {
            // Before any fault in it: a head has begun, and an answer is due.
            self.part = HeadPart::Fields;
        }
        let line = ended.ok_or(HeadFault::BareLineFeed)?;
        match part {
            HeadPart::Start if line == b"PRI * HTTP/2.0" => return Ok(Some(HeadEnd::Http2)),
            HeadPart::Start => {
                self.http10 = line.ends_with(b" HTTP/1.0");
                self.is_head = line.starts_with(b"HEAD ");
                self.switching = line.starts_with(b"CONNECT ");
            }
            HeadPart::Fields if line.is_empty() => return Ok(Some(self.end())),
            HeadPart::Fields => self.field(line)?,
        }
        Ok(None)
    }

    fn end(&self) -> HeadEnd {
        let switching = self.switching;
        if self.chunked {
            HeadEnd::Chunked { switching }
        } else {
            HeadEnd::Sized { length: self.length.unwrap_or(0), switching }
        }
    }

    fn field(&mut self, line: &[u8]) -> Result<(), HeadFault> {
        if line.first().is_some_and(is_blank) {
            return Err(HeadFault::FoldedLine);
        }
        // A line without a colon is no field; the library refuses it.
        let Some((name, value)) = split_at_byte(line, b':') else { return Ok(()) };
        if name.last().is_some_and(is_blank) {
            return Err(HeadFault::BlankBeforeColon);
        }
        // The length first: almost every field is none of these, and is not looked at any further.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") && std::mem::replace(&mut self.host, true) => {
                return Err(HeadFault::HostDuplicate);
            }
            // Upgrades are HTTP/1.1's (RFC 9110, section 7.8).
            6 if name.eq_ignore_ascii_case(b"cookie") => self.cookie_bytes += line.len(),
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.switching |= !self.http10,
            14 if name.eq_ignore_ascii_case(b"content-length") => return self.length(value),
            14 if name.eq_ignore_ascii_case(b"sec-fetch-mode") => self.navigates = value.trim_ascii() == b"navigate",
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => return self.encoding(value),
            _ => {}
        }
        Ok(())
    }

    fn length(&mut self, value: &[u8]) -> Result<(), HeadFault> {
        if self.chunked {
            return Err(HeadFault::LengthAndEncoding);
        }
        let digits = value.trim_ascii();
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(digits).ok().filter(|_| is_number).and_then(|digits| digits.parse().ok());
        match (self.length, number) {
            (None, Some(number)) => {
                self.length = Some(number);
                Ok(())
            }
            (Some(_), _) | (None, None) => Err(HeadFault::Length),
        }
    }

    fn encoding(&mut self, value: &[u8]) -> Result<(), HeadFault> {
        if self.length.is_some() {
            return Err(HeadFault::LengthAndEncoding);
        }
        let is_chunked = value.trim_ascii().eq_ignore_ascii_case(b"chunked");
        if !is_chunked || self.http10 || std::mem::replace(&mut self.chunked, true) {
            return Err(HeadFault::Encoding);
        }
        Ok(())
    }
}

fn is_cookie(line: &[u8]) -> bool {
    line.get(..COOKIE.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(COOKIE))
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Splits a line off its LF.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    split_at_byte(bytes, b'\n')
}

/// Splits at the first such byte, which belongs to neither part.
fn split_at_byte(bytes: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|other| *other == byte)?;
    let (before, after) = bytes.split_at_checked(at)?;
    Some((before, after.get(1..)?))
}
