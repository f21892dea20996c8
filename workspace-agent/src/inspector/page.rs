//! The inspector's pages. Templates escape all that they are given, and no answer may run a script but the page's own.

use std::sync::LazyLock;
use std::time::Duration;

use askama::Template;
use bytes::Bytes;
use http::header::HeaderValue;
use http::{HeaderMap, Response};
use http_body_util::Full;
use jiff::tz::TimeZone;

use super::exchange::{Exchange, Field, Kind, Message, Progress, Way};
use super::filter::Filter;
use super::replay::{self, Edited};
use super::shown::{Shown, hexadecimal, shown};
use super::websocket::opcode_word;
use super::{curl, har};
use crate::own_pages::{self, Asset, IMAGE, Policies, SCRIPT, STYLE};

/// Longest target in a list, in characters.
const TARGET_CHARS: usize = 300;

/// Bytes of a binary message that are shown.
const MESSAGE_HEX_BYTES: usize = 64;

/// Scripts, styles and connections of this origin only; nothing inline, and no frame around it.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

static ASSETS: [Asset; 4] = [
    Asset::new("look.css", STYLE, page_look::STYLE.as_bytes()),
    Asset::new("icon.svg", IMAGE, page_look::ICON.as_bytes()),
    Asset::new("inspector.css", STYLE, include_bytes!("../../assets/inspector.css")),
    Asset::new("inspector.js", SCRIPT, include_bytes!("../../assets/inspector.js")),
];

static TAG: LazyLock<Option<HeaderValue>> = LazyLock::new(|| own_pages::tag(&ASSETS));

/// Returns a file of the pages.
pub(super) fn asset(name: &str, asked: &HeaderMap) -> Option<Response<Full<Bytes>>> {
    own_pages::asset(&ASSETS, TAG.as_ref(), name, asked)
}

/// Adds to every answer the fields that keep other pages out of these.
pub(super) fn protect(headers: &mut HeaderMap) {
    // With less, a browser would not say where a form was sent from.
    own_pages::protect(headers, Policies { content: POLICY, referrer: "same-origin" });
}

/// An exchange in the list.
#[derive(Template)]
#[template(path = "inspector/row.html")]
struct Row {
    id: u64,
    /// What it is, as one word for the style.
    class: &'static str,
    glyph: &'static str,
    status: String,
    method: String,
    target: String,
    suffix: String,
    /// Time of its beginning, for programs.
    began: String,
    /// The same in short.
    time: String,
    port: u16,
    size: String,
    lasted: String,
    from: String,
    note: String,
    is_counted: bool,
    replay_of: Option<u64>,
}

impl Row {
    fn new(exchange: &Exchange, filter: &Filter) -> Self {
        let (class, glyph) = match (&exchange.response, exchange.progress) {
            (_, _) if exchange.has_failed() => ("trouble", "\u{25b2}"),
            (_, Progress::Open) => ("open", "\u{25d0}"),
            (_, Progress::Incomplete(_)) => ("incomplete", "\u{25cb}"),
            (_, Progress::Done) => ("ready", "\u{25cf}"),
        };
        let status = match (&exchange.response, exchange.progress) {
            (Some(head), _) => head.status.to_string(),
            (None, _) if exchange.kind == Kind::Http2 => "HTTP/2".to_owned(),
            (None, Progress::Open) => "waits".to_owned(),
            (None, Progress::Incomplete(_) | Progress::Done) => "none".to_owned(),
        };
        let target: String = exchange.request.target.chars().take(TARGET_CHARS).collect();
        let is_short = target.len() < exchange.request.target.len();
        Self {
            id: exchange.id,
            class,
            glyph,
            status,
            method: exchange.request.method.to_string(),
            target: if is_short { target + "\u{2026}" } else { target },
            suffix: filter.suffix(),
            began: exchange.began.to_string(),
            time: clock(exchange),
            port: exchange.port,
            size: bytes(exchange.request_body.length.saturating_add(exchange.response_body.length)),
            lasted: exchange.ended.map(time).unwrap_or_default(),
            from: exchange.asked_by().to_owned(),
            note: match exchange.kind {
                Kind::Http => String::new(),
                Kind::WebSocket if exchange.messages_all == 1 => "WebSocket, 1 message".to_owned(),
                Kind::WebSocket => format!("WebSocket, {} messages", exchange.messages_all),
                Kind::Switched => "another protocol, not decoded".to_owned(),
                Kind::Http2 => "HTTP/2 connection, not decoded".to_owned(),
            },
            is_counted: exchange.kind != Kind::WebSocket,
            replay_of: exchange.replay_of,
        }
    }
}

