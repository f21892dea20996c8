//! Frames as domain types, and the only place where they meet the generated messages.
//!
//! `Data`, the hot frame, is encoded and decoded by hand: its payload is neither copied nor touched. Everything else
//! goes through the generated code. A test holds both ways against each other.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};
use thiserror::Error;

use crate::hello::{Hello, RelayTicket, Welcome, seal};
use crate::id::ChannelId;
use crate::limit::{FRAME_BYTES_MAX, GRANTS_PER_FRAME_MAX, PAYLOAD_BYTES_MAX, TEXT_BYTES_MAX};
use crate::reason::Reason;
use crate::target::AppTls;
use crate::wire;

/// One frame with its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Number in its direction, from 1; 0 for bodies that are not [numbered](Body::is_numbered).
    pub sequence: u64,
    /// Highest number up to which the sender received everything; 0 says nothing.
    pub acknowledged: u64,
    /// Content of the frame.
    pub body: Body,
}

/// Content of a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Nothing but the acknowledgement in the frame.
    Acknowledge,
    /// Agent to gateway, first.
    Hello(Box<Hello>),
    /// Gateway to agent, the answer.
    Welcome(Box<Welcome>),
    /// Connects a new channel.
    Open(Open),
    /// The port answered.
    Accept {
        /// The channel.
        channel: ChannelId,
        /// Credit on top of what every new channel has, in bytes.
        credit_bytes: u32,
    },
    /// Payload of a channel.
    Data {
        /// The channel.
        channel: ChannelId,
        /// At most [`PAYLOAD_BYTES_MAX`] bytes.
        payload: Bytes,
    },
    /// Nothing more comes on this channel in this direction.
    Finish {
        /// The channel.
        channel: ChannelId,
    },
    /// Both directions of a channel end at once.
    Reset {
        /// The channel.
        channel: ChannelId,
        /// Reason of the reset.
        reason: Reason,
    },
    /// Returns credit.
    Credit {
        /// At most [`GRANTS_PER_FRAME_MAX`] grants.
        grants: Vec<Grant>,
    },
    /// Asks for a pong with the same token.
    Ping {
        /// Chosen by the asker.
        token: u64,
    },
    /// The answer to a ping.
    Pong {
        /// The ping's token.
        token: u64,
    },
    /// Attach elsewhere; this link ends.
    Drain {
        /// Until the link ends, in milliseconds.
        deadline_ms: u32,
        /// Earliest redial, in milliseconds.
        redial_after_ms: u32,
        /// A new session first: the one that is asked lives on beside it.
        moves: bool,
    },
    /// Gateway to agent: adds one more link, which ends at another replica.
    OpenLane(RelayTicket),
    /// Gateway to agent: a newer seal of its generation.
    Seal(Bytes),
    /// Ends the session; the last frame.
    Close {
        /// Reason of the end.
        reason: Reason,
        /// A fixed text for a person, at most [`TEXT_BYTES_MAX`] bytes.
        detail: String,
    },
}

/// Connects a new channel to a port.
#[derive(Clone, Debug, PartialEq)]
pub struct Open {
    /// The new channel; higher than every id before it.
    pub channel: ChannelId,
    /// 1 to 65535.
    pub port: u16,
    /// TLS that the agent speaks to the app.
    pub tls: AppTls,
    /// Bytes that the other side may send before any grant.
    pub credit_bytes: u32,
    /// The first bytes for the app.
    pub payload: Bytes,
}

/// Credit returned to one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The channel.
    pub channel: ChannelId,
    /// Bytes, never 0.
    pub bytes: u32,
}

/// Reason why bytes are not a frame. Always the peer's fault; the session ends.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Larger than [`FRAME_BYTES_MAX`].
    #[error("a frame of {bytes} bytes is larger than {FRAME_BYTES_MAX}")]
    TooLarge {
        /// Announced or received size.
        bytes: usize,
    },
    /// Not valid protobuf.
    #[error("a frame is not valid protobuf: {0}")]
    Malformed(#[from] prost::DecodeError),
    /// A field holds a value outside its range.
    #[error("a frame's {field} is out of range")]
    Field {
        /// Name of the field.
        field: &'static str,
    },
    /// A numbered frame whose body this version does not know.
    #[error("a numbered frame has an unknown body")]
    UnknownBody,
}

