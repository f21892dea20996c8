//! Requests that two parsers could read in two ways: each is refused by name, and what hides in it reaches no app.

use std::time::Duration;

use e2e::raw::Raw;

use crate::support::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, H2, HEADERS, RST_STREAM, Stage, block, frame, h2_get, problem,
};

/// An ambiguous head and a body in which a request hides.
struct Case {
    reason: &'static str,
    fields: String,
    body: String,
}

fn cases(stage: &Stage) -> Vec<Case> {
    let hidden = stage.get("/smuggled");
    let chunked = format!("0\r\n\r\n{hidden}");
    let length = |body: &str| format!("Content-Length: {}\r\n", body.len());
    let inside = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    let encoding = "Transfer-Encoding: chunked\r\n";
    let case = |reason, fields: String, body: &str| Case { reason, fields, body: body.to_owned() };
    vec![
        // CL.TE and TE.CL.
        case("length_and_encoding", format!("{}{encoding}", length(&chunked)), &chunked),
        case("length_and_encoding", format!("{encoding}{}", length(&chunked)), &chunked),
        case("length_and_encoding", format!("{encoding}Content-Length: 4\r\n"), &inside),
        case("length_and_encoding", "content-length:4\r\ntransfer-encoding:\tCHUNKED\r\n".to_owned(), &inside),
        // TE.TE: one of two parsers does not see it, or takes it for something else.
        case("transfer_encoding", "Transfer-Encoding: xchunked\r\n".into(), &chunked),
        case("transfer_encoding", "Transfer-Encoding: chunked, identity\r\n".into(), &chunked),
        case("transfer_encoding", "Transfer-Encoding: identity, chunked\r\n".into(), &chunked),
        case("transfer_encoding", "Transfer-Encoding: \"chunked\"\r\n".into(), &chunked),
        case("transfer_encoding", format!("{encoding}Transfer-Encoding: x\r\n"), &chunked),
        case("transfer_encoding", format!("{encoding}{encoding}"), &chunked),
        case("transfer_encoding", "Transfer-Encoding: \x0bchunked\r\n".into(), &chunked),
        case("transfer_encoding", "Transfer-Encoding:\r\n".into(), &chunked),
        case("blank_before_colon", "Transfer-Encoding : chunked\r\n".into(), &chunked),
        case("blank_before_colon", "Content-Length\t: 5\r\n".into(), &hidden),
        case("transfer_encoding", "Transfer-Encoding:\r\n chunked\r\n".into(), &chunked),
        case("folded_line", "X: y\r\n Transfer-Encoding: chunked\r\n".into(), &chunked),
        case("folded_line", "X: y\r\n\tContent-Length: 5\r\n".into(), &hidden),
        case("bare_line_feed", "X: y\nTransfer-Encoding: chunked\r\n".into(), &chunked),
        case("bare_line_feed", "X: y\n\nGET /smuggled HTTP/1.1\r\n".into(), ""),
        case("bare_line_feed", "Transfer-Encoding\n: chunked\r\n".into(), &chunked),
        case("malformed", "X: y\rTransfer-Encoding: chunked\r\n".into(), &chunked),
        case("malformed", "Transfer-Encoding\0: chunked\r\n".into(), &chunked),
        case("malformed", "Transfer-Encoding\x0b: chunked\r\n".into(), &chunked),
        case("malformed", "X: \0\r\n".into(), &hidden),
        case("malformed", "\x01X: y\r\n".into(), &hidden),
        case("malformed", ": y\r\n".into(), &hidden),
        case("underscore_field", "transfer_encoding: chunked\r\nContent-Length: 0\r\n".into(), ""),
        // Content-Length that is not one number.
        case("content_length", "Content-Length: 0\r\nContent-Length: 40\r\n".into(), &hidden),
        case("content_length", "Content-Length: 40\r\nContent-Length: 40\r\n".into(), &hidden),
        case("content_length", "Content-Length: 0, 40\r\n".into(), &hidden),
        case("content_length", "Content-Length: +40\r\n".into(), &hidden),
        case("content_length", "Content-Length: -1\r\n".into(), &hidden),
        case("content_length", "Content-Length: 0x10\r\n".into(), &hidden),
        case("content_length", "Content-Length: 1 0\r\n".into(), &hidden),
        case("content_length", "Content-Length:\r\n".into(), &hidden),
        case("content_length", "Content-Length: 18446744073709551616\r\n".into(), &hidden),
        // Host.
        case("host_duplicate", "Host: other.localhost\r\n".into(), &hidden),
        case("host_duplicate", format!("hOsT: {}\r\n", stage.authority()), &hidden),
    ]
}

