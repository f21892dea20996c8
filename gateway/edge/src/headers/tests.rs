use super::*;

const PLAIN: AppRequest<'static> = AppRequest { http: AppHttp::Http1, upgrade: None, trailers: false };

fn map(fields: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    headers
}

#[track_caller]
fn check_to_app(request: &AppRequest<'_>, fields: &[(&str, &str)], expected: &[(&str, &str)]) {
    let mut headers = map(fields);
    to_app(&mut headers, request);
    assert_eq!(headers, map(expected));
}

#[test]
fn connection_fields_and_what_they_name_are_removed_both_ways() {
    let fields = [
        ("connection", "close, X-Private"),
        ("connection", " x-other ,,keep-alive"),
        ("x-private", "1"),
        ("x-other", "1"),
        ("x-other", "2"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("proxy-authenticate", "Basic"),
        ("proxy-authorization", "Basic x"),
        ("te", "gzip"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAA"),
        ("trailer", "grpc-status"),
        ("accept", "*/*"),
    ];
    let expected = [("trailer", "grpc-status"), ("accept", "*/*")];
    check_to_app(&PLAIN, &fields, &expected);
    let mut response = map(&fields);
    to_user(&mut response, None);
    assert_eq!(response, map(&expected));
}

#[test]
fn connection_field_cannot_name_away_what_the_far_end_needs() {
    let kept =
        [("host", "a.b"), ("cookie", "a=1"), ("content-length", "3"), ("origin", "null"), ("authorization", "Basic x")];
    let mut fields = kept.to_vec();
    fields.push(("connection", "host, cookie, content-length, origin, Authorization, close"));
    check_to_app(&PLAIN, &fields, &kept);
}

#[test]
fn gateway_fields_never_cross_in_any_spelling() {
    let fields = [
        ("gateway-authorization", "Bearer gwu_1"),
        ("gateway_authorization", "x"),
        ("x-gateway-user", "root"),
        ("x_gateway_user", "root"),
        ("x-gateway_user", "root"),
        ("gateway-error", "port_closed"),
        ("gatewayish", "1"),
    ];
    check_to_app(&PLAIN, &fields, &[("gatewayish", "1")]);
    let mut response = map(&fields);
    to_user(&mut response, None);
    assert_eq!(response, map(&[("gatewayish", "1")]));
}

#[test]
fn authorization_of_the_app_survives_and_ours_does_not() {
    for ours in ["Bearer gwu_abc", "bearer  gwa_abc", "Bearer gwc_abc", "BEARER gwu_"] {
        check_to_app(&PLAIN, &[("authorization", ours)], &[]);
    }
    for other in ["Bearer abc", "Basic gwu_abc", "gwu_abc", "Bearer", "Bearer xgwu_"] {
        check_to_app(&PLAIN, &[("authorization", other)], &[("authorization", other)]);
    }
}

#[test]
fn cookie_lines_become_one_towards_http1_only() {
    let lines = [("cookie", "a=1"), ("cookie", "b=\"2\"; c"), ("cookie", "d=ü")];
    let mut headers = map(&lines[..2]);
    headers.append(COOKIE, HeaderValue::from_bytes(b"d=\xff").unwrap());
    let mut http2 = headers.clone();
    to_app(&mut headers, &PLAIN);
    assert_eq!(headers.get_all(COOKIE).iter().collect::<Vec<_>>(), [&b"a=1; b=\"2\"; c; d=\xff"[..]]);
    to_app(&mut http2, &AppRequest { http: AppHttp::Http2, ..PLAIN });
    assert_eq!(http2.get_all(COOKIE).iter().count(), 3);
}

#[test]
fn trailers_are_asked_for_only_if_the_user_and_the_port_want_them() {
    let wanting = AppRequest { trailers: true, ..PLAIN };
    check_to_app(&wanting, &[("te", "gzip, Trailers")], &[("te", "trailers"), ("connection", "te")]);
    check_to_app(&wanting, &[("te", "gzip")], &[]);
    check_to_app(&PLAIN, &[("te", "trailers")], &[]);
    let http2 = AppRequest { http: AppHttp::Http2, ..wanting };
    check_to_app(&http2, &[("te", "trailers")], &[("te", "trailers")]);
}

#[test]
fn upgrade_is_asked_for_after_the_old_one_is_out() {
    let websocket = HeaderValue::from_static("websocket");
    let request = AppRequest { upgrade: Some(&websocket), ..PLAIN };
    let expected = [("connection", "upgrade"), ("upgrade", "websocket")];
    check_to_app(&request, &[("connection", "Upgrade, upgrade"), ("upgrade", "WebSocket")], &expected);
    let mut response = map(&[("connection", "Upgrade"), ("upgrade", "websocket")]);
    to_user(&mut response, Some(&websocket));
    assert_eq!(response, map(&expected));
}

#[test]
fn trailer_section_carries_no_framing_credentials_or_claims() {
    let mut section = map(&[
        ("grpc-status", "0"),
        ("content-length", "9"),
        ("transfer-encoding", "chunked"),
        ("host", "evil"),
        ("cookie", "a=1"),
        ("set-cookie", "a=1"),
        ("gateway-error", "x"),
        ("x-forwarded-for", "1"),
        ("connection", "grpc-message"),
    ]);
    trailers(&mut section);
    assert_eq!(section, map(&[("grpc-status", "0")]));
}
