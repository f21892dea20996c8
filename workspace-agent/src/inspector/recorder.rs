//! Records the exchanges of one connection to an app. It reads copies of bytes that have passed, and has no way to change them.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use super::connection::{Connection, Event};
use super::exchange::{
    Begin, Exchange, Kind, Message, Progress, RequestHead, ResponseHead, Way, fields_bytes, message_bytes, value,
};
use super::log::{Log, Record};
use super::websocket::Frame;

/// Field that the gateway puts into each request for an app. Streams of raw bytes, which may be HTTP too, have it not.
const GATEWAYS_FIELD: &str = "x-forwarded-proto";

/// Facts of a connection that is recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The port of the app.
    pub(crate) port: u16,
    /// Whether the app speaks TLS.
    pub(crate) is_tls: bool,
    /// The exchange that is repeated over it, if it is for that.
    pub(crate) replay_of: Option<u64>,
    /// When the connection was begun.
    pub(crate) began: Instant,
}

/// Recorder of one connection.
#[derive(Debug)]
pub(crate) struct Recorder {
    log: Arc<Log>,
    connection: Connection,
    book: Book,
}

/// The exchanges of the connection.
#[derive(Debug)]
struct Book {
    origin: Origin,
    /// When it was made; `None` once an exchange counts it.
    connected: Option<Instant>,
    /// Exchanges without the end of an answer, in their order.
    open: VecDeque<Open>,
    /// Whether the first request said that the gateway made it.
    is_told: bool,
}

#[derive(Clone, Debug)]
struct Open {
    record: Arc<Record>,
    began: Instant,
}

impl Recorder {
    /// Makes a recorder of a connection that is made now.
    pub(crate) fn new(log: Arc<Log>, origin: Origin, now: Instant) -> Self {
        let book = Book { origin, connected: Some(now), open: VecDeque::new(), is_told: origin.replay_of.is_some() };
        Self { log, connection: Connection::new(), book }
    }

    /// Reads bytes that have passed.
    pub(crate) fn read(&mut self, way: Way, bytes: &[u8], now: Instant) {
        let Self { log, connection, book } = self;
        let mut is_foreign = false;
        connection.read(way, bytes, &mut |event| is_foreign |= !book.note(log, event, now));
        if is_foreign {
            connection.ignore();
        }
    }

    /// Reads the end of a direction.
    pub(crate) fn end(&mut self, way: Way, now: Instant) {
        let Self { log, connection, book } = self;
        connection.end(way, &mut |event| {
            book.note(log, event, now);
        });
    }

    /// Returns the number of the exchange that goes on, if one does.
    pub(crate) fn goes_on(&self) -> Option<u64> {
        self.book.open.front().map(|open| open.record.id)
    }

    /// Ends what goes on, for a reason.
    pub(crate) fn give_up(&mut self, why: &'static str, now: Instant) {
        self.connection.ignore();
        self.book.lose(&self.log, why, now);
    }
}

impl Book {
    /// Notes an event; returns whether the connection is one of the gateway's HTTP.
    fn note(&mut self, log: &Log, event: Event<'_>, now: Instant) -> bool {
        match event {
            Event::Request(head) => return self.request(log, head, now),
            Event::Http2 => {
                let (method, target) = ("PRI".into(), "*".into());
                let head = RequestHead { method, target, is_redacted: false, minor: 0, fields: Vec::new() };
                self.begin(log, Kind::Http2, head, now);
            }
            Event::Sent => self.last(log, |exchange, after| exchange.sent = Some(after), now),
            Event::Response(head) => self.response(log, head, now),
            Event::Data(way, bytes) => {
                let open = match way {
                    Way::Inward => self.open.back(),
                    Way::Outward => self.open.front(),
                };
                if let Some(open) = open {
                    log.change(
                        &open.record,
                        |exchange| exchange.growth(way, bytes),
                        |exchange| exchange.push(way, bytes),
                    );
                }
            }
            Event::Answered => {
                if let Some(open) = self.open.pop_front() {
                    end(log, &open, Progress::Done, now);
                }
            }
            Event::Switched { is_websocket } => {
                let kind = if is_websocket { Kind::WebSocket } else { Kind::Switched };
                self.last(log, |exchange, _| exchange.kind = kind, now);
            }
            Event::Message(way, frame) => self.message(log, way, frame, now),
            Event::Lost(why) => self.lose(log, why, now),
        }
        true
    }

    fn request(&mut self, log: &Log, head: RequestHead, now: Instant) -> bool {
        self.is_told |= value(&head.fields, GATEWAYS_FIELD).is_some();
        if self.is_told {
            self.begin(log, Kind::Http, head, now);
        }
        self.is_told
    }

    fn begin(&mut self, log: &Log, kind: Kind, head: RequestHead, now: Instant) {
        let connected = self.connected.take();
        let origin = self.origin;
        let began = if connected.is_some() { origin.began } else { now };
        let wall = Timestamp::now().checked_sub(now.saturating_duration_since(began)).unwrap_or_default();
        let connect = connected.map(|connected| connected.saturating_duration_since(began));
        let Origin { port, is_tls, replay_of, .. } = origin;
        let exchange = Exchange::new(Begin { port, is_tls, replay_of, kind, began: wall, connect }, head);
        self.open.push_back(Open { record: log.add(exchange), began });
    }

    fn response(&mut self, log: &Log, head: ResponseHead, now: Instant) {
        if let Some(open) = self.open.front() {
            let grown = fields_bytes(&head.fields) + head.reason.len();
            let after = now.saturating_duration_since(open.began);
            log.change(&open.record, |_| grown, |exchange| exchange.answer(head, after));
            log.tell(&open.record);
        }
    }

    fn message(&mut self, log: &Log, way: Way, mut frame: Frame, now: Instant) {
        let Some(open) = self.open.front() else { return };
        frame.kept.shrink_to_fit();
        let message = Message { way, after: now.saturating_duration_since(open.began), frame };
        let grown = message_bytes(&message);
        let mut shrunk = 0;
        log.change(&open.record, |_| grown, |exchange| shrunk = exchange.message(message).shrunk);
        if shrunk > 0 {
            log.shrink(&open.record, shrunk);
        }
        log.tell(&open.record);
    }

    /// Changes the last exchange.
    fn last(&self, log: &Log, change: impl FnOnce(&mut Exchange, std::time::Duration), now: Instant) {
        if let Some(open) = self.open.back() {
            let after = now.saturating_duration_since(open.began);
            log.change(&open.record, |_| 0, |exchange| change(exchange, after));
        }
    }

    fn lose(&mut self, log: &Log, why: &'static str, now: Instant) {
        for open in std::mem::take(&mut self.open) {
            end(log, &open, Progress::Incomplete(why), now);
        }
    }
}

fn end(log: &Log, open: &Open, progress: Progress, now: Instant) {
    let after = now.saturating_duration_since(open.began);
    log.change(&open.record, |_| 0, |exchange| exchange.end(progress, after));
    log.tell(&open.record);
}

impl Drop for Recorder {
    /// Ends what goes on: the connection is closed.
    fn drop(&mut self) {
        self.give_up("the connection was closed before the end", Instant::now());
    }
}
