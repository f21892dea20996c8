//! Gives freed memory back to the system, also while nothing happens.
//!
//! The allocator of both programs (mimalloc) purges freed memory a second later, but only on the next allocation, and
//! it frees the pages of a thread only when that thread allocates. After a load has gone, no thread allocates, and a
//! process would keep for ever the memory that the load took. So each thread that serves connections allocates a little
//! from time to time. The allocator's own call for this is not used: it is no safe Rust
//! (`docs/decisions/2026-11-23-freed-memory-goes-back.md`).

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Duration;

/// Interval of the allocations. Freed memory takes two rounds: in one its pages are found to be empty, in the next they
/// are purged.
const INTERVAL: Duration = Duration::from_secs(10);

/// Number of allocations that do not take the allocator's shortest way, after which it collects.
const ALLOCATIONS: usize = 10_000;

/// An allocation above this length takes the longer way.
const BLOCK_BYTES: usize = 2 * 1024;

/// Does `work`, and meanwhile lets the calling thread give back the memory that it has freed.
///
/// Cancel safety: that of `work`.
pub async fn giving_back<T>(work: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        done = work => done,
        never = give_back() => match never {},
    }
}

async fn give_back() -> Infallible {
    loop {
        tokio::time::sleep(INTERVAL).await;
        collect();
    }
}

/// Allocates until the allocator collects: a third of a millisecond's work. Has a name of its own in profiles: it is none of a request's.
#[inline(never)]
fn collect() {
    for _ in 0..ALLOCATIONS {
        drop(black_box(Vec::<u8>::with_capacity(BLOCK_BYTES)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_goes_on_beside_it_and_ends_it() {
        let done = giving_back(async {
            tokio::time::sleep(10 * INTERVAL).await;
            7
        });
        assert_eq!(done.await, 7);
    }
}
