use http::Request;

use super::*;

const LIMITS: ShapeLimits = ShapeLimits { uri_bytes_max: 64, header_count_max: 8, header_bytes_max: 256 };

fn parts(version: Version, line: &str, fields: &[(&str, &str)]) -> Parts {
    let (method, uri) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).version(version).uri(uri);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

#[track_caller]
fn check_http1(line: &str, fields: &[(&str, &str)], expected: Result<(), BadRequestShape>) {
    assert_eq!(check(&parts(Version::HTTP_11, line, fields), &LIMITS), expected, "{line} {fields:?}");
}

const HOST_FIELD: (&str, &str) = ("host", "a.b");

#[test]
fn target_forms_that_name_one_resource_pass_and_others_do_not() {
    for line in
        ["GET /", "GET /a%2F..//b?c=%00", "OPTIONS *", "GET http://a.b/", "GET HTTP://A.b.:80/x", "GET http://a.b"]
    {
        check_http1(line, &[HOST_FIELD], Ok(()));
    }
    for line in ["GET *", "GET http://a.b?x", "GET a.b", "GET a.b:80", "GET ftp://a.b/"] {
        check_http1(line, &[HOST_FIELD], Err(BadRequestShape::TargetForm));
    }
    for line in ["GET http://c.d/", "GET http://a.b:81/", "GET https://a.b:80/", "GET http://u@a.b/"] {
        check_http1(line, &[HOST_FIELD], Err(BadRequestShape::TargetHost));
    }
    check_http1("GET /", &[HOST_FIELD, HOST_FIELD], Err(BadRequestShape::HostDuplicate));
}

#[test]
fn connect_is_taken_for_websocket_streams_only() {
    check_http1("CONNECT a.b:443", &[HOST_FIELD], Err(BadRequestShape::Connect));
    let check_stream = |version, protocol: Option<&'static str>, expected| {
        let mut head = parts(version, "CONNECT https://a.b/x", &[]);
        if let Some(protocol) = protocol {
            head.extensions.insert(Protocol::from_static(protocol));
        }
        assert_eq!(check(&head, &LIMITS), expected, "{protocol:?}");
    };
    check_stream(Version::HTTP_2, None, Err(BadRequestShape::Connect));
    check_stream(Version::HTTP_2, Some("websocket"), Ok(()));
    check_stream(Version::HTTP_2, Some("connect-udp"), Err(BadRequestShape::ConnectProtocol));
    check_stream(Version::HTTP_11, Some("websocket"), Err(BadRequestShape::Connect));
    assert_eq!(BadRequestShape::Connect.failure().status(), 405);
}

#[test]
fn body_length_must_be_told_once_and_in_one_way() {
    let check = |fields: &[(&str, &str)], expected| check_http1("POST /", fields, expected);
    check(&[("content-length", "5"), ("content-length", "5")], Ok(()));
    check(&[("transfer-encoding", "Chunked")], Ok(()));
    check(&[("content-length", "5"), ("transfer-encoding", "chunked")], Err(BadRequestShape::LengthAndEncoding));
    check(&[("content-length", "5"), ("content-length", "6")], Err(BadRequestShape::Length));
    for length in ["", "+5", "-1", "5, 5", "0x5", "5 5"] {
        check(&[("content-length", length)], Err(BadRequestShape::Length));
    }
    for encoding in ["gzip, chunked", "chunked, chunked", "identity", "", "xchunked", "chunked;x=1"] {
        check(&[("transfer-encoding", encoding)], Err(BadRequestShape::Encoding));
    }
    let repeated = ("transfer-encoding", "chunked");
    check(&[repeated, repeated], Err(BadRequestShape::Encoding));
    check(&[("transfer-encoding", "identity"), ("transfer-encoding", "chunked")], Err(BadRequestShape::Encoding));
    let old = parts(Version::HTTP_10, "POST /", &[("transfer-encoding", "chunked")]);
    assert_eq!(super::check(&old, &LIMITS), Err(BadRequestShape::Encoding));
}

#[test]
fn upgrade_is_refused_where_it_mixes_or_carries_a_body() {
    let check = |fields: &[(&str, &str)], expected| check_http1("GET /", fields, expected);
    check(&[("upgrade", "h2c"), ("http2-settings", "AA")], Ok(()));
    check(&[("upgrade", "websocket")], Ok(()));
    check(&[("upgrade", "websocket"), ("content-length", "0")], Ok(()));
    check(&[("upgrade", "tcp"), ("content-length", "5")], Ok(()));
    check(&[("upgrade", "websocket, H2C")], Err(BadRequestShape::UpgradeMixed));
    check(&[("upgrade", "h2c"), ("upgrade", "websocket")], Err(BadRequestShape::UpgradeMixed));
    check(&[("upgrade", "WebSocket"), ("content-length", "5")], Err(BadRequestShape::UpgradeBody));
    check(&[("upgrade", "websocket"), ("transfer-encoding", "chunked")], Err(BadRequestShape::UpgradeBody));
}

#[test]
fn underscore_spellings_of_trusted_names_are_refused() {
    for name in [
        "x_forwarded_for",
        "x-forwarded_for",
        "x_real_ip",
        "gateway_authorization",
        "x_gateway_user",
        "transfer_encoding",
        "content_length",
    ] {
        check_http1("GET /", &[(name, "1")], Err(BadRequestShape::Underscore));
    }
    check_http1("GET /", &[("my_own", "1"), ("x-forwarded-for", "1"), ("gateway-authorization", "1")], Ok(()));
}

#[test]
fn head_over_a_limit_is_refused_and_on_it_is_not() {
    let on = format!("GET /{}", "a".repeat(63));
    check_http1(&on, &[], Ok(()));
    check_http1(&format!("{on}a"), &[], Err(BadRequestShape::UriTooLong));
    check_http1("GET /", &[("a", "1"); 8], Ok(()));
    check_http1("GET /", &[("a", "1"); 9], Err(BadRequestShape::HeaderTooLarge));
    check_http1("GET /", &[("a", &"1".repeat(251))], Ok(()));
    check_http1("GET /", &[("a", &"1".repeat(252))], Err(BadRequestShape::HeaderTooLarge));
}
