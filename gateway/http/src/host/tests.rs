use http::Request;
use proptest::prelude::*;

use super::*;

fn rules(public: &str, zone: &str) -> HostRules {
    HostRules::new(public, zone.parse().unwrap()).unwrap()
}

#[track_caller]
fn check(authority: &str, expected: Option<(Option<u16>, &str)>) {
    let expected = expected
        .map(|(port, name)| HostTarget::Workspace { name: name.parse().unwrap(), port: port.and_then(Port::new) })
        .ok_or(NoSuchHost);
    assert_eq!(rules("example.org", "ws.example.com").parse(authority), expected, "{authority:?}");
}

#[test]
fn host_of_a_workspace_is_read_whatever_its_case_port_and_trailing_dot() {
    check("8080-app.ws.example.com", Some((Some(8080), "app")));
    check("8080-app.ws.example.com:8443", Some((Some(8080), "app")));
    check("8080-App.WS.Example.COM.", Some((Some(8080), "app")));
    check("8080-app.ws.example.com.:1", Some((Some(8080), "app")));
    check("app.ws.example.com", Some((None, "app")));
    check("a-b-c.ws.example.com", Some((None, "a-b-c")));
    check("1-a-1.ws.example.com", Some((Some(1), "a-1")));
    check("3d-printer.ws.example.com", Some((None, "3d-printer")));
    check("8080.ws.example.com", Some((None, "8080")));
    check(&format!("65535-{}.ws.example.com", "a".repeat(57)), Some((Some(65535), &"a".repeat(57))));
}

#[test]
fn hostile_hosts_belong_to_nobody() {
    for authority in [
        "",
        ".",
        "..",
        ":",
        ":80",
        "@",
        "ws.example.com",
        ".ws.example.com",
        "ws.example.com.evil.org",
        "8080-app.ws.example.comx",
        "8080-appws.example.com",
        "8080-app.evil.ws.example.com",
        "8080-app..ws.example.com",
        "8080-app.ws.example.com..",
        "8080-app.ws.example.com:",
        "8080-app.ws.example.com:0",
        "8080-app.ws.example.com:080",
        "8080-app.ws.example.com:65536",
        "8080-app.ws.example.com:+80",
        "8080-app.ws.example.com:80:80",
        "user@8080-app.ws.example.com",
        "8080-app.ws.example.com@evil.org",
        "8080-app%2ews.example.com",
        "8080-app.ws.example.com/",
        "8080-app.ws.example.com\\evil.org",
        "evil.org/8080-app.ws.example.com",
        "8080-app.ws.example.com?x",
        "8080-app.ws.example.com#x",
        " 8080-app.ws.example.com",
        "8080-app.ws.example.com ",
        "8080-app .ws.example.com",
        "8080-app.ws.example.com\t",
        "8080-app.ws.example.com\0",
        "8080-äpp.ws.example.com",
        "8080-app。ws.example.com",
        "٨٠٨٠-app.ws.example.com",
        "127.0.0.1",
        "127.0.0.1:8080",
        "[::1]",
        "[::1].ws.example.com",
        "0-app.ws.example.com",
        "08080-app.ws.example.com",
        "65536-app.ws.example.com",
        "99999999999999999999-app.ws.example.com",
        "+80-app.ws.example.com",
        "--app.ws.example.com",
        "-app.ws.example.com",
        "app-.ws.example.com",
        "8080-.ws.example.com",
        "8080--app.ws.example.com",
        "8080-9090-app.ws.example.com",
        "a_b.ws.example.com",
        "*.ws.example.com",
        "xn--pp-wia.ws.example.com",
        "8080-xn--pp-wia.ws.example.com",
        "169.254.169.254",
        "localhost",
        "8080-app,ws.example.com",
    ] {
        check(authority, None);
    }
    check(&format!("{}.ws.example.com", "a".repeat(64)), None);
    check(&format!("65535-{}.ws.example.com", "a".repeat(58)), None);
    check(&"a.".repeat(300), None);
}

#[test]
fn public_host_is_the_public_site_even_where_it_is_the_zone() {
    let local = rules("localhost:8080", "localhost");
    for authority in ["localhost", "LOCALHOST:8080", "localhost.", "127.0.0.1:8080", "[::1]:8080", "[0:0::1]"] {
        assert_eq!(local.parse(authority), Ok(HostTarget::Public), "{authority}");
    }
    for authority in ["127.0.0.2", "[::2]", "::1", "[::1", "[::1]x", "[::1]:", "[localhost]", "0.0.0.0"] {
        assert_eq!(local.parse(authority), Err(NoSuchHost), "{authority}");
    }
    assert!(matches!(local.parse("3000-app.localhost:8080"), Ok(HostTarget::Workspace { .. })));
    let named = rules("gateway.example.org", "ws.example.com");
    assert_eq!(named.parse("gateway.example.org"), Ok(HostTarget::Public));
    assert_eq!(named.parse("127.0.0.1"), Err(NoSuchHost));
    let by_address = rules("10.0.0.7:8080", "ws.example.com");
    assert_eq!(by_address.parse("10.0.0.7:8080"), Ok(HostTarget::Public));
    assert_eq!(by_address.parse("10.0.0.8"), Err(NoSuchHost));
}

