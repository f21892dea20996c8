//! Contents of the imaginary wire, and the bytes that are expected on it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::OnceLock;

use bytes::Bytes;

use super::GATEWAY;
use crate::frame::{Body, Frame};
use crate::id::ChannelId;

/// Bytes of payload and of credit on a wire, by channel.
pub(super) type Sums = BTreeMap<ChannelId, (u64, u64)>;

pub(super) fn on_wire(wire: &VecDeque<Bytes>) -> Sums {
    let mut sums = Sums::new();
    for bytes in wire {
        match Frame::decode(bytes.clone()).expect("own frames decode").body {
            Body::Data { channel, payload } => sums.entry(channel).or_default().0 += payload.len() as u64,
            Body::Accept { channel, credit_bytes } => sums.entry(channel).or_default().1 += u64::from(credit_bytes),
            Body::Credit { grants } => {
                for grant in grants {
                    sums.entry(grant.channel).or_default().1 += u64::from(grant.bytes);
                }
            }
            _ => {}
        }
    }
    sums
}

/// Returns the bytes of a direction from a position on, as slices of one table: making them anew would be most of the
/// work.
pub(super) fn pattern(side: usize, from: u64, length: usize) -> Bytes {
    const PERIOD: u64 = 2048;
    const LENGTH_MAX: u64 = 1 << 18;
    static TABLE: OnceLock<Bytes> = OnceLock::new();
    let table = TABLE.get_or_init(|| (0..PERIOD + LENGTH_MAX).map(|at| ((at * 31) >> 3) as u8 ^ at as u8).collect());
    let from = ((from + if side == GATEWAY { 0 } else { 997 }) % PERIOD) as usize;
    table.slice(from..from + length)
}
