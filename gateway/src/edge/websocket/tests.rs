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
    let changed = HANDSHAKE
        .into_iter()
        .filter(|(field, _)| *field == name)
        .filter_map(|(field, _)| Some((field, value?)));
    kept.chain(changed).collect()
}

#[test]
fn websocket_handshake_is_recognised() {
    let websocket = Ok(Some(Upgrade::WebSocket {
        key: HeaderValue::from_static(KEY),
    }));
    assert_eq!(
        upgrade_asked(&parts(Method::GET, Version::HTTP_11, &HANDSHAKE)),
        websocket
    );
    let check = |method, fields: Vec<(&str, &str)>, expected| {
        assert_eq!(
            upgrade_asked(&parts(method, Version::HTTP_11, &fields)),
            expected,
            "{fields:?}"
        );
    };
    check(Method::POST, HANDSHAKE.to_vec(), Err(BadUpgrade::Method));
    check(
        Method::GET,
        handshake_but("sec-websocket-version", None),
        Err(BadUpgrade::Version),
    );
    check(
        Method::GET,
        handshake_but("sec-websocket-version", Some("8")),
        Err(BadUpgrade::Version),
    );
    for key in [
        None,
        Some(""),
        Some("short"),
        Some("dGhlIHNhbXBsZSBub25jZQ"),
        Some("dGhlIHNhbXBsZSBub25jZXh4"),
    ] {
        check(
            Method::GET,
            handshake_but("sec-websocket-key", key),
            Err(BadUpgrade::Key),
        );
    }
    let mut repeated = HANDSHAKE.to_vec();
    repeated.push(("sec-websocket-key", KEY));
    check(Method::GET, repeated, Err(BadUpgrade::Key));
}

