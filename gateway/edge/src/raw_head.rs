//! Watches the bytes of an HTTP/1.1 connection and names the heads that could be read in two ways, before the HTTP
//! library sees them.
//!
//! The library answers most malformed heads itself, with a bare status that has no `gateway-error`, and silently takes
//! some that another parser could read differently (see `guard`). A [`Watcher`] follows the requests of a connection at
//! the byte level, only as far as is needed to know where each head begins and ends: Content-Length and chunked framing
//! (RFC 9112, sections 6 and 7). It passes bytes on as they are and builds nothing from them; what a request means is
//! still read by the library alone. [`guarded`] puts it around a stream.
//!
//! Refused by name: a bare LF as a line end in a head (RFC 9112, section 2.2), a folded line (5.2), a blank before the
//! colon (5.1), several Host fields (3.2), Content-Length that is not one number or comes more than once (6.3),
//! Transfer-Encoding that is not `chunked` alone or comes over HTTP/1.0 (6.1), both together (6.3), and a head above
//! the limit. A bare LF in the trailers of a chunked body (9112, 7.1.2) ends the body as broken: the library waits for
//! CRLF CRLF and reads the fields up to an empty line of either kind, so bytes in between would be lost. Every other
//! fault is left to the library; [`own_error`] recognises its answer so that it can be replaced.
//!
//! Pipelined requests are followed like any others: requests before an ambiguous head are served, then the refusal is
//! sent. Two things are not watched, and only the library's own safe behaviour is left there: HTTP/2, of which only the
//! frames are counted, and bytes that follow a request for an upgrade before that is answered.

use gateway_http::respond::{Failure, Wants};

pub(super) mod answer;
pub(super) mod flight;
pub(super) mod guarded;

mod chunked;
mod frames;
mod head;

use self::chunked::{Broken, Chunked};
use self::head::{Head, HeadEnd};

/// Fault of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A line ends with LF alone.
    BareLineFeed,
    /// A field goes on in the next line.
    FoldedLine,
    /// A blank stands between a field's name and the colon.
    BlankBeforeColon,
    /// More than one Host field.
    HostDuplicate,
    /// Content-Length is not one number, or came twice.
    Length,
    /// Transfer-Encoding is not `chunked` alone, or came over HTTP/1.0.
    Encoding,
    /// Content-Length and Transfer-Encoding together.
    LengthAndEncoding,
    /// The first line is above the limit.
    TargetTooLong,
    /// The head is above the limit.
    HeadTooLarge,
    /// The head is above the limit, and most of it is cookies.
    CookiesTooLarge,
    /// Any fault that the library refused.
    Malformed,
}

impl Fault {
    /// Returns the failure shown to the user. The names are those of `guard`, where both know a fault.
    pub(super) fn failure(self) -> Failure {
        let reason = match self {
            Self::TargetTooLong => return Failure::UriTooLong,
            Self::HeadTooLarge => return Failure::HeaderTooLarge,
            Self::CookiesTooLarge => return Failure::CookiesTooLarge,
            Self::BareLineFeed => "bare_line_feed",
            Self::FoldedLine => "folded_line",
            Self::BlankBeforeColon => "blank_before_colon",
            Self::HostDuplicate => "host_duplicate",
            Self::Length => "content_length",
            Self::Encoding => "transfer_encoding",
            Self::LengthAndEncoding => "length_and_encoding",
            Self::Malformed => "malformed",
        };
        Failure::BadRequest { reason }
    }
}

/// A request that is not served, and the known form of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) fault: Fault,
    pub(super) wants: Wants,
    /// The answer to HEAD has no body.
    pub(super) is_head: bool,
}

/// An ambiguity found in the latest bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A head. The first `keep` of these bytes belong to the messages before it.
    Head { refusal: Refusal, keep: usize },
    /// The end of a body whose head was taken. The first `keep` of these bytes stand before that.
    Body { keep: usize },
}

/// Follows the requests of one connection.
///
/// ```text
///              blank line, a body            end of body
///   Head ────────────────────────► Body ───────────────────► Head, or Switching
///    │ │ blank line, no body
///    │ └──────────────────────────► Head, or Switching (the head asks for another protocol)
///    ├─ HTTP/2 preface, lost track ► Off
///    └─ fault ─────────────────────► Off, and the fault is returned
///   Switching ─ answered, not switched ► Head     Switching ─ switched, or bytes came early ► Off
/// ```
#[derive(Debug)]
pub(super) struct Watcher {
    state: State,
    head_bytes_max: usize,
    /// The first bytes may not turn it into HTTP/2.
    is_http1: bool,
    /// Heads of which at least one byte came.
    begun: u64,
    /// Heads that came to their blank line.
    ended: u64,
    /// Sender of the last head.
    last: Sender,
}

#[derive(Debug)]
enum State {
    Head(Head),
    Sized { left: u64, switching: bool },
    Chunked { body: Chunked, switching: bool },
    Switching,
    Off,
}

/// Facts of a request's sender on which the form of an answer depends.
#[derive(Clone, Copy, Debug)]
struct Sender {
    wants: Wants,
    is_head: bool,
}

impl Watcher {
    /// Watches a new connection whose heads may have `head_bytes_max` bytes.
    pub(super) fn new(head_bytes_max: usize) -> Self {
        Self {
            state: State::Head(Head::default()),
            head_bytes_max,
            is_http1: false,
            begun: 0,
            ended: 0,
            last: Sender { wants: Wants::Json, is_head: false },
        }
    }

    /// Says that the connection speaks HTTP/1.1, whatever it begins with.
    pub(super) fn keep_to_http1(&mut self) {
        self.is_http1 = true;
    }

