//! Counts the frames of an HTTP/2 connection, both ways, and reports too many of those that cost work and carry
//! nothing.
//!
//! The library bounds what one connection makes it *hold*. It does not bound how often a peer opens a stream and resets
//! it once the request was taken, breaks rules so that the gateway resets (RFC 9113, section 5.4.2), asks for streams
//! above the limit, or sends pings, settings, priorities and windows for their own sake. Two budgets do. Resets from
//! either side have a rate. Frames that carry nothing have one too, and bytes that the gateway sends pay for more of
//! them: a client that downloads announces again and again that there is room.
//!
//! Only the heads of frames are looked at (RFC 9113, section 4.1), 9 bytes each, wherever the bytes are cut; and of
//! header blocks the starts of their fields, to find trailers with fields that only a request's head may have
//! ([`names`]).

use std::time::Instant;

use self::names::HeaderNames;
use gateway_types::Limit;

mod names;

/// Bytes of a frame's head, and of the code in the payload of a reset.
const HEAD_BYTES: usize = 9;
const CODE_BYTES: usize = 4;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

/// Nothing is wrong (RFC 9113, section 7): the answer was whole before the request was.
const NO_ERROR: [u8; CODE_BYTES] = [0; CODE_BYTES];

/// The peer broke a rule of the protocol. A malformed request is an error of its stream, which may be treated as one of
/// the connection (sections 8.1.1 and 5.4.1).
const PROTOCOL_ERROR: u8 = 1;

/// The peer behaves in a way that may cause too much work (the same section).
const ENHANCE_YOUR_CALM: u8 = 11;

/// Seconds' worth of resets that may come at once: a page that is left gives up all its streams.
const RESET_SECONDS: u32 = 5;

/// Frames that carry nothing: rate per second, and burst.
const LIGHT_PER_SECOND: u32 = 1_000;
const LIGHT_AT_ONCE: u32 = 4_000;

/// Bytes sent by the gateway that pay for one more such frame. Some clients give room back for each 4 KiB that they
/// read, for the stream and for the connection.
const BYTES_PER_LIGHT: usize = 1024;

/// Most bodies of requests under way whose trailers are looked at: more than one connection may have streams.
const BODIES_MAX: usize = 1024;

/// Most sent bytes that are saved up to pay for frames.
const SENT_MAX: usize = 64 * 1024 * 1024;

/// A budget that fills up again at a rate. It looks at the clock only when it is used up.
#[derive(Debug)]
struct Budget {
    used: u32,
    at_once: u32,
    per_second: u32,
    since: Instant,
}

impl Budget {
    fn new(at_once: u32, per_second: u32, now: Instant) -> Self {
        Self { used: 0, at_once, per_second, since: now }
    }

    /// Uses up one unit. Returns whether there was one.
    fn take(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.used >= self.at_once {
            let now = now();
            let millis = now.saturating_duration_since(self.since).as_millis();
            let back = u32::try_from(millis.saturating_mul(self.per_second.into()) / 1000).unwrap_or(u32::MAX);
            if back > 0 {
                // Refill beyond a full budget is lost.
                self.give_back(back);
                self.since = now;
            }
        }
        let is_there = self.used < self.at_once;
        self.used = self.used.saturating_add(u32::from(is_there));
        is_there
    }

    fn give_back(&mut self, count: u32) {
        self.used = self.used.saturating_sub(count);
    }
}

/// Follows the frames of one direction.
#[derive(Debug, Default)]
struct Heads {
    /// The frame head being read; behind the head of a reset, its code.
    bytes: [u8; HEAD_BYTES + CODE_BYTES],
    filled: usize,
    /// Bytes left of the payload that is under way.
    left: usize,
}

/// Fields of a frame's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameHead {
    kind: u8,
    length: usize,
    flags: u8,
    stream: u32,
    code: [u8; CODE_BYTES],
}

impl Heads {
    /// Reads on. Returns the next frame once enough of it has come, and takes its bytes off; `payload` gets the payload
    /// of the frame before it, as it comes.
    fn next(&mut self, bytes: &mut &[u8], mut payload: impl FnMut(&[u8])) -> Option<FrameHead> {
        loop {
            let (skipped, after) = bytes.split_at(self.left.min(bytes.len()));
            payload(skipped);
            *bytes = after;
            self.left -= skipped.len();
            if bytes.is_empty() {
                return None;
            }
            let wanted = if self.filled >= HEAD_BYTES { HEAD_BYTES + CODE_BYTES } else { HEAD_BYTES };
            let room = self.bytes.get_mut(self.filled..wanted).unwrap_or_default();
            let count = room.len().min(bytes.len());
            let (now, later) = bytes.split_at(count);
            room.iter_mut().zip(now).for_each(|(to, from)| *to = *from);
            *bytes = later;
            self.filled += count;
            if self.filled < wanted {
                return None;
            }
            let [high, middle, low, kind, flags, a, b, c, d, code @ ..] = self.bytes;
            let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            let has_code = kind == RST_STREAM && length == CODE_BYTES;
            if has_code && self.filled == HEAD_BYTES {
                continue;
            }
            self.filled = 0;
            self.left = if has_code { 0 } else { length };
            let stream = u32::from_be_bytes([a & 0x7f, b, c, d]);
            return Some(FrameHead { kind, length, flags, stream, code });
        }
    }
}

