//! Exchanges as HTTP Archive 1.2, which browsers' network panels and test tools read. Pure.
//!
//! A file is written in pieces, so that one exchange at a time is in memory: [`head`], then [`entry`] for each, then [`TAIL`].

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use super::exchange::{Exchange, Field, Kind, Message, Progress, Way, value};
use super::form::pairs;
use super::shown::{Unpacked, text, unpacked};

/// End of a file.
pub(crate) const TAIL: &str = "]}}\n";

/// Returns the beginning of a file.
#[must_use]
pub(crate) fn head() -> String {
    let creator = json!({ "name": "Workspace Gateway", "version": env!("BUILT_VERSION") });
    format!(r#"{{"log":{{"version":"1.2","creator":{creator},"pages":[],"entries":["#)
}

/// Name and value, as fields and parameters are written.
#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    value: &'a str,
}

/// Writes an exchange.
#[must_use]
pub(crate) fn entry(exchange: &Exchange) -> String {
    let timings = timings(exchange);
    // Those that do not apply are below zero.
    let known = ["connect", "send", "wait", "receive"].iter().filter_map(|name| timings.get(name)?.as_f64());
    let all: f64 = known.filter(|time| *time > 0.0).sum();
    let mut entry = json!({
        "startedDateTime": exchange.began.to_string(),
        "time": all,
        "request": request(exchange),
        "response": response(exchange),
        "cache": {},
        "timings": timings,
        "serverIPAddress": "127.0.0.1",
        "connection": exchange.port.to_string(),
    });
    if let Some(entry) = entry.as_object_mut() {
        if let Progress::Incomplete(why) = exchange.progress {
            entry.insert("comment".to_owned(), why.into());
        }
        if exchange.kind == Kind::WebSocket {
            entry.insert("_resourceType".to_owned(), "websocket".into());
            let messages = exchange.messages.iter().map(|message| socket_message(exchange, message)).collect();
            entry.insert("_webSocketMessages".to_owned(), Value::Array(messages));
        }
    }
    entry.to_string()
}

