//! Exchanges for tests.

use std::time::Duration;

use jiff::Timestamp;

use super::exchange::{
    BODY_BYTES_MAX, Begin, Exchange, Field, Kept, Kind, Message, Progress, RequestHead, ResponseHead, Way,
};
use super::websocket::Frame;

fn fields(pairs: &[(&str, &str)]) -> Vec<Field> {
    pairs.iter().map(|(name, value)| Field::new(name, value.as_bytes())).collect()
}

fn begun(kind: Kind, method: &str, target: &str, connect: Option<Duration>) -> Exchange {
    let began = Timestamp::from_second(1_700_000_000).expect("a time");
    let begin = Begin { port: 3000, is_tls: false, replay_of: None, kind, began, connect };
    let fields = fields(&[
        ("host", "3000-one.zone"),
        ("content-type", "application/json"),
        ("cookie", "session=s3cr3t"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "3000-one.zone"),
        ("x-forwarded-for", "192.0.2.7"),
        ("forwarded", "for=192.0.2.7;host=3000-one.zone;proto=https"),
    ]);
    let (method, target) = (method.into(), target.into());
    let mut exchange = Exchange::new(begin, RequestHead { method, target, is_redacted: false, minor: 1, fields });
    exchange.id = 1;
    exchange
}

fn answered(exchange: &mut Exchange, status: u16, body: &str) {
    let fields = fields(&[("content-type", "application/json"), ("set-cookie", "session=s3cr3t")]);
    let head = ResponseHead { status, reason: "Words".into(), minor: 1, fields };
    exchange.sent = Some(Duration::from_millis(3));
    exchange.answer(head, Duration::from_millis(10));
    exchange.push(Way::Outward, body.as_bytes());
    exchange.end(Progress::Done, Duration::from_millis(12));
}

/// One with the status 500.
pub(super) fn failed() -> Exchange {
    let mut exchange = begun(Kind::Http, "POST", "/orders?a=b%20c", Some(Duration::from_millis(1)));
    exchange.push(Way::Inward, br#"{"item":7}"#);
    answered(&mut exchange, 500, r#"{"error":"out of stock"}"#);
    exchange
}

/// One with the status 200.
pub(super) fn fine() -> Exchange {
    let mut exchange = begun(Kind::Http, "GET", "/", None);
    answered(&mut exchange, 200, "{}");
    exchange
}

/// A request with this body.
pub(super) fn with_body(body: Kept) -> Exchange {
    let mut exchange = failed();
    exchange.request_body = body;
    exchange
}

/// One whose connection broke in the middle of a long request.
pub(super) fn cut() -> Exchange {
    let mut exchange = begun(Kind::Http, "PUT", "/large", None);
    exchange.push(Way::Inward, &vec![b'a'; BODY_BYTES_MAX + 1]);
    exchange.end(Progress::Incomplete("the connection was closed before the end"), Duration::from_millis(5));
    exchange
}

/// A WebSocket.
pub(super) fn socket() -> Exchange {
    let mut exchange = begun(Kind::WebSocket, "GET", "/ws", None);
    answered(&mut exchange, 101, "");
    for (way, opcode, kept) in [(Way::Inward, 1, &b"hello"[..]), (Way::Outward, 2, &[0, 1])] {
        let frame = Frame { opcode, is_compressed: false, length: kept.len() as u64, kept: kept.to_vec() };
        exchange.message(Message { way, after: Duration::from_millis(20), frame });
    }
    exchange
}