/// How the bytes of a case arrive.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    /// All at once on a fresh connection.
    Whole,
    /// One byte after the other.
    Dripping,
    /// Behind a good request, together with it.
    Pipelined,
    /// Behind a good request that was answered.
    Second,
}

async fn send(raw: &mut Raw, arrival: Arrival, good: &str, request: &str) {
    match arrival {
        Arrival::Whole => raw.send(request).await,
        Arrival::Pipelined => raw.send(format!("{good}{request}")).await,
        Arrival::Second => {
            raw.send(good).await;
            assert_eq!(raw.message().await.expect("an answer").status(), 200);
            raw.send(request).await;
        }
        Arrival::Dripping => {
            for byte in request.as_bytes() {
                // It may be refused before it is through.
                if raw.try_send([*byte]).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_heads_are_refused_by_name_and_hide_nothing() {
    let stage = Stage::new(|_| {}).await;
    let good = stage.get("/good");
    for case in cases(&stage) {
        let request = format!("POST /ambiguous HTTP/1.1\r\n{}{}\r\n{}", stage.fields(), case.fields, case.body);
        for arrival in [Arrival::Whole, Arrival::Dripping, Arrival::Pipelined, Arrival::Second] {
            let told = format!("{arrival:?} {:?}", case.fields);
            let mut raw = stage.connect().await;
            send(&mut raw, arrival, &good, &request).await;
            if matches!(arrival, Arrival::Pipelined) {
                assert_eq!(raw.message().await.expect("an answer").status(), 200, "{told}");
            }
            let answer = raw.message().await.unwrap_or_else(|| panic!("no answer: {told}"));
            assert_eq!(
                (answer.status(), answer.header("gateway-error")),
                (400, Some("bad_request")),
                "{told}: {answer:?}"
            );
            assert_eq!(problem(&answer)["reason"], case.reason, "{told}");
            assert_eq!(answer.header("connection"), Some("close"), "{told}");
            assert!(raw.read_rest().await.is_empty(), "more than one answer: {told}");
            let expected: &[&str] = match arrival {
                Arrival::Whole | Arrival::Dripping => &[],
                Arrival::Pipelined | Arrival::Second => &["GET /good HTTP/1.1"],
            };
            assert_eq!(stage.seen(), expected, "{told}");
        }
    }
    stage.finish().await;
}

#[tokio::test]
async fn refusal_waits_for_the_answers_before_it() {
    let stage = Stage::new(|_| {}).await;
    let (asked, mut heard) = tokio::sync::mpsc::channel::<()>(1);
    let (release, released) = tokio::sync::watch::channel(false);
    let slow = e2e::raw::RawApp::start(move |mut raw| {
        let (asked, mut released) = (asked.clone(), released.clone());
        async move {
            raw.head().await;
            asked.send(()).await.unwrap();
            raw.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst").await;
            released.wait_for(|released| *released).await.unwrap();
            raw.send("later").await;
        }
    })
    .await;
    let mut raw = stage.connect().await;
    let fields = crate::support::fields(&stage.gateway, slow.port);
    let good = format!("GET /good HTTP/1.1\r\n{fields}\r\n");
    let bad = format!("POST / HTTP/1.1\r\n{fields}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    raw.send(format!("{good}{bad}")).await;
    heard.recv().await.unwrap();
    // The half of the first answer is there, and nothing has got in between.
    let head = raw.head().await.expect("a head");
    assert_eq!((head.status(), raw.exactly(5).await), (200, b"first".to_vec()));
    release.send(true).unwrap();
    assert_eq!(raw.exactly(5).await, b"later");
    assert_eq!(problem(&raw.message().await.expect("a refusal"))["reason"], "length_and_encoding");
    assert!(raw.read_rest().await.is_empty());
    stage.finish().await;
}

#[tokio::test]
async fn apps_own_400_goes_through_untouched() {
    let stage = Stage::new(|_| {}).await;
    for answer in [
        "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        "HTTP/1.1 414 URI Too Long\r\ncontent-length: 0\r\ndate: Sat, 21 Nov 2026 00:00:00 GMT\r\n\r\n",
    ] {
        let app = e2e::raw::RawApp::start(move |mut raw| async move {
            while raw.head().await.is_some() {
                if raw.try_send(answer).await.is_err() {
                    return;
                }
            }
        })
        .await;
        let fields = crate::support::fields(&stage.gateway, app.port);
        let get = format!("GET / HTTP/1.1\r\n{fields}\r\n");
        for requests in [get.clone(), get.repeat(3), get.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")] {
            let mut raw = stage.connect().await;
            raw.send(&requests).await;
            for _ in 0..requests.matches("GET /").count() {
                let message = raw.message().await.expect("an answer");
                assert_eq!(message.start, answer.split("\r\n").next().unwrap());
                assert_eq!(message.header("gateway-error"), None, "{message:?}");
            }
        }
    }
    stage.finish().await;
}

#[tokio::test]
async fn body_that_holds_requests_and_answers_is_only_a_body() {
    let stage = Stage::new(|_| {}).await;
    let hidden = stage.get("/smuggled");
    let good = stage.get("/good");
    let ambiguous = format!("{hidden}A: 1\n B: 2\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n");
    let sized =
        format!("POST /sized HTTP/1.1\r\n{}Content-Length: {}\r\n\r\n{ambiguous}", stage.fields(), ambiguous.len());
    let chunked = format!(
        "POST /chunked HTTP/1.1\r\n{}Transfer-Encoding: chunked\r\n\r\n{:x};a=b\r\n{ambiguous}\r\n0\r\nTrailer: x\r\n\r\n",
        stage.fields(),
        ambiguous.len()
    );
    let mut raw = stage.connect().await;
    raw.send(format!("{sized}{chunked}{good}")).await;
    for _ in 0..3 {
        assert_eq!(raw.message().await.expect("an answer").status(), 200);
    }
    let seen = stage.seen();
    assert_eq!(seen, ["POST /sized HTTP/1.1", "POST /chunked HTTP/1.1", "GET /good HTTP/1.1"]);
    stage.finish().await;
}

#[tokio::test]
async fn broken_chunks_end_the_connection_and_hide_nothing() {
    let stage = Stage::new(|_| {}).await;
    let hidden = stage.get("/smuggled");
    for body in [
        "x\r\n",
        "1\nx\n0\n\n",
        "1\r\nxx0\r\n\r\n",
        "10000000000000000\r\n",
        "-1\r\n",
        "0x1\r\nx\r\n",
        "1;\nx\r\n0\r\n\r\n",
    ] {
        let request =
            format!("POST /broken HTTP/1.1\r\n{}Transfer-Encoding: chunked\r\n\r\n{body}{hidden}", stage.fields());
        let mut raw = stage.connect().await;
        raw.send(request).await;
        let rest = String::from_utf8_lossy(&raw.read_rest().await).into_owned();
        assert!(
            rest.is_empty() || (rest.contains("gateway-error: bad_request") && !rest.contains("200 OK")),
            "{body:?}: {rest}"
        );
        let seen = stage.seen();
        assert!(seen.iter().all(|line| line == "POST /broken HTTP/1.1"), "{body:?}: {seen:?}");
    }
    stage.finish().await;
}

// The library waits for CRLF CRLF and reads the trailers up to an empty line of either kind.
#[tokio::test]
async fn bare_line_feed_in_trailers_is_refused_and_swallows_nothing() {
    let stage = Stage::new(|_| {}).await;
    let (next, last) = (stage.get("/b"), stage.get("/c"));
    for trailers in ["0\r\nX: 1\n\n", "0\r\n\n", "0\r\nX: 1\r\n\n"] {
        let request = format!(
            "POST /broken HTTP/1.1\r\n{}Transfer-Encoding: chunked\r\n\r\n{trailers}{next}{last}",
            stage.fields()
        );
        let mut raw = stage.connect().await;
        raw.send(request).await;
        let rest = String::from_utf8_lossy(&raw.read_rest().await).into_owned();
        assert!(
            rest.starts_with("HTTP/1.1 400 ") && rest.contains("gateway-error: bad_request"),
            "{trailers:?}: {rest}"
        );
        assert_eq!(rest.matches("HTTP/1.1 ").count(), 1, "{trailers:?}: {rest}");
        let seen = stage.seen();
        assert!(seen.iter().all(|line| line == "POST /broken HTTP/1.1"), "{trailers:?}: {seen:?}");
    }
    stage.finish().await;
}

// RFC 9113, section 8.1: the request is malformed.
#[tokio::test]
async fn pseudo_field_in_http2_trailers_is_a_protocol_error() {
    let stage = Stage::new(|_| {}).await;
    let (authority, bearer) = (stage.authority(), format!("Bearer {}", stage.gateway.user_token));
    // Literally, and from the table into which the request's head put it.
    let kept = [b"\x44\x08/indexed".as_slice()].concat();
    for (first, trailers) in [(&b""[..], block(&[(":path", "/second")])), (&kept, b"\xbe".to_vec())] {
        let mut h2 = H2::connect(&stage, &[]).await;
        let mut fields = h2_get(&authority, &bearer, "/h2");
        fields[0].1 = "POST";
        if !first.is_empty() {
            fields.retain(|(name, _)| *name != ":path");
        }
        let head = [first, &block(&fields)].concat();
        let bytes = [
            frame(HEADERS, END_HEADERS, 1, &head),
            frame(DATA, 0, 1, b"body"),
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &trailers),
        ]
        .concat();
        h2.raw.try_send(bytes).await.ok();
        let code = loop {
            let Some(frame) = h2.frame().await else { break None };
            match frame.kind {
                RST_STREAM => break Some(u32::from_be_bytes(frame.payload[..4].try_into().unwrap())),
                GOAWAY => break Some(u32::from_be_bytes(frame.payload[4..8].try_into().unwrap())),
                HEADERS => panic!("answered"),
                _ => {}
            }
        };
        assert_eq!(code, Some(1), "{trailers:?}");
    }
    // Trailers that have none of it are as good as ever.
    let mut h2 = H2::connect(&stage, &[]).await;
    let mut fields = h2_get(&authority, &bearer, "/h2");
    fields[0].1 = "POST";
    let bytes = [
        frame(HEADERS, END_HEADERS, 1, &block(&fields)),
        frame(DATA, 0, 1, b"body"),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("x-sum", "7")])),
    ]
    .concat();
    h2.raw.send(bytes).await;
    assert!(h2.until(&[HEADERS], 1).await.is_some(), "it is answered");
    drop(h2);
    stage.assert_serves().await;
    stage.finish().await;
}

/// Sends one stream of HTTP/2 as bytes, and returns the error code that it or the connection was ended with.
async fn h2_refusal(stage: &Stage, fields: &[(&str, &str)], bodies: &[&str]) -> Option<u32> {
    let mut h2 = H2::connect(stage, &[]).await;
    let flags = if bodies.is_empty() { END_HEADERS | END_STREAM } else { END_HEADERS };
    let mut bytes = frame(HEADERS, flags, 1, &block(fields));
    for (index, body) in bodies.iter().enumerate() {
        let flags = if index + 1 == bodies.len() { END_STREAM } else { 0 };
        bytes.extend(frame(DATA, flags, 1, body.as_bytes()));
    }
    // It may be refused before it is through.
    h2.raw.try_send(bytes).await.ok();
    loop {
        let frame = h2.frame().await?;
        match frame.kind {
            RST_STREAM if frame.stream == 1 => return Some(u32::from_be_bytes(frame.payload[..4].try_into().unwrap())),
            GOAWAY => return Some(u32::from_be_bytes(frame.payload[4..8].try_into().unwrap())),
            HEADERS if frame.stream == 1 => panic!("answered: {fields:?}"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn http2_fields_that_would_break_http1_reset_their_stream() {
    let stage = Stage::new(|_| {}).await;
    let authority = stage.authority();
    let bearer = format!("Bearer {}", stage.gateway.user_token);
    let hidden = stage.get("/smuggled");
    let splitting = format!("a\r\n\r\n{hidden}");
    let path = format!("/ HTTP/1.1\r\n\r\n{hidden}");
    let bad_authority = format!("{authority}\r\nx: y");
    let good = || h2_get(&authority, &bearer, "/h2");
    let with = |name, value| {
        let mut fields = good();
        fields.push((name, value));
        fields
    };
    let replaced = |name, value| {
        let mut fields = good();
        fields.iter_mut().filter(|(other, _)| *other == name).for_each(|field| field.1 = value);
        fields
    };
    let mut cases = vec![
        with("x", &splitting),
        with("x", "a\nb"),
        with("x", "a\rb"),
        with("x", "a\0b"),
        with("x\r\ny", "a"),
        with("x y", "a"),
        with("x:", "a"),
        with("X", "a"),
        with("", "a"),
        with("transfer-encoding", "chunked"),
        with("connection", "close"),
        with("connection", "upgrade"),
        with("keep-alive", "a"),
        with("proxy-connection", "a"),
        with("upgrade", "h2c"),
        with("te", "gzip"),
        with(":path", "/second"),
        with(":unknown", "a"),
        with("content-length", "5"),
        with("content-length", "x"),
        replaced(":path", &path),
        replaced(":path", ""),
        replaced(":method", "GET / HTTP/1.1\r\nx: y"),
        replaced(":method", ""),
        replaced(":authority", &bad_authority),
        replaced(":scheme", "http\r\n"),
    ];
    // A pseudo field behind an ordinary one, and none at all.
    let mut late = good();
    late.rotate_left(1);
    cases.extend([late, vec![("x", "y")]]);
    for fields in cases {
        let code = h2_refusal(&stage, &fields, &[]).await;
        assert_eq!(code, Some(1), "not a protocol error: {fields:?}");
        assert_eq!(stage.seen(), Vec::<String>::new(), "{fields:?}");
    }
    stage.assert_serves().await;
    stage.finish().await;
}

#[tokio::test]
async fn http2_body_that_is_not_its_content_length_hides_nothing() {
    let stage = Stage::new(|_| {}).await;
    let authority = stage.authority();
    let bearer = format!("Bearer {}", stage.gateway.user_token);
    let hidden = stage.get("/smuggled");
    for (length, bodies) in [
        ("0", vec![hidden.as_str()]),
        ("5", vec![hidden.as_str()]),
        ("5", vec!["abcde", hidden.as_str()]),
        ("5", vec!["abc"]),
        ("5", vec!["abc", ""]),
    ] {
        let mut fields = h2_get(&authority, &bearer, "/h2");
        fields[0].1 = "POST";
        fields.push(("content-length", length));
        let code = h2_refusal(&stage, &fields, &bodies).await;
        assert_eq!(code, Some(1), "{length} {bodies:?}");
        stage.gateway.assert_quiet().await;
        let seen = stage.seen();
        assert!(seen.iter().all(|line| line == "POST /h2 HTTP/1.1"), "{length} {bodies:?}: {seen:?}");
    }
    stage.finish().await;
}

#[tokio::test]
async fn http2_authority_and_host_must_agree() {
    let stage = Stage::new(|_| {}).await;
    let stream = tokio::net::TcpStream::connect(stage.gateway.addresses.public).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        connection.await.ok();
    });
    for (host, expected) in [("other.localhost", (400, Some("bad_request"))), (stage.authority().as_str(), (200, None))]
    {
        let request = http::Request::get(format!("http://{}/agree", stage.authority()))
            .header("host", host)
            .header("gateway-authorization", format!("Bearer {}", stage.gateway.user_token))
            .body(())
            .unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        let response = tokio::time::timeout(Duration::from_secs(5), response).await.unwrap().unwrap();
        let code = response.headers().get("gateway-error").map(|code| code.to_str().unwrap());
        assert_eq!((response.status().as_u16(), code), expected);
    }
    assert_eq!(stage.seen(), ["GET /agree HTTP/1.1"]);
    drop(client);
    stage.finish().await;
}
