//! What the fuzz targets do with their bytes.
//!
//! `proto/tests/fuzz_replay.rs` includes this file too, so that the committed corpora run in every `cargo test`.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a broken law ends the test case"
)]

pub mod frame_decode;
pub mod hostile_peer;
pub mod pair_vs_model;

use std::sync::OnceLock;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tunnel_proto::frame::Frame;

/// Bytes of one operation in a script.
const OPERATION_BYTES: usize = 4;

/// Operations that are taken from one input; more only make it slow.
const OPERATIONS_MAX: usize = 400;

fn origin() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "some origin; only differences matter")]
    Instant::now()
}

fn encode(frame: Frame) -> Bytes {
    let mut head = BytesMut::new();
    let payload = frame.encode(&mut head);
    head.extend_from_slice(&payload);
    head.freeze()
}

/// Longest piece that [`pattern`] makes.
const PATTERN_BYTES_MAX: usize = 1 << 18;

/// Returns the bytes of a direction from a position on: slices of one table, because making them anew would be most of
/// the work. `salt` tells the directions apart.
fn pattern(salt: u64, from: u64, length: usize) -> Bytes {
    const PERIOD: u64 = 2048;
    static TABLE: OnceLock<Bytes> = OnceLock::new();
    let table = TABLE
        .get_or_init(|| (0..PERIOD + PATTERN_BYTES_MAX as u64).map(|at| ((at * 31) >> 3) as u8 ^ at as u8).collect());
    let from = ((from + salt) % PERIOD) as usize;
    table.slice(from..from + length)
}
