//! The request as the app gets it.

use e2e::raw::RawApp;

use super::support::{Reply, World, app, ok};

/// Targets that a careless proxy would tidy up.
const TARGETS: [&str; 14] = [
    "/",
    "/a//b",
    "//a",
    "/a%2fb%2F",
    "/a/./b/../c",
    "/..",
    "/?",
    "/a?",
    "/?a=b&&c=%zz&=",
    "/%00%ff%C3%28",
    "/a;b=c,d",
    "/~!$&'()*+,;=:@|{}^\\",
    "/a?b?c/d|{}\\^",
    "/%2e%2e/%2E",
];

// Design, section 4: raw path and query untouched.
#[tokio::test]
async fn target_reaches_the_app_byte_for_byte_over_http1_and_http2() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let mut http2 = world.http2().await;
    for target in TARGETS {
        let expected = format!("GET {target} HTTP/1.1\n");
        let answer = world.ask(app.port, &format!("GET {target}"), "").await;
        assert!(answer.text().starts_with(&expected), "{target}: {answer:?}");
        // The `http` crate reads `//a` behind an authority as it stands, so it can be asked over HTTP/2 too.
        let answer = http2.ask(world.http2_request(app.port, "GET", target)).await;
        assert!(answer.text().starts_with(&expected), "{target} over HTTP/2: {}", answer.text());
    }
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn bytes_above_ascii_in_a_target_reach_the_app_as_they_are() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        let head = raw.head_bytes().await;
        let same = head.starts_with("GET /\u{e4}\u{20ac}?\u{f6} HTTP/1.1\r\n".as_bytes());
        let body = if same { "same" } else { "changed" };
        raw.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await;
    })
    .await;
    let answer = world.ask(app.port, "GET /\u{e4}\u{20ac}?\u{f6}", "").await;
    assert_eq!(answer.text(), "same", "{answer:?}");
}

// Trap 4: RFC 9112, section 3.2.2.
#[tokio::test]
async fn absolute_form_becomes_origin_form_and_names_the_host() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let authority = world.authority(app.port);
    for (target, path) in [("/x?y", "/x?y"), ("", "/"), ("/a//%2f", "/a//%2f")] {
        let answer = world.ask(app.port, &format!("GET http://{authority}{target}"), "").await;
        let text = answer.text();
        assert!(text.starts_with(&format!("GET {path} HTTP/1.1\n")), "{text}");
        assert!(text.contains(&format!("\nhost: {authority}\n")), "{text}");
    }
}

#[tokio::test]
async fn asterisk_target_of_options_reaches_the_app() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let answer = world.ask(app.port, "OPTIONS *", "").await;
    assert!(answer.text().starts_with("OPTIONS * HTTP/1.1\n"), "{answer:?}");
}

// Trap 12.
#[tokio::test]
async fn plain_connect_is_refused_and_reaches_no_app() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("")).await;
    let mut client = world.client().await;
    let authority = world.authority(app.port);
    let token = &world.gateway.user_token;
    client
        .send(format!(
            "CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\ngateway-authorization: Bearer {token}\r\n\r\n"
        ))
        .await;
    assert_eq!(client.head().await.unwrap().status(), 405);
    let mut http2 = world.http2().await;
    let request = http::Request::builder().method("CONNECT").uri(authority).body(()).unwrap();
    assert_eq!(http2.ask(request).await.status, 405);
    assert_eq!(app.seen.connections(), 0);
}

// Trap 1, row 10: fields of one connection end there, and so does what Connection names.
#[tokio::test]
async fn hop_by_hop_fields_do_not_reach_the_app() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let fields = "connection: keep-alive, X-Private, , te\r\nconnection: x-more\r\nkeep-alive: timeout=5\r\n\
                  proxy-connection: keep-alive\r\nproxy-authorization: Basic eDp5\r\nte: gzip\r\nx-private: 1\r\n\
                  x-more: 2\r\nhttp2-settings: AAMAAABk\r\nx-kept: 3\r\n";
    let text = world.ask(app.port, "GET /", fields).await.text();
    for name in ["keep-alive", "proxy-", "te:", "x-private", "x-more", "http2-settings", "connection:", "upgrade"] {
        assert!(!text.contains(&format!("\n{name}")), "{name}: {text}");
    }
    assert!(text.contains("\nx-kept: 3\n"), "{text}");
}

