//! Two honest sessions in any interleaving.

use tunnel_proto::mux::model::World;

use super::{OPERATION_BYTES, OPERATIONS_MAX, origin};

/// Runs the script that `bytes` spell; the first two choose the budget.
///
/// # Panics
/// When a law is broken.
pub fn run(bytes: &[u8]) {
    let Some((budget, script)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    // From a handful of smallest windows to plenty for all channels.
    let budget = 600_000 + 52 * u64::from(u16::from_le_bytes(*budget));
    let length = script.len().min(OPERATION_BYTES * OPERATIONS_MAX);
    World::new(origin(), budget).run(&script[..length]);
}
