//! Raw bytes become a frame or an error.

use bytes::Bytes;
use tunnel_proto::frame::{Body, Frame, Grant, Open};
use tunnel_proto::limit::FRAME_BYTES_MAX;

use super::encode;

/// Decodes `bytes`, and holds what comes out against what went in.
///
/// # Panics
/// When a law is broken.
pub fn run(bytes: &[u8]) {
    let given = Bytes::copy_from_slice(bytes);
    let Ok(frame) = Frame::decode(given.clone()) else {
        return;
    };
    let held = held(&frame.body);
    assert!(held <= given.len(), "holds {held} of {} bytes given", given.len());
    if let Some(payload) = payload(&frame.body) {
        let (message, part) = (given.as_ptr_range(), payload.as_ptr_range());
        assert!(message.start <= part.start && part.end <= message.end, "a payload was copied");
    }
    let announced = frame.encoded_len();
    let again = encode(frame.clone());
    assert_eq!(again.len(), announced, "announced another length");
    assert!(again.len() <= given.len(), "encodes longer than it was given");
    assert_eq!(Frame::decode(again.clone()).as_ref(), Ok(&frame), "another frame after the round trip");
    assert_eq!(encode(frame.clone()), again, "encodes differently the second time");
    if given.len() + UNKNOWN_FIELD.len() <= FRAME_BYTES_MAX {
        // Such a frame takes the general way through the decoder, and not the short one for data.
        let longer = [&given[..], &UNKNOWN_FIELD].concat().into();
        assert_eq!(Frame::decode(longer), Ok(frame), "an unknown field changes the frame");
    }
}

/// Field 20 with the value 0: a newer peer may say so.
const UNKNOWN_FIELD: [u8; 3] = [0xa0, 0x01, 0x00];

/// Returns the bytes of content that a body keeps.
fn held(body: &Body) -> usize {
    match body {
        Body::Hello(hello) => {
            let texts: usize = hello.features.iter().map(String::len).sum();
            let resume = hello.resume.as_ref().map_or(0, |resume| resume.secret.len());
            // A port takes two bytes on the wire at least: its tag and its length.
            texts + hello.agent_version.len() + resume + 2 * hello.ports.len()
        }
        Body::Welcome(welcome) => {
            let texts: usize = welcome.features.iter().map(String::len).sum();
            texts + welcome.resume_secret.len() + welcome.workspace.len()
        }
        Body::Open(Open { payload, .. }) | Body::Data { payload, .. } => payload.len(),
        // A channel and its bytes: two tags and two numbers at least.
        Body::Credit { grants } => grants.iter().map(|Grant { .. }| 4).sum(),
        Body::Close { detail, .. } => detail.len(),
        Body::OpenLane(relay) => relay.ticket.len(),
        Body::Seal(seal) => seal.len(),
        Body::Acknowledge
        | Body::Accept { .. }
        | Body::Finish { .. }
        | Body::Reset { .. }
        | Body::Ping { .. }
        | Body::Pong { .. }
        | Body::Drain { .. } => 0,
    }
}

fn payload(body: &Body) -> Option<&Bytes> {
    match body {
        Body::Open(Open { payload, .. }) | Body::Data { payload, .. } if !payload.is_empty() => Some(payload),
        Body::Open(_)
        | Body::Data { .. }
        | Body::Hello(_)
        | Body::Welcome(_)
        | Body::Credit { .. }
        | Body::OpenLane(_)
        | Body::Seal(_)
        | Body::Close { .. }
        | Body::Acknowledge
        | Body::Accept { .. }
        | Body::Finish { .. }
        | Body::Reset { .. }
        | Body::Ping { .. }
        | Body::Pong { .. }
        | Body::Drain { .. } => None,
    }
}
