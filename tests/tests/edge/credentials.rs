//! What belongs to the gateway never reaches an app, and what belongs to the app reaches it untouched.

use e2e::raw::{Raw, RawApp};

use super::support::{Reply, World, app, ok};

// Row 2: the upstream bytes are searched for the token, over both versions.
#[tokio::test]
async fn gateway_token_never_reaches_the_app() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let token = world.gateway.user_token.clone();
    let secret = token.strip_prefix("gwu_").unwrap();
    let authority = world.authority(app.port);
    for field in [
        format!("gateway-authorization: Bearer {token}"),
        format!("Authorization: Bearer {token}"),
        format!("authorization: bearer  {token}"),
    ] {
        let mut client = Raw::connect(world.gateway.addresses.public).await;
        client.send(format!("GET / HTTP/1.1\r\nhost: {authority}\r\nx-gateway-user: me\r\n{field}\r\n\r\n")).await;
        let answer = client.message().await.unwrap();
        assert_eq!(answer.status(), 200, "{field}: {answer:?}");
        assert!(!answer.text().contains(secret) && !answer.text().contains("authorization"), "{answer:?}");
        assert!(!answer.text().contains("x-gateway"), "{answer:?}");
    }
    let mut http2 = world.http2().await;
    let text = http2.ask(world.http2_request(app.port, "GET", "/")).await.text();
    assert!(!text.contains(secret) && !text.contains("authorization"), "{text}");
}

// Row 2.
#[tokio::test]
async fn authorization_of_the_app_reaches_it_untouched() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    for value in ["Basic eDp5", "Bearer app-token", "Digest username=\"a\",  x=y", "Bearer"] {
        let text = world.ask(app.port, "GET /", &format!("authorization: {value}\r\n")).await.text();
        assert!(text.contains(&format!("\nauthorization: {value}\n")), "{text}");
    }
}

// Row 11: the credential and the route come from one reading; two tokens are no credential.
#[tokio::test]
async fn two_tokens_are_no_credential() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("")).await;
    let token = &world.gateway.user_token;
    let answer = world.ask(app.port, "GET /", &format!("gateway-authorization: Bearer {token}\r\n")).await;
    assert_eq!(answer.status(), 401, "{answer:?}");
    assert_eq!(app.seen.connections(), 0);
}

// Trap 3 and row 2: own cookies go, and every other byte stays.
#[tokio::test]
async fn own_cookies_are_cut_out_and_the_rest_is_kept_byte_for_byte() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    for (sent, expected) in [
        ("a=b; gateway_session=zzz; c=\"d, e\";f=g=h;;  i", Some("a=b; c=\"d, e\";f=g=h;;  i")),
        ("gateway_session=zzz; a=b", Some("a=b")),
        ("gateway_pre=zzz", None),
        ("__Host-gateway_session=zzz; Gateway_Session=mine", Some("Gateway_Session=mine")),
        ("a=b;c", Some("a=b;c")),
    ] {
        let text = world.ask(app.port, "GET /", &format!("cookie: {sent}\r\n")).await.text();
        let found: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("cookie: ")).collect();
        assert_eq!(found, expected.as_slice(), "{sent}");
        assert!(!text.contains("zzz"), "{text}");
    }
}

// Trap 3: RFC 9113, section 8.2.3.
#[tokio::test]
async fn cookie_fields_of_http2_are_joined_for_the_app() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let mut http2 = world.http2().await;
    let mut request = world.http2_request(app.port, "GET", "/");
    for cookie in ["a=b", "gateway_session=zzz", "c=d; e", "f=\"g h\""] {
        request.headers_mut().append("cookie", cookie.parse().unwrap());
    }
    let text = http2.ask(request).await.text();
    assert!(text.contains("\ncookie: a=b; c=d; e; f=\"g h\"\n"), "{text}");
    assert_eq!(text.matches("\ncookie:").count(), 1, "{text}");
}

// Stack notes, section 4: an app cannot set the gateway's cookies, nor toss any to its neighbours.
#[tokio::test]
async fn app_sets_its_own_cookies_only() {
    let world = World::start().await;
    let app = app(|_, _, _| {
        Reply::Keep(
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nset-cookie: a=1; Path=/\r\nset-cookie: gateway_session=evil\r\n\
             set-cookie: __Host-gateway_session=evil; Secure; Path=/\r\nset-cookie: b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT\r\n\
             set-cookie: tossed=3; Domain=.LocalHost\r\nset-cookie: =gateway_pre=evil\r\nset-cookie: c=4; HttpOnly\r\n\r\n"
                .into(),
        )
    })
    .await;
    let answer = world.ask(app.port, "GET /", "").await;
    let cookies: Vec<_> =
        answer.headers.iter().filter(|(name, _)| name == "set-cookie").map(|(_, value)| value.as_str()).collect();
    assert_eq!(cookies, ["a=1; Path=/", "b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT", "c=4; HttpOnly"]);
}

#[tokio::test]
async fn app_cannot_speak_for_the_gateway() {
    let world = World::start().await;
    let app = app(|_, _, _| {
        Reply::Keep(
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\ngateway-error: no_such_host\r\ngateway-trace: x\r\nGateway_Error: y\r\n\r\n"
                .into(),
        )
    })
    .await;
    let answer = world.ask(app.port, "GET /", "").await;
    assert_eq!(answer.status(), 404);
    assert!(answer.headers.iter().all(|(name, _)| !name.starts_with("gateway")), "{answer:?}");
}

// Row 4: who and may they come before any branch by protocol.
#[tokio::test]
async fn no_byte_reaches_an_app_without_a_credential_whatever_the_request_asks_for() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("")).await;
    let authority = world.authority(app.port);
    let websocket = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\
                     sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (method, fields) in [
        ("GET", ""),
        ("GET", websocket),
        ("GET", "upgrade: other\r\nconnection: upgrade\r\n"),
        ("POST", "content-length: 0\r\n"),
        ("POST", "expect: 100-continue\r\ncontent-length: 5\r\n"),
        ("OPTIONS", ""),
        ("OPTIONS", "origin: http://evil.example\r\naccess-control-request-method: GET\r\n"),
        ("BREW", ""),
    ] {
        let mut client = world.client().await;
        client.send(format!("{method} / HTTP/1.1\r\nhost: {authority}\r\n{fields}\r\n")).await;
        let answer = client.head().await.unwrap();
        assert_eq!(answer.status(), 401, "{method} {fields}: {answer:?}");
        assert_eq!(answer.header("gateway-error"), Some("sign_in_required"));
    }
    let mut http2 = world.http2().await;
    http2.until_extended_connect().await;
    let mut request = http::Request::builder().method("CONNECT").uri(format!("http://{authority}/")).body(()).unwrap();
    request.extensions_mut().insert(h2::ext::Protocol::from("websocket"));
    assert_eq!(http2.ask(request).await.status, 401);
    assert_eq!(app.seen.connections(), 0);
    assert_eq!(world.channels(), 0);
}