fn parts(version: Version, uri: &str, hosts: &[&str]) -> Parts {
    let mut request = Request::builder().version(version).uri(uri);
    for host in hosts {
        request = request.header(HOST, *host);
    }
    request.body(()).unwrap().into_parts().0
}

#[test]
fn authority_comes_from_one_place() {
    let check = |version, uri: &str, hosts: &[&str], expected: Result<&str, BadHost>| {
        assert_eq!(authority_of(&parts(version, uri, hosts)), expected, "{version:?} {uri} {hosts:?}");
    };
    check(Version::HTTP_11, "/", &["a.b"], Ok("a.b"));
    check(Version::HTTP_11, "/", &[], Err(BadHost::Missing));
    check(Version::HTTP_10, "/", &[], Err(BadHost::Missing));
    check(Version::HTTP_11, "/", &["a.b", "a.b"], Err(BadHost::Duplicate));
    check(Version::HTTP_11, "http://a.b/", &["c.d"], Ok("a.b"));
    check(Version::HTTP_11, "http://a.b/", &[], Err(BadHost::Missing));
    check(Version::HTTP_2, "https://a.b/", &[], Ok("a.b"));
    check(Version::HTTP_2, "https://a.b/", &["A.b.:443"], Ok("a.b"));
    check(Version::HTTP_2, "https://a.b/", &["c.d"], Err(BadHost::Disagree));
    check(Version::HTTP_2, "https://a.b/", &["a.b:80"], Err(BadHost::Disagree));
    check(Version::HTTP_2, "/", &["a.b"], Ok("a.b"));
    check(Version::HTTP_11, "/", &["ä.b"], Err(BadHost::NotText));
}

#[test]
fn server_name_must_be_the_host_of_the_request() {
    assert!(server_name_agrees(None, "a.b:80"));
    assert!(server_name_agrees(Some("A.b"), "a.b:80"));
    assert!(!server_name_agrees(Some("a.b"), "c.b"));
    assert!(!server_name_agrees(Some("a.b"), "a.b@c"));
}

proptest! {
    #[test]
    fn any_text_is_refused_or_lies_in_the_grammar(text in "\\PC{0,80}|[a-z0-9.:@%/\\[\\]-]{0,40}(\\.ws\\.example\\.com)?[.:0-9a-z/@#]{0,4}") {
        let rules = rules("example.org", "ws.example.com");
        if rules.parse(&text).is_ok() {
            let in_grammar = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':');
            prop_assert!(text.bytes().all(in_grammar), "{:?}", text);
        }
    }

    #[test]
    fn format_is_read_back(name in "[a-z0-9]([a-z0-9-]{0,55}[a-z0-9])?", port in proptest::option::of(1..=u16::MAX)) {
        if let Ok(name) = name.parse::<WorkspaceName>() && !name.as_str().starts_with("xn--") {
            let rules = rules("example.org", "ws.example.com");
            let port = port.and_then(Port::new);
            let host = rules.format(&name, port);
            prop_assert_eq!(rules.parse(&host), Ok(HostTarget::Workspace { name: name.clone(), port }));
            for junk in ["x", "/", "@a", "%00", " ", "\n", ":", "..", "#", "?", ":70000"] {
                prop_assert_eq!(rules.parse(&format!("{host}{junk}")), Err(NoSuchHost));
            }
        }
    }
}

#[test]
fn host_is_guessed_from_the_beginning_of_a_connection() {
    let cases: [(&[u8], _); 7] = [
        (b"GET / HTTP/1.1\r\nHost: a.zone:8080\r\n\r\n", Some("a.zone:8080")),
        (b"GET / HTTP/1.1\r\nAccept: */*\r\nhOST:a.zone \r\nX: y", Some("a.zone")),
        (b"GET / HTTP/1.1\r\nHost: a.zo", None),
        (b"Host: a.zone\r\n\r\n", None),
        (b"GET / HTTP/1.1\r\nX-Host: a.zone\r\n\r\n", None),
        (b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n", None),
        (b"", None),
    ];
    for (head, expected) in cases {
        assert_eq!(host_in(head), expected, "{:?}", String::from_utf8_lossy(head));
    }
}
