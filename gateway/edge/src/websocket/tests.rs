use http::Request;
use http::header::{SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_PROTOCOL};

use super::*;

/// Key and answer of the example in RFC 6455, section 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

fn parts(method: Method, version: Version, fields: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).version(version).uri("/");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

const HANDSHAKE: [(&str, &str); 4] = [
    ("connection", "keep-alive, Upgrade"),
    ("upgrade", "WebSocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", KEY),
];

fn handshake_but(name: &str, value: Option<&'static str>) -> Vec<(&'static str, &'static str)> {
    let kept = HANDSHAKE.into_iter().filter(|(field, _)| *field != name);
    let changed =
        HANDSHAKE.into_iter().filter(|(field, _)| *field == name).filter_map(|(field, _)| Some((field, value?)));
    kept.chain(changed).collect()
}

#[test]
fn websocket_handshake_is_recognised() {
    let websocket = Ok(Some(Upgrade::WebSocket { key: HeaderValue::from_static(KEY) }));
    assert_eq!(upgrade_asked(&parts(Method::GET, Version::HTTP_11, &HANDSHAKE)), websocket);
    let check = |method, fields: Vec<(&str, &str)>, expected| {
        assert_eq!(upgrade_asked(&parts(method, Version::HTTP_11, &fields)), expected, "{fields:?}");
    };
    check(Method::POST, HANDSHAKE.to_vec(), Err(BadUpgrade::Method));
    check(Method::GET, handshake_but("sec-websocket-version", None), Err(BadUpgrade::Version));
    check(Method::GET, handshake_but("sec-websocket-version", Some("8")), Err(BadUpgrade::Version));
    for key in [None, Some(""), Some("short"), Some("dGhlIHNhbXBsZSBub25jZQ"), Some("dGhlIHNhbXBsZSBub25jZXh4")] {
        check(Method::GET, handshake_but("sec-websocket-key", key), Err(BadUpgrade::Key));
    }
    let mut repeated = HANDSHAKE.to_vec();
    repeated.push(("sec-websocket-key", KEY));
    check(Method::GET, repeated, Err(BadUpgrade::Key));
}

#[test]
fn upgrade_that_does_not_count_is_an_ordinary_request() {
    let check = |version, fields: Vec<(&str, &str)>| {
        assert_eq!(upgrade_asked(&parts(Method::GET, version, &fields)), Ok(None), "{version:?} {fields:?}");
    };
    check(Version::HTTP_10, HANDSHAKE.to_vec());
    check(Version::HTTP_2, HANDSHAKE.to_vec());
    check(Version::HTTP_11, handshake_but("connection", None));
    check(Version::HTTP_11, handshake_but("connection", Some("close")));
    check(Version::HTTP_11, handshake_but("upgrade", None));
    check(Version::HTTP_11, handshake_but("upgrade", Some("h2c")));
    check(Version::HTTP_11, handshake_but("upgrade", Some("foo, H2C")));
}

#[test]
fn other_protocol_passes_over_http1() {
    let fields = [("connection", "upgrade"), ("upgrade", "tcp")];
    let other = Upgrade::Other { protocol: HeaderValue::from_static("tcp") };
    assert_eq!(upgrade_asked(&parts(Method::POST, Version::HTTP_11, &fields)), Ok(Some(other)));
}

#[test]
fn extended_connect_becomes_a_handshake_and_its_answer_200() {
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .version(Version::HTTP_2)
        .uri("https://8080-app.ws.example.com/chat?x=%20")
        .header(SEC_WEBSOCKET_PROTOCOL, "chat")
        .header(CONTENT_LENGTH, "0")
        .body(())
        .unwrap()
        .into_parts()
        .0;
    assert_eq!(upgrade_asked(&request), Ok(None), "a plain CONNECT asks for no WebSocket");
    request.extensions.insert(Protocol::from_static("websocket"));
    for version in [None, Some("12"), Some("13, 12")] {
        request.headers.remove(SEC_WEBSOCKET_VERSION);
        request.headers.extend(version.map(|version| (SEC_WEBSOCKET_VERSION, HeaderValue::from_static(version))));
        assert_eq!(upgrade_asked(&request), Err(BadUpgrade::Version), "{version:?}");
    }
    request.headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    assert_eq!(upgrade_asked(&request), Ok(Some(Upgrade::WebSocketStream)));
    handshake_from_connect(&mut request, key_from(*b"the sample nonce"));
    assert_eq!((&request.method, request.uri.to_string().as_str()), (&Method::GET, "/chat?x=%20"));
    let asked = upgrade_asked(&request);
    assert_eq!(asked, Ok(Some(Upgrade::WebSocket { key: HeaderValue::from_static(KEY) })));
    assert_eq!(request.headers.get(SEC_WEBSOCKET_PROTOCOL).unwrap(), "chat");
    assert!(!request.headers.contains_key(CONTENT_LENGTH));

    let answer = |status: u16| {
        let answer = http::Response::builder()
            .status(status)
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_ACCEPT, ACCEPT)
            .header(SEC_WEBSOCKET_EXTENSIONS, "permessage-deflate");
        let mut parts = answer.body(()).unwrap().into_parts().0;
        answer_for_connect(&mut parts);
        parts
    };
    let switched = answer(101);
    assert_eq!((switched.status, switched.headers.len()), (StatusCode::OK, 1));
    assert!(switched.headers.contains_key(SEC_WEBSOCKET_EXTENSIONS));
    let refused = answer(403);
    assert_eq!((refused.status, refused.headers.len()), (StatusCode::FORBIDDEN, 4));
}

#[test]
fn accept_is_the_one_of_the_key() {
    assert_eq!(accept_value(KEY.as_bytes()), ACCEPT);
    let check = |fields: &[(&str, &str)], expected| {
        assert_eq!(
            check_accept(&parts(Method::GET, Version::HTTP_11, fields).headers, KEY.as_bytes()),
            expected,
            "{fields:?}"
        );
    };
    let good = [("connection", "Upgrade"), ("upgrade", "WebSocket"), ("sec-websocket-accept", ACCEPT)];
    check(&good, true);
    check(&good[..2], false);
    check(&good[1..], false);
    check(&[good[0], good[2]], false);
    check(&[good[0], good[1], ("sec-websocket-accept", KEY)], false);
    check(&[good[0], good[1], good[2], good[2]], false);
    check(&[good[0], ("upgrade", "websocket, h2c"), good[2]], false);
}

#[test]
fn framing_is_known_unless_an_unknown_extension_was_agreed_on() {
    let with = |values: &[&'static str]| {
        let values = values.iter().map(|value| (SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static(value)));
        keeps_framing(&values.collect())
    };
    assert!(with(&[]) && with(&["permessage-deflate"]) && with(&["permessage-deflate; server_max_window_bits=10"]));
    assert!(!with(&["x-multiplex"]) && !with(&["permessage-deflate, x-multiplex"]));
    assert!(!with(&["permessage-deflate", "x-multiplex"]));
}