// Trap 1, row 10 (CVE-2024-45410): Connection cannot take away what the gateway says, nor what the app checks.
#[tokio::test]
async fn connection_field_cannot_name_away_what_the_app_relies_on() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let fields = "connection: x-forwarded-for, x-forwarded-host, x-forwarded-proto, forwarded, host, cookie, authorization, \
                  origin\r\ncookie: a=b\r\nauthorization: Basic eDp5\r\norigin: http://else.example\r\n";
    let text = world.ask(app.port, "GET /", fields).await.text();
    let authority = world.authority(app.port);
    for line in [
        "x-forwarded-for: 127.0.0.1",
        &format!("x-forwarded-host: {authority}"),
        "x-forwarded-proto: http",
        "forwarded: for=127.0.0.1;proto=http",
        &format!("host: {authority}"),
        "cookie: a=b",
        "authorization: Basic eDp5",
        "origin: http://else.example",
    ] {
        assert_eq!(text.matches(&format!("\n{line}\n")).count(), 1, "{line}: {text}");
    }
}

// Row 10: what a client claims about where it came from is dropped, and never added to.
#[tokio::test]
async fn forwarding_fields_are_the_gateways_own() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let fields = "x-forwarded-for: 9.9.9.9\r\nx-forwarded-for: 8.8.8.8\r\nX-Forwarded-Host: evil\r\n\
                  x-forwarded-proto: https\r\nx-forwarded-port: 1\r\nx-forwarded-prefix: /evil\r\nx-real-ip: 9.9.9.9\r\n\
                  forwarded: for=9.9.9.9\r\ntrue-client-ip: 9.9.9.9\r\nx-client-ip: 9.9.9.9\r\n";
    let text = world.ask(app.port, "GET /", fields).await.text();
    assert!(!text.contains("9.9.9.9") && !text.contains("8.8.8.8") && !text.contains("evil"), "{text}");
    assert_eq!(text.matches("\nx-forwarded-for: 127.0.0.1\n").count(), 1, "{text}");
    let mut http2 = world.http2().await;
    let mut request = world.http2_request(app.port, "GET", "/");
    request.headers_mut().insert("x-forwarded-for", "9.9.9.9".parse().unwrap());
    let text = http2.ask(request).await.text();
    assert!(!text.contains("9.9.9.9"), "{text}");
    assert_eq!(text.matches("\nx-forwarded-for: 127.0.0.1\n").count(), 1, "{text}");
}

// Row 10: servers that read `_` as `-` would take these for the gateway's.
#[tokio::test]
async fn underscore_spellings_of_forwarding_fields_never_reach_the_app() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("")).await;
    for name in ["x_forwarded_for", "X-Forwarded_For", "gateway_authorization", "content_length", "transfer_encoding"] {
        let answer = world.ask(app.port, "GET /", &format!("{name}: 1\r\n")).await;
        assert_eq!(answer.status(), 400, "{name}: {answer:?}");
        assert_eq!(answer.header("gateway-error"), Some("bad_request"));
    }
    assert_eq!(app.seen.connections(), 0);
}

// Trap 6: a request without a body has no framing, over either version.
#[tokio::test]
async fn request_without_a_body_gets_no_framing() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let mut http2 = world.http2().await;
    for method in ["GET", "DELETE", "OPTIONS"] {
        let one = world.ask(app.port, &format!("{method} /"), "").await.text();
        let two = http2.ask(world.http2_request(app.port, method, "/")).await.text();
        for text in [one, two] {
            assert!(!text.contains("\ncontent-length:") && !text.contains("\ntransfer-encoding:"), "{text}");
        }
    }
}

