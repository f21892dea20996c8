use http::{HeaderValue, Request};
use proptest::prelude::*;

use super::*;

fn parts(method: &str, target: &str, fields: &[(&'static str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn head(method: &str, target: &str, fields: &[(&'static str, &str)], length: Length) -> (String, Framing) {
    let (head, framing) = encode(&parts(method, target, fields), length).unwrap();
    (String::from_utf8(head.to_vec()).unwrap(), framing)
}

fn sent(framing: &mut Framing, pieces: &[&'static str]) -> Result<String, Error> {
    let mut bytes = Vec::new();
    for piece in pieces {
        framing.data(Bytes::from_static(piece.as_bytes()), |piece| bytes.extend_from_slice(&piece))?;
    }
    framing.end(None, |piece| bytes.extend_from_slice(&piece))?;
    Ok(String::from_utf8(bytes).unwrap())
}

#[test]
fn head_is_written_with_one_framing() {
    let (get, framing) = head("GET", "/a?b=c", &[("host", "x"), ("a", "")], Length::None);
    assert_eq!((get.as_str(), framing), ("GET /a?b=c HTTP/1.1\r\nhost: x\r\na: \r\n\r\n", Framing::None));
    let (post, framing) = head("POST", "/", &[("content-length", "5"), ("content-length", "5")], Length::Known(5));
    assert_eq!((post.as_str(), framing), ("POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\n", Framing::Sized { left: 5 }));
    let (post, framing) = head("POST", "/", &[("transfer-encoding", "gzip")], Length::Unknown);
    assert_eq!(post, "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n");
    assert_eq!(framing, Framing::Chunked { trailers: Vec::new() });
    let (post, _) = head("POST", "/", &[], Length::Known(7));
    assert_eq!(post, "POST / HTTP/1.1\r\ncontent-length: 7\r\n\r\n");
    let (post, framing) = head("POST", "/", &[("content-length", "0")], Length::None);
    assert_eq!((post.as_str(), framing), ("POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n", Framing::None));
}

#[test]
fn targets_keep_their_form() {
    for (target, line) in [("*", "*"), ("/", "/"), ("http://x", "/"), ("http://x?q", "/?q"), ("/%2F?%", "/%2F?%")] {
        let (head, _) = head("OPTIONS", target, &[], Length::None);
        assert_eq!(head, format!("OPTIONS {line} HTTP/1.1\r\n\r\n"));
    }
}

#[test]
fn length_that_is_not_the_bodys_is_refused() {
    for (fields, length) in [
        (&[("content-length", "5"), ("content-length", "6")][..], Length::Known(5)),
        (&[("content-length", "+5")], Length::Known(5)),
        (&[("content-length", "5, 5")], Length::Known(5)),
        (&[("content-length", "5")], Length::None),
    ] {
        assert!(encode(&parts("POST", "/", fields), length).is_err(), "{fields:?}");
    }
}

#[test]
fn unknown_length_is_chunked_whatever_the_method() {
    for method in ["GET", "HEAD", "POST", "DELETE", "PUT"] {
        let (head, framing) = head(method, "/", &[], Length::Unknown);
        assert!(framing != Framing::None && head.contains("transfer-encoding: chunked"), "{method}");
    }
    assert_eq!(head("GET", "/", &[("content-length", "3")], Length::Known(3)).1, Framing::Sized { left: 3 });
}

#[test]
fn sized_body_is_neither_longer_nor_shorter_than_told() {
    let sized = || Framing::Sized { left: 5 };
    assert_eq!(sent(&mut sized(), &["hel", "", "lo"]).unwrap(), "hello");
    for pieces in [&["hello!"][..], &["hel", "lo!"], &["hell"], &[]] {
        assert!(matches!(sent(&mut sized(), pieces), Err(Error::Request)), "{pieces:?}");
    }
}

#[test]
fn chunks_are_framed_whether_copied_or_not() {
    let large: &'static str = "x".repeat(CHUNK_BYTES_COPIED + 1).leak();
    let text = sent(&mut Framing::Chunked { trailers: Vec::new() }, &["hello", "", "0123456789abcdef", large]).unwrap();
    assert_eq!(text, format!("5\r\nhello\r\n10\r\n0123456789abcdef\r\n401\r\n{large}\r\n0\r\n\r\n"));
}

#[test]
fn large_data_is_not_copied() {
    let data = Bytes::from(vec![7; SLICE_BYTES_MIN]);
    let mut pieces = Vec::new();
    Framing::Chunked { trailers: Vec::new() }.data(data.clone(), |piece| pieces.push(piece)).unwrap();
    Framing::Sized { left: SLICE_BYTES_MIN as u64 }.data(data.clone(), |piece| pieces.push(piece)).unwrap();
    assert_eq!(pieces.iter().filter(|piece| piece.as_ptr() == data.as_ptr()).count(), 2);
}

#[test]
fn trailers_are_announced_only_where_some_can_come() {
    let (chunked, _) = head("POST", "/", &[("trailer", "x-sum")], Length::Unknown);
    assert!(chunked.contains("\r\ntrailer: x-sum\r\n"), "{chunked}");
    for length in [Length::Known(5), Length::None] {
        let (sized, _) = head("POST", "/", &[("trailer", "x-sum")], length);
        assert!(!sized.contains("trailer"), "{sized}");
    }
}

#[test]
fn only_announced_trailers_are_sent() {
    let (_, mut framing) = head("POST", "/", &[("trailer", "X-Sum, max-forwards")], Length::Unknown);
    let mut trailers = HeaderMap::new();
    for name in ["x-sum", "x-other", "max-forwards"] {
        trailers.insert(name, HeaderValue::from_static("1"));
    }
    let mut bytes = Vec::new();
    framing.end(Some(&trailers), |piece| bytes.extend_from_slice(&piece)).unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap(), "0\r\nx-sum: 1\r\n\r\n");
}

proptest! {
    /// Whatever the library's types let through, a head has as many lines as it has fields, and one empty one.
    #[test]
    fn no_request_writes_a_line_of_its_own(
        method in "[!-~]{1,8}", target in prop::collection::vec(any::<u8>(), 0..20), value in prop::collection::vec(any::<u8>(), 0..20)
    ) {
        let target = [b"/".as_slice(), &target].concat();
        let request = Request::builder().method(method.as_str()).uri(target.as_slice()).header("a", value.as_slice()).body(());
        if let Ok(request) = request
            && let Ok((head, _)) = encode(&request.into_parts().0, Length::None)
        {
            prop_assert_eq!(head.iter().filter(|byte| matches!(byte, b'\r' | b'\n')).count(), 6);
            prop_assert!(head.ends_with(b"\r\n\r\n") && !head.contains(&0));
        }
    }

    #[test]
    fn sizes_are_written_in_hexadecimal(number in 1_usize..) {
        let mut line = BytesMut::new();
        put_hex(&mut line, number);
        prop_assert_eq!(std::str::from_utf8(&line).unwrap(), format!("{number:x}"));
    }
}
