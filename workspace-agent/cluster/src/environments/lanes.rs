//! Runs calls for one inventory one after the other: a newer call ends those before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Inventories with calls. Bounded by the number of calls.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Mutex<BTreeMap<String, Lane>>,
}

#[derive(Debug)]
struct Lane {
    turn: Arc<Semaphore>,
    newest: CancellationToken,
    calls: usize,
}

/// A call's place among those for its inventory.
#[derive(Debug)]
pub(super) struct LanePosition<'a> {
    lanes: &'a Lanes,
    inventory: String,
    turn: Arc<Semaphore>,
    ended: CancellationToken,
}

impl Lanes {
    /// Lets a call in, and ends the one before it. The call ends with `end` too.
    pub(super) fn enter(&self, inventory: &str, end: &CancellationToken) -> LanePosition<'_> {
        let ended = end.child_token();
        let mut lanes = self.lanes.lock();
        let lane = lanes.entry(inventory.to_owned()).or_insert_with(|| Lane {
            turn: Arc::new(Semaphore::new(1)),
            newest: CancellationToken::new(),
            calls: 0,
        });
        lane.calls += 1;
        let turn = lane.turn.clone();
        let before = std::mem::replace(&mut lane.newest, ended.clone());
        drop(lanes);
        before.cancel();
        LanePosition { lanes: self, inventory: inventory.to_owned(), turn, ended }
    }
}

impl LanePosition<'_> {
    /// Waits until the calls before have ended; `None` if this one is to end itself.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        let turn = self.ended.run_until_cancelled(self.turn.clone().acquire_owned()).await?;
        // The semaphore is never closed.
        turn.ok()
    }

    /// Returns the token that is cancelled when the call is to end.
    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }
}

impl Drop for LanePosition<'_> {
    fn drop(&mut self) {
        let mut lanes = self.lanes.lanes.lock();
        if let Some(lane) = lanes.get_mut(&self.inventory) {
            lane.calls -= 1;
            if lane.calls == 0 {
                lanes.remove(&self.inventory);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn newer_call_ends_those_before_it_and_begins_after_the_running_one() {
        let (lanes, end) = (Lanes::default(), CancellationToken::new());
        let first = lanes.enter("a", &end);
        let turn = first.turn().await.expect("nobody else is there");
        let other = lanes.enter("b", &end);
        assert!(other.turn().await.is_some(), "another inventory");
        assert!(!first.ended().is_cancelled());
        let second = lanes.enter("a", &end);
        assert!(first.ended().is_cancelled());
        assert!(second.turn().now_or_never().is_none(), "the first is still at it");
        let third = lanes.enter("a", &end);
        assert!(second.turn().await.is_none(), "it ends before it began");
        drop((turn, first, second));
        assert!(third.turn().await.is_some());
        drop((third, other));
        assert!(lanes.lanes.lock().is_empty());
    }

    #[tokio::test]
    async fn call_whose_channel_ended_does_not_begin() {
        let (lanes, end) = (Lanes::default(), CancellationToken::new());
        let place = lanes.enter("a", &end);
        end.cancel();
        assert!(place.turn().await.is_none());
    }
}
