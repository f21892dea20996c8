//! Bodies as people read them: decoded, indented, or as numbers. Pure.

use std::io::Read as _;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use super::exchange::{Field, Kept, value};

/// Most bytes that a compressed body is unpacked to.
const UNPACKED_BYTES_MAX: usize = 256 * 1024;

/// Most bytes of an indented text: beyond it, the text is shown as it came.
const INDENTED_BYTES_MAX: usize = 1024 * 1024;

/// Deepest level that is indented.
const DEPTH_MAX: usize = 40;

/// Bytes of a body without a text that are shown.
const HEX_BYTES: usize = 512;

/// A body as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// What is said about it, such as that it is not whole.
    pub(crate) notes: Vec<String>,
    /// The text; numbers where there is none.
    pub(crate) text: String,
    /// Events, of a stream of them.
    pub(crate) events: Vec<SentEvent>,
}

/// An event of a stream of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentEvent {
    /// Its kind.
    pub(crate) kind: String,
    /// Its text.
    pub(crate) data: String,
}

/// A body without the coding of its transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unpacked {
    /// Its bytes, as far as they are known.
    pub(crate) bytes: Vec<u8>,
    /// The coding that they still have, as its sender named it.
    pub(crate) coding: Option<String>,
    /// Whether there is more of it.
    pub(crate) is_cut: bool,
}

/// Returns the text of a body, if it is one.
#[must_use]
pub(crate) fn text(unpacked: &Unpacked) -> Option<&str> {
    if unpacked.coding.is_some() {
        return None;
    }
    let text = match std::str::from_utf8(&unpacked.bytes) {
        Ok(text) => text,
        // The end may be in the middle of a character.
        Err(error) if unpacked.is_cut && error.error_len().is_none() => {
            std::str::from_utf8(unpacked.bytes.get(..error.valid_up_to()).unwrap_or_default()).ok()?
        }
        Err(_) => return None,
    };
    let is_odd = |one: char| one.is_control() && !matches!(one, '\n' | '\r' | '\t' | '\u{c}' | '\u{1b}');
    (!text.contains(is_odd)).then_some(text)
}

/// Takes the coding off a body.
#[must_use]
pub(crate) fn unpacked(kept: &Kept, fields: &[Field]) -> Unpacked {
    let coding = value(fields, "content-encoding").unwrap_or_default().trim().to_ascii_lowercase();
    let bytes = match coding.as_str() {
        "" | "identity" => {
            return Unpacked { bytes: kept.bytes.clone(), coding: None, is_cut: kept.is_cut() };
        }
        "gzip" | "x-gzip" => unpack(MultiGzDecoder::new(kept.bytes.as_slice())),
        // By the standard it is zlib's format, and some send the bare one.
        "deflate" => unpack(ZlibDecoder::new(kept.bytes.as_slice()))
            .or_else(|| unpack(DeflateDecoder::new(kept.bytes.as_slice()))),
        _ => None,
    };
    match bytes {
        Some(bytes) => {
            let is_cut = kept.is_cut() || bytes.len() == UNPACKED_BYTES_MAX;
            Unpacked { bytes, coding: None, is_cut }
        }
        None => Unpacked { bytes: kept.bytes.clone(), coding: Some(coding), is_cut: kept.is_cut() },
    }
}

/// Returns whether a coding changes the bytes.
fn has_coding(coding: &str) -> bool {
    !matches!(coding.trim().to_ascii_lowercase().as_str(), "" | "identity")
}

/// Unpacks as much as there is, within the bound; `None` if nothing can be.
fn unpack(packed: impl std::io::Read) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = packed.take(UNPACKED_BYTES_MAX as u64).read_to_end(&mut bytes);
    (read.is_ok() || !bytes.is_empty()).then_some(bytes)
}

