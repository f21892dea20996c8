//! Observations of the load's parts, shared between them and the cutter.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Counters of a run.
#[derive(Debug)]
pub(super) struct CutTally {
    state: Mutex<TallyState>,
    lost: AtomicU64,
    repeated: AtomicU64,
    changed: AtomicU64,
    completed: AtomicU64,
    end: CancellationToken,
}

#[derive(Debug)]
struct TallyState {
    /// Per WebSocket: time at which the message of the newest echo was sent.
    echoed: Vec<Option<Instant>>,
    /// Time of the mark. `first_after_mark` is the first echo, on any WebSocket, of a message sent after it.
    mark: Option<Instant>,
    first_after_mark: Option<Instant>,
    downloaded: Option<Instant>,
    download_gap: Duration,
    dropped: BTreeMap<&'static str, u64>,
}

impl CutTally {
    pub(super) fn new(sockets: usize) -> Self {
        let state = TallyState {
            echoed: vec![None; sockets],
            mark: None,
            first_after_mark: None,
            downloaded: None,
            download_gap: Duration::ZERO,
            dropped: BTreeMap::new(),
        };
        Self {
            state: Mutex::new(state),
            lost: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            end: CancellationToken::new(),
        }
    }

    /// Ends the load.
    pub(super) fn end(&self) {
        self.end.cancel();
    }

    pub(super) fn ended(&self) -> &CancellationToken {
        &self.end
    }

    /// Sets the mark and waits from now on for the echo of a message that is sent after it.
    pub(super) fn mark(&self, now: Instant) {
        let mut state = self.state.lock();
        state.mark = Some(now);
        state.first_after_mark = None;
    }

    /// Returns the time of the first echo after the mark.
    pub(super) fn first_after_mark(&self) -> Option<Instant> {
        self.state.lock().first_after_mark
    }

    /// Tells whether every WebSocket had an echo of a message sent after `since`, and the download bytes.
    pub(super) fn all_moved_since(&self, since: Instant) -> bool {
        let state = self.state.lock();
        state.echoed.iter().all(|echoed| echoed.is_some_and(|sent| sent > since))
            && state.downloaded.is_some_and(|at| at > since)
    }

    pub(super) fn echoed(&self, socket: usize, sent: Instant, now: Instant) {
        let mut state = self.state.lock();
        if let Some(echoed) = state.echoed.get_mut(socket) {
            *echoed = Some(sent);
        }
        if state.first_after_mark.is_none() && state.mark.is_some_and(|mark| sent > mark) {
            state.first_after_mark = Some(now);
        }
    }

    pub(super) fn downloaded(&self, now: Instant) {
        let mut state = self.state.lock();
        if let Some(before) = state.downloaded {
            state.download_gap = state.download_gap.max(now - before);
        }
        state.downloaded = Some(now);
    }

    pub(super) fn lose(&self, bytes: u64) {
        self.lost.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn repeat(&self, bytes: u64) {
        self.repeated.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn change(&self, bytes: u64) {
        self.changed.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn drop_for(&self, why: &'static str) {
        *self.state.lock().dropped.entry(why).or_default() += 1;
    }

    pub(super) fn complete(&self) {
        self.completed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lost_bytes(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn repeated_bytes(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    pub(super) fn changed_bytes(&self) -> u64 {
        self.changed.load(Ordering::Relaxed)
    }

    pub(super) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.state.lock().dropped.values().sum()
    }

    pub(super) fn reasons(&self) -> BTreeMap<&'static str, u64> {
        self.state.lock().dropped.clone()
    }

    pub(super) fn download_gap(&self) -> Duration {
        self.state.lock().download_gap
    }
}