/// Follows one connection.
#[derive(Debug)]
pub(crate) struct Meter {
    received: Heads,
    sent: Heads,
    resets: Budget,
    light: Budget,
    /// Sent bytes that have not paid for frames yet.
    sent_bytes: usize,
    /// The highest stream that the client opened.
    last_stream: u32,
    over: Option<Limit>,
    names: HeaderNames,
    /// The frame that is being read belongs to a header block.
    is_in_block: bool,
    /// Streams whose request has a body that has not ended.
    bodies: Vec<u32>,
}

/// Reason to end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It is above a limit.
    Limit(Limit),
    /// The trailers of a request have a pseudo field.
    Malformed,
}

impl From<Limit> for Stop {
    fn from(limit: Limit) -> Self {
        Self::Limit(limit)
    }
}

impl Meter {
    /// Begins behind the client's preface.
    pub(crate) fn new(resets_per_second: u32, now: Instant) -> Self {
        Self {
            received: Heads::default(),
            sent: Heads::default(),
            resets: Budget::new(resets_per_second.saturating_mul(RESET_SECONDS), resets_per_second, now),
            light: Budget::new(LIGHT_AT_ONCE, LIGHT_PER_SECOND, now),
            sent_bytes: 0,
            last_stream: 0,
            over: None,
            names: HeaderNames::default(),
            is_in_block: false,
            bodies: Vec::new(),
        }
    }

    /// Looks at received bytes.
    ///
    /// # Errors
    /// The reason to end the connection.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], now: impl Fn() -> Instant) -> Result<(), Stop> {
        loop {
            let Self { received, names, is_in_block, .. } = self;
            let is_in_block = *is_in_block;
            let Some(frame) = received.next(&mut bytes, |payload| {
                if is_in_block {
                    names.look(payload);
                }
            }) else {
                break;
            };
            self.is_in_block = matches!(frame.kind, HEADERS | CONTINUATION);
            match frame.kind {
                HEADERS => self.begin_block(frame),
                DATA if frame.length > 0 || frame.flags & END_STREAM != 0 => {
                    if frame.flags & END_STREAM != 0 {
                        self.end_body(frame.stream);
                    }
                }
                // The library refuses a malformed one.
                RST_STREAM => {
                    self.end_body(frame.stream);
                    self.reset(&now);
                }
                CONTINUATION => {
                    self.names.go_on(frame.length);
                    self.lighten(&now);
                }
                _ => self.lighten(&now),
            }
        }
        if self.names.is_malformed() {
            return Err(Stop::Malformed);
        }
        self.over.map_or(Ok(()), |limit| Err(limit.into()))
    }

    /// Tells a request's head from its trailers. The library refuses a block on a stream that has ended.
    fn begin_block(&mut self, frame: FrameHead) {
        let is_last = frame.flags & END_STREAM != 0;
        let is_head = frame.stream > self.last_stream;
        let in_trailers = !is_head && self.bodies.contains(&frame.stream);
        self.last_stream = self.last_stream.max(frame.stream);
        if is_last {
            self.end_body(frame.stream);
        } else if is_head && self.bodies.len() < BODIES_MAX {
            self.bodies.push(frame.stream);
        }
        self.names.begin(frame.flags, frame.length, in_trailers);
    }

    fn end_body(&mut self, stream: u32) {
        if let Some(place) = self.bodies.iter().position(|body| *body == stream) {
            self.bodies.swap_remove(place);
        }
    }

    /// Looks at sent bytes. An exceeded limit is reported by the next [`Meter::receive`].
    pub(crate) fn send(&mut self, mut bytes: &[u8], now: impl Fn() -> Instant) {
        self.sent_bytes = (self.sent_bytes + bytes.len()).min(SENT_MAX);
        while let Some(frame) = self.sent.next(&mut bytes, |_| {}) {
            if frame.kind == RST_STREAM {
                self.end_body(frame.stream);
                if frame.code != NO_ERROR {
                    self.reset(&now);
                }
            }
        }
    }

    fn reset(&mut self, now: impl FnOnce() -> Instant) {
        if !self.resets.take(now) {
            self.over = Some(Limit::Http2Resets);
        }
    }

    fn lighten(&mut self, now: impl FnOnce() -> Instant) {
        if self.light.used >= LIGHT_AT_ONCE / 2 {
            let paid = self.sent_bytes / BYTES_PER_LIGHT;
            self.sent_bytes -= paid * BYTES_PER_LIGHT;
            self.light.give_back(u32::try_from(paid).unwrap_or(u32::MAX));
        }
        if !self.light.take(now) {
            self.over = Some(Limit::Http2Frames);
        }
    }

    /// Returns whether the last bytes that went out ended a frame, so that another one may follow.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.sent.filled == 0 && self.sent.left == 0
    }

    /// Makes the frame that ends the connection (RFC 9113, section 6.8).
    pub(crate) fn goaway(&self, why: Stop) -> Vec<u8> {
        let [a, b, c, d] = self.last_stream.to_be_bytes();
        let code = match why {
            Stop::Limit(_) => ENHANCE_YOUR_CALM,
            Stop::Malformed => PROTOCOL_ERROR,
        };
        vec![0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, a, b, c, d, 0, 0, 0, code]
    }
}

#[cfg(test)]
mod tests;