// Trap 6: a known length stays a length, an unknown one becomes chunks.
#[tokio::test]
async fn framing_of_a_body_is_kept_over_http1_and_translated_from_http2() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "POST /", "content-length: 5\r\n") + "hello").await;
    let text = client.message().await.unwrap().text();
    assert!(text.contains("\ncontent-length: 5\n") && text.ends_with("\n\nhello"), "{text}");
    assert!(!text.contains("transfer-encoding"), "{text}");
    client
        .send(world.head(app.port, "POST /", "transfer-encoding: chunked\r\n") + "3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n")
        .await;
    let text = client.message().await.unwrap().text();
    assert!(text.contains("\ntransfer-encoding: chunked\n") && text.ends_with("\n\nhello"), "{text}");
    assert!(!text.contains("content-length"), "{text}");
    let mut http2 = world.http2().await;
    for (length, framing) in [(Some("5"), "content-length: 5"), (None, "transfer-encoding: chunked")] {
        let mut request = world.http2_request(app.port, "POST", "/");
        if let Some(length) = length {
            request.headers_mut().insert("content-length", length.parse().unwrap());
        }
        let (response, mut body) = http2.start(request);
        body.send_data("hello".into(), true).unwrap();
        let text = super::support::whole(response).await.text();
        assert!(text.contains(&format!("\n{framing}\n")) && text.ends_with("\n\nhello"), "{text}");
    }
    world.gateway.assert_quiet().await;
}

// RFC 9110, section 9.3.1: a body of GET has no meaning that everybody knows, and some apps give it one.
#[tokio::test]
async fn body_of_a_get_reaches_the_app() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    for method in ["GET", "OPTIONS"] {
        let chunked =
            world.head(app.port, &format!("{method} /"), "transfer-encoding: chunked\r\n") + "2\r\nhi\r\n0\r\n\r\n";
        let sized = world.head(app.port, &format!("{method} /"), "content-length: 2\r\n") + "hi";
        for (request, framing) in [(chunked, "transfer-encoding: chunked"), (sized, "content-length: 2")] {
            let mut client = world.client().await;
            client.send(request).await;
            let text = client.message().await.unwrap().text();
            assert!(text.contains(&format!("\n{framing}\n")) && text.ends_with("\n\nhi"), "{text}");
        }
        let mut http2 = world.http2().await;
        for (length, framing) in [(None, "transfer-encoding: chunked"), (Some("2"), "content-length: 2")] {
            let mut request = world.http2_request(app.port, method, "/");
            if let Some(length) = length {
                request.headers_mut().insert("content-length", length.parse().unwrap());
            }
            let (response, mut body) = http2.start(request);
            body.send_data("hi".into(), true).unwrap();
            let text = super::support::whole(response).await.text();
            assert!(text.contains(&format!("\n{framing}\n")) && text.ends_with("\n\nhi"), "{text}");
        }
    }
    // One that turns out to have none has no framing either, however late that shows.
    let mut http2 = world.http2().await;
    let (response, mut body) = http2.start(world.http2_request(app.port, "GET", "/"));
    tokio::task::yield_now().await;
    body.send_data(bytes::Bytes::new(), true).unwrap();
    let text = super::support::whole(response).await.text();
    assert!(!text.contains("\ntransfer-encoding:") && !text.contains("\ncontent-length:"), "{text}");
}

