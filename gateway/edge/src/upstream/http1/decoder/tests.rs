use super::super::body::TRAILERS_BYTES_MAX;
use super::super::response::{FIELDS_MAX, HEAD_BYTES_MAX};
use super::*;

mod any_bytes;

/// All that comes of one response: its heads, its body, and what may follow.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    interim: Vec<u16>,
    status: Option<u16>,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
    error: Option<String>,
    reusable: bool,
    rest: Vec<u8>,
}

fn fields(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
}

/// Decodes one response that comes in `pieces`, and perhaps the connection's end behind them.
fn decode<'a>(answers_head: bool, pieces: impl IntoIterator<Item = &'a [u8]>, ends: bool) -> Outcome {
    let mut pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
    let mut decoder = Decoder::new();
    decoder.expect(answers_head);
    let mut outcome = Outcome {
        interim: Vec::new(),
        status: None,
        fields: Vec::new(),
        body: Vec::new(),
        trailers: Vec::new(),
        error: None,
        reusable: false,
        rest: Vec::new(),
    };
    let mut more = |decoder: &mut Decoder| match pieces.next() {
        Some(piece) => {
            decoder.push(Bytes::copy_from_slice(piece));
            true
        }
        None if ends && !decoder.is_finished => {
            decoder.finish();
            true
        }
        None => false,
    };
    let waits = |outcome: &mut Outcome| outcome.error = Some("waits".into());
    loop {
        match decoder.head() {
            Ok(HeadFound::Final(head)) => {
                outcome.status = Some(head.status.as_u16());
                outcome.fields = fields(&head.headers);
                break;
            }
            Ok(HeadFound::Interim(status)) => outcome.interim.push(status.as_u16()),
            Ok(HeadFound::More) if more(&mut decoder) => {}
            Ok(HeadFound::More) => {
                waits(&mut outcome);
                return outcome;
            }
            Err(error) => {
                outcome.error = Some(error.to_string());
                return outcome;
            }
        }
    }
    while outcome.status != Some(101) {
        match decoder.frame() {
            Ok(FrameFound::Data(data)) => {
                assert!(!data.is_empty(), "an empty frame");
                outcome.body.extend_from_slice(&data);
            }
            Ok(FrameFound::Trailers(trailers)) => outcome.trailers = fields(&trailers),
            Ok(FrameFound::End) => break,
            Ok(FrameFound::More) if more(&mut decoder) => {}
            Ok(FrameFound::More) => {
                waits(&mut outcome);
                break;
            }
            Err(error) => {
                outcome.error = Some(error.to_string());
                assert!(decoder.frame().is_err(), "an error is for good");
                break;
            }
        }
    }
    while more(&mut decoder) {}
    outcome.reusable = decoder.is_reusable();
    outcome.rest = decoder.into_rest().to_vec();
    outcome
}

/// Decodes in one piece, and asserts that the same comes of every way to cut the bytes in two, and of single bytes.
#[track_caller]
fn response(answers_head: bool, bytes: &[u8], ends: bool) -> Outcome {
    let whole = decode(answers_head, [bytes], ends);
    let cuts = if bytes.len() < 2000 { bytes.len() } else { 0 };
    for at in 0..cuts {
        let (first, second) = bytes.split_at(at);
        assert_eq!(decode(answers_head, [first, second], ends), whole, "cut at {at}");
    }
    if bytes.len() < 2000 {
        assert_eq!(decode(answers_head, bytes.chunks(1), ends), whole, "byte by byte");
    }
    whole
}

/// Asserts that a response is refused, without and with the connection's end behind it.
#[track_caller]
fn refused(bytes: &[u8]) {
    let outcome = response(false, bytes, false);
    assert!(outcome.error.as_ref().is_some_and(|error| error.starts_with("not ")), "{outcome:?}");
    assert!(!outcome.reusable);
    assert!(response(false, bytes, true).error.is_some());
}

/// Asserts a body, and whether another request may follow.
#[track_caller]
fn taken(bytes: &str, body: &str, reusable: bool) -> Outcome {
    let outcome = response(false, bytes.as_bytes(), false);
    assert_eq!((outcome.error.as_deref(), std::str::from_utf8(&outcome.body)), (None, Ok(body)), "{outcome:?}");
    assert_eq!(outcome.reusable, reusable, "{outcome:?}");
    outcome
}

#[test]
fn sized_body_ends_where_its_head_says() {
    taken("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello", true);
    taken("HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", "", true);
    taken("HTTP/1.1 404 Not Found\r\nContent-Length:  2  \r\nx: \u{e4}\r\n\r\nno", "no", true);
}

#[test]
fn fields_keep_their_order_number_and_bytes() {
    let outcome = response(false, b"HTTP/1.1 200 OK\r\nA: 1\r\nb:\r\na: \xff 2 \t\r\ncontent-length: 0\r\n\r\n", false);
    let expected: [(&str, &[u8]); 4] = [("a", b"1"), ("a", b"\xff 2"), ("b", b""), ("content-length", b"0")];
    let mut found = outcome.fields.clone();
    found.sort();
    assert_eq!(found.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect::<Vec<_>>(), expected);
}

