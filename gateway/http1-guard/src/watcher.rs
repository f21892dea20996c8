//! Watches the bytes of an HTTP/1.1 connection and names the heads that could be read in two ways.
//!
//! A [`Watcher`] follows the requests of a connection only as far as is needed to know where each head begins and ends:
//! Content-Length and chunked framing (RFC 9112, sections 6 and 7).
//!
//! Refused by name: a bare LF as a line end in a head (RFC 9112, section 2.2), a folded line (5.2), a blank before the
//! colon (5.1), several Host fields (3.2), Content-Length that is not one number or comes more than once (6.3),
//! Transfer-Encoding that is not `chunked` alone or comes over HTTP/1.0 (6.1), both together (6.3), and a head above
//! the limit. A bare LF in the trailers of a chunked body (9112, 7.1.2) ends the body as broken: the library waits for
//! CRLF CRLF and reads the fields up to an empty line of either kind, so bytes in between would be lost. Every other
//! fault is left to the library, whose answer the stream recognises and replaces.
//!
//! Pipelined requests are followed like any others: requests before an ambiguous head are served, then the refusal is
//! sent. Two things are not watched, and only the library's own safe behaviour is left there: HTTP/2, which
//! is the caller's to watch, and bytes that follow a request for an upgrade before that is answered.

mod chunked;
mod head;

use self::chunked::{BadChunk, Chunked};
use self::head::{Head, HeadEnd};

/// A fault of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadFault {
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

/// A request that is not served, and the facts on which the form of its answer depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    /// The reason.
    pub fault: HeadFault,
    /// A browser asks for a page.
    pub is_navigation: bool,
    /// The answer to HEAD has no body.
    pub is_head: bool,
}

/// An ambiguity found in the latest bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ambiguity {
    /// A head.
    Head {
        /// The request that it belongs to.
        request: RefusedRequest,
        /// Number of bytes, of the latest, that belong to the messages before it.
        keep: usize,
    },
    /// The end of a body whose head was taken.
    Body {
        /// Number of bytes, of the latest, that stand before it.
        keep: usize,
    },
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
pub struct Watcher {
    state: GuardState,
    head_bytes_max: usize,
    /// The first bytes may not turn it into HTTP/2.
    is_http1: bool,
    /// Heads of which at least one byte came.
    started: u64,
    /// Heads that came to their blank line.
    ended: u64,
    /// Sender of the last head.
    last: Sender,
}

#[derive(Debug)]
enum GuardState {
    Head(Head),
    Sized { left: u64, switching: bool },
    Chunked { body: Chunked, switching: bool },
    Switching,
    Off,
}

/// Facts of a request's sender on which the form of an answer depends.
#[derive(Clone, Copy, Debug)]
struct Sender {
    is_navigation: bool,
    is_head: bool,
}

impl Watcher {
    /// Watches a new connection whose heads may have `head_bytes_max` bytes.
    #[must_use]
    pub fn new(head_bytes_max: usize) -> Self {
        Self {
            state: GuardState::Head(Head::default()),
            head_bytes_max,
            is_http1: false,
            started: 0,
            ended: 0,
            last: Sender { is_navigation: false, is_head: false },
        }
    }

    /// Says that the connection speaks HTTP/1.1, whatever it begins with.
    pub fn keep_to_http1(&mut self) {
        self.is_http1 = true;
    }

    /// Watches nothing: for HTTP/2.
    #[must_use]
    pub fn off() -> Self {
        Self { state: GuardState::Off, ..Self::new(0) }
    }

    /// Returns the number of heads that came whole.
    #[must_use]
    #[inline]
    pub fn heads(&self) -> u64 {
        self.ended
    }

    /// Returns whether more than `taken` heads came, in part or whole, so that the service has not taken the last one.
    #[must_use]
    #[inline]
    pub fn has_untaken(&self, taken: u64) -> bool {
        self.started > taken && !matches!(self.state, GuardState::Off)
    }

    /// Returns whether the next byte belongs to a message that has begun.
    #[must_use]
    #[inline]
    pub fn is_within_message(&self) -> bool {
        match &self.state {
            GuardState::Head(head) => head.has_started(),
            GuardState::Sized { .. } | GuardState::Chunked { .. } => true,
            GuardState::Switching | GuardState::Off => false,
        }
    }