    /// Watches nothing: for HTTP/2.
    pub(super) fn off() -> Self {
        Self { state: State::Off, ..Self::new(0) }
    }

    /// Returns the number of heads that came whole.
    pub(super) fn heads(&self) -> u64 {
        self.ended
    }

    /// Returns whether more than `taken` heads came, in part or whole, so that the service has not taken the last one.
    pub(super) fn has_untaken(&self, taken: u64) -> bool {
        self.begun > taken && !matches!(self.state, State::Off)
    }

    /// Returns whether the next byte belongs to a message that has begun.
    pub(super) fn is_within_message(&self) -> bool {
        match &self.state {
            State::Head(head) => head.has_begun(),
            State::Sized { .. } | State::Chunked { .. } => true,
            State::Switching | State::Off => false,
        }
    }

    /// Returns whether the connection may be about to switch to another protocol. [`Watcher::settle`] ends this.
    pub(super) fn is_switching(&self) -> bool {
        matches!(self.state, State::Switching)
    }

    /// Takes the answer to the request for another protocol, before the next bytes are looked at: `true` if it came
    /// without a switch, `false` if it has not come yet, or switched.
    pub(super) fn settle(&mut self, is_answered_without_switch: bool) {
        self.state = if is_answered_without_switch { State::Head(Head::default()) } else { State::Off };
    }

    /// Makes the refusal of a fault, in the form that suits the sender of the last head.
    pub(super) fn refusal(&self, fault: Fault) -> Refusal {
        let fault = match &self.state {
            State::Head(head) if fault == Fault::HeadTooLarge && head.is_in_first_line() => Fault::TargetTooLong,
            State::Head(_) | State::Sized { .. } | State::Chunked { .. } | State::Switching | State::Off => fault,
        };
        Refusal { fault, wants: self.last.wants, is_head: self.last.is_head }
    }

    /// Looks at received bytes.
    ///
    /// # Errors
    /// The first ambiguity. Nothing is watched after that.
    pub(super) fn look(&mut self, bytes: &[u8]) -> Result<(), Found> {
        let mut rest = bytes;
        // Start of the head being read, in `bytes`.
        let mut head_at = 0;
        while !rest.is_empty() {
            match &mut self.state {
                State::Off => return Ok(()),
                // Bytes came before the answer: they belong to whatever the connection becomes.
                State::Switching => self.state = State::Off,
                State::Sized { left, switching } => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    rest = rest.get(taken..).unwrap_or_default();
                    *left -= taken as u64;
                    if *left == 0 {
                        self.state = next(*switching);
                        head_at = bytes.len() - rest.len();
                    }
                }
                State::Chunked { body, switching } => match body.skip(&mut rest) {
                    Ok(true) => {
                        self.state = next(*switching);
                        head_at = bytes.len() - rest.len();
                    }
                    Ok(false) => {}
                    // The library calls this body broken too, and reads nothing behind it.
                    Err(Broken::Seen) => self.state = State::Off,
                    Err(Broken::Unseen) => {
                        self.state = State::Off;
                        return Err(Found::Body { keep: bytes.len() - rest.len() - 1 });
                    }
                },
                State::Head(_) => {
                    self.look_at_head(&mut rest)
                        .map_err(|fault| Found::Head { refusal: self.refusal(fault), keep: head_at })?;
                    head_at = bytes.len() - rest.len();
                }
            }
        }
        Ok(())
    }

    /// Reads on in a head, up to its end or the end of the bytes.
    fn look_at_head(&mut self, rest: &mut &[u8]) -> Result<(), Fault> {
        let State::Head(head) = &mut self.state else { return Ok(()) };
        let had_begun = head.has_begun();
        let result = head.read(rest, self.head_bytes_max);
        self.last = head.sender();
        self.begun += u64::from(!had_begun && head.has_begun());
        match result {
            Ok(None) => {}
            // Only the first bytes of a connection can say so (RFC 9113, section 3.4).
            Ok(Some(HeadEnd::Http2)) if self.begun == 1 && !self.is_http1 => self.state = State::Off,
            Ok(Some(HeadEnd::Http2)) => return Err(Fault::Malformed),
            Ok(Some(HeadEnd::Sized { length, switching })) => {
                self.ended += 1;
                self.state = if length > 0 { State::Sized { left: length, switching } } else { next(switching) };
            }
            Ok(Some(HeadEnd::Chunked { switching })) => {
                self.ended += 1;
                self.state = State::Chunked { body: Chunked::default(), switching };
            }
            Err(fault) => {
                self.state = State::Off;
                return Err(fault);
            }
        }
        Ok(())
    }
}

fn next(switching: bool) -> State {
    if switching { State::Switching } else { State::Head(Head::default()) }
}

/// Longest answer that the library makes on its own, in bytes.
const OWN_ERROR_BYTES_MAX: usize = 160;

/// Recognises the library's own answer to a head that it cannot read, by its whole text: status line, no body, no field
/// but those of framing and time.
pub(super) fn own_error(written: &[u8]) -> Option<Fault> {
    if written.len() > OWN_ERROR_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(written).ok()?.strip_suffix("\r\n\r\n")?;
    let mut lines = text.strip_prefix("HTTP/1.").and_then(|text| text.get(2..))?.split("\r\n");
    let fault = match lines.next()?.get(..3)? {
        "400" => Fault::Malformed,
        "414" => Fault::TargetTooLong,
        "431" => Fault::HeadTooLarge,
        _ => return None,
    };
    let is_plain =
        |line: &str| line == "connection: close" || line == "content-length: 0" || line.starts_with("date: ");
    lines.all(is_plain).then_some(fault)
}

#[cfg(test)]
mod tests;
