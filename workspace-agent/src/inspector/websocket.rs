//! Messages of one direction of a WebSocket (RFC 6455), read from bytes that come in any pieces. Pure.

/// Most bytes of a message that are kept.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// A message, or a control frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Opcode of the message: 1 for text, 2 for bytes, from 8 on for control.
    pub(crate) opcode: u8,
    /// Whether it is compressed (RFC 7692).
    pub(crate) is_compressed: bool,
    /// Length as sent, in bytes.
    pub(crate) length: u64,
    /// Its first bytes, at most [`MESSAGE_BYTES_MAX`].
    pub(crate) kept: Vec<u8>,
}

/// The bytes are no WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoFrame;

/// Reader of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Frames {
    /// Head of the frame, as far as it has come.
    head: [u8; 14],
    head_length: usize,
    /// The frame that is read, once its head is complete.
    open: Option<OpenFrame>,
    /// Message whose last frame has not come.
    begun: Option<Frame>,
    /// Control frame that is read.
    control: Option<Frame>,
}

/// Frame whose payload is read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OpenFrame {
    is_last: bool,
    is_control: bool,
    mask: Option<[u8; 4]>,
    read: u64,
    left: u64,
}

impl Frames {
    /// Reads bytes, and hands on what is complete with them.
    ///
    /// # Errors
    /// [`NoFrame`].
    pub(super) fn read(&mut self, bytes: &[u8], each: &mut dyn FnMut(Frame)) -> Result<(), NoFrame> {
        let mut rest = bytes;
        loop {
            if let Some(open) = &mut self.open {
                let taken = rest.len().min(usize::try_from(open.left).unwrap_or(usize::MAX));
                let (payload, behind) = rest.split_at(taken);
                rest = behind;
                let message = if open.is_control { &mut self.control } else { &mut self.begun };
                open.keep(payload, message.as_mut().ok_or(NoFrame)?);
                if open.left > 0 {
                    return Ok(());
                }
                let ended = if open.is_last { message.take() } else { None };
                self.open = None;
                if let Some(ended) = ended {
                    each(ended);
                }
            }
            let Some((first, behind)) = rest.split_first() else { return Ok(()) };
            rest = behind;
            if let Some(place) = self.head.get_mut(self.head_length) {
                *place = *first;
            }
            self.head_length += 1;
            if let Some(open) = self.opened()? {
                self.head_length = 0;
                self.open = Some(open);
            }
        }
    }

    /// Reads the head of a frame, if it is complete.
    fn opened(&mut self) -> Result<Option<OpenFrame>, NoFrame> {
        let Some([first, second, rest @ ..]) = self.head.get(..self.head_length) else { return Ok(None) };
        let (opcode, is_last, is_masked) = (first & 0x0f, first & 0x80 != 0, second & 0x80 != 0);
        let extended = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let masked = if is_masked { 4 } else { 0 };
        if rest.len() < extended + masked {
            return Ok(None);
        }
        let (length, mask) = rest.split_at(extended);
        let length = match extended {
            0 => u64::from(second & 0x7f),
            _ => length.iter().fold(0, |length, byte| (length << 8) | u64::from(*byte)),
        };
        let is_control = opcode & 0x8 != 0;
        let is_known = matches!(opcode, 0 | 1 | 2 | 8 | 9 | 10);
        let continues = opcode == 0;
        // A control frame is short and whole; a message goes on if there is one, and begins if there is none.
        let fits = if is_control { is_last && length <= 125 } else { continues == self.begun.is_some() };
        if !is_known || !fits || length > i64::MAX as u64 || first & 0x30 != 0 {
            return Err(NoFrame);
        }
        let frame = Frame { opcode, is_compressed: first & 0x40 != 0, length: 0, kept: Vec::new() };
        let mask = mask.try_into().ok();
        if is_control {
            self.control = Some(frame);
        } else if !continues {
            self.begun = Some(frame);
        }
        Ok(Some(OpenFrame { is_last, is_control, mask, read: 0, left: length }))
    }

    /// Returns the bytes that it holds.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.begun.as_ref().map_or(0, |begun| begun.kept.capacity())
    }
}

impl OpenFrame {
    /// Takes bytes of the payload into a message.
    fn keep(&mut self, payload: &[u8], message: &mut Frame) {
        let room = MESSAGE_BYTES_MAX - message.kept.len().min(MESSAGE_BYTES_MAX);
        let kept = payload.get(..room.min(payload.len())).unwrap_or_default();
        match self.mask {
            None => message.kept.extend_from_slice(kept),
            Some(mask) => {
                let begin = usize::try_from(self.read % 4).unwrap_or_default();
                message.kept.extend(kept.iter().zip(mask.iter().cycle().skip(begin)).map(|(byte, mask)| byte ^ mask));
            }
        }
        message.length += payload.len() as u64;
        self.read += payload.len() as u64;
        self.left -= payload.len() as u64;
    }
}

/// Returns the name of an opcode.
#[must_use]
pub(crate) fn opcode_word(opcode: u8) -> &'static str {
    match opcode {
        1 => "text",
        2 => "binary",
        8 => "close",
        9 => "ping",
        10 => "pong",
        _ => "other",
    }
}