    /// Returns whether the connection may be about to switch to another protocol. [`Watcher::settle`] ends this.
    #[must_use]
    #[inline]
    pub fn is_switching(&self) -> bool {
        matches!(self.state, GuardState::Switching)
    }

    /// Takes the answer to the request for another protocol, before the next bytes are looked at: `true` if it came
    /// without a switch, `false` if it has not come yet, or switched.
    #[inline]
    pub fn settle(&mut self, is_answered_without_switch: bool) {
        self.state = if is_answered_without_switch { GuardState::Head(Head::default()) } else { GuardState::Off };
    }

    /// Makes the refusal of a fault, in the form that suits the sender of the last head.
    #[must_use]
    pub fn refusal(&self, fault: HeadFault) -> RefusedRequest {
        let fault = match &self.state {
            GuardState::Head(head) if fault == HeadFault::HeadTooLarge && head.is_in_first_line() => {
                HeadFault::TargetTooLong
            }
            GuardState::Head(_)
            | GuardState::Sized { .. }
            | GuardState::Chunked { .. }
            | GuardState::Switching
            | GuardState::Off => fault,
        };
        let Sender { is_navigation, is_head } = self.last;
        RefusedRequest { fault, is_navigation, is_head }
    }

    /// Looks at received bytes.
    ///
    /// # Errors
    /// The first ambiguity. Nothing is watched after that.
    #[inline]
    pub fn look(&mut self, bytes: &[u8]) -> Result<(), Ambiguity> {
        let mut rest = bytes;
        // Start of the head being read, in `bytes`.
        let mut head_at = 0;
        while !rest.is_empty() {
            match &mut self.state {
                GuardState::Off => return Ok(()),
                // Bytes came before the answer: they belong to whatever the connection becomes.
                GuardState::Switching => self.state = GuardState::Off,
                GuardState::Sized { left, switching } => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    rest = rest.get(taken..).unwrap_or_default();
                    *left -= taken as u64;
                    if *left == 0 {
                        self.state = next(*switching);
                        head_at = bytes.len() - rest.len();
                    }
                }
                GuardState::Chunked { body, switching } => match body.skip(&mut rest) {
                    Ok(true) => {
                        self.state = next(*switching);
                        head_at = bytes.len() - rest.len();
                    }
                    Ok(false) => {}
                    // The library calls this body broken too, and reads nothing behind it.
                    Err(BadChunk::Evident) => self.state = GuardState::Off,
                    Err(BadChunk::Hidden) => {
                        self.state = GuardState::Off;
                        return Err(Ambiguity::Body { keep: bytes.len() - rest.len() - 1 });
                    }
                },
                GuardState::Head(_) => {
                    self.look_at_head(&mut rest)
                        .map_err(|fault| Ambiguity::Head { request: self.refusal(fault), keep: head_at })?;
                    head_at = bytes.len() - rest.len();
                }
            }
        }
        Ok(())
    }

    /// Reads on in a head, up to its end or the end of the bytes.
    fn look_at_head(&mut self, rest: &mut &[u8]) -> Result<(), HeadFault> {
        let GuardState::Head(head) = &mut self.state else { return Ok(()) };
        let had_started = head.has_started();
        let result = head.read(rest, self.head_bytes_max);
        self.last = head.sender();
        self.started += u64::from(!had_started && head.has_started());
        match result {
            Ok(None) => {}
            // Only the first bytes of a connection can say so (RFC 9113, section 3.4).
            Ok(Some(HeadEnd::Http2)) if self.started == 1 && !self.is_http1 => self.state = GuardState::Off,
            Ok(Some(HeadEnd::Http2)) => return Err(HeadFault::Malformed),
            Ok(Some(HeadEnd::Sized { length, switching })) => {
                self.ended += 1;
                self.state = if length > 0 { GuardState::Sized { left: length, switching } } else { next(switching) };
            }
            Ok(Some(HeadEnd::Chunked { switching })) => {
                self.ended += 1;
                self.state = GuardState::Chunked { body: Chunked::default(), switching };
            }
            Err(fault) => {
                self.state = GuardState::Off;
                return Err(fault);
            }
        }
        Ok(())
    }
}

fn next(switching: bool) -> GuardState {
    if switching { GuardState::Switching } else { GuardState::Head(Head::default()) }
}

#[cfg(test)]
mod tests;
