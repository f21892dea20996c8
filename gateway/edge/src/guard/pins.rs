//! Pins what the HTTP library lets through to the service: the module documentation of `guard` rests on this.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::Future as _;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::rt::ReadBufCursor;
use hyper::server::conn::http1;
use hyper::service::service_fn;

type PinShared<T> = Arc<Mutex<T>>;

/// A connection whose peer has sent everything and then closed its side. No runtime is needed.
struct PinnedWire {
    input: io::Cursor<Vec<u8>>,
    output: PinShared<Vec<u8>>,
}

impl hyper::rt::Read for PinnedWire {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let mut chunk = vec![0; buffer.remaining()];
        let length = io::Read::read(&mut self.input, &mut chunk)?;
        buffer.put_slice(&chunk[..length]);
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for PinnedWire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.output.lock().unwrap().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Serves one connection and returns, per request, what the service saw, and last the status lines that went out.
fn serve(input: &[u8]) -> String {
    let seen: PinShared<String> = Arc::default();
    let output: PinShared<Vec<u8>> = Arc::default();
    let wire = PinnedWire { input: io::Cursor::new(input.to_vec()), output: Arc::clone(&output) };
    let service = service_fn(|request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            let (parts, body) = request.into_parts();
            let mut line = format!("{} {}", parts.method, parts.uri);
            for name in ["content-length", "transfer-encoding"] {
                for value in parts.headers.get_all(name) {
                    write!(line, " {name}={}", value.to_str().unwrap()).unwrap();
                }
            }
            match body.collect().await {
                Ok(body) => {
                    let trailers: Vec<_> = body.trailers().into_iter().flat_map(|map| map.keys()).cloned().collect();
                    write!(
                        line,
                        " body={:?} trailers={trailers:?}",
                        String::from_utf8(body.to_bytes().to_vec()).unwrap()
                    )
                    .unwrap();
                }
                Err(_) => line.push_str(" body=error"),
            }
            seen.lock().unwrap().push_str(&format!("{line}\n"));
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let mut connection = pin!(
        http1::Builder::new().half_close(true).timer(NoTimer).header_read_timeout(None).serve_connection(wire, service)
    );
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..64 {
        if connection.as_mut().poll(&mut context).is_ready() {
            break;
        }
    }
    let output = String::from_utf8(output.lock().unwrap().clone()).unwrap();
    let statuses: Vec<&str> = output.split("HTTP/1.").skip(1).filter_map(|answer| answer.get(2..5)).collect();
    let seen = seen.lock().unwrap();
    format!("{seen}-> {}", statuses.join(" "))
}

/// A timer that is never asked: the pins set no timeout.
struct NoTimer;

impl hyper::rt::Timer for NoTimer {
    fn sleep(&self, _: std::time::Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        unreachable!("no timeout is set")
    }

    fn sleep_until(&self, _: std::time::Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        unreachable!("no timeout is set")
    }
}

#[track_caller]
fn check(input: &str, expected: &str) {
    assert_eq!(serve(input.as_bytes()), expected, "{input:?}");
}

const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn library_answers_400_to_ambiguous_lengths_lines_and_names() {
    for fields in [
        "Content-Length: 1\r\nContent-Length: 2\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length:\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
        "A: 1\r\n folded\r\n",
        "A : 1\r\n",
        "A: 1\rB: 2\r\n",
        "A: \0\r\n",
        ": 1\r\n",
        "A\r\n",
        "A: 1\r\n\rx",
    ] {
        check(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\nx{NEXT}"), "-> 400");
    }
    check("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "-> 400");
    for line in [
        "GET  / HTTP/1.1",
        "GET / HTTP/1.2",
        "GET /\t HTTP/1.1",
        "GET / x HTTP/1.1",
        "GET /",
        "G@T / HTTP/1.1",
        "GET http:// HTTP/1.1",
        "GET ?x HTTP/1.1",
        "GET #x HTTP/1.1",
    ] {
        check(&format!("{line}\r\nHost: a\r\n\r\n"), "-> 400");
    }
}

#[test]
fn library_drops_content_length_beside_chunked_and_closes() {
    let chunked = format!("0\r\n\r\n{NEXT}");
    let seen = "POST / transfer-encoding=chunked body=\"\" trailers=[]\n-> 200";
    for fields in [
        "Content-Length: 60\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 60\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: nonsense\r\n",
    ] {
        check(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{chunked}"), seen);
    }
}

#[test]
fn library_collapses_equal_lengths_and_passes_a_list_of_codings() {
    let next = "GET /next body=\"\" trailers=[]\n-> 200 200";
    check(
        &format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx{NEXT}"),
        &format!("POST / content-length=1 body=\"x\" trailers=[]\n{next}"),
    );
    for (fields, seen) in [
        ("Transfer-Encoding: gzip, chunked\r\n", "transfer-encoding=gzip, chunked"),
        (
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
            "transfer-encoding=identity transfer-encoding=chunked",
        ),
    ] {
        check(
            &format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n1\r\nx\r\n0\r\n\r\n{NEXT}"),
            &format!("POST / {seen} body=\"x\" trailers=[]\n{next}"),
        );
    }
}

#[test]
fn library_takes_bare_line_feeds_empty_lines_and_fragments() {
    check("\r\n\nGET /x HTTP/1.1\nHost: a\n\n", "GET /x body=\"\" trailers=[]\n-> 200");
    check("GET /x?y#z HTTP/1.1\r\nHost: a\r\n\r\n", "GET /x?y body=\"\" trailers=[]\n-> 200");
    let http2_path = http::uri::PathAndQuery::from_maybe_shared(Bytes::from_static(b"/x?y#z"));
    assert_eq!(http2_path.unwrap().as_str(), "/x?y");
}

#[test]
fn library_takes_chunk_extensions_and_any_trailer_but_no_bad_chunk() {
    let chunked = |body: &str| format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    let head = "POST / transfer-encoding=chunked";
    check(&chunked("1 ;a=b\"\0\r\nx\r\n0\r\n\r\n"), &format!("{head} body=\"x\" trailers=[]\n-> 200"));
    check(
        &chunked("0\r\nContent-Length: 9\r\nX-Forwarded-For: b\r\n\r\n"),
        &format!("{head} body=\"\" trailers=[\"content-length\", \"x-forwarded-for\"]\n-> 200"),
    );
    for bad in [
        "x\r\n",
        "1\nx\n0\n\n",
        "1\r\nxx0\r\n\r\n",
        "1\r\nx\n0\r\n\r\n",
        "1;\nx\r\n0\r\n\r\n",
        "10000000000000000\r\n",
        "-1\r\n",
        "0x1\r\nx\r\n",
    ] {
        let seen = serve(chunked(&format!("{bad}{NEXT}")).as_bytes());
        assert!(seen.starts_with(&format!("{head} body=error")) && !seen.contains("/next"), "{bad:?}: {seen}");
    }
}

#[test]
fn library_bounds_the_target_and_the_number_of_fields() {
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(65_534));
    check(&long, "-> 414");
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: 1\r\n".repeat(101));
    check(&many, "-> 431");
}
