//! What is recorded of a request and its answer. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;

use super::redact;
use super::websocket::Frame;

/// Most bytes of a body that are kept.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;

/// Most messages of a WebSocket that are kept: the last ones.
pub(crate) const MESSAGES_MAX: usize = 500;

/// Most bytes of messages of one WebSocket that are kept.
const MESSAGES_BYTES_MAX: usize = 128 * 1024;

/// Bytes that a record counts for beside its texts.
const RECORD_BYTES: usize = 1024;

/// Bytes that a field or a message counts for beside its texts.
const ROW_BYTES: usize = 64;

/// Field of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name as it was sent.
    pub(crate) name: Box<str>,
    /// Its value, or what is in place of a credential.
    pub(crate) value: Box<str>,
    /// Whether something was left out of the value.
    pub(crate) is_redacted: bool,
}

impl Field {
    /// Makes a field of what came, without credentials.
    pub(crate) fn new(name: &str, value: &[u8]) -> Self {
        let value = String::from_utf8_lossy(value);
        let (kept, is_redacted) = redact::field(name, &value);
        Self { name: name.into(), value: kept.into(), is_redacted }
    }
}

/// Returns the value of the first field of a name.
pub(crate) fn value<'a>(fields: &'a [Field], name: &str) -> Option<&'a str> {
    fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| &*field.value)
}

/// Head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    /// The method.
    pub(crate) method: Box<str>,
    /// The target, without credentials: a path and a query.
    pub(crate) target: Box<str>,
    /// Whether something was left out of it.
    pub(crate) is_redacted: bool,
    /// The minor version of HTTP/1.
    pub(crate) minor: u8,
    /// Its fields in their order.
    pub(crate) fields: Vec<Field>,
}

/// Head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    /// The status.
    pub(crate) status: u16,
    /// Its words, which may be none.
    pub(crate) reason: Box<str>,
    /// The minor version of HTTP/1.
    pub(crate) minor: u8,
    /// Its fields in their order.
    pub(crate) fields: Vec<Field>,
}

/// Beginning of a body, and its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Its first bytes, at most [`BODY_BYTES_MAX`].
    pub(crate) bytes: Vec<u8>,
    /// How many there were in all.
    pub(crate) length: u64,
}

impl Kept {
    /// Returns whether there were more bytes than are kept.
    #[must_use]
    pub(crate) fn is_cut(&self) -> bool {
        self.length > self.bytes.len() as u64
    }

    /// Returns how much memory more it takes to keep these bytes too.
    fn growth(&self, more: &[u8]) -> usize {
        let needed = (self.bytes.len() + more.len()).min(BODY_BYTES_MAX);
        let capacity = self.bytes.capacity();
        if needed <= capacity { 0 } else { needed.max(capacity * 2).min(BODY_BYTES_MAX) - capacity }
    }

    fn push(&mut self, more: &[u8]) {
        let growth = self.growth(more);
        if growth > 0 {
            self.bytes.reserve_exact(self.bytes.capacity() + growth - self.bytes.len());
        }
        let room = BODY_BYTES_MAX - self.bytes.len().min(BODY_BYTES_MAX);
        self.bytes.extend_from_slice(more.get(..room.min(more.len())).unwrap_or_default());
        self.length += more.len() as u64;
    }
}

/// Direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the user to the app.
    Inward,
    /// From the app to the user.
    Outward,
}

/// A message of a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its direction.
    pub(crate) way: Way,
    /// Time since the exchange began.
    pub(crate) after: Duration,
    /// The message.
    pub(crate) frame: Frame,
}

/// Kind of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request and its answer.
    Http,
    /// A request that became a WebSocket.
    WebSocket,
    /// A request that became a stream of another protocol, whose bytes are counted.
    Switched,
    /// A connection of HTTP/2, whose bytes are counted.
    Http2,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It goes on.
    Open,
    /// It has ended.
    Done,
    /// The rest is not known, for this reason.
    Incomplete(&'static str),
}

/// An exchange between a user and an app.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Exchange {
    /// Its number: higher than those of all before it.
    pub(crate) id: u64,
    /// The port of the app.
    pub(crate) port: u16,
    /// Whether the app speaks TLS.
    pub(crate) is_tls: bool,
    /// The exchange that it repeats, if its owner sent it from the inspector.
    pub(crate) replay_of: Option<u64>,
    /// Kind of it.
    pub(crate) kind: Kind,
    /// Its beginning by the clock of the machine.
    pub(crate) began: Timestamp,
    /// Time for the connection to the app, if it has one of its own.
    pub(crate) connect: Option<Duration>,
    /// From the beginning to the end of the request.
    pub(crate) sent: Option<Duration>,
    /// From the beginning to the head of the answer.
    pub(crate) answered: Option<Duration>,
    /// From the beginning to the end.
    pub(crate) ended: Option<Duration>,
    /// Head of the request.
    pub(crate) request: RequestHead,
    /// Body of the request; for [`Kind::Http2`] and [`Kind::Switched`] the length alone.
    pub(crate) request_body: Kept,
    /// Head of the answer.
    pub(crate) response: Option<ResponseHead>,
    /// Body of the answer.
    pub(crate) response_body: Kept,
    /// The last messages of a WebSocket.
    pub(crate) messages: VecDeque<Message>,
    /// Messages in all.
    pub(crate) messages_all: u64,
    /// Bytes of `messages`.
    messages_bytes: usize,
    /// How far it has come.
    pub(crate) progress: Progress,
}

/// Facts with which an exchange begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    /// The port of the app.
    pub(crate) port: u16,
    /// Whether the app speaks TLS.
    pub(crate) is_tls: bool,
    /// The exchange that it repeats.
    pub(crate) replay_of: Option<u64>,
    /// Kind of it.
    pub(crate) kind: Kind,
    /// Its beginning.
    pub(crate) began: Timestamp,
    /// Time for the connection.
    pub(crate) connect: Option<Duration>,
}

