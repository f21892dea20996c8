//! Follows the HTTP/2 frames that an agent sends (RFC 9113, section 4.1), to count data as it becomes whole.

/// Length of the preface, in front of the first frame (section 3.4).
const PREFACE_BYTES: usize = 24;

const HEAD_BYTES: usize = 9;

/// Type of frames with data.
const DATA: u8 = 0;

/// Position in a connection's incoming bytes. Pure.
#[derive(Debug)]
pub(super) struct DataFrames {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// Bytes until the next head: of the preface, or of the current frame's payload.
    left: usize,
    /// Payload of the current frame, if that is data.
    data: usize,
}

impl DataFrames {
    /// Makes one for the beginning of a connection.
    pub(super) fn new() -> Self {
        Self { head: [0; HEAD_BYTES], head_bytes: 0, left: PREFACE_BYTES, data: 0 }
    }

    /// Follows the next bytes. Returns the payload of the frames with data that they complete.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> usize {
        let mut completed = 0;
        while !bytes.is_empty() {
            if self.left > 0 {
                let (passed, rest) = bytes.split_at(self.left.min(bytes.len()));
                self.left -= passed.len();
                bytes = rest;
            } else {
                let (part, rest) = bytes.split_at((HEAD_BYTES - self.head_bytes).min(bytes.len()));
                for byte in part {
                    if let Some(place) = self.head.get_mut(self.head_bytes) {
                        *place = *byte;
                    }
                    self.head_bytes += 1;
                }
                bytes = rest;
                if self.head_bytes == HEAD_BYTES {
                    self.head_bytes = 0;
                    let [high, middle, low, kind, ..] = self.head;
                    self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
                    self.data = if kind == DATA { self.left } else { 0 };
                }
            }
            if self.left == 0 {
                completed += std::mem::take(&mut self.data);
            }
        }
        completed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, length: u16) -> Vec<u8> {
        let [high, low] = length.to_be_bytes();
        // Payload that is read as heads of data, if it is taken for any.
        [&[0, high, low, kind, 0, 0, 0, 0, 1][..], &vec![0; usize::from(length)]].concat()
    }

    #[test]
    fn data_counts_once_its_frame_is_whole_however_its_bytes_come() {
        let sent = [
            vec![b'P'; PREFACE_BYTES],
            frame(4, 30),
            frame(DATA, 65_535),
            frame(8, 4),
            frame(DATA, 0),
            frame(6, 8),
            frame(DATA, 300),
        ]
        .concat();
        for piece in [1, 2, 8, 9, 10, 1_000, sent.len()] {
            let mut frames = DataFrames::new();
            assert_eq!(sent.chunks(piece).map(|bytes| frames.read(bytes)).sum::<usize>(), 65_835, "pieces of {piece}");
        }
        let mut frames = DataFrames::new();
        let part = PREFACE_BYTES + HEAD_BYTES + 30 + HEAD_BYTES + 65_534;
        assert_eq!(frames.read(&sent[..part]), 0, "its last byte is not here");
        assert_eq!(frames.read(&sent[part..=part]), 65_535);
    }
}