/// Writes a row of the list.
pub(super) fn row(exchange: &Exchange, filter: &Filter) -> String {
    written(&Row::new(exchange, filter))
}

#[derive(Template)]
#[template(path = "inspector/list.html")]
struct List {
    filter: Filter,
    suffix: String,
    seen: u64,
    rows: Vec<String>,
}

/// Writes the list, of rows as [`row`] writes them.
pub(super) fn list(rows: Vec<String>, filter: &Filter, seen: u64) -> String {
    written(&List { filter: filter.clone(), suffix: filter.suffix(), seen, rows })
}

#[derive(Template)]
#[template(path = "inspector/exchange.html")]
struct Detail {
    row: Row,
    query: String,
    seen: u64,
    url: String,
    why: &'static str,
    timing: Vec<Timing>,
    request: Half,
    response: Option<Half>,
    messages: Vec<MessageLine>,
    messages_all: u64,
    is_socket: bool,
    is_packed: bool,
    is_http: bool,
    curl: Option<String>,
}

/// A part of the time of an exchange.
struct Timing {
    name: &'static str,
    time: String,
}

/// A request or an answer, in full.
struct Half {
    line: String,
    fields: Vec<Field>,
    length: String,
    body: Shown,
    is_empty: bool,
}

/// A message of a WebSocket, as it is shown.
struct MessageLine {
    way: &'static str,
    glyph: &'static str,
    after: String,
    kind: &'static str,
    length: String,
    text: String,
}

/// Writes the page of an exchange.
pub(super) fn exchange(exchange: &Exchange, filter: &Filter, seen: u64) -> String {
    let split = exchange.split();
    let connect = exchange.connect.map_or_else(|| "an open connection".to_owned(), time);
    let parts = [("send", split.send), ("wait", split.wait), ("receive", split.receive), ("in all", exchange.ended)];
    let known = parts.into_iter().filter_map(|(name, part)| Some(Timing { name, time: time(part?) }));
    let timing = [Timing { name: "connect", time: connect }].into_iter().chain(known).collect();
    let head = &exchange.request;
    let request =
        half(format!("{} {} {}", head.method, head.target, version(head.minor)), &head.fields, exchange, Way::Inward);
    let response = exchange.response.as_ref().map(|head| {
        half(format!("{} {} {}", version(head.minor), head.status, head.reason), &head.fields, exchange, Way::Outward)
    });
    let messages = exchange.messages.iter().map(message_line).collect();
    written(&Detail {
        row: Row::new(exchange, filter),
        query: filter.query(),
        seen,
        url: har::url(exchange),
        why: match exchange.progress {
            Progress::Incomplete(why) => why,
            Progress::Open | Progress::Done => "",
        },
        timing,
        request,
        response,
        messages,
        messages_all: exchange.messages_all,
        is_socket: exchange.kind == Kind::WebSocket,
        is_packed: exchange.messages.iter().any(|message| message.frame.is_compressed),
        is_http: exchange.kind == Kind::Http,
        curl: if exchange.kind == Kind::Http { curl::command(exchange) } else { None },
    })
}

