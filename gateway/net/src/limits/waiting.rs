//! Unproven connections of one address: bounded by closing the oldest, so that a connection that authenticates at once
//! is let in, however many others stay silent.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Unproven connections, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct WaitingConnections(Mutex<WaitingLine>);

#[derive(Debug, Default)]
struct WaitingLine {
    next: u64,
    members: BTreeMap<u64, CancellationToken>,
}

/// One waiting connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Member {
    waiting: Arc<WaitingConnections>,
    number: u64,
    sent_away: CancellationToken,
}

impl WaitingConnections {
    /// Adds a connection. Returns whether the oldest one was sent away, because there were `max` already.
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
        // Outside of the lock: it wakes other tasks.
        let is_crowded = gone.map(|(_, oldest)| oldest.cancel()).is_some();
        (Member { waiting: self.clone(), number, sent_away }, is_crowded)
    }

    /// Returns how many wait.
    pub(super) fn count(&self) -> usize {
        self.0.lock().members.len()
    }
}

impl Member {
    /// Returns the token that is cancelled when the connection has to be closed.
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
        let waiting = Arc::new(WaitingConnections::default());
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