impl Body {
    /// Returns whether frames with this body are numbered: those that speak of the session and must arrive.
    #[must_use]
    pub fn is_numbered(&self) -> bool {
        match self {
            Self::Open(_)
            | Self::Accept { .. }
            | Self::Data { .. }
            | Self::Finish { .. }
            | Self::Reset { .. }
            | Self::Credit { .. } => true,
            Self::Acknowledge
            | Self::Hello(_)
            | Self::Welcome(_)
            | Self::Ping { .. }
            | Self::Pong { .. }
            | Self::Drain { .. }
            | Self::OpenLane(_)
            | Self::Seal(_)
            | Self::Close { .. } => false,
        }
    }
}

// Field numbers and wire types of schema/tunnel/v1/tunnel.proto, for the frame that is encoded by hand.
const TAG_SEQUENCE: u8 = 1 << 3;
const TAG_ACKNOWLEDGED: u8 = 2 << 3;
const TAG_DATA: u8 = 7 << 3 | 2;
const TAG_DATA_CHANNEL: u8 = 1 << 3;
const TAG_DATA_PAYLOAD: u8 = 2 << 3 | 2;

impl Frame {
    /// Returns the length of the encoded frame in bytes, its payload included.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        if let Body::Data { channel, payload } = &self.body {
            let data = data_len(*channel, payload.len());
            self.numbers_len() + 1 + encoded_len_varint(data as u64) + data
        } else {
            self.to_wire().encoded_len()
        }
    }

    /// Appends the encoded frame to `head`, except a Data frame's payload, which is returned to be sent right behind
    /// it. For other frames the returned payload is empty.
    #[must_use = "the payload has to follow the head"]
    pub fn encode(self, head: &mut BytesMut) -> Bytes {
        let Body::Data { channel, payload } = self.body else {
            let message = self.to_wire();
            head.reserve(message.encoded_len());
            // `BytesMut` grows, so encoding cannot run out of room.
            message.encode_raw(head);
            return Bytes::new();
        };
        encode_number(TAG_SEQUENCE, self.sequence, head);
        encode_number(TAG_ACKNOWLEDGED, self.acknowledged, head);
        head.put_u8(TAG_DATA);
        encode_varint(data_len(channel, payload.len()) as u64, head);
        encode_number(TAG_DATA_CHANNEL, channel.get(), head);
        if !payload.is_empty() {
            head.put_u8(TAG_DATA_PAYLOAD);
            encode_varint(payload.len() as u64, head);
        }
        payload
    }

    /// Reads one whole frame. Payloads are slices of `bytes`, not copies.
    ///
    /// # Errors
    /// [`FrameError`] for anything that is not a frame of this protocol; nothing is allocated by the peer's word.
    pub fn decode(bytes: Bytes) -> Result<Self, FrameError> {
        if bytes.len() > FRAME_BYTES_MAX {
            return Err(FrameError::TooLarge { bytes: bytes.len() });
        }
        if let Some(frame) = decode_data(&bytes) {
            return frame.checked();
        }
        Self::from_wire(wire::Frame::decode(bytes)?)
    }

    fn numbers_len(&self) -> usize {
        number_len(self.sequence) + number_len(self.acknowledged)
    }

    /// Checks the rules for every frame, however it was decoded.
    fn checked(self) -> Result<Self, FrameError> {
        if self.body.is_numbered() != (self.sequence > 0) {
            return Err(FrameError::Field { field: "sequence" });
        }
        if let Body::Data { payload, .. } | Body::Open(Open { payload, .. }) = &self.body
            && payload.len() > PAYLOAD_BYTES_MAX
        {
            return Err(FrameError::Field { field: "payload" });
        }
        Ok(self)
    }

    fn to_wire(&self) -> wire::Frame {
        use wire::frame::Body as Wire;
        let body = match &self.body {
            Body::Acknowledge => None,
            Body::Hello(hello) => Some(Wire::Hello(hello.to_wire())),
            Body::Welcome(welcome) => Some(Wire::Welcome(welcome.to_wire())),
            Body::Open(open) => Some(Wire::Open(wire::Open {
                channel: open.channel.get(),
                port: u32::from(open.port),
                credit_bytes: open.credit_bytes,
                payload: open.payload.clone(),
                tls: open.tls.to_wire(),
            })),
            Body::Accept { channel, credit_bytes } => {
                Some(Wire::Accept(wire::Accept { channel: channel.get(), credit_bytes: *credit_bytes }))
            }
            Body::Data { channel, payload } => {
                Some(Wire::Data(wire::Data { channel: channel.get(), payload: payload.clone() }))
            }
            Body::Finish { channel } => Some(Wire::Finish(wire::Finish { channel: channel.get() })),
            Body::Reset { channel, reason } => {
                Some(Wire::Reset(wire::Reset { channel: channel.get(), reason: reason.to_wire() }))
            }
            Body::Credit { grants } => Some(Wire::Credit(wire::Credit {
                grants: grants
                    .iter()
                    .map(|grant| wire::Grant { channel: grant.channel.get(), bytes: grant.bytes })
                    .collect(),
            })),
            Body::Ping { token } => Some(Wire::Ping(wire::Ping { token: *token })),
            Body::Pong { token } => Some(Wire::Pong(wire::Pong { token: *token })),
            Body::Drain { deadline_ms, redial_after_ms, moves } => {
                let (deadline_ms, redial_after_ms) = (*deadline_ms, *redial_after_ms);
                Some(Wire::Drain(wire::Drain { deadline_ms, redial_after_ms, moves: *moves }))
            }
            Body::OpenLane(relay) => {
                Some(Wire::OpenLane(wire::OpenLane { replica: relay.replica, ticket: relay.ticket.clone() }))
            }
            Body::Seal(seal) => Some(Wire::Seal(wire::Seal { seal: seal.clone() })),
            Body::Close { reason, detail } => {
                Some(Wire::Close(wire::Close { reason: reason.to_wire(), detail: detail.clone() }))
            }
        };
        wire::Frame { sequence: self.sequence, acknowledged: self.acknowledged, body }
    }

    fn from_wire(message: wire::Frame) -> Result<Self, FrameError> {
        use wire::frame::Body as Wire;
        let body = match message.body {
            None if message.sequence > 0 => return Err(FrameError::UnknownBody),
            None => Body::Acknowledge,
            Some(Wire::Hello(hello)) => Body::Hello(Box::new(Hello::from_wire(hello)?)),
            Some(Wire::Welcome(welcome)) => Body::Welcome(Box::new(Welcome::from_wire(welcome)?)),
            Some(Wire::Open(open)) => Body::Open(Open {
                channel: channel(open.channel)?,
                // 0 is a cluster agent's own service; any other agent refuses it as a port that it does not expose.
                port: u16::try_from(open.port).map_err(|_| FrameError::Field { field: "port" })?,
                tls: AppTls::from_wire(open.tls)?,
                credit_bytes: open.credit_bytes,
                payload: open.payload,
            }),
            Some(Wire::Accept(accept)) => {
                Body::Accept { channel: channel(accept.channel)?, credit_bytes: accept.credit_bytes }
            }
            Some(Wire::Data(data)) => Body::Data { channel: channel(data.channel)?, payload: data.payload },
            Some(Wire::Finish(finish)) => Body::Finish { channel: channel(finish.channel)? },
            Some(Wire::Reset(reset)) => {
                Body::Reset { channel: channel(reset.channel)?, reason: Reason::from_wire(reset.reason) }
            }
            Some(Wire::Credit(credit)) => Body::Credit { grants: grants(&credit.grants)? },
            Some(Wire::Ping(ping)) => Body::Ping { token: ping.token },
            Some(Wire::Pong(pong)) => Body::Pong { token: pong.token },
            Some(Wire::Drain(drain)) => {
                let wire::Drain { deadline_ms, redial_after_ms, moves } = drain;
                Body::Drain { deadline_ms, redial_after_ms, moves }
            }
            Some(Wire::OpenLane(open)) => Body::OpenLane(RelayTicket::from_wire(open.replica, open.ticket)?),
            Some(Wire::Seal(sealed)) => Body::Seal(seal(sealed.seal)?),
            Some(Wire::Close(close)) => {
                Body::Close { reason: Reason::from_wire(close.reason), detail: text(close.detail, "detail")? }
            }
        };
        Self { sequence: message.sequence, acknowledged: message.acknowledged, body }.checked()
    }
}

