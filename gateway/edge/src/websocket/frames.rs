//! Finds the ends of a WebSocket's frames (RFC 6455, section 5.2), so that the gateway can send a frame between two of
//! them. Payload is passed over and not looked at.

/// The opcode of a close frame (RFC 6455, section 5.2).
const CLOSE: u8 = 0x8;

/// FIN and the opcode of a close frame.
const WHOLE_CLOSE: u8 = 0x80 | CLOSE;

/// Longest reason that fits into a control frame beside the code, in bytes (RFC 6455, section 5.5).
const REASON_BYTES_MAX: usize = 123;

/// Position of the bytes of one direction in its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frames(FramePosition);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FramePosition {
    /// Between two frames.
    #[default]
    Border,
    /// Before the byte that has the length.
    Begun { opcode: u8 },
    /// Inside a long length.
    Length { opcode: u8, digits: u8, length: u64, is_masked: bool },
    /// Inside mask and payload; never with nothing left.
    Payload { left: u64 },
    /// A close frame has begun, behind which nothing may come (RFC 6455, section 5.5.1).
    Closing,
}

impl Frames {
    /// Passes over the next bytes. It takes a step for each frame and each piece of one, however long.
    pub fn pass(&mut self, bytes: &[u8]) {
        self.pass_with(bytes, |_, _| {});
    }

    /// Passes over the next bytes, and hands on the opcode and the length of the payload of each frame whose head has come.
    pub fn pass_with(&mut self, mut bytes: &[u8], mut begun: impl FnMut(u8, u64)) {
        while let Some((&byte, rest)) = bytes.split_first() {
            (self.0, bytes) = match self.0 {
                FramePosition::Border if byte & 0x0f == CLOSE => (FramePosition::Closing, rest),
                FramePosition::Border => (FramePosition::Begun { opcode: byte & 0x0f }, rest),
                FramePosition::Begun { opcode } => (length_of(byte, opcode, &mut begun), rest),
                FramePosition::Length { opcode, digits, length, is_masked } => {
                    let length = length << 8 | u64::from(byte);
                    let next = match digits {
                        0 | 1 => {
                            begun(opcode, length);
                            payload(length, is_masked)
                        }
                        more => FramePosition::Length { opcode, digits: more - 1, length, is_masked },
                    };
                    (next, rest)
                }
                FramePosition::Payload { left } => {
                    let passed = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    let left = left.saturating_sub(passed as u64);
                    let next = if left == 0 { FramePosition::Border } else { FramePosition::Payload { left } };
                    (next, bytes.get(passed..).unwrap_or_default())
                }
                FramePosition::Closing => return,
            };
        }
    }

    /// Returns whether a frame may come next: between two frames, also of one message, and before a close.
    #[must_use]
    pub fn is_at_border(self) -> bool {
        self.0 == FramePosition::Border
    }
}

/// Reads the second byte of a frame.
fn length_of(byte: u8, opcode: u8, begun: &mut impl FnMut(u8, u64)) -> FramePosition {
    let is_masked = byte & 0x80 != 0;
    match byte & 0x7f {
        126 => FramePosition::Length { opcode, digits: 2, length: 0, is_masked },
        127 => FramePosition::Length { opcode, digits: 8, length: 0, is_masked },
        short => {
            begun(opcode, u64::from(short));
            payload(u64::from(short), is_masked)
        }
    }
}

fn payload(length: u64, is_masked: bool) -> FramePosition {
    match length.saturating_add(if is_masked { 4 } else { 0 }) {
        0 => FramePosition::Border,
        left => FramePosition::Payload { left },
    }
}

