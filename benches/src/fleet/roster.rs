//! Roster of a fleet: one entry per agent, and sums that cost nothing to read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Counts, Gap};

/// The entry of an agent without a session.
const DOWN: u64 = u64::MAX;

/// All agents of a fleet.
#[derive(Debug)]
pub(super) struct Roster {
    started: Instant,
    /// For each agent the microseconds from `started` to its session, or [`DOWN`].
    since: Vec<AtomicU64>,
    /// For each agent the microseconds from `started` to the end of its last session, or [`DOWN`] before that.
    lost: Vec<AtomicU64>,
    /// Times without a session that have ended, if they are kept.
    gaps: Option<Mutex<Vec<Gap>>>,
    up: watch::Sender<usize>,
    connects: AtomicU64,
    redials: AtomicU64,
    ended: Mutex<BTreeMap<String, u64>>,
}

impl Roster {
    /// Makes the roster of agents that are all down.
    pub(super) fn new(agents: usize, started: Instant, keeps_gaps: bool) -> Self {
        let all_down = || (0..agents).map(|_| AtomicU64::new(DOWN)).collect();
        Self {
            started,
            since: all_down(),
            lost: all_down(),
            gaps: keeps_gaps.then(Mutex::default),
            up: watch::Sender::new(0),
            connects: AtomicU64::new(0),
            redials: AtomicU64::new(0),
            ended: Mutex::default(),
        }
    }

    pub(super) fn started(&self) -> Instant {
        self.started
    }

    pub(super) fn len(&self) -> usize {
        self.since.len()
    }

    pub(super) fn up(&self) -> usize {
        *self.up.borrow()
    }

    pub(super) fn watch(&self) -> watch::Receiver<usize> {
        self.up.subscribe()
    }

    pub(super) fn is_up(&self, agent: usize) -> bool {
        self.since.get(agent).is_some_and(|since| since.load(Ordering::Relaxed) != DOWN)
    }

    pub(super) fn is_up_since(&self, agent: usize, since: Instant) -> bool {
        let offset = since.saturating_duration_since(self.started);
        let up = self.since.get(agent).map_or(DOWN, |since| since.load(Ordering::Relaxed));
        up != DOWN && Duration::from_micros(up) >= offset
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            agents: self.len(),
            up: self.up(),
            connects: self.connects.load(Ordering::Relaxed),
            redials: self.redials.load(Ordering::Relaxed),
            ended: self.ended.lock().clone(),
        }
    }

    pub(super) fn ups_since(&self, since: Instant) -> Vec<Duration> {
        let offset = since.saturating_duration_since(self.started);
        let ups = self.since.iter().map(|since| since.load(Ordering::Relaxed)).filter(|since| *since != DOWN);
        let mut ups: Vec<_> = ups.filter_map(|since| Duration::from_micros(since).checked_sub(offset)).collect();
        ups.sort_unstable();
        ups
    }

    /// Enters that an agent's session came up.
    pub(super) fn connected(&self, agent: usize, now: Instant) {
        self.connects.fetch_add(1, Ordering::Relaxed);
        let since = self.offset(now);
        if self.set(agent, since) == DOWN
            && let (Some(gaps), Some(lost)) = (&self.gaps, self.lost.get(agent))
        {
            let lost = lost.load(Ordering::Relaxed);
            if lost != DOWN {
                let lasted = Duration::from_micros(since.saturating_sub(lost));
                gaps.lock().push(Gap { agent, ended: now, lasted });
            }
        }
    }

    /// Takes the gaps that have ended since the last call.
    pub(super) fn take_gaps(&self) -> Vec<Gap> {
        self.gaps.as_ref().map(|gaps| std::mem::take(&mut *gaps.lock())).unwrap_or_default()
    }

    fn offset(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.started).as_micros()).unwrap_or(DOWN - 1)
    }

    /// Enters that an agent's dial failed or its link ended; it dials again.
    pub(super) fn redials(&self, agent: usize, now: Instant) {
        self.redials.fetch_add(1, Ordering::Relaxed);
        if self.set(agent, DOWN) != DOWN
            && let Some(lost) = self.lost.get(agent)
        {
            lost.store(self.offset(now), Ordering::Relaxed);
        }
    }

    /// Enters that an agent stopped because it was asked to.
    pub(super) fn stopped(&self, agent: usize) {
        self.set(agent, DOWN);
    }

    /// Enters that an agent stopped for good.
    pub(super) fn gave_up(&self, agent: usize, reason: &str) {
        *self.ended.lock().entry(reason.to_owned()).or_default() += 1;
        self.set(agent, DOWN);
    }

    /// Returns what was so before.
    fn set(&self, agent: usize, since: u64) -> u64 {
        let Some(entry) = self.since.get(agent) else { return since };
        let before = entry.swap(since, Ordering::Relaxed);
        match (before == DOWN, since == DOWN) {
            (true, false) => self.up.send_modify(|up| *up += 1),
            (false, true) => self.up.send_modify(|up| *up -= 1),
            (true, true) | (false, false) => {}
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_counted_once_however_often_they_report() {
        let started = Instant::now();
        let at = |seconds| started + Duration::from_secs(seconds);
        let roster = Roster::new(3, started, true);
        roster.connected(0, at(1));
        roster.connected(0, at(2));
        roster.connected(2, at(3));
        assert_eq!((roster.up(), roster.is_up(1), roster.is_up(2)), (2, false, true));
        assert_eq!(roster.ups_since(at(1)), [1, 2].map(Duration::from_secs), "the newest session of each counts");
        assert_eq!(roster.ups_since(at(3)), [Duration::ZERO]);
        assert!(roster.is_up_since(0, at(2)) && !roster.is_up_since(0, at(3)) && !roster.is_up_since(1, started));
        assert_eq!(roster.take_gaps(), [], "the first session ends none");
        roster.redials(0, at(5));
        roster.redials(0, at(6));
        roster.gave_up(2, "refused");
        roster.connected(7, at(4));
        roster.connected(0, at(8));
        roster.connected(0, at(9));
        let gap = Gap { agent: 0, ended: at(8), lasted: Duration::from_secs(3) };
        assert_eq!((roster.take_gaps(), roster.take_gaps()), (vec![gap], Vec::new()));
        let counts = roster.counts();
        assert_eq!((counts.up, counts.redials, counts.ended.get("refused")), (1, 2, Some(&1)));
    }
}
