//! Messages behind their lengths: decoded from pieces of any size, and encoded into bytes.

use std::marker::PhantomData;

use bytes::{Buf, Bytes, BytesMut};

use super::{MESSAGE_BYTES_MAX, MessageError};

/// A varint of 64 bits has at most ten bytes (the protobuf encoding, "Base 128 Varints").
const VARINT_BYTES_MAX: usize = 10;

/// A message of one direction.
pub trait Message: Sized {
    /// Reads one, without its length.
    ///
    /// # Errors
    /// [`MessageError`].
    fn decode(bytes: Bytes) -> Result<Self, MessageError>;
}

/// Reads the messages of one direction. It keeps no more than was received, and reserves nothing for what a length only
/// promises.
#[derive(Debug)]
pub struct Decoder<M> {
    buffer: BytesMut,
    failed: Option<MessageError>,
    message: PhantomData<fn() -> M>,
}

impl<M> Default for Decoder<M> {
    fn default() -> Self {
        Self { buffer: BytesMut::new(), failed: None, message: PhantomData }
    }
}

impl<M: Message> Decoder<M> {
    /// Takes a piece of the received bytes.
    pub fn push(&mut self, piece: &[u8]) {
        if self.failed.is_none() {
            self.buffer.extend_from_slice(piece);
        }
    }

    /// Returns the next message, once all of it was received.
    ///
    /// # Errors
    /// [`MessageError`], and the same again for ever after: what follows cannot be trusted.
    pub fn next_message(&mut self) -> Result<Option<M>, MessageError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.take().inspect_err(|error| {
            self.failed = Some(*error);
            self.buffer = BytesMut::new();
        })
    }

    fn take(&mut self) -> Result<Option<M>, MessageError> {
        let Some((length, prefix)) = length(&self.buffer)? else { return Ok(None) };
        let whole = usize::try_from(length).ok().filter(|length| *length <= MESSAGE_BYTES_MAX);
        let length = whole.ok_or(MessageError::TooLong { bytes: length })?;
        if self.buffer.len() - prefix < length {
            return Ok(None);
        }
        self.buffer.advance(prefix);
        M::decode(self.buffer.split_to(length).freeze()).map(Some)
    }
}

/// Reads a length; returns it and its own size, or nothing while it is not all there.
fn length(bytes: &[u8]) -> Result<Option<(u64, usize)>, MessageError> {
    let Some(end) = bytes.iter().take(VARINT_BYTES_MAX).position(|byte| byte & 0x80 == 0) else {
        return if bytes.len() < VARINT_BYTES_MAX { Ok(None) } else { Err(MessageError::Malformed) };
    };
    let size = end + 1;
    let number = prost::encoding::decode_varint(&mut bytes.get(..size).unwrap_or_default());
    Ok(Some((number.map_err(|_| MessageError::Malformed)?, size)))
}

/// Encodes a message with its length in front.
pub(crate) fn delimited(message: &impl prost::Message) -> Bytes {
    Bytes::from(message.encode_length_delimited_to_vec())
}
