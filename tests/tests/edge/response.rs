//! The answer as the user gets it.

use std::time::Duration;

use e2e::raw::RawApp;

use super::support::{Reply, World, app, app_saying, ok, soon, whole};

// Trap 1, the other direction.
#[tokio::test]
async fn hop_by_hop_fields_of_the_app_do_not_reach_the_user() {
    let world = World::start().await;
    let app = app(|_, _, _| {
        Reply::Keep(
            "HTTP/1.1 200 OK\r\nconnection: keep-alive, x-private\r\nkeep-alive: timeout=5\r\nx-private: 1\r\n\
             proxy-authenticate: Basic\r\nupgrade: h2c\r\nproxy-connection: x\r\nx-kept: 2\r\ncontent-length: 0\r\n\r\n"
                .into(),
        )
    })
    .await;
    let answer = world.ask(app.port, "GET /", "").await;
    for name in ["connection", "keep-alive", "x-private", "proxy-authenticate", "upgrade", "proxy-connection"] {
        assert_eq!(answer.header(name), None, "{answer:?}");
    }
    assert_eq!(answer.header("x-kept"), Some("2"));
    // Trap 2: HTTP/2 would be reset by the peer for any of them.
    let mut http2 = world.http2().await;
    let answer = http2.ask(world.http2_request(app.port, "GET", "/")).await;
    assert_eq!((answer.status.as_u16(), answer.headers["x-kept"].as_bytes()), (200, &b"2"[..]));
}

// Trap 7.
#[tokio::test]
async fn answers_without_a_body_keep_the_length_they_tell() {
    let world = World::start().await;
    let app = app(|_, _, request| {
        let status = request.header("x-status").unwrap();
        Reply::Keep(format!("HTTP/1.1 {status}\r\ncontent-length: 1234\r\netag: \"x\"\r\n\r\n"))
    })
    .await;
    let mut client = world.client().await;
    let mut http2 = world.http2().await;
    for (method, status) in [("GET", "304 Not Modified"), ("HEAD", "200 OK"), ("HEAD", "404 Not Found")] {
        client.send(world.head(app.port, &format!("{method} /"), &format!("x-status: {status}\r\n"))).await;
        let answer = client.head().await.unwrap();
        // A 304 may tell the length (RFC 9110, section 8.6); hyper's HTTP/1.1 leaves it out.
        let told = answer.header("content-length");
        let may_miss = method == "GET" && told.is_none();
        assert!(told == Some("1234") || may_miss, "{method} {status}: {answer:?}");
        assert_eq!(answer.header("etag"), Some("\"x\""));
        let mut request = world.http2_request(app.port, method, "/");
        request.headers_mut().insert("x-status", status.parse().unwrap());
        let answer = http2.ask(request).await;
        assert_eq!(answer.headers["content-length"], "1234", "{method} {status}: {answer:?}");
        assert!(answer.body.is_empty());
        if method == "GET" {
            assert_eq!(app.seen.connections(), 1, "an answer without a body leaves the connection usable");
        }
    }
    world.gateway.assert_quiet().await;
}

// Trap 7.
#[tokio::test]
async fn no_length_is_made_up_for_head_and_204() {
    let world = World::start().await;
    let app = app(|_, _, request| match request.start.starts_with("HEAD") {
        true => Reply::Keep("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".into()),
        false => Reply::Keep("HTTP/1.1 204 No Content\r\n\r\n".into()),
    })
    .await;
    let mut client = world.client().await;
    for method in ["HEAD", "GET", "HEAD"] {
        client.send(world.head(app.port, &format!("{method} /"), "")).await;
        let answer = client.head().await.unwrap();
        assert_eq!(answer.header("content-length"), None, "{answer:?}");
    }
}