impl Exchange {
    /// Makes one of a request's head. The log gives it its number.
    pub(crate) fn new(begin: Begin, request: RequestHead) -> Self {
        let Begin { port, is_tls, replay_of, kind, began, connect } = begin;
        Self {
            id: 0,
            port,
            is_tls,
            replay_of,
            kind,
            began,
            connect,
            sent: None,
            answered: None,
            ended: None,
            request,
            request_body: Kept::default(),
            response: None,
            response_body: Kept::default(),
            messages: VecDeque::new(),
            messages_all: 0,
            messages_bytes: 0,
            progress: Progress::Open,
        }
    }

    /// Returns the bytes that it counts for as it begins.
    pub(crate) fn first_bytes(&self) -> usize {
        let Self { request: RequestHead { method, target, fields, .. }, .. } = self;
        RECORD_BYTES + method.len() + target.len() + fields_bytes(fields)
    }

    /// Returns how much memory more it takes to keep these bytes of a body too.
    pub(crate) fn growth(&self, way: Way, more: &[u8]) -> usize {
        if self.keeps_bodies() { self.body(way).growth(more) } else { 0 }
    }

    /// Takes bytes of a body.
    pub(crate) fn push(&mut self, way: Way, more: &[u8]) {
        let keeps = self.keeps_bodies();
        let body = match way {
            Way::Inward => &mut self.request_body,
            Way::Outward => &mut self.response_body,
        };
        if keeps {
            body.push(more);
        } else {
            body.length += more.len() as u64;
        }
    }

    /// Takes the head of the answer.
    pub(crate) fn answer(&mut self, head: ResponseHead, after: Duration) {
        self.answered = Some(after);
        self.response = Some(head);
    }

    /// Takes a message; forgets the oldest that there is no room for, and returns by how many bytes it grew and shrank.
    pub(crate) fn message(&mut self, message: Message) -> Change {
        let grown = message_bytes(&message);
        self.messages.push_back(message);
        self.messages_all += 1;
        self.messages_bytes += grown;
        let mut shrunk = 0;
        while self.messages.len() > MESSAGES_MAX || self.messages_bytes - shrunk > MESSAGES_BYTES_MAX {
            let Some(oldest) = self.messages.pop_front() else { break };
            shrunk += message_bytes(&oldest);
        }
        self.messages_bytes -= shrunk;
        Change { grown, shrunk }
    }

    /// Ends it, unless it has ended.
    pub(crate) fn end(&mut self, progress: Progress, after: Duration) {
        if self.progress == Progress::Open {
            // A WebSocket that said its last word may be closed by either side.
            let has_closed = self.messages.iter().rev().take(4).any(|message| message.frame.opcode == 8);
            self.progress = if has_closed { Progress::Done } else { progress };
            self.ended = Some(after);
        }
    }

    /// Forgets what takes memory: it may go on for long after the log has let it go.
    pub(crate) fn empty(&mut self) {
        (self.request_body, self.response_body) = (Kept::default(), Kept::default());
        self.messages = VecDeque::new();
        self.request.fields = Vec::new();
        self.request.target = "".into();
        self.response = None;
    }

    /// Returns the address of the user, as the gateway said it.
    #[must_use]
    pub(crate) fn asked_by(&self) -> &str {
        value(&self.request.fields, "x-forwarded-for").unwrap_or_default()
    }

    /// Returns whether it failed: a status from 400 on, or an end before the answer.
    #[must_use]
    pub(crate) fn has_failed(&self) -> bool {
        match &self.response {
            Some(head) => head.status >= 400,
            None => self.kind == Kind::Http && self.progress != Progress::Open,
        }
    }

    /// Returns whether its bodies are kept, and not only counted.
    fn keeps_bodies(&self) -> bool {
        match self.kind {
            Kind::Http | Kind::WebSocket => true,
            Kind::Switched | Kind::Http2 => false,
        }
    }

    /// Splits its time, as far as it has come. Parts that overlap count for the first.
    #[must_use]
    pub(crate) fn split(&self) -> Split {
        let connect = self.connect.unwrap_or_default();
        let sent = self.sent.or(self.answered);
        Split {
            send: sent.map(|sent| sent.saturating_sub(connect)),
            wait: self.answered.map(|answered| answered.saturating_sub(sent.unwrap_or_default().max(connect))),
            receive: self
                .answered
                .zip(self.ended)
                .map(|(answered, ended)| ended.saturating_sub(answered.max(sent.unwrap_or_default()))),
        }
    }

    /// Returns the body of one direction.
    #[must_use]
    pub(crate) fn body(&self, way: Way) -> &Kept {
        match way {
            Way::Inward => &self.request_body,
            Way::Outward => &self.response_body,
        }
    }
}

/// Parts of the time of an exchange, beside the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    /// Sending the request.
    pub(crate) send: Option<Duration>,
    /// Waiting for the head of the answer.
    pub(crate) wait: Option<Duration>,
    /// Receiving the answer.
    pub(crate) receive: Option<Duration>,
}

/// Change of the bytes that an exchange counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Bytes more.
    pub(crate) grown: usize,
    /// Bytes less.
    pub(crate) shrunk: usize,
}

/// Returns the bytes that fields count for.
pub(crate) fn fields_bytes(fields: &[Field]) -> usize {
    fields.iter().map(|field| field.name.len() + field.value.len() + ROW_BYTES).sum()
}

/// Returns the bytes that a message counts for.
pub(crate) fn message_bytes(message: &Message) -> usize {
    message.frame.kept.capacity() + ROW_BYTES
}
