//! Protocol between page and agent about one terminal: binary messages of a WebSocket, a byte for the kind in front,
//! numbers in network order. `workspace-agent/assets/terminal.js` speaks the other end.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use super::job::{JobState, Phase};

/// Name of the protocol, as the WebSocket's subprotocol (RFC 6455, section 1.9).
pub const SUBPROTOCOL: &str = "terminal.gateway.v1";

/// Most bytes that one message types.
pub const INPUT_BYTES_MAX: usize = 16 * 1024;

/// Largest message that a page may send: what it types, and the head of that.
pub const MESSAGE_BYTES_MAX: usize = INPUT_BYTES_MAX + 64;

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub columns: u16,
    /// Rows.
    pub rows: u16,
}

impl Size {
    /// Size of most terminals in the tests.
    #[cfg(test)]
    pub const USUAL: Self = Self { columns: 80, rows: 24 };

    /// Makes a size that programs can draw in: larger or smaller ones crash some, or take their memory.
    #[must_use]
    pub fn within(columns: u16, rows: u16) -> Self {
        Self { columns: columns.clamp(2, 1000), rows: rows.clamp(1, 1000) }
    }
}

/// Message of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToPage {
    /// The first message.
    Welcome {
        /// Whether the user may type.
        may_type: bool,
        /// Whether the page has to clear its screen: the output that comes does not continue what it has seen.
        fresh: bool,
        /// Number of the first byte that comes.
        from: u64,
        /// Number of the first byte that is no repetition: questions of programs to the terminal before it were
        /// answered then.
        news_from: u64,
        /// Number of bytes that the page has typed so far, over all of its connections.
        taken: u64,
    },
    /// Next output of the terminal.
    Output(Bytes),
    /// Bytes were forgotten before this page took them; the rest begins anew.
    Skipped {
        /// Number of the next byte.
        to: u64,
    },
    /// Size of the terminal.
    Size {
        /// Columns and rows.
        size: Size,
        /// Whether this page sets the size, and answers for the terminal.
        leads: bool,
    },
    /// Number of pages that show the terminal.
    Viewers(u16),
    /// Number of bytes that the page has typed so far.
    Taken(u64),
    /// The shell has ended, with a status if it was not killed.
    Ended(Option<i32>),
    /// State of the job.
    Job(JobState),
    /// Nothing new: only tells that the path works.
    Beat,
}

impl ToPage {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(32);
        match self {
            Self::Welcome { may_type, fresh, from, news_from, taken } => {
                bytes.put_slice(&[0, u8::from(*may_type) | u8::from(*fresh) << 1]);
                for number in [from, news_from, taken] {
                    bytes.put_u64(*number);
                }
            }
            Self::Output(output) => {
                bytes.reserve(output.len());
                bytes.put_u8(1);
                bytes.put_slice(output);
            }
            Self::Skipped { to } => {
                bytes.put_u8(2);
                bytes.put_u64(*to);
            }
            Self::Size { size, leads } => {
                bytes.put_u8(3);
                bytes.put_u16(size.columns);
                bytes.put_u16(size.rows);
                bytes.put_u8(u8::from(*leads));
            }
            Self::Viewers(count) => {
                bytes.put_u8(4);
                bytes.put_u16(*count);
            }
            Self::Taken(count) => {
                bytes.put_u8(5);
                bytes.put_u64(*count);
            }
            Self::Ended(status) => {
                bytes.put_slice(&[6, u8::from(status.is_some())]);
                bytes.put_i32(status.unwrap_or_default());
            }
            Self::Job(JobState { command, phase }) => {
                let (kind, exit_status, until) = match phase {
                    Phase::Running => (0, 0, 0),
                    Phase::Held { exit_status, until_unix } => (1, *exit_status, *until_unix),
                    Phase::Ended => (2, 0, 0),
                };
                bytes.put_slice(&[7, kind]);
                bytes.put_i32(exit_status);
                bytes.put_u64(until);
                bytes.put_slice(command.as_bytes());
            }
            Self::Beat => bytes.put_u8(8),
        }
        bytes.freeze()
    }
}