// RFC 9110, section 6.6.2: whoever reads `Trailer` waits for what it names.
#[tokio::test]
async fn trailers_are_announced_only_where_they_are_passed_on() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let fields = "transfer-encoding: chunked\r\ntrailer: X-Ok, Transfer-Encoding, Host\r\ntrailer: Gateway-X, x-forwarded-for, te\r\n";
    let mut client = world.client().await;
    client.send(world.head(app.port, "POST /", fields) + "2\r\nhi\r\n0\r\nX-Ok: 1\r\nHost: x\r\n\r\n").await;
    let text = client.message().await.unwrap().text();
    assert_eq!(text.matches("\ntrailer: ").count(), 1, "{text}");
    assert!(text.to_lowercase().contains("\ntrailer: x-ok\n"), "{text}");
    for fields in ["transfer-encoding: chunked\r\ntrailer: host\r\n", "content-length: 2\r\ntrailer: x-ok\r\n"] {
        let mut client = world.client().await;
        let body = if fields.starts_with('t') { "2\r\nhi\r\n0\r\n\r\n" } else { "hi" };
        client.send(world.head(app.port, "POST /", fields) + body).await;
        let text = client.message().await.unwrap().text();
        assert!(!text.contains("\ntrailer:"), "{text}");
    }
}

#[tokio::test]
async fn several_values_of_a_field_keep_their_order_and_number() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let text = world.ask(app.port, "GET /", "x-a: 1\r\naccept: b\r\nx-a: 2, 3\r\nX-A: 4\r\nx-empty:\r\n").await.text();
    let values: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("x-a: ")).collect();
    assert_eq!(values, ["1", "2, 3", "4"], "{text}");
    assert!(text.contains("\nx-empty: \n"), "{text}");
}

// Trap 9.
#[tokio::test]
async fn field_values_that_are_no_text_pass_both_ways() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        let head = raw.head_bytes().await;
        let found = head.windows(6).any(|window| window == b": a\xff\xe9b");
        let status: &[u8] = if found { b"200 OK" } else { b"500 No" };
        let head: [&[u8]; 3] = [b"HTTP/1.1 ", status, b"\r\ncontent-length: 0\r\nx-back: c\xfe\xe9d\r\n\r\n"];
        raw.send(head.concat()).await;
    })
    .await;
    let mut client = world.client().await;
    let head = world.head(app.port, "GET /", "x-odd: @\r\n").into_bytes();
    let at = head.iter().position(|byte| *byte == b'@').unwrap();
    client.send([&head[..at], b"a\xff\xe9b", &head[at + 1..]].concat()).await;
    let answer = client.head_bytes().await;
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{:?}", String::from_utf8_lossy(&answer));
    assert!(answer.windows(6).any(|window| window == b": c\xfe\xe9d"), "{:?}", String::from_utf8_lossy(&answer));
}

// Trap 8: large cookies pass, and what is too large is refused by name.
#[tokio::test]
async fn large_heads_pass_up_to_the_limit_over_http1_and_http2() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let large = "c".repeat(40 * 1024);
    let text = world.ask(app.port, "GET /", &format!("cookie: {large}\r\n")).await.text();
    assert!(text.contains(&large));
    let mut http2 = world.http2().await;
    let mut request = world.http2_request(app.port, "GET", "/");
    request.headers_mut().insert("x-large", large.parse().unwrap());
    assert!(http2.ask(request).await.text().contains(&large));
    let answer = world.ask(app.port, "GET /", &"x-y: 1\r\n".repeat(99)).await;
    assert_eq!(answer.status(), 431, "{answer:?}");
    assert_eq!(answer.header("clear-site-data"), None, "{answer:?}");
}

// A page sets cookies for all its zone, and no other app of that is reached any more until they are gone.
#[tokio::test]
async fn cookies_that_make_a_head_too_large_are_cleared_over_http1_and_http2() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("")).await;
    let cookies: Vec<String> = (0..17).map(|number| format!("b{number}={}", "x".repeat(4000))).collect();
    let answer = world.ask(app.port, "GET /", &format!("accept: */*\r\ncookie: {}\r\n", cookies.join("; "))).await;
    assert_eq!((answer.status(), answer.header("gateway-error")), (431, Some("header_too_large")), "{answer:?}");
    assert_eq!(answer.header("clear-site-data"), Some("\"cookies\""), "{answer:?}");
    for is_split in [false, true] {
        let mut request = world.http2_request(app.port, "GET", "/");
        if is_split {
            for cookie in &cookies {
                request.headers_mut().append("cookie", cookie.parse().unwrap());
            }
        } else {
            request.headers_mut().insert("cookie", cookies.join("; ").parse().unwrap());
        }
        let answer = world.http2().await.ask(request).await;
        assert_eq!(answer.status, 431, "{answer:?}");
        assert_eq!(answer.headers["clear-site-data"], "\"cookies\"", "{answer:?}");
        assert_eq!(answer.headers["gateway-error"], "header_too_large");
    }
    assert_eq!(app.seen.connections(), 0);
}

