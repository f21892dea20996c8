//! Connections of one address that have not proved yet whose they are: bounded by sending the oldest away, so that one that proves it
//! at once is let in, however many others say nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Those that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Line>);

#[derive(Debug, Default)]
struct Line {
    next: u64,
    members: BTreeMap<u64, CancellationToken>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Member {
    waiting: Arc<Waiting>,
    number: u64,
    sent_away: CancellationToken,
}

impl Waiting {
    /// Takes one in. Returns whether another one was sent away, because there were `max` already.
    pub(super) fn enter(self: &Arc<Self>, max: u32) -> (Member, bool) {
        let sent_away = CancellationToken::new();
        let (number, gone) = {
            let mut line = self.0.lock();
            let is_full = line.members.len() >= usize::try_from(max).unwrap_or(usize::MAX);
            let gone = if is_full { line.members.pop_first() } else { None };
            let number = line.next;
            line.next += 1;
            line.members.insert(number, sent_away.clone());
            (number, gone)
        };
        // Outside of the lock: it wakes others.
        let is_crowded = gone.map(|(_, oldest)| oldest.cancel()).is_some();
        (Member { waiting: self.clone(), number, sent_away }, is_crowded)
    }

    /// Returns how many there are.
    pub(super) fn count(&self) -> usize {
        self.0.lock().members.len()
    }
}

impl Member {
    /// Returns what is cancelled when it has to go.
    pub(super) fn sent_away(&self) -> &CancellationToken {
        &self.sent_away
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let gone = self.waiting.0.lock().members.remove(&self.number);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_goes_when_there_are_too_many() {
        let waiting = Arc::new(Waiting::default());
        let members: Vec<_> = (0..3).map(|_| waiting.enter(3)).collect();
        assert!(members.iter().all(|(member, crowded)| !crowded && !member.sent_away().is_cancelled()));
        let (newest, crowded) = waiting.enter(3);
        assert!(crowded && members[0].0.sent_away().is_cancelled());
        assert!(!members[1].0.sent_away().is_cancelled() && !newest.sent_away().is_cancelled());
        assert_eq!(waiting.count(), 3);
        // Those that were sent away count no more, and none twice.
        drop(members);
        assert_eq!(waiting.count(), 1);
        assert!(!waiting.enter(3).1);
    }
}