#[test]
fn lengths_that_agree_are_one_and_others_are_refused() {
    for fields in ["content-length: 2\r\ncontent-length: 2\r\n", "content-length: 2, 2\r\n"] {
        let outcome = taken(&format!("HTTP/1.1 200 OK\r\n{fields}\r\nok"), "ok", true);
        assert_eq!(outcome.fields, [("content-length".to_owned(), b"2".to_vec())]);
    }
    for fields in ["content-length: 2\r\ncontent-length: 3\r\n", "content-length: 2, 3\r\n", "content-length: 2,\r\n"] {
        refused(format!("HTTP/1.1 200 OK\r\n{fields}\r\nok!").as_bytes());
    }
}

#[test]
fn length_that_is_no_number_is_refused() {
    for length in ["", "+2", "-2", "2 2", "0x2", "2a", "18446744073709551616", "\u{662}"] {
        refused(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\nok").as_bytes());
    }
}

#[test]
fn encoding_that_is_not_chunked_alone_is_refused() {
    for fields in [
        "transfer-encoding: gzip\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: chunked, chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "transfer-encoding: identity\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: chunked;q=1\r\n",
        "transfer-encoding:\r\n",
    ] {
        refused(format!("HTTP/1.1 200 OK\r\n{fields}\r\n0\r\n\r\n").as_bytes());
    }
    refused(b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    taken("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n0\r\n\r\n", "", true);
}

// RFC 9112, section 6.3: the encoding counts, and what follows may have been meant for somebody else.
#[test]
fn encoding_beside_a_length_frames_the_body_and_ends_the_connection() {
    for fields in
        ["content-length: 3\r\ntransfer-encoding: chunked\r\n", "transfer-encoding: chunked\r\ncontent-length: 3\r\n"]
    {
        let outcome = taken(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n5\r\nhello\r\n0\r\n\r\n"), "hello", false);
        assert!(!outcome.fields.iter().any(|(name, _)| name == "content-length"), "{outcome:?}");
    }
}

#[test]
fn folded_lines_blanks_before_the_colon_and_controls_are_refused() {
    for field in ["a: b\r\n c", "a: b\r\n\tc", "a : b", " a: b", "a: b\0c", "a: b\rc", ": b", "a\0: b", "a b: c", "a"] {
        refused(format!("HTTP/1.1 200 OK\r\n{field}\r\ncontent-length: 0\r\n\r\n").as_bytes());
    }
}

#[test]
fn broken_status_lines_are_refused_before_the_head_is_whole() {
    for line in
        ["SSH-2.0-x\r\n", "HTTP/2.0 200 OK\r\n", "HTTP/1.2 200 OK\r\n", "HTTP/1.1 20 OK\r\n", "HTTP/1.1 abc\r\n", "x"]
    {
        refused(line.as_bytes());
    }
    refused(b"HTTP/1.1 099 x\r\n\r\n");
}

#[test]
fn answers_that_have_no_body_have_none_whatever_their_head_says() {
    for (answers_head, status) in [(true, "200 OK"), (true, "404 Not Found"), (false, "304 Not Modified")] {
        for fields in ["content-length: 5\r\n", "transfer-encoding: chunked\r\n", ""] {
            let bytes = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
            let outcome = response(answers_head, bytes.as_bytes(), false);
            assert_eq!((outcome.error.as_deref(), outcome.reusable), (None, true), "{bytes}");
            assert_eq!(outcome.fields.len(), usize::from(!fields.is_empty()), "the length is still told");
        }
    }
    taken("HTTP/1.1 204 No Content\r\n\r\n", "", true);
}

// What a server announces it may send, and it would be taken for the next answer.
#[test]
fn announced_body_of_an_answer_that_has_none_ends_the_connection() {
    taken("HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n", "", true);
    taken("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n", "", false);
    taken("HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n", "", false);
    taken("HTTP/1.1 103 x\r\ncontent-length: 5\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "", false);
}

#[test]
fn bytes_behind_an_answer_end_the_connection() {
    for bytes in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nx",
    ] {
        taken(bytes, "ok", false);
    }
    let outcome = response(true, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", false);
    assert_eq!((outcome.body.len(), outcome.reusable), (0, false), "a body that HEAD never has");
}

#[test]
fn interim_answers_are_passed_by() {
    let outcome = taken(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "ok",
        true,
    );
    assert_eq!((outcome.interim.as_slice(), outcome.fields.len()), (&[100, 103][..], 1));
}

#[test]
fn switch_gives_back_what_came_behind_it() {
    let outcome =
        response(false, b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\nraw", false);
    assert_eq!((outcome.status, outcome.rest.as_slice()), (Some(101), &b"HTTP/1.1 200 OK\r\n\r\nraw"[..]));
    assert!(!outcome.reusable);
}

#[test]
fn connection_is_kept_as_version_and_connection_field_say() {
    for (start, fields, kept) in [
        ("HTTP/1.1", "", true),
        ("HTTP/1.1", "connection: keep-alive\r\n", true),
        ("HTTP/1.1", "connection: Close\r\n", false),
        ("HTTP/1.1", "connection: x, close\r\n", false),
        ("HTTP/1.1", "connection: close\r\nconnection: keep-alive\r\n", false),
        ("HTTP/1.0", "", false),
        ("HTTP/1.0", "connection: Keep-Alive\r\n", true),
        ("HTTP/1.0", "connection: keep-alive, close\r\n", false),
    ] {
        taken(&format!("{start} 200 OK\r\n{fields}content-length: 2\r\n\r\nok"), "ok", kept);
    }
}

#[test]
fn body_without_framing_ends_with_the_connection_and_no_other_does() {
    let outcome = response(false, b"HTTP/1.1 200 OK\r\n\r\nuntil the end", true);
    assert_eq!((outcome.error, outcome.body.as_slice(), outcome.reusable), (None, &b"until the end"[..], false));
    for bytes in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: b\r\n",
    ] {
        let outcome = response(false, bytes.as_bytes(), true);
        assert_eq!(outcome.error.as_deref(), Some("the connection ended within an answer"), "{bytes}");
    }
    for bytes in ["", "HTTP/1.1 200 OK\r\nbroken", "HTTP/1.1 100 Continue\r\n\r\n"] {
        let outcome = response(false, bytes.as_bytes(), true);
        assert_eq!(outcome.error.as_deref(), Some("the connection ended before an answer"), "{bytes}");
    }
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

#[test]
fn chunks_are_joined_and_what_stands_beside_their_size_is_skipped() {
    taken(
        &format!("{CHUNKED}5\r\nhello\r\n0A;a=b;c=\"d\"\r\n 0123\r\n\r\nx\r\n1 \t; e\r\n!\r\n00\r\n\r\n"),
        "hello 0123\r\n\r\nx!",
        true,
    );
}

#[test]
fn broken_chunks_are_refused() {
    for body in [
        "\r\n",
        "g\r\n",
        "5\nhello\r\n",
        "5\r\nhelloX",
        "5\r\nhello\rX",
        "5\r\nhello\n",
        "-1\r\n",
        "0x5\r\n",
        "5 5\r\n",
        "5;a\nb",
        "5;a\rb",
        ";a\r\n",
        " 5\r\n",
        "10000000000000000\r\n",
        "0\r\n\n",
        "0\r\na: b\nc: d\r\n\r\n",
        "0\r\na\r\n\r\n",
        "0\r\n a: b\r\n\r\n",
        "0\r\na: b\r\n c\r\n\r\n",
        "0\r\n\rX\r\n\r\n",
    ] {
        refused(format!("{CHUNKED}{body}").as_bytes());
    }
}

#[test]
fn trailers_are_given_and_bounded() {
    let outcome = taken(&format!("{CHUNKED}2\r\nok\r\n0\r\nX-End: 1\r\nb: \r\n\r\n"), "ok", true);
    assert_eq!(outcome.trailers, [("x-end".to_owned(), b"1".to_vec()), ("b".to_owned(), b"".to_vec())]);
    refused(format!("{CHUNKED}0\r\na: {}\r\n\r\n", "x".repeat(TRAILERS_BYTES_MAX)).as_bytes());
    refused(format!("{CHUNKED}0\r\n{}\r\n", "a: b\r\n".repeat(FIELDS_MAX + 1)).as_bytes());
    let outcome = decode(false, [format!("{CHUNKED}0\r\n{}\r\n", "a: b\r\n".repeat(FIELDS_MAX)).as_bytes()], false);
    assert_eq!((outcome.error, outcome.trailers.len()), (None, FIELDS_MAX));
}

#[test]
fn extensions_are_bounded_over_all_chunks() {
    refused(format!("{CHUNKED}1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(17_000)).as_bytes());
    refused(format!("{CHUNKED}1{}\r\nx\r\n0\r\n\r\n", " ".repeat(17_000)).as_bytes());
    refused(format!("{CHUNKED}{}", format!("1;{}\r\nx\r\n", "e".repeat(1000)).repeat(17)).as_bytes());
}

#[test]
fn heads_are_bounded_in_bytes_and_fields() {
    let many = |count| format!("HTTP/1.1 204 x\r\n{}\r\n", "a: b\r\n".repeat(count));
    assert_eq!(decode(false, [many(FIELDS_MAX).as_bytes()], false).fields.len(), FIELDS_MAX);
    refused(many(FIELDS_MAX + 1).as_bytes());
    let long = |bytes| format!("HTTP/1.1 204 x\r\na: {}\r\n\r\n", "x".repeat(bytes));
    for pieces in [usize::MAX, 1000, 7] {
        let short = long(HEAD_BYTES_MAX - 100);
        assert_eq!(decode(false, short.as_bytes().chunks(pieces), false).status, Some(204));
        // A head without an end is given up when it is too long, not when it ends.
        let endless = long(HEAD_BYTES_MAX + 100);
        let endless = endless.trim_end().as_bytes();
        assert_eq!(
            decode(false, endless.chunks(pieces), false).error.as_deref(),
            Some("not the head of an HTTP/1 response")
        );
    }
}