/// Writes a server's close frame. A reason that is too long is cut.
#[must_use]
pub fn close_frame(code: u16, reason: &'static str) -> Vec<u8> {
    let reason = reason.as_bytes();
    let reason = reason.get(..REASON_BYTES_MAX).unwrap_or(reason);
    // Two bytes of code and at most 123 of reason are at most 125.
    let length = u8::try_from(reason.len() + 2).unwrap_or(2);
    let [high, low] = code.to_be_bytes();
    let mut frame = vec![WHOLE_CLOSE, length, high, low];
    frame.extend_from_slice(reason);
    frame
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio_tungstenite::tungstenite::protocol::frame::Frame;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

    use super::*;

    fn after(pieces: &[&[u8]]) -> Frames {
        let mut frames = Frames::default();
        for piece in pieces {
            frames.pass(piece);
        }
        frames
    }

    #[test]
    fn border_is_between_frames_and_nowhere_else() {
        assert!(Frames::default().is_at_border());
        for frame in [
            &[0x81, 0][..],
            &[0x81, 2, b'h', b'i'],
            // A part of a message, and a ping between it and the next one.
            &[0x01, 1, b'h'],
            &[0x89, 0],
            &[0x82, 126, 0, 1, 7],
            &[0x82, 127, 0, 0, 0, 0, 0, 0, 0, 1, 7],
            &[0x82, 127, 0, 0, 0, 0, 0, 0, 0, 0],
            // No server masks; its bytes are counted all the same.
            &[0x81, 0x81, 1, 2, 3, 4, 5],
        ] {
            assert!(after(&[frame]).is_at_border(), "{frame:?}");
            assert!(after(&[frame, frame]).is_at_border(), "{frame:?} twice");
            for cut in 1..frame.len() {
                assert!(!after(&[&frame[..cut]]).is_at_border(), "{frame:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn each_frame_is_handed_on_once_with_its_kind_and_length_however_it_is_cut() {
        let long = [&[0x82, 0xfe, 1, 0, 9, 9, 9, 9][..], &[7; 256]].concat();
        let bytes = [&[0x81, 0x82, 1, 2, 3, 4, 5, 6][..], &[0x89, 0x80, 1, 2, 3, 4], &long, &[0x00, 0x00]].concat();
        for cut in 0..bytes.len() {
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            for piece in [&bytes[..cut], &bytes[cut..]] {
                frames.pass_with(piece, |opcode, length| seen.push((opcode, length)));
            }
            assert_eq!(seen, [(1, 2), (9, 0), (2, 256), (0, 0)], "cut at {cut}");
        }
    }

    #[test]
    fn nothing_follows_a_close() {
        assert!(!after(&[&[0x88]]).is_at_border());
        assert!(!after(&[&[0x88, 2, 3, 0xe8], &[0x81, 0]]).is_at_border());
        assert!(!after(&[&[0x81, 0, 0x88, 0]]).is_at_border());
    }

    #[test]
    fn length_that_no_memory_has_is_counted() {
        let mut frames = after(&[&[0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]]);
        frames.pass(&[0; 1000]);
        assert!(!frames.is_at_border());
    }

    #[test]
    fn close_frame_is_one_frame_with_code_and_reason() {
        assert_eq!(close_frame(1008, "no"), [0x88, 4, 0x03, 0xf0, b'n', b'o']);
        assert_eq!(close_frame(1001, ""), [0x88, 2, 0x03, 0xe9]);
        let long: &'static str = "x".repeat(200).leak();
        assert_eq!(close_frame(1008, long).len(), 127);
        assert_eq!(close_frame(1008, long)[1], 125);
    }

    proptest! {
        // Another library's frames, in pieces of any length.
        #[test]
        fn borders_are_where_another_library_has_them(
            sizes in prop::collection::vec(prop_oneof![0_usize..200, 65_500_usize..65_600], 1..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let (mut bytes, mut borders) = (Vec::new(), vec![0]);
            for size in sizes {
                Frame::message(vec![7; size], OpCode::Data(Data::Binary), true).format(&mut bytes).expect("a frame");
                borders.push(bytes.len());
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend(&borders);
            cuts.sort_unstable();
            let (mut frames, mut at) = (Frames::default(), 0);
            for cut in cuts {
                frames.pass(&bytes[at..cut]);
                at = cut;
                prop_assert_eq!(frames.is_at_border(), borders.contains(&at), "at {}", at);
            }
        }

        #[test]
        fn any_bytes_are_passed(bytes: Vec<u8>, cut: prop::sample::Index) {
            let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(after(&[first, second]), after(&[&bytes]));
        }
    }
}