#[tokio::test]
async fn body_that_ends_with_the_connection_arrives_whole() {
    let world = World::start().await;
    let app = app_saying("HTTP/1.1 200 OK\r\n\r\nuntil the end").await;
    let answer = world.ask(app.port, "GET /", "").await;
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"), "{answer:?}");
    assert_eq!(answer.text(), "until the end");
    let mut http2 = world.http2().await;
    assert_eq!(http2.ask(world.http2_request(app.port, "GET", "/")).await.text(), "until the end");
    let app = app_saying("HTTP/1.0 200 OK\r\ncontent-type: x/y\r\n\r\nold").await;
    assert_eq!(world.ask(app.port, "GET /", "").await.text(), "old");
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn answer_that_breaks_off_never_looks_whole_to_the_user() {
    let world = World::start().await;
    for reply in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        let app = app_saying(reply).await;
        let mut client = world.client().await;
        client.send(world.head(app.port, "GET /", "")).await;
        client.head().await.unwrap();
        let rest = client.read_rest().await;
        assert!(!rest.ends_with(b"0\r\n\r\n") && rest.len() < 20, "{:?}", String::from_utf8_lossy(&rest));
        let mut http2 = world.http2().await;
        let (response, mut upload) = http2.start(world.http2_request(app.port, "GET", "/"));
        upload.send_data(bytes::Bytes::new(), true).unwrap();
        let mut body = soon(response).await.unwrap().into_body();
        let broken = soon(async {
            loop {
                match body.data().await {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return error,
                    None => panic!("it looks whole"),
                }
            }
        })
        .await;
        assert!(broken.is_reset(), "{broken}");
    }
    world.gateway.assert_quiet().await;
}

// Trap 13: 103 and 102 are dropped, and the answer behind them is the answer.
#[tokio::test]
async fn interim_answers_are_dropped() {
    let world = World::start().await;
    let app = app(|_, _, _| {
        Reply::Keep(
            "HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n\
             HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
                .into(),
        )
    })
    .await;
    let answer = world.ask(app.port, "GET /", "").await;
    assert_eq!((answer.status(), answer.text().as_str(), answer.header("link")), (200, "ok", None));
}

// Row 12 (CVE-2026-2833): bytes are raw only after an upgrade that was asked for.
#[tokio::test]
async fn app_that_switches_protocols_unasked_is_a_failure() {
    let world = World::start().await;
    let app = app_saying(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nHTTP/1.1 200 OK\r\n\r\nraw",
    )
    .await;
    let answer = world.ask(app.port, "GET /", "").await;
    assert_eq!(answer.status(), 502, "{answer:?}");
    assert_eq!(answer.header("gateway-error"), Some("port_closed"));
    let mut http2 = world.http2().await;
    assert_eq!(http2.ask(world.http2_request(app.port, "GET", "/")).await.status, 502);
    world.gateway.assert_quiet().await;
}

// Trap 36.
#[tokio::test]
async fn what_describes_the_body_passes_unchanged() {
    let world = World::start().await;
    let fields = "date: Tue, 01 Jan 2019 00:00:00 GMT\r\nserver: app/1\r\netag: W/\"1\"\r\ncontent-encoding: gzip\r\n\
                  content-range: bytes 0-3/10\r\naccept-ranges: bytes\r\nvary: a\r\nvia: 1.1 x\r\nage: 7\r\n\
                  strict-transport-security: max-age=1\r\n";
    let app = app(move |_, _, request| {
        assert_eq!(request.header("range"), Some("bytes=0-3"));
        assert_eq!(request.header("accept-encoding"), Some("gzip, br"));
        assert_eq!(request.header("if-none-match"), Some("W/\"0\""));
        Reply::Keep(format!("HTTP/1.1 206 Partial Content\r\n{fields}content-length: 4\r\n\r\n\x1f\0zz"))
    })
    .await;
    let asked = "range: bytes=0-3\r\naccept-encoding: gzip, br\r\nif-none-match: W/\"0\"\r\n";
    let answer = world.ask(app.port, "GET /", asked).await;
    assert_eq!((answer.status(), answer.body.as_slice()), (206, &b"\x1f\0zz"[..]));
    for line in fields.trim_end().split("\r\n") {
        let (name, value) = line.split_once(": ").unwrap();
        assert_eq!(answer.header(name), Some(value), "{answer:?}");
    }
}

// Trap 14, over HTTP/1.1.
#[tokio::test]
async fn trailers_pass_both_ways_over_http1() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        let head = raw.head().await.unwrap();
        let mut asked = Vec::new();
        loop {
            let line = raw.line().await;
            asked.push(line);
            if asked.ends_with(&["0".into(), "x-sum: 1".into(), String::new()]) {
                break;
            }
        }
        let te = head.header("te").unwrap_or("none");
        raw.send(format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-end, content-length\r\nx-te: {te}\r\n\r\n2\r\nok\r\n0\r\n\
             x-end: 2\r\ncontent-length: 9\r\n\r\n"
        ))
        .await;
    })
    .await;
    let mut client = world.client().await;
    let fields = "te: trailers\r\nconnection: te\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n";
    client.send(world.head(app.port, "POST /", fields) + "1\r\na\r\n0\r\nx-sum: 1\r\n\r\n").await;
    let answer = client.head().await.unwrap();
    assert_eq!(answer.header("x-te"), Some("trailers"), "{answer:?}");
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &String| !line.is_empty()) {
        lines.push(client.line().await);
    }
    assert_eq!(lines, ["2", "ok", "0", "x-end: 2", ""]);
}