#[test]
fn upgrade_that_does_not_count_is_an_ordinary_request() {
    let check = |version, fields: Vec<(&str, &str)>| {
        assert_eq!(
            upgrade_asked(&parts(Method::GET, version, &fields)),
            Ok(None),
            "{version:?} {fields:?}"
        );
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
    let other = Upgrade::Other {
        protocol: HeaderValue::from_static("tcp"),
    };
    assert_eq!(
        upgrade_asked(&parts(Method::POST, Version::HTTP_11, &fields)),
        Ok(Some(other))
    );
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
    assert_eq!(
        upgrade_asked(&request),
        Ok(None),
        "a plain CONNECT asks for no WebSocket"
    );
    request
        .extensions
        .insert(Protocol::from_static("websocket"));
    assert_eq!(upgrade_asked(&request), Ok(Some(Upgrade::WebSocketStream)));
    handshake_from_connect(&mut request, key_from(*b"the sample nonce"));
    assert_eq!(
        (&request.method, request.uri.to_string().as_str()),
        (&Method::GET, "/chat?x=%20")
    );
    let asked = upgrade_asked(&request);
    assert_eq!(
        asked,
        Ok(Some(Upgrade::WebSocket {
            key: HeaderValue::from_static(KEY)
        }))
    );
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
    assert_eq!(
        (switched.status, switched.headers.len()),
        (StatusCode::OK, 1)
    );
    assert!(switched.headers.contains_key(SEC_WEBSOCKET_EXTENSIONS));
    let refused = answer(403);
    assert_eq!(
        (refused.status, refused.headers.len()),
        (StatusCode::FORBIDDEN, 4)
    );
}

#[test]
fn accept_is_the_one_of_the_key() {
    assert_eq!(accept_value(KEY.as_bytes()), ACCEPT);
    let check = |fields: &[(&str, &str)], expected| {
        assert_eq!(
            check_accept(
                &parts(Method::GET, Version::HTTP_11, fields).headers,
                KEY.as_bytes()
            ),
            expected,
            "{fields:?}"
        );
    };
    let good = [
        ("connection", "Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-accept", ACCEPT),
    ];
    check(&good, true);
    check(&good[..2], false);
    check(&good[1..], false);
    check(&[good[0], good[2]], false);
    check(&[good[0], good[1], ("sec-websocket-accept", KEY)], false);
    check(&[good[0], good[1], good[2], good[2]], false);
    check(&[good[0], ("upgrade", "websocket, h2c"), good[2]], false);
}

fn rules() -> HostRules {
    HostRules::new("gateway.example.org", "ws.example.com".parse().unwrap()).unwrap()
}

#[track_caller]
fn check_caller(fields: &[(&str, &str)], expected: Caller) {
    let headers = parts(Method::POST, Version::HTTP_11, fields).headers;
    let found = caller_of(
        &headers,
        &rules(),
        &"app".parse().unwrap(),
        "3000-app.ws.example.com",
    );
    assert_eq!(found, expected, "{fields:?}");
}

#[test]
fn caller_is_told_by_origin_and_fetch_metadata_together() {
    let own = ("origin", "https://3000-app.ws.example.com");
    check_caller(&[], Caller::Program);
    check_caller(&[own], Caller::SameOrigin);
    check_caller(
        &[("origin", "http://3000-APP.ws.example.com:80")],
        Caller::SameOrigin,
    );
    check_caller(
        &[own, ("sec-fetch-site", "same-origin")],
        Caller::SameOrigin,
    );
    check_caller(&[("sec-fetch-site", "same-origin")], Caller::SameOrigin);
    check_caller(&[("sec-fetch-site", "none")], Caller::SameOrigin);
    for site in ["same-site", "cross-site", "", "Same-Origin", "new-word"] {
        check_caller(&[("sec-fetch-site", site)], Caller::Foreign);
        check_caller(&[own, ("sec-fetch-site", site)], Caller::Foreign);
    }
    check_caller(&[("sec-fetch-mode", "no-cors")], Caller::Foreign);
    check_caller(&[own, own], Caller::Foreign);
    check_caller(
        &[
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "cross-site"),
        ],
        Caller::Foreign,
    );
    for origin in [
        "null",
        "",
        "https://evil.org",
        "https://3000-app.ws.example.com.evil.org",
        "https://3000-other.ws.example.com",
        "https://gateway.example.org",
        "https://evil.org@3000-app.ws.example.com",
        "https://3000-app.ws.example.com/",
        "https://3000-app.ws.example.com:444",
        "http://8080-app.ws.example.com:8080",
    ] {
        check_caller(&[("origin", origin)], Caller::Foreign);
        check_caller(
            &[("origin", origin), ("sec-fetch-site", "same-origin")],
            Caller::Foreign,
        );
    }
}

#[test]
fn sibling_port_of_the_same_workspace_is_told_apart() {
    let port = Port::new(8080);
    for site in ["same-site", "cross-site"] {
        let fields = [
            ("origin", "https://8080-app.ws.example.com"),
            ("sec-fetch-site", site),
        ];
        check_caller(&fields, Caller::SameWorkspace { port });
    }
    check_caller(
        &[("origin", "https://app.ws.example.com")],
        Caller::SameWorkspace { port: None },
    );
}

#[test]
fn unsafe_methods_and_upgrades_need_a_near_caller() {
    let sibling = Caller::SameWorkspace { port: None };
    let check = |caller, method: Method, is_upgrade, siblings, expected| {
        assert_eq!(
            origin_allowed(caller, &method, is_upgrade, siblings),
            expected,
            "{caller:?} {method} {is_upgrade} {siblings}"
        );
    };
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        check(Caller::Foreign, method, false, false, true);
    }
    for (method, is_upgrade) in [
        (Method::GET, true),
        (Method::POST, false),
        (Method::CONNECT, true),
        (Method::CONNECT, false),
    ] {
        check(Caller::Foreign, method.clone(), is_upgrade, true, false);
        check(sibling, method.clone(), is_upgrade, false, false);
        check(sibling, method.clone(), is_upgrade, true, true);
        check(Caller::SameOrigin, method.clone(), is_upgrade, false, true);
        check(Caller::Program, method, is_upgrade, false, true);
    }
}
