//! The exchanges of one connection to an app, read from its bytes in any pieces. Pure: it keeps no more than two heads, a bounded
//! number of requests without an answer, and two unfinished messages; what it cannot read ends the reading, never the connection.

use std::collections::VecDeque;

use super::exchange::{Field, RequestHead, ResponseHead, Way};
use super::framing::{Body, Step};
use super::redact;
use super::websocket::{Frame, Frames};

/// Longest head, in bytes: twice what a gateway takes, unless its `limits.header_bytes` is raised. What is longer is not read.
const HEAD_BYTES_MAX: usize = 128 * 1024;

/// Most fields of a head.
const FIELDS_MAX: usize = 256;

/// Most requests without an answer: the gateway sends one at a time.
const ASKED_MAX: usize = 8;

/// First line of a connection of HTTP/2 (RFC 9113, section 3.4), with the empty line behind it.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// Something that bytes said.
#[derive(Debug)]
pub(super) enum Event<'a> {
    /// A request has begun.
    Request(RequestHead),
    /// The last request has ended.
    Sent,
    /// The oldest request without an answer is answered.
    Response(ResponseHead),
    /// Bytes of a body: of the last request, or of the answer.
    Data(Way, &'a [u8]),
    /// The answer has ended, and with it the exchange.
    Answered,
    /// The exchange goes on as a WebSocket, or as something else.
    Switched { is_websocket: bool },
    /// A message of the WebSocket.
    Message(Way, Frame),
    /// It is a connection of HTTP/2.
    Http2,
    /// The rest cannot be read.
    Lost(&'static str),
}

/// Reader of one connection.
#[derive(Debug)]
pub(super) struct Connection {
    inward: Half,
    outward: Half,
    /// Requests whose answers have not ended, in their order.
    asked: VecDeque<Asked>,
}

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
struct Asked {
    is_head: bool,
    is_connect: bool,
    wants_switch: bool,
}

/// What one direction is in.
#[derive(Debug)]
enum Half {
    /// A head, as far as it has come.
    Head(Vec<u8>),
    /// A body.
    Body(Body),
    /// A WebSocket.
    Frames(Box<Frames>),
    /// Bytes that are counted.
    Opaque,
    /// Bytes that are not looked at.
    Ignored,
}

impl Connection {
    /// Makes a reader of a new connection.
    pub(super) fn new() -> Self {
        Self { inward: Half::Head(Vec::new()), outward: Half::Head(Vec::new()), asked: VecDeque::new() }
    }

    /// Reads bytes of one direction.
    pub(super) fn read(&mut self, way: Way, bytes: &[u8], each: &mut dyn FnMut(Event<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let read = match self.half(way) {
                Half::Ignored => return,
                Half::Opaque => {
                    each(Event::Data(way, rest));
                    return;
                }
                Half::Frames(frames) => {
                    let mut message = |frame| each(Event::Message(way, frame));
                    frames.read(rest, &mut message).map(|()| rest.len()).map_err(|_| "what came is no WebSocket")
                }
                Half::Body(_) => self.body(way, rest, each),
                Half::Head(_) => self.head(way, rest, each),
            };
            match read {
                Ok(read) => rest = rest.get(read..).unwrap_or_default(),
                Err(why) => return self.lose(why, each),
            }
        }
    }

    /// Reads the end of a direction: it is the end of a body without a length, and too early for everything else.
    pub(super) fn end(&mut self, way: Way, each: &mut dyn FnMut(Event<'_>)) {
        let is_whole = match (way, self.half(way)) {
            (Way::Outward, Half::Body(Body::Close)) => {
                each(Event::Answered);
                true
            }
            (Way::Outward, Half::Opaque | Half::Frames(_)) => {
                each(Event::Answered);
                true
            }
            (Way::Outward, Half::Head(head)) => head.is_empty() && self.asked.is_empty(),
            (Way::Inward, Half::Head(head)) => head.is_empty(),
            (Way::Inward, Half::Opaque | Half::Frames(_)) | (_, Half::Ignored) => true,
            (_, Half::Body(_)) => false,
        };
        if !is_whole {
            self.lose("the connection ended in the middle", each);
        }
    }

    /// Looks at nothing from now on.
    pub(super) fn ignore(&mut self) {
        (self.inward, self.outward) = (Half::Ignored, Half::Ignored);
        self.asked = VecDeque::new();
    }

    fn lose(&mut self, why: &'static str, each: &mut dyn FnMut(Event<'_>)) {
        self.ignore();
        each(Event::Lost(why));
    }

    fn half(&mut self, way: Way) -> &mut Half {
        match way {
            Way::Inward => &mut self.inward,
            Way::Outward => &mut self.outward,
        }
    }

    fn body(&mut self, way: Way, bytes: &[u8], each: &mut dyn FnMut(Event<'_>)) -> Result<usize, &'static str> {
        let Half::Body(body) = self.half(way) else { return Ok(0) };
        let read = match body.step(bytes) {
            Step::Framing(read) => read,
            Step::Data(read) => {
                each(Event::Data(way, bytes.get(..read).unwrap_or_default()));
                read
            }
            Step::Ended => 0,
            Step::Broken => return Err("a body is not framed as HTTP/1.1 wants it"),
        };
        let is_over = body.is_over();
        if is_over {
            self.over(way, each);
        }
        Ok(read)
    }

    /// Goes on behind the end of a body.
    fn over(&mut self, way: Way, each: &mut dyn FnMut(Event<'_>)) {
        *self.half(way) = Half::Head(Vec::new());
        match way {
            Way::Inward => each(Event::Sent),
            Way::Outward => {
                self.asked.pop_front();
                each(Event::Answered);
            }
        }
    }

    /// Reads bytes of a head up to its end.
    fn head(&mut self, way: Way, bytes: &[u8], each: &mut dyn FnMut(Event<'_>)) -> Result<usize, &'static str> {
        let Half::Head(held) = self.half(way) else { return Ok(0) };
        let before = held.len();
        // Three bytes back: the empty line may be in two pieces.
        let room = HEAD_BYTES_MAX.saturating_sub(before).min(bytes.len());
        held.extend_from_slice(bytes.get(..room).unwrap_or_default());
        let end = head_end(held, before.saturating_sub(3));
        let length = end.unwrap_or(held.len());
        let is_plain = |byte: &u8| *byte >= b' ' && *byte != 0x7f || matches!(byte, b'\r' | b'\n' | b'\t');
        let fresh = held.get(before.min(length)..length).unwrap_or_default();
        if !fresh.iter().all(is_plain) {
            return Err("what came is no HTTP/1.1");
        }
        if end.is_none() {
            return if held.len() < HEAD_BYTES_MAX { Ok(room) } else { Err("a head is too long") };
        }
        let mut head = std::mem::take(held);
        head.truncate(length);
        let read = match way {
            Way::Inward => self.request(&head, each),
            Way::Outward => self.response(&head, each),
        };
        // It may have credentials. Nothing promises that no copy is left: what matters is that none is kept.
        head.fill(0);
        read.map(|()| length.saturating_sub(before))
    }

    fn request(&mut self, head: &[u8], each: &mut dyn FnMut(Event<'_>)) -> Result<(), &'static str> {
        if head == HTTP2 && self.asked.is_empty() {
            (self.inward, self.outward) = (Half::Opaque, Half::Opaque);
            each(Event::Http2);
            each(Event::Data(Way::Inward, head));
            return Ok(());
        }
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut parsed = httparse::Request::new(&mut fields);
        let is_whole = parsed.parse(head).is_ok_and(|status| status == httparse::Status::Complete(head.len()));
        let (true, Some(method), Some(target), Some(minor)) = (is_whole, parsed.method, parsed.path, parsed.version)
        else {
            return Err("a request's head cannot be read");
        };
        if self.asked.len() >= ASKED_MAX {
            return Err("too many requests without an answer");
        }
        let body = match framing(parsed.headers)? {
            Framing::Chunked => Body::chunked(),
            Framing::Length(length) => Body::Length(length),
            Framing::Other => return Err("a request has a body without an end"),
            Framing::Nothing => Body::Length(0),
        };
        let (kept, is_redacted) = redact::target(target);
        each(Event::Request(RequestHead {
            method: method.into(),
            target: kept.into(),
            is_redacted,
            minor,
            fields: parsed.headers.iter().map(|field| Field::new(field.name, field.value)).collect(),
        }));
        self.asked.push_back(Asked {
            is_head: method == "HEAD",
            is_connect: method == "CONNECT",
            wants_switch: has(parsed.headers, "upgrade"),
        });
        self.inward = Half::Body(body);
        if self.inward.is_over() {
            self.over(Way::Inward, each);
        }
        Ok(())
    }

    fn response(&mut self, head: &[u8], each: &mut dyn FnMut(Event<'_>)) -> Result<(), &'static str> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut parsed = httparse::Response::new(&mut fields);
        let is_whole = parsed.parse(head).is_ok_and(|status| status == httparse::Status::Complete(head.len()));
        let (true, Some(status), Some(minor)) = (is_whole, parsed.code, parsed.version) else {
            return Err("an answer's head cannot be read");
        };
        let Some(asked) = self.asked.front().copied() else { return Err("an answer without a request") };
        self.outward = Half::Head(Vec::new());
        if (100..200).contains(&status) && status != 101 {
            return Ok(());
        }
        let has_none = asked.is_head || status == 101 || status == 204 || status == 304;
        let is_tunnel = asked.is_connect && (200..300).contains(&status);
        let body = match framing(parsed.headers)? {
            _ if has_none || is_tunnel => Body::Length(0),
            Framing::Chunked => Body::chunked(),
            Framing::Length(length) => Body::Length(length),
            Framing::Other | Framing::Nothing => Body::Close,
        };
        let is_websocket = has(parsed.headers, "sec-websocket-accept");
        each(Event::Response(ResponseHead {
            status,
            reason: parsed.reason.unwrap_or_default().into(),
            minor,
            fields: parsed.headers.iter().map(|field| Field::new(field.name, field.value)).collect(),
        }));
        if is_tunnel || status == 101 {
            return self.switch(is_websocket && status == 101, asked, each);
        }
        self.outward = Half::Body(body);
        if self.outward.is_over() {
            self.over(Way::Outward, each);
        }
        Ok(())
    }

    /// Goes on in another protocol.
    fn switch(
        &mut self,
        is_websocket: bool,
        asked: Asked,
        each: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), &'static str> {
        let is_asked = asked.wants_switch || asked.is_connect;
        let Half::Head(early) = &mut self.inward else { return Err("another protocol in the middle of a request") };
        if !is_asked || self.asked.len() > 1 {
            return Err("another protocol without a request for it");
        }
        let early = std::mem::take(early);
        let half = || if is_websocket { Half::Frames(Box::default()) } else { Half::Opaque };
        (self.inward, self.outward) = (half(), half());
        each(Event::Switched { is_websocket });
        // The user may have gone on before the answer came.
        self.read(Way::Inward, &early, each);
        Ok(())
    }

    /// Returns the bytes that it holds.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let of = |half: &Half| match half {
            Half::Head(head) => head.len(),
            Half::Frames(frames) => frames.held(),
            Half::Body(_) | Half::Opaque | Half::Ignored => 0,
        };
        of(&self.inward) + of(&self.outward)
    }
}

impl Half {
    fn is_over(&self) -> bool {
        matches!(self, Self::Body(body) if body.is_over())
    }
}

/// Returns the length of a head with its empty line, searched from a place on.
fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let found = bytes.get(at..)?.iter().position(|byte| *byte == b'\n')?;
        at += found + 1;
        match bytes.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
}

/// How a head says that its body ends.
enum Framing {
    Nothing,
    Length(u64),
    Chunked,
    /// A coding whose end is that of the connection.
    Other,
}

fn framing(fields: &[httparse::Header<'_>]) -> Result<Framing, &'static str> {
    let of = |name: &'static str| fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
    let mut last = None;
    for coding in of("transfer-encoding").flat_map(|field| field.value.split(|byte| *byte == b',')) {
        last = Some(coding.trim_ascii());
    }
    match last {
        Some(coding) if coding.eq_ignore_ascii_case(b"chunked") => return Ok(Framing::Chunked),
        Some(_) => return Ok(Framing::Other),
        None => {}
    }
    let mut length = None;
    for value in of("content-length").flat_map(|field| field.value.split(|byte| *byte == b',')) {
        let said = std::str::from_utf8(value.trim_ascii()).ok().and_then(|text| text.parse::<u64>().ok());
        let said = said.ok_or("a length that is none")?;
        if length.is_some_and(|length| length != said) {
            return Err("two lengths of one body");
        }
        length = Some(said);
    }
    Ok(length.map_or(Framing::Nothing, Framing::Length))
}

fn has(fields: &[httparse::Header<'_>], name: &str) -> bool {
    fields.iter().any(|field| field.name.eq_ignore_ascii_case(name))
}
