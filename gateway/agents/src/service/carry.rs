//! Relay lanes that pass through this replica: how many of one agent, and how much of each waits here.
//!
//! A lane has a connection of its own. While the replica at which it ends takes nothing, that connection is not read beyond
//! a bound: HTTP/2's window is far larger, because sessions of this replica need that.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use gateway_types::WorkspaceName;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use tunnel_link::grpc::{IncomingBody, ReceiveError};

/// Data of a lane that waits here on its way from its agent, from which on its connection is not read. Beside it may be one
/// frame of HTTP/2 that is not whole yet (64 KiB): frames are not cut.
const WAITING_BYTES_MAX: usize = 16 * 1024;

/// Time for which a lane that its replica refused keeps its place. Lanes are dialed without a turn, because users wait for
/// them; this bounds how often an agent can try what it was not asked for.
pub(super) const REFUSED_TIME: Duration = Duration::from_secs(1);

/// Data of a lane that came from its agent, in whole frames, and that the other replica has not taken. Only data counts: the
/// body hears of nothing else, and would not go on.
#[derive(Debug, Default)]
pub(super) struct LaneQueue {
    waiting: AtomicUsize,
    reader: Mutex<Option<Waker>>,
}

impl LaneQueue {
    /// Waits until more may be read.
    pub(super) fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        if self.has_room() {
            return Poll::Ready(());
        }
        *self.reader.lock() = Some(context.waker().clone());
        // What was taken since would not wake the one that was there before.
        if self.has_room() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn has_room(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) < WAITING_BYTES_MAX
    }

    /// Counts the data of frames that became whole.
    pub(super) fn read(&self, bytes: usize) {
        if bytes > 0 {
            self.waiting.fetch_add(bytes, Ordering::SeqCst);
        }
    }

    /// Counts data that was taken.
    pub(super) fn taken(&self, bytes: usize) {
        let less = |waiting: usize| Some(waiting.saturating_sub(bytes));
        // The closure always returns a number.
        self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).ok();
        self.wake();
    }

    /// Counts from zero again: all payload was taken, and the rest was padding.
    fn drained(&self) {
        self.waiting.store(0, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        let waker = self.reader.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Lanes that pass through, by workspace.
#[derive(Debug)]
pub(super) struct PassingLanes {
    counts: Mutex<HashMap<WorkspaceName, usize>>,
    /// Most lanes of one agent: `tunnel.relay_lanes_max`.
    per_agent_max: usize,
}

/// Permit of one lane to pass.
#[derive(Debug)]
pub(super) struct PassPermit {
    lanes: Arc<PassingLanes>,
    workspace: WorkspaceName,
}

impl PassingLanes {
    /// Makes an empty set.
    pub(super) fn new(per_agent_max: usize) -> Self {
        Self { counts: Mutex::default(), per_agent_max }
    }

    /// Returns the bound for each agent.
    pub(super) fn per_agent_max(&self) -> usize {
        self.per_agent_max
    }

    /// Returns the number of lanes that pass.
    pub(super) fn count(&self) -> usize {
        self.counts.lock().values().sum()
    }

    /// Lets one more lane of an agent pass, if there are not as many as may be.
    pub(super) fn permit(self: &Arc<Self>, workspace: &WorkspaceName) -> Option<Arc<PassPermit>> {
        let mut counts = self.counts.lock();
        let count = counts.entry(workspace.clone()).or_default();
        if *count >= self.per_agent_max {
            return None;
        }
        *count += 1;
        Some(Arc::new(PassPermit { lanes: self.clone(), workspace: workspace.clone() }))
    }
}

impl Drop for PassPermit {
    fn drop(&mut self) {
        let mut counts = self.lanes.counts.lock();
        if let Some(count) = counts.get_mut(&self.workspace) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.workspace);
            }
        }
    }
}

/// The half of a relay lane that comes from its agent.
#[derive(Debug)]
pub struct PassingBody {
    body: IncomingBody,
    queue: Option<Arc<LaneQueue>>,
    _permit: Arc<PassPermit>,
}

impl PassingBody {
    /// Wraps the agent's stream behind its Hello.
    pub(super) fn new(body: IncomingBody, queue: Option<Arc<LaneQueue>>, permit: Arc<PassPermit>) -> Self {
        Self { body, queue, _permit: permit }
    }
}

impl Body for PassingBody {
    type Data = Bytes;
    type Error = ReceiveError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReceiveError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Some(queue) = &self.queue {
            match &polled {
                Poll::Ready(Some(Ok(frame))) => queue.taken(frame.data_ref().map_or(0, Bytes::len)),
                Poll::Ready(Some(Err(_)) | None) | Poll::Pending => queue.drained(),
            }
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lane_is_not_read_while_too_much_of_it_waits() {
        let (queue, context) = (LaneQueue::default(), Context::from_waker(Waker::noop()));
        assert!(queue.poll_room(&context).is_ready());
        queue.read(WAITING_BYTES_MAX - 1);
        assert!(queue.poll_room(&context).is_ready());
        queue.read(10);
        assert!(queue.poll_room(&context).is_pending());
        queue.taken(10);
        assert!(queue.poll_room(&context).is_ready());
        // Padding is read too, and never taken.
        queue.read(100_000);
        queue.drained();
        assert!(queue.poll_room(&context).is_ready());
        queue.taken(1);
        assert_eq!(queue.waiting.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn agent_has_so_many_lanes_through_here_and_no_more() {
        let (lanes, name) = (Arc::new(PassingLanes::new(8)), "one".parse().expect("a name"));
        let mut permits: Vec<_> = (0..8).map(|_| lanes.permit(&name).expect("room")).collect();
        assert!(lanes.permit(&name).is_none());
        assert!(lanes.permit(&"two".parse().expect("a name")).is_some());
        permits.pop();
        assert!(lanes.permit(&name).is_some());
        permits.clear();
        assert!(lanes.counts.lock().is_empty());
    }
}