/// Returns a body as it is shown; nothing for none.
#[must_use]
pub(crate) fn shown(kept: &Kept, fields: &[Field]) -> Shown {
    let mut shown = Shown::default();
    if kept.length == 0 {
        return shown;
    }
    let unpacked = unpacked(kept, fields);
    if let Some(coding) = value(fields, "content-encoding").filter(|coding| has_coding(coding)) {
        let done = if unpacked.coding.is_none() { "and is shown unpacked" } else { "which is not unpacked here" };
        shown.notes.push(format!("It was sent as {coding}, {done}."));
    }
    if kept.is_cut() {
        shown.notes.push(format!("The first {} of {} bytes were kept.", kept.bytes.len(), kept.length));
    } else if unpacked.is_cut {
        shown.notes.push(format!("The first {} bytes of it are shown.", unpacked.bytes.len()));
    }
    let kind = value(fields, "content-type").unwrap_or_default().to_ascii_lowercase();
    match text(&unpacked) {
        Some(text) if kind.starts_with("text/event-stream") => shown.events = events(text),
        Some(text) if kind.contains("json") => shown.text = indented(text).unwrap_or_else(|| text.to_owned()),
        Some(text) => text.clone_into(&mut shown.text),
        None => {
            let head = unpacked.bytes.get(..HEX_BYTES).unwrap_or(&unpacked.bytes);
            shown.notes.push(format!("It is no text. Its first {} bytes:", head.len()));
            shown.text = hexadecimal(head);
        }
    }
    shown
}

/// Indents JSON, and changes nothing but the space between its parts, so that no number and no order is lost; text that is cut, or
/// none, is indented as far as it goes. `None` if that would be too long.
#[must_use]
pub(crate) fn indented(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth.min(DEPTH_MAX)));
    };
    let mut rest = text.chars().peekable();
    while let Some(one) = rest.next() {
        if out.len() > INDENTED_BYTES_MAX {
            return None;
        }
        if is_text {
            out.push(one);
            is_text = is_escaped || one != '"';
            is_escaped = !is_escaped && one == '\\';
            continue;
        }
        match one {
            '{' | '[' => {
                out.push(one);
                while rest.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                let closing = if one == '{' { '}' } else { ']' };
                if let Some(closing) = rest.next_if_eq(&closing) {
                    out.push(closing);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(one);
            }
            ',' => {
                out.push(one);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ if one.is_ascii_whitespace() => {}
            _ => {
                is_text = one == '"';
                out.push(one);
            }
        }
    }
    Some(out)
}

/// Writes bytes as rows of sixteen: their place, their numbers, their letters.
#[must_use]
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let row = |(number, row): (usize, &[u8])| {
        let numbers: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        let plain = |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
        let letters: String = row.iter().map(plain).collect();
        format!("{:08x}  {:<47}  {letters}\n", number * 16, numbers.join(" "))
    };
    bytes.chunks(16).enumerate().map(row).collect()
}

