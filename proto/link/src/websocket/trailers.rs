//! Trailers as one message: a gRPC prefix with the flag 0x80, and header lines behind it, as gRPC-Web writes them.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::grpc::PREFIX_BYTES;

/// The flag that tells trailers from a frame, which no frame has.
const FLAG: u8 = 0x80;

/// Writes trailers.
pub(super) fn encode(trailers: &HeaderMap) -> Bytes {
    let mut lines = BytesMut::new();
    for (name, value) in trailers {
        lines.put_slice(name.as_str().as_bytes());
        lines.put_slice(b": ");
        lines.put_slice(value.as_bytes());
        lines.put_slice(b"\r\n");
    }
    let mut message = BytesMut::with_capacity(PREFIX_BYTES + lines.len());
    message.put_u8(FLAG);
    message.put_u32(u32::try_from(lines.len()).unwrap_or(u32::MAX));
    message.put_slice(&lines);
    message.freeze()
}

/// Reads a message: `None` if it is not trailers. Lines that are no header are left out.
pub(super) fn decode(message: &[u8]) -> Option<HeaderMap> {
    let (prefix, lines) = message.split_first_chunk::<PREFIX_BYTES>()?;
    if prefix.first() != Some(&FLAG) {
        return None;
    }
    let header = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at_checked(colon)?;
        let name = HeaderName::from_bytes(name).ok()?;
        let value = HeaderValue::from_bytes(value.get(1..)?.trim_ascii()).ok()?;
        Some((name, value))
    };
    Some(lines.split(|byte| *byte == b'\n').filter_map(header).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_survive_and_frames_are_not_taken_for_them() {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("8"));
        trailers.insert("grpc-message", HeaderValue::from_static("limits.sessions: is reached"));
        assert_eq!(decode(&encode(&trailers)), Some(trailers));
        assert_eq!(decode(&encode(&HeaderMap::new())), Some(HeaderMap::new()));
        for frame in [&[0, 0, 0, 0, 1, 9][..], &[1, 0, 0, 0, 0], &[0x80], &[]] {
            assert_eq!(decode(frame), None, "{frame:?}");
        }
    }

    #[test]
    fn lines_that_are_no_header_are_left_out() {
        let read = decode(b"\x80\0\0\0\0nonsense\r\n: x\r\na b: c\r\ngrpc-status:0\n\r\n").expect("trailers");
        assert_eq!(read.len(), 1);
        assert_eq!(read.get("grpc-status"), Some(&HeaderValue::from_static("0")));
    }
}
