//! The library's view: heads, sizes of chunks and trailers are read by `httparse`, and what they mean follows RFC 9112.

use httparse::{EMPTY_HEADER, Header, Status};

/// Most fields of a head, as many as the library takes.
const FIELDS_MAX: usize = 100;

/// The library answers this by itself, and reads nothing behind it.
#[derive(Debug)]
pub(super) struct Refused;

#[derive(Debug)]
pub(super) enum Head {
    Whole { length: usize, body: Body },
    Unfinished,
    Refused,
}

/// Framing of a body (RFC 9112, section 6.3).
#[derive(Debug)]
pub(super) enum Body {
    Sized(u64),
    Chunked,
}

/// Reads one head.
///
/// # Panics
/// If the head could be read in two ways: it should have been refused.
pub(super) fn head(bytes: &[u8]) -> Head {
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(Status::Complete(length)) => {
            let lines = &bytes[..length];
            // Empty lines before the head (section 2.2) count as lines too.
            let bare =
                lines.iter().enumerate().find(|(at, byte)| **byte == b'\n' && lines[..*at].last() != Some(&b'\r'));
            assert!(bare.is_none(), "a bare LF in a head");
            body(request.headers, request.version).map_or(Head::Refused, |body| Head::Whole { length, body })
        }
        Ok(Status::Partial) => Head::Unfinished,
        Err(_) => Head::Refused,
    }
}

fn body(fields: &[Header<'_>], version: Option<u8>) -> Option<Body> {
    let all = |name: &str| -> Vec<&[u8]> {
        fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value).collect()
    };
    assert!(all("host").len() <= 1, "several Host fields");
    match (&all("content-length")[..], &all("transfer-encoding")[..]) {
        ([], []) => Some(Body::Sized(0)),
        ([length], []) => {
            let is_number = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(length).ok().filter(|_| is_number).and_then(|length| length.parse().ok());
            assert!(length.is_some(), "Content-Length is no number");
            length.map(Body::Sized)
        }
        ([], [encoding]) => {
            assert!(encoding.eq_ignore_ascii_case(b"chunked"), "another encoding than `chunked`");
            assert_eq!(version, Some(1), "Transfer-Encoding over HTTP/1.0");
            Some(Body::Chunked)
        }
        (lengths, encodings) => panic!("the length is said {} times", lengths.len() + encodings.len()),
    }
}

impl Body {
    /// Returns the length of the body, if all of it came.
    ///
    /// # Errors
    /// It is broken.
    pub(super) fn end(&self, bytes: &[u8]) -> Result<Option<usize>, Refused> {
        match self {
            Self::Sized(length) => Ok(usize::try_from(*length).ok().filter(|length| *length <= bytes.len())),
            Self::Chunked => chunks_end(bytes),
        }
    }
}

fn chunks_end(bytes: &[u8]) -> Result<Option<usize>, Refused> {
    let mut at = 0;
    loop {
        let Some(line) = bytes[at..].split_inclusive(|byte| *byte == b'\n').next().filter(|line| line.ends_with(b"\n"))
        else {
            return Ok(None);
        };
        // The library of the gateway wants a digit first, and no LF in an extension; `httparse` does not.
        if !line[0].is_ascii_hexdigit() || !line.ends_with(b"\r\n") {
            return Err(Refused);
        }
        let Ok(Status::Complete((length, size))) = httparse::parse_chunk_size(line) else { return Err(Refused) };
        assert_eq!(length, line.len(), "a chunk's size ends inside its line");
        at += length;
        if size == 0 {
            return Ok(trailers_end(&bytes[at..])?.map(|length| at + length));
        }
        let Some(after) = usize::try_from(size).ok().and_then(|size| at.checked_add(size)) else { return Ok(None) };
        match bytes.get(after..) {
            None | Some([] | [b'\r']) => return Ok(None),
            Some([b'\r', b'\n', ..]) => at = after + 2,
            Some(_) => return Err(Refused),
        }
    }
}

/// Reads trailers as the library does: it waits for the first CRLF CRLF, and then reads the fields.
fn trailers_end(bytes: &[u8]) -> Result<Option<usize>, Refused> {
    if bytes.starts_with(b"\r\n") {
        return Ok(Some(2));
    }
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let (mut fields, section) = ([EMPTY_HEADER; FIELDS_MAX], &bytes[..end + 4]);
    let Ok(Status::Complete((length, _))) = httparse::parse_headers(section, &mut fields) else { return Err(Refused) };
    assert_eq!(length, section.len(), "bytes hide behind the trailers");
    Ok(Some(length))
}