/// Reads a frame that holds exactly sequence, acknowledged and data, each at most once and in this order, as
/// [`Frame::encode`] writes it. Anything else is `None` and goes the general way, which names the fault.
fn decode_data(bytes: &Bytes) -> Option<Frame> {
    let mut rest: &[u8] = bytes;
    let sequence = decode_number(TAG_SEQUENCE, &mut rest)?;
    let acknowledged = decode_number(TAG_ACKNOWLEDGED, &mut rest)?;
    take_tag(TAG_DATA, &mut rest)?;
    let data = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
    if data != rest.len() {
        return None;
    }
    let channel = decode_number(TAG_DATA_CHANNEL, &mut rest)?;
    take_tag(TAG_DATA_PAYLOAD, &mut rest)?;
    let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
    if channel == 0 || length != rest.len() {
        return None;
    }
    let payload = bytes.slice(bytes.len() - length..);
    Some(Frame { sequence, acknowledged, body: Body::Data { channel: ChannelId::new(channel), payload } })
}

/// Reads an optional varint field; an absent one is 0, as proto3 has it.
fn decode_number(tag: u8, rest: &mut &[u8]) -> Option<u64> {
    if rest.first() != Some(&tag) {
        return Some(0);
    }
    rest.advance(1);
    decode_varint(rest).ok()
}