#[tokio::test]
async fn http10_client_gets_an_answer_that_ends_with_the_connection() {
    let world = World::start().await;
    let app = app(|_, _, request| {
        assert!(request.start.ends_with("HTTP/1.1"), "{request:?}");
        Reply::Keep("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".into())
    })
    .await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "GET /", "").replace("HTTP/1.1", "HTTP/1.0")).await;
    let answer = client.head().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.header("transfer-encoding"), None, "{answer:?}");
    assert_eq!(client.read_rest().await, b"abc");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let mut client = world.client().await;
    let heads: String = (0..5).map(|number| world.head(app.port, &format!("GET /{number}"), "")).collect();
    client.send(heads).await;
    for number in 0..5 {
        let text = client.message().await.unwrap().text();
        assert!(text.starts_with(&format!("GET /{number} ")), "{text}");
    }
}

// Row 12: one request stays one request. A body that looks like a request is a body.
#[tokio::test]
async fn body_that_looks_like_a_request_stays_a_body() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("")).await;
    let inner = "GET /inner HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut client = world.client().await;
    client.send(world.head(app.port, "POST /outer", &format!("content-length: {}\r\n", inner.len())) + inner).await;
    assert_eq!(client.message().await.unwrap().status(), 200);
    client.send(world.head(app.port, "GET /next", "")).await;
    assert_eq!(client.message().await.unwrap().status(), 200);
    let starts: Vec<_> = app.seen.requests().into_iter().map(|request| request.start).collect();
    assert_eq!(starts, ["POST /outer HTTP/1.1", "GET /next HTTP/1.1"]);
}

#[tokio::test]
async fn upload_that_breaks_off_never_looks_whole_to_the_app() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        let rest = raw.read_rest().await;
        assert!(!rest.ends_with(b"0\r\n\r\n"), "the last chunk was made up");
    })
    .await;
    for (framing, part) in [("content-length: 10", "hello"), ("transfer-encoding: chunked", "5\r\nhello\r\n")] {
        let mut client = world.client().await;
        client.send(world.head(app.port, "POST /", &format!("{framing}\r\n")) + part).await;
        e2e::until("the request is under way", || world.channels() == 1).await;
        drop(client);
        world.until_no_channel().await;
    }
    world.gateway.assert_quiet().await;
}

// Trap 33: dev servers listen on either family of loopback addresses.
#[tokio::test]
async fn app_on_ipv6_loopback_alone_is_reached() {
    let (listener, _ipv4) = loop {
        // Machines without IPv6 have no such apps.
        let Ok(listener) = tokio::net::TcpListener::bind(("::1", 0)).await else { return };
        // Nobody else may answer at that port on the other family: what is bound and does not listen refuses.
        let ipv4 = tokio::net::TcpSocket::new_v4().unwrap();
        if ipv4.bind(([127, 0, 0, 1], listener.local_addr().unwrap().port()).into()).is_ok() {
            break (listener, ipv4);
        }
    };
    let port = listener.local_addr().unwrap().port();
    let world = World::start().await;
    let serve = async {
        let mut raw = e2e::raw::Raw::new(listener.accept().await.unwrap().0);
        raw.head().await.unwrap();
        raw.send("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nsix").await;
        raw.read_rest().await;
    };
    tokio::select! {
        () = serve => panic!("the connection is kept"),
        answer = world.ask(port, "GET /", "") => assert_eq!(answer.text(), "six"),
    }
}
