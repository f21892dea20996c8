//! `/request`: the request as the app saw it.

use std::net::SocketAddr;

use axum::Json;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::header::CACHE_CONTROL;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde::Serialize;

use super::problem;

/// Name and value of one header field.
type Field = (String, String);

/// A request as it arrived. Field names are in lower case, and fields of one name stand together, at the place of the
/// first; apart from that the order is that of the wire.
#[derive(Serialize)]
struct MirroredRequest {
    method: String,
    /// The request target as it was sent; nothing is decoded, joined or sorted.
    target: String,
    version: String,
    /// The authority that came with the target: `:authority` of HTTP/2, or the absolute form of HTTP/1.1.
    authority: Option<String>,
    headers: Vec<Field>,
    body_bytes: u64,
    trailers: Vec<Field>,
    /// The other end of the connection: behind a tunnel that is the agent.
    peer: Option<String>,
}

/// Answers any request with a description of it, once its body has come to an end.
pub(super) async fn show(request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok((body_bytes, trailers)) = drain(body).await else {
        return problem(StatusCode::BAD_REQUEST, "the body broke off");
    };
    let seen = describe(&parts, body_bytes, &trailers);
    ([(CACHE_CONTROL, "no-store")], Json(seen)).into_response()
}

/// Counts the body without keeping it.
async fn drain(mut body: Body) -> Result<(u64, HeaderMap), axum::Error> {
    let mut bytes = 0_u64;
    let mut trailers = HeaderMap::new();
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => bytes += u64::try_from(data.len()).unwrap_or(u64::MAX),
            Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
        }
    }
    Ok((bytes, trailers))
}

fn describe(parts: &Parts, body_bytes: u64, trailers: &HeaderMap) -> MirroredRequest {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    MirroredRequest {
        method: parts.method.to_string(),
        target: target(parts),
        version: format!("{:?}", parts.version),
        authority: parts.uri.authority().map(ToString::to_string),
        headers: fields(&parts.headers),
        body_bytes,
        trailers: fields(trailers),
        peer: peer.map(|ConnectInfo(address)| address.to_string()),
    }
}

/// In HTTP/2 scheme and authority are fields of their own and not part of the path (RFC 9113, section 8.3.1).
fn target(parts: &Parts) -> String {
    match parts.uri.path_and_query() {
        Some(path) if parts.version == Version::HTTP_2 => path.to_string(),
        Some(_) | None => parts.uri.to_string(),
    }
}

fn fields(headers: &HeaderMap) -> Vec<Field> {
    headers.iter().map(|(name, value)| (name.to_string(), readable(value))).collect()
}

/// The value as text: UTF-8 if it is that, else one character per byte, so that nothing is lost (RFC 9110, section 5.5).
fn readable(value: &HeaderValue) -> String {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => text.to_owned(),
        Err(_) => value.as_bytes().iter().copied().map(char::from).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{RunningApp, answer, json_of, read_past};
    use super::*;

    #[tokio::test]
    async fn the_raw_path_and_query_are_shown_untouched() {
        for target in [
            "/request",
            "/request?",
            "/request/",
            "/request/%2e%2E/a%2Fb//c%20d/?q=%2B+%00&q=a/../b&empty=",
            "/request/%ff%FE?%ff",
        ] {
            let request = Request::get(target).body(Body::empty()).unwrap();
            let response = answer(request).await;
            assert_eq!(response.status(), StatusCode::OK, "{target}");
            assert_eq!(json_of(response).await["target"], target);
        }
    }

    #[tokio::test]
    async fn the_authority_of_http_2_is_shown_beside_the_target() {
        for (version, target) in
            [(Version::HTTP_2, "/request/%2F?a=%20b"), (Version::HTTP_11, "http://app.test:81/request/%2F?a=%20b")]
        {
            let request = Request::get("http://app.test:81/request/%2F?a=%20b").version(version);
            let seen = json_of(answer(request.body(Body::empty()).unwrap()).await).await;
            assert_eq!(seen["target"], target);
            assert_eq!(seen["authority"], "app.test:81");
        }
    }

    #[tokio::test]
    async fn headers_are_listed_in_their_order_with_repeats() {
        let request = Request::builder()
            .method("BREW")
            .uri("/request")
            .header("x-second", "1")
            .header("accept", "*/*")
            .header("x-first", "a")
            .header("x-first", "b")
            .header("x-bytes", HeaderValue::from_bytes(b"caf\xe9").unwrap())
            .body(Body::from("four"))
            .unwrap();
        let seen = json_of(answer(request).await).await;
        assert_eq!(seen["method"], "BREW");
        assert_eq!(seen["body_bytes"], 4);
        assert_eq!(
            seen["headers"],
            json!(
                [["x-second", "1"], ["accept", "*/*"], ["x-first", "a"], ["x-first", "b"], ["x-bytes", "caf\u{e9}"],]
            )
        );
    }

    #[tokio::test]
    async fn a_request_from_the_wire_shows_version_peer_body_and_trailers() {
        let app = RunningApp::start().await;
        let mut socket = app
            .send(
                b"POST /request?a=b HTTP/1.1\r\nHost: Example.Test:81\r\nconnection: close\r\ntrailer: x-sum\r\n\
                  transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 9\r\n\r\n",
            )
            .await;
        let answer = read_past(&mut socket, b"}").await;
        let body = answer.split(|byte| *byte == b'{').nth(1).unwrap();
        let seen: Value = serde_json::from_slice(&[b"{", body].concat()).unwrap();
        assert_eq!(seen["version"], "HTTP/1.1");
        assert_eq!(seen["target"], "/request?a=b");
        assert_eq!(seen["authority"], Value::Null);
        assert_eq!(seen["headers"][0], json!(["host", "Example.Test:81"]));
        assert_eq!(seen["body_bytes"], 3);
        assert_eq!(seen["trailers"], json!([["x-sum", "9"]]));
        assert_eq!(seen["peer"], socket.local_addr().unwrap().to_string());
    }
}