fn take_tag(tag: u8, rest: &mut &[u8]) -> Option<()> {
    (rest.first() == Some(&tag)).then(|| rest.advance(1))
}

fn encode_number(tag: u8, number: u64, head: &mut BytesMut) {
    if number > 0 {
        head.put_u8(tag);
        encode_varint(number, head);
    }
}

fn number_len(number: u64) -> usize {
    if number == 0 { 0 } else { 1 + encoded_len_varint(number) }
}

fn data_len(channel: ChannelId, payload: usize) -> usize {
    let payload_field = if payload == 0 { 0 } else { 1 + encoded_len_varint(payload as u64) + payload };
    number_len(channel.get()) + payload_field
}

fn channel(number: u64) -> Result<ChannelId, FrameError> {
    if number == 0 {
        return Err(FrameError::Field { field: "channel" });
    }
    Ok(ChannelId::new(number))
}

pub(crate) fn port(number: u32) -> Result<u16, FrameError> {
    match u16::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        Ok(_) | Err(_) => Err(FrameError::Field { field: "port" }),
    }
}

/// Checks a text before it is kept: its length, and that it is one line. Texts of peers end up in logs, and one that
/// brings its own line ends or terminal codes along could write lines there that are not true.
pub(crate) fn text(text: String, field: &'static str) -> Result<String, FrameError> {
    if text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(FrameError::Field { field });
    }
    Ok(text)
}

fn grants(grants: &[wire::Grant]) -> Result<Vec<Grant>, FrameError> {
    if grants.is_empty() || grants.len() > GRANTS_PER_FRAME_MAX {
        return Err(FrameError::Field { field: "grants" });
    }
    grants
        .iter()
        .map(|grant| {
            if grant.bytes == 0 {
                return Err(FrameError::Field { field: "grant bytes" });
            }
            Ok(Grant { channel: channel(grant.channel)?, bytes: grant.bytes })
        })
        .collect()
}

#[cfg(test)]
#[path = "frame/tests.rs"]
mod tests;
