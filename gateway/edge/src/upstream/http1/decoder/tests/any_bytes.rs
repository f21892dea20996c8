use proptest::prelude::*;

use super::decode;

/// Ends, sizes and traps that random text would never hit.
fn fragments() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1 100 Continue\r\n",
        "HTTP/1.1 101 x\r\n",
        "HTTP/1.1 204 x\r\n",
        "\r\n",
        "\n",
        "\r",
        "content-length: 3\r\n",
        "content-length: 5\r\n",
        "transfer-encoding: chunked\r\n",
        "transfer-encoding: gzip\r\n",
        "connection: close\r\n",
        "a: b\r\n",
        " ",
        "0\r\n",
        "3\r\nabc\r\n",
        "5;x\r\nhello\r\n",
        "ffffffffffffffff\r\n",
        ":",
        "\0",
    ]);
    let piece = prop_oneof![8 => known.prop_map(|text| text.as_bytes().to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..4)];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// What is known of a whole response by construction.
fn well_formed() -> impl Strategy<Value = (Vec<u8>, Vec<u8>, bool)> {
    let chunks = prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6);
    (chunks, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(chunks, is_chunked, close, padded)| {
        let body = chunks.concat();
        let connection = if close { "Connection: close\r\n" } else { "" };
        let mut bytes = match is_chunked {
            true => format!("HTTP/1.1 200 OK\r\n{connection}Transfer-Encoding: chunked\r\n\r\n"),
            false => format!("HTTP/1.1 200 OK\r\n{connection}Content-Length: {}\r\n\r\n", body.len()),
        }
        .into_bytes();
        match is_chunked {
            false => bytes.extend_from_slice(&body),
            true => {
                for chunk in &chunks {
                    let size =
                        if padded { format!("000{:X} ;e\r\n", chunk.len()) } else { format!("{:x}\r\n", chunk.len()) };
                    bytes.extend([size.as_bytes(), chunk, b"\r\n"].concat());
                }
                bytes.extend_from_slice(b"0\r\n\r\n");
            }
        }
        (bytes, body, !close)
    })
}

proptest! {
    #[test]
    fn any_bytes_decode_to_the_same_in_any_pieces(
        bytes in fragments(), cuts in prop::collection::vec(1_usize..9, 1..40), answers_head: bool, ends: bool
    ) {
        let mut pieces = Vec::new();
        let mut rest = bytes.as_slice();
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces.push(rest);
        prop_assert_eq!(decode(answers_head, pieces, ends), decode(answers_head, [bytes.as_slice()], ends));
    }

    #[test]
    fn well_formed_answers_decode_to_what_was_written((bytes, body, kept) in well_formed(), piece in 1_usize..50) {
        let outcome = decode(false, bytes.chunks(piece), false);
        prop_assert_eq!((outcome.error, outcome.status, outcome.body, outcome.reusable), (None, Some(200), body, kept));
    }
}
