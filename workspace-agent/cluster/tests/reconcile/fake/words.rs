//! What is said to the server in memory, and what it answers.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::Answer;

pub(super) fn query(text: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let [first, after @ ..] = rest {
            rest = after;
            match (first, rest) {
                (b'%', [high, low, after @ ..]) => {
                    let hex = String::from_utf8(vec![*high, *low]).expect("ASCII");
                    bytes.push(u8::from_str_radix(&hex, 16).expect("hexadecimal"));
                    rest = after;
                }
                _ => bytes.push(*first),
            }
        }
        String::from_utf8(bytes).expect("UTF-8")
    };
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

pub(super) fn line(kind: &str, value: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": kind, "object": value})))
}

pub(crate) fn answer(code: u16, value: &Value) -> Answer {
    let body = BodyExt::boxed_unsync(Full::new(Bytes::from(value.to_string())));
    Response::builder().status(code).header("content-type", "application/json").body(body).expect("an answer")
}

/// Answers as the real one does where it serves nothing.
pub(super) fn no_such_path() -> Answer {
    let body = BodyExt::boxed_unsync(Full::new(Bytes::from("404 page not found\n")));
    Response::builder().status(404).header("content-type", "text/plain").body(body).expect("an answer")
}

/// Names what is missing: `plural "name" not found`.
pub(super) fn missing(message: &str) -> Answer {
    let mut parts = message.split(['"', ' ']);
    let (kind, name) = (parts.next(), parts.nth(1));
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": 404,
        "reason": "NotFound", "details": {"kind": kind, "name": name}});
    answer(404, &status)
}

pub(crate) fn status(code: u16, message: &str, details: &Value) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code,
        "reason": "Test", "details": details});
    answer(code, &status)
}
