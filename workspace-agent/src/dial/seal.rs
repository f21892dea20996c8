//! The latest seal of an agent's generation. An agent and its lanes share it: each may have to show it at a gateway that never
//! saw them.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Latest seal that a gateway gave; empty before the first one. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LatestSeal(Arc<Mutex<Bytes>>);

impl LatestSeal {
    /// Returns it.
    #[must_use]
    pub fn get(&self) -> Bytes {
        self.0.lock().clone()
    }

    /// Replaces it.
    pub fn set(&self, seal: Bytes) {
        *self.0.lock() = seal;
    }
}