fn half(line: String, fields: &[Field], exchange: &Exchange, way: Way) -> Half {
    let body = exchange.body(way);
    let length = bytes(body.length);
    Half { line, fields: fields.to_vec(), length, body: shown(body, fields), is_empty: body.length == 0 }
}

fn message_line(message: &Message) -> MessageLine {
    let frame = &message.frame;
    let cut = if frame.length > frame.kept.len() as u64 { "\u{2026}" } else { "" };
    let head = || frame.kept.get(..MESSAGE_HEX_BYTES).unwrap_or(&frame.kept);
    let text = match std::str::from_utf8(&frame.kept) {
        _ if frame.is_compressed => "compressed (permessage-deflate)".to_owned(),
        Ok(text) if frame.opcode == 1 => format!("{text}{cut}"),
        _ if frame.opcode == 8 => close_words(&frame.kept),
        _ => hexadecimal(head()),
    };
    let (way, glyph) = match message.way {
        Way::Inward => ("sent", "\u{2191}"),
        Way::Outward => ("received", "\u{2193}"),
    };
    let (after, length) = (time(message.after), bytes(frame.length));
    MessageLine { way, glyph, after, kind: opcode_word(frame.opcode), length, text }
}

/// Reads a close frame: a code, and perhaps a reason.
fn close_words(kept: &[u8]) -> String {
    match kept {
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            format!("{code} {}", String::from_utf8_lossy(reason)).trim_end().to_owned()
        }
        _ => String::new(),
    }
}

#[derive(Template)]
#[template(path = "inspector/edit.html")]
struct Edit {
    row: Row,
    edited: Edited,
    mistake: String,
    redacted: Vec<Field>,
    is_target_redacted: bool,
    is_text: bool,
    is_possible: bool,
    body_length: String,
}

/// Writes the form in which a request is edited before it is sent again.
pub(super) fn edit(exchange: &Exchange, filter: &Filter, _seen: u64) -> String {
    edit_again(exchange, filter, &replay::form(exchange), "")
}

/// Writes the form with what was wrong.
pub(super) fn edit_again(exchange: &Exchange, filter: &Filter, edited: &Edited, mistake: &str) -> String {
    written(&Edit {
        row: Row::new(exchange, filter),
        edited: edited.clone(),
        mistake: mistake.to_owned(),
        redacted: exchange.request.fields.iter().filter(|field| field.is_redacted).cloned().collect(),
        is_target_redacted: exchange.request.is_redacted,
        is_text: replay::recorded_text(exchange).is_some(),
        is_possible: exchange.kind == Kind::Http,
        body_length: bytes(exchange.request_body.length),
    })
}

#[derive(Template)]
#[template(path = "inspector/message.html")]
struct MessagePage<'a> {
    title: &'a str,
    text: &'a str,
}

/// Writes a page that says one thing.
pub(super) fn message(title: &str, text: &str) -> String {
    written(&MessagePage { title, text })
}

fn written(template: &impl Template) -> String {
    template.render().unwrap_or_else(|error| {
        // Cannot happen: templates write into memory.
        tracing::error!(%error, "a page could not be written");
        String::new()
    })
}

fn version(minor: u8) -> &'static str {
    if minor == 0 { "HTTP/1.0" } else { "HTTP/1.1" }
}

fn clock(exchange: &Exchange) -> String {
    exchange.began.to_zoned(TimeZone::UTC).strftime("%H:%M:%S").to_string()
}

fn time(time: Duration) -> String {
    let milliseconds = time.as_secs_f64() * 1000.0;
    match milliseconds {
        0.0..10.0 => format!("{milliseconds:.1} ms"),
        10.0..10_000.0 => format!("{milliseconds:.0} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

fn bytes(length: u64) -> String {
    match length {
        0..10_000 => format!("{length} B"),
        10_000..10_000_000 => format!("{} kB", length / 1000),
        _ => format!("{} MB", length / 1_000_000),
    }
}