/// Message of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromPage {
    /// Typed input.
    Input {
        /// Number of bytes that this page typed before, over all of its connections.
        offset: u64,
        /// Bytes that were typed.
        bytes: Bytes,
    },
    /// Size of its window.
    Size(Size),
    /// It has shown everything before this byte.
    Shown(u64),
}

/// Message that is none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a message that no page of this version sends")]
pub struct BadMessage;

impl FromPage {
    /// Reads a message.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(mut bytes: Bytes) -> Result<Self, BadMessage> {
        let kind = bytes.try_get_u8().map_err(|_| BadMessage)?;
        let message = match kind {
            0 => {
                let offset = bytes.try_get_u64().map_err(|_| BadMessage)?;
                if bytes.is_empty() || bytes.len() > INPUT_BYTES_MAX {
                    return Err(BadMessage);
                }
                return Ok(Self::Input { offset, bytes });
            }
            1 => {
                let columns = bytes.try_get_u16().map_err(|_| BadMessage)?;
                Self::Size(Size::within(columns, bytes.try_get_u16().map_err(|_| BadMessage)?))
            }
            2 => Self::Shown(bytes.try_get_u64().map_err(|_| BadMessage)?),
            _ => return Err(BadMessage),
        };
        if bytes.has_remaining() { Err(BadMessage) } else { Ok(message) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(message: &ToPage, bytes: &[u8]) {
        assert_eq!(message.encode(), bytes, "{message:?}");
    }

    #[test]
    fn messages_to_a_page_are_what_its_script_reads() {
        let welcome = ToPage::Welcome { may_type: true, fresh: true, from: 1, news_from: 2, taken: 0x0102 };
        check(&welcome, b"\0\x03\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\x01\x02");
        check(&ToPage::Output("ls".into()), b"\x01ls");
        check(&ToPage::Skipped { to: 9 }, b"\x02\0\0\0\0\0\0\0\x09");
        check(&ToPage::Size { size: Size::USUAL, leads: true }, b"\x03\0\x50\0\x18\x01");
        check(&ToPage::Viewers(258), b"\x04\x01\x02");
        check(&ToPage::Taken(3), b"\x05\0\0\0\0\0\0\0\x03");
        check(&ToPage::Ended(Some(-1)), b"\x06\x01\xff\xff\xff\xff");
        check(&ToPage::Ended(None), b"\x06\0\0\0\0\0");
        let phase = Phase::Held { exit_status: 2, until_unix: 7 };
        check(&ToPage::Job(JobState { command: "make".into(), phase }), b"\x07\x01\0\0\0\x02\0\0\0\0\0\0\0\x07make");
        check(&ToPage::Beat, b"\x08");
    }

    #[test]
    fn messages_of_a_page_are_read_or_refused() {
        let decode = |bytes: &'static [u8]| FromPage::decode(Bytes::from_static(bytes));
        let typed = FromPage::Input { offset: 5, bytes: Bytes::from_static(b"ls\n") };
        assert_eq!(decode(b"\0\0\0\0\0\0\0\0\x05ls\n"), Ok(typed));
        assert_eq!(decode(b"\x01\0\x50\0\x18"), Ok(FromPage::Size(Size::USUAL)));
        assert_eq!(decode(b"\x01\xff\xff\0\0"), Ok(FromPage::Size(Size { columns: 1000, rows: 1 })));
        assert_eq!(decode(b"\x02\0\0\0\0\0\0\0\x05"), Ok(FromPage::Shown(5)));
        for bad in [&b""[..], b"\0", b"\0\0\0\0\0\0\0\0\x05", b"\x01\0\x50\0", b"\x02\0\0\0\0\0\0\0\x05x", b"\x03"] {
            assert_eq!(decode(bad), Err(BadMessage), "{bad:?}");
        }
        let much = [&[0; 9][..], &[b'x'; INPUT_BYTES_MAX + 1]].concat();
        assert_eq!(FromPage::decode(much.into()), Err(BadMessage));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let read = FromPage::decode(bytes.into());
            if let Ok(FromPage::Size(size)) = read {
                prop_assert!((2..=1000).contains(&size.columns) && (1..=1000).contains(&size.rows));
            }
        }
    }
}