/// Returns the address that the user's browser asked for, as far as the request says it.
#[must_use]
pub(crate) fn url(exchange: &Exchange) -> String {
    let fields = &exchange.request.fields;
    let target = &exchange.request.target;
    let is_secure = value(fields, "x-forwarded-proto").map_or(exchange.is_tls, |scheme| scheme == "https");
    let scheme = match (exchange.kind, is_secure) {
        (Kind::WebSocket, true) => "wss",
        (Kind::WebSocket, false) => "ws",
        (Kind::Http | Kind::Switched | Kind::Http2, true) => "https",
        (Kind::Http | Kind::Switched | Kind::Http2, false) => "http",
    };
    let host = value(fields, "x-forwarded-host").or_else(|| value(fields, "host"));
    let host = host.map_or_else(|| format!("127.0.0.1:{}", exchange.port), ToOwned::to_owned);
    let prefix = value(fields, "x-forwarded-prefix").unwrap_or_default();
    let path = if target.starts_with('/') { target } else { "/" };
    format!("{scheme}://{host}{prefix}{path}")
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn timings(exchange: &Exchange) -> Value {
    let connect = exchange.connect;
    let split = exchange.split();
    let wait = split.wait.or(exchange.ended.map(|ended| ended.saturating_sub(connect.unwrap_or_default())));
    json!({
        "blocked": -1,
        "dns": -1,
        "connect": connect.map_or(-1.0, milliseconds),
        "ssl": -1,
        "send": milliseconds(split.send.unwrap_or_default()),
        "wait": milliseconds(wait.unwrap_or_default()),
        "receive": milliseconds(split.receive.unwrap_or_default()),
    })
}

fn request(exchange: &Exchange) -> Value {
    let head = &exchange.request;
    let url = url(exchange);
    let query = head.target.split_once('?').map(|(_, query)| query).unwrap_or_default();
    let query: Vec<Value> = pairs(query).map(|(name, value)| json!({ "name": name, "value": value })).collect();
    let mut request = json!({
        "method": head.method,
        "url": url,
        "httpVersion": version(exchange, head.minor),
        "cookies": [],
        "headers": named(&head.fields),
        "queryString": query,
        "headersSize": -1,
        "bodySize": exchange.request_body.length,
    });
    if exchange.request_body.length > 0 && exchange.kind == Kind::Http {
        let unpacked = unpacked(&exchange.request_body, &head.fields);
        let kind = value(&head.fields, "content-type").unwrap_or("application/octet-stream");
        let text = text(&unpacked);
        let note = if text.is_none() { Some("binary, left out".to_owned()) } else { comment(&unpacked) };
        let mut post = json!({ "mimeType": kind, "text": text.unwrap_or_default() });
        if let (Some(post), Some(note)) = (post.as_object_mut(), note) {
            post.insert("comment".to_owned(), note.into());
        }
        if let Some(request) = request.as_object_mut() {
            request.insert("postData".to_owned(), post);
        }
    }
    request
}

fn response(exchange: &Exchange) -> Value {
    let Some(head) = &exchange.response else {
        return json!({
            "status": 0, "statusText": "", "httpVersion": "", "cookies": [], "headers": [],
            "content": { "size": 0, "mimeType": "x-unknown" },
            "redirectURL": "", "headersSize": -1, "bodySize": -1,
        });
    };
    let body = &exchange.response_body;
    let unpacked = unpacked(body, &head.fields);
    let kind = value(&head.fields, "content-type").unwrap_or("x-unknown");
    let mut content =
        json!({ "size": if body.is_cut() { body.length } else { unpacked.bytes.len() as u64 }, "mimeType": kind });
    if let Some(content) = content.as_object_mut() {
        if let Some(text) = text(&unpacked) {
            content.insert("text".to_owned(), text.into());
        } else {
            content.insert("text".to_owned(), STANDARD.encode(&unpacked.bytes).into());
            content.insert("encoding".to_owned(), "base64".into());
        }
        if let Some(comment) = comment(&unpacked) {
            content.insert("comment".to_owned(), comment.into());
        }
    }
    json!({
        "status": head.status,
        "statusText": head.reason,
        "httpVersion": version(exchange, head.minor),
        "cookies": [],
        "headers": named(&head.fields),
        "content": content,
        "redirectURL": value(&head.fields, "location").unwrap_or_default(),
        "headersSize": -1,
        "bodySize": body.length,
    })
}

/// Says what is missing of a body.
fn comment(unpacked: &Unpacked) -> Option<String> {
    let cut = unpacked.is_cut.then(|| "its beginning alone was kept".to_owned());
    let coding = unpacked.coding.as_ref().map(|coding| format!("it has the coding {coding}"));
    let said: Vec<_> = cut.into_iter().chain(coding).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

fn named(fields: &[Field]) -> Value {
    let named: Vec<Named<'_>> = fields.iter().map(|field| Named { name: &field.name, value: &field.value }).collect();
    serde_json::to_value(named).unwrap_or_default()
}

fn version(exchange: &Exchange, minor: u8) -> &'static str {
    match (exchange.kind, minor) {
        (Kind::Http2, _) => "HTTP/2",
        (_, 0) => "HTTP/1.0",
        (_, _) => "HTTP/1.1",
    }
}

/// Writes a message as Chromium does.
fn socket_message(exchange: &Exchange, message: &Message) -> Value {
    let kind = match message.way {
        Way::Inward => "send",
        Way::Outward => "receive",
    };
    let at = exchange.began.as_millisecond() as f64 / 1000.0 + message.after.as_secs_f64();
    let data = match std::str::from_utf8(&message.frame.kept) {
        Ok(text) if message.frame.opcode == 1 && !message.frame.is_compressed => text.to_owned(),
        Ok(_) | Err(_) => STANDARD.encode(&message.frame.kept),
    };
    json!({ "type": kind, "time": at, "opcode": message.frame.opcode, "data": data })
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn written(exchange: &Exchange) -> Value {
        let file = format!("{}{}{TAIL}", head(), entry(exchange));
        serde_json::from_str(&file).expect("JSON")
    }

    #[test]
    fn file_has_what_the_format_demands() {
        for exchange in [samples::failed(), samples::fine(), samples::socket(), samples::cut()] {
            let file = written(&exchange);
            let entry = &file["log"]["entries"][0];
            assert_eq!(file["log"]["version"], "1.2");
            for number in ["send", "wait", "receive"] {
                assert!(entry["timings"][number].as_f64().is_some_and(|time| time >= 0.0), "{entry}");
            }
            for (part, names) in [
                (
                    "request",
                    &["method", "url", "httpVersion", "cookies", "headers", "queryString", "headersSize", "bodySize"][..],
                ),
                ("response", &["status", "statusText", "httpVersion", "cookies", "headers", "content", "redirectURL"]),
            ] {
                for name in names {
                    assert!(!entry[part][name].is_null(), "{part}.{name} of {entry}");
                }
            }
            assert!(entry["response"]["content"]["size"].is_u64() && entry["cache"].is_object());
            let sum: f64 = ["connect", "send", "wait", "receive"]
                .iter()
                .filter_map(|name| entry["timings"][name].as_f64().filter(|time| *time > 0.0))
                .sum();
            assert!((entry["time"].as_f64().expect("a number") - sum).abs() < 0.001, "{entry}");
        }
    }

    #[test]
    fn bodies_and_messages_are_in_it() {
        let file = written(&samples::failed());
        let entry = &file["log"]["entries"][0];
        assert_eq!(entry["request"]["postData"]["text"], r#"{"item":7}"#);
        assert_eq!(entry["request"]["url"], "https://3000-one.zone/orders?a=b%20c");
        assert_eq!(entry["request"]["queryString"], json!([{ "name": "a", "value": "b c" }]));
        assert_eq!(entry["response"]["content"]["text"], r#"{"error":"out of stock"}"#);
        let file = written(&samples::socket());
        let entry = &file["log"]["entries"][0];
        assert_eq!(entry["request"]["url"], "wss://3000-one.zone/ws");
        let said = &entry["_webSocketMessages"];
        assert_eq!((&said[0]["type"], &said[0]["data"]), (&json!("send"), &json!("hello")));
        assert_eq!((&said[1]["type"], &said[1]["data"]), (&json!("receive"), &json!("AAE=")));
    }
}