/// Reads a stream of events (WHATWG HTML, section 9.2).
fn events(text: &str) -> Vec<SentEvent> {
    let mut events = Vec::new();
    let mut event = SentEvent::default();
    for line in text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" if event.data.is_empty() => value.clone_into(&mut event.data),
            "data" => event.data = format!("{}\n{value}", event.data),
            "event" => value.clone_into(&mut event.kind),
            "" if line.is_empty() && event != SentEvent::default() => events.push(std::mem::take(&mut event)),
            _ => {}
        }
    }
    if event != SentEvent::default() {
        events.push(event);
    }
    events
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    use super::*;

    fn kept(bytes: &[u8]) -> Kept {
        Kept { bytes: bytes.to_vec(), length: bytes.len() as u64 }
    }

    fn fields(kind: &str, coding: &str) -> Vec<Field> {
        vec![Field::new("Content-Type", kind.as_bytes()), Field::new("content-encoding", coding.as_bytes())]
    }

    #[test]
    fn json_is_indented_and_nothing_of_it_is_changed() {
        let json = r#"{"b":1.00000000000000000001,"a":[{},[],"x\"}{,",{"c":null}]}"#;
        let shown = shown(&kept(json.as_bytes()), &fields("application/problem+json; charset=utf-8", "identity"));
        let expected = "{\n  \"b\": 1.00000000000000000001,\n  \"a\": [\n    {},\n    [],\n    \"x\\\"}{,\",\n    {\n      \
                        \"c\": null\n    }\n  ]\n}";
        assert_eq!((shown.text.as_str(), shown.notes.as_slice()), (expected, &[][..]));
    }

    #[test]
    fn packed_bodies_are_shown_unpacked_and_named_where_they_cannot_be() {
        let text = b"hello hello hello";
        let mut gzip = GzEncoder::new(Vec::new(), Compression::new(6));
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::new(6));
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::new(6));
        gzip.write_all(text).and_then(|()| zlib.write_all(text)).and_then(|()| bare.write_all(text)).expect("packed");
        let packed = [gzip.finish().expect("gzip"), zlib.finish().expect("zlib"), bare.finish().expect("bare")];
        for (coding, bytes) in ["GZIP", "deflate", "deflate"].into_iter().zip(&packed) {
            let shown = shown(&kept(bytes), &fields("text/plain", coding));
            assert_eq!(shown.text.as_bytes(), text, "{coding}");
            assert!(shown.notes[0].contains("unpacked"), "{:?}", shown.notes);
        }
        // A body that is not whole.
        let [gzip, ..] = &packed;
        let cut = Kept { bytes: gzip[..gzip.len() - 9].to_vec(), length: gzip.len() as u64 };
        assert!(shown(&cut, &fields("text/plain", "gzip")).text.starts_with("hello"));
        let brotli = shown(&kept(&[0x1b, 0x05, 0x00]), &fields("text/plain", "br"));
        assert!(
            brotli.notes[0].contains("br, which is not unpacked") && brotli.text.starts_with("00000000  1b 05 00 ")
        );
    }

    #[test]
    fn small_body_cannot_be_unpacked_beyond_the_bound() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::new(9));
        gzip.write_all(&vec![b'a'; 4 * UNPACKED_BYTES_MAX]).expect("packed");
        let unpacked = unpacked(&kept(&gzip.finish().expect("gzip")), &fields("text/plain", "gzip"));
        assert_eq!((unpacked.bytes.len(), unpacked.is_cut), (UNPACKED_BYTES_MAX, true));
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_numbers() {
        let shown = shown(&kept(b"\0PNG<script>\xff"), &fields("image/png", ""));
        assert!(shown.text.starts_with("00000000  00 50 4e 47 3c"), "{}", shown.text);
        assert!(shown.text.ends_with("  .PNG<script>.\n") && shown.notes[0].contains("no text"));
        assert_eq!(text(&Unpacked { bytes: b"a\xc3".to_vec(), coding: None, is_cut: true }), Some("a"));
        assert_eq!(text(&Unpacked { bytes: b"a\xc3".to_vec(), coding: None, is_cut: false }), None);
    }

    #[test]
    fn events_of_a_stream_are_told_apart() {
        let stream = ": hello\n\ndata: 1\ndata: 2\r\n\r\nevent: tick\ndata:3\n\nid: 9\n\ndata: half";
        let shown = shown(&kept(stream.as_bytes()), &fields("text/event-stream", ""));
        let said: Vec<_> = shown.events.iter().map(|event| (event.kind.as_str(), event.data.as_str())).collect();
        assert_eq!(said, [("", "1\n2"), ("tick", "3"), ("", "half")]);
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic_or_write_without_end(bytes in prop::collection::vec(any::<u8>(), 0..400), kind in 0..3_usize, coding in 0..4_usize) {
            let fields = fields(["application/json", "text/event-stream", "image/png"][kind], ["", "gzip", "deflate", "br"][coding]);
            let shown = shown(&kept(&bytes), &fields);
            prop_assert!(shown.text.len() <= INDENTED_BYTES_MAX + 4096);
        }

        #[test]
        fn indented_text_differs_in_space_alone(text in r#"[\[\]{},:"a1 \\\n]{0,200}"#) {
            let bare = |text: &str| text.chars().filter(|one| !one.is_whitespace()).collect::<String>();
            prop_assert_eq!(bare(&indented(&text).expect("short")), bare(&text));
        }

        #[test]
        fn deep_text_is_not_indented_without_end(depth in 1..60_000_usize) {
            let written = indented(&"[".repeat(depth));
            prop_assert!(written.is_none_or(|written| written.len() < INDENTED_BYTES_MAX + 4096));
        }
    }
}