// Trap 14: an app over HTTP/1.1, a user over HTTP/2.
#[tokio::test]
async fn trailers_pass_from_http1_to_http2() {
    let world = World::start().await;
    let app = app(|_, _, _| {
        Reply::Keep(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-end\r\n\r\n2\r\nok\r\n0\r\nx-end: 2\r\n\r\n"
                .into(),
        )
    })
    .await;
    let mut http2 = world.http2().await;
    let mut request = world.http2_request(app.port, "GET", "/");
    request.headers_mut().insert("te", "trailers".parse().unwrap());
    let answer = http2.ask(request).await;
    assert_eq!(answer.text(), "ok");
    assert_eq!(answer.trailers.unwrap()["x-end"], "2");
}

#[tokio::test]
async fn app_that_does_not_speak_http_is_named_as_such() {
    let world = World::start().await;
    for reply in ["", "SSH-2.0-x\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200 OK\r\nbroken"] {
        let app = app_saying(reply).await;
        let answer = world.ask(app.port, "GET /", "").await;
        assert_eq!(
            (answer.status(), answer.header("gateway-error")),
            (502, Some("port_closed")),
            "{reply:?}: {answer:?}"
        );
    }
    let answer = world.ask(1, "GET /", "").await;
    assert_eq!((answer.status(), answer.header("gateway-error")), (502, Some("port_closed")), "{answer:?}");
    world.gateway.assert_quiet().await;
}

// Row 17: an answer of the gateway's own repeats nothing of the request. The public address, to which pages lead, is the configuration's.
#[tokio::test]
async fn failure_repeats_nothing_of_the_request() {
    let world = World::start().await;
    for fields in ["accept: text/html\r\nx-evil: <b>evil</b>\r\n", "accept: application/json\r\n"] {
        let answer = world.ask(1, "GET /<b>evil</b>?<b>evil</b>".replace(['<', '>'], "'").as_str(), fields).await;
        assert_eq!(answer.status(), 502);
        assert!(!format!("{answer:?}").contains("evil"), "{answer:?}");
        let public = format!("href=\"http://localhost:{}/", world.gateway.addresses.public.port());
        assert!(!answer.text().replace(&public, "").contains("localhost"), "{answer:?}");
    }
}

#[tokio::test]
async fn connection_goes_on_after_a_failure() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("fine")).await;
    let mut client = world.client().await;
    for _ in 0..3 {
        client.send(world.head(1, "GET /", "")).await;
        assert_eq!(client.message().await.unwrap().status(), 502);
        client.send(world.head(app.port, "GET /", "")).await;
        assert_eq!(client.message().await.unwrap().text(), "fine");
    }
}

/// A world whose apps have so long for an answer.
async fn patient_for(response_header: Duration) -> World {
    World::configured(|config| config.timeouts.response_header = response_header, Vec::new()).await
}

// Trap 17: the wait for an answer has its own bound, and an upload that moves is not an app that hangs.
#[tokio::test]
async fn app_that_never_answers_is_given_up_by_name() {
    let world = patient_for(Duration::from_secs(1)).await;
    let app = RawApp::start(|mut raw| async move {
        raw.read_rest().await;
    })
    .await;
    let answer = world.ask(app.port, "GET /", "").await;
    assert_eq!((answer.status(), answer.header("gateway-error")), (504, Some("response_timeout")));
    world.until_no_channel().await;
    // Long enough for a machine that is slow itself, and not as long as the upload.
    let world = patient_for(Duration::from_secs(4)).await;
    let slow = super::support::app(|_, _, request| ok(&request.text())).await;
    let mut http2 = world.http2().await;
    let (response, mut upload) = http2.start(world.http2_request(slow.port, "POST", "/"));
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        upload.send_data("x".into(), false).unwrap();
    }
    upload.send_data("y".into(), true).unwrap();
    assert_eq!(whole(response).await.text(), "xxxxxxxxxxxxy");
}
