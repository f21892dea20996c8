//! Tracks the reports about each workspace, and whether the gateway has them: unchanged progress that it noted is not
//! sent again, lost progress is repeated. Also tracks the attempts to apply, by generation: an error of an earlier
//! intent says nothing of the one that counts.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tunnel_proto::reconcile::{FailureKind, ReconcileFailure, WorkspaceReport};

/// Reports of one conversation.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    entries: BTreeMap<String, TrackedMessage>,
    /// Workspaces whose entry is due, in the order in which they became so: none starves.
    due: VecDeque<String>,
    last_number: u64,
}

#[derive(Debug)]
struct TrackedMessage {
    /// The report, with a number of 0: only its contents count.
    progress: WorkspaceReport,
    said: MessageState,
}

/// ```text
///  Due ──► Sent ──► Noted
///   ▲ ▲─────┘         │      after a while without a Noted
///   └─────────────────┘      another progress, from any state
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageState {
    Due,
    Sent { number: u64, at: Duration },
    Noted,
}

impl Tracker {
    /// Sets a workspace's progress. Returns whether it has to be sent: not if it is known already.
    pub(crate) fn update_or_set(&mut self, name: &str, progress: WorkspaceReport) -> bool {
        let progress = WorkspaceReport { number: 0, ..progress };
        match self.entries.get_mut(name) {
            Some(entry) if entry.progress == progress => return entry.said == MessageState::Due,
            // It is in the queue: the newest progress is sent from there.
            Some(entry) if entry.said == MessageState::Due => entry.progress = progress,
            Some(entry) => {
                *entry = TrackedMessage { progress, said: MessageState::Due };
                self.due.push_back(name.to_owned());
            }
            None => {
                self.entries.insert(name.to_owned(), TrackedMessage { progress, said: MessageState::Due });
                self.due.push_back(name.to_owned());
            }
        }
        true
    }

    /// Makes a tracker that goes on counting: the gateway takes a report for an old one unless its number is higher
    /// than all before it in the channel.
    pub(crate) fn after(last_number: u64) -> Self {
        Self { last_number, ..Self::default() }
    }

    /// Returns the number of the last report that was sent.
    pub(crate) fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Takes the next report that has to be sent, with its number.
    pub(crate) fn next_due(&mut self, now: Duration) -> Option<WorkspaceReport> {
        while let Some(name) = self.due.pop_front() {
            // The workspace was forgotten meanwhile.
            let Some(entry) = self.entries.get_mut(&name).filter(|entry| entry.said == MessageState::Due) else {
                continue;
            };
            self.last_number += 1;
            entry.said = MessageState::Sent { number: self.last_number, at: now };
            return Some(WorkspaceReport { number: self.last_number, ..entry.progress.clone() });
        }
        None
    }

    /// Notes that the gateway has stored all reports up to this number.
    pub(crate) fn noted(&mut self, up_to: u64) {
        for entry in self.entries.values_mut() {
            if matches!(entry.said, MessageState::Sent { number, .. } if number <= up_to) {
                entry.said = MessageState::Noted;
            }
        }
    }

    /// Makes reports due again that the gateway has not noted for so long. Returns how many.
    pub(crate) fn repeat(&mut self, now: Duration, patience: Duration) -> usize {
        let before = self.due.len();
        for (name, entry) in &mut self.entries {
            if matches!(entry.said, MessageState::Sent { at, .. } if now.saturating_sub(at) >= patience) {
                entry.said = MessageState::Due;
                self.due.push_back(name.clone());
            }
        }
        self.due.len() - before
    }

    /// Forgets a workspace that is over, as the gateway knows.
    pub(crate) fn forget(&mut self, name: &str) {
        self.entries.remove(name);
    }

    /// Returns the number of reports that the gateway has not noted.
    #[cfg(test)]
    pub(crate) fn unsettled(&self) -> usize {
        self.entries.values().filter(|entry| entry.said != MessageState::Noted).count()
    }
}

/// Results of the attempts to apply one workspace's intents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    newest: u64,
    applied: u64,
    failure: Option<ReconcileFailure>,
}

impl Attempts {
    /// Notes an intent. Returns whether it counts: an older one than was seen does not.
    pub(crate) fn intend(&mut self, generation: u64) -> bool {
        if generation < self.newest {
            return false;
        }
        if generation > self.newest {
            self.newest = generation;
            // The failure belongs to an intent that is not wanted any more.
            self.failure = None;
        }
        true
    }

    /// Notes that all of an intent was applied.
    pub(crate) fn succeeded(&mut self, generation: u64) {
        self.applied = self.applied.max(generation);
        self.held(generation);
    }

    /// Notes that nothing of an intent went wrong, although not all of it is applied.
    pub(crate) fn held(&mut self, generation: u64) {
        if self.failure.as_ref().is_some_and(|failure| failure.generation <= generation) {
            self.failure = None;
        }
    }

    /// Notes an error of an intent. Returns whether that is news: a late error of an earlier intent is dropped.
    pub(crate) fn failed(&mut self, generation: u64, kind: FailureKind, message: String) -> bool {
        if generation < self.newest {
            return false;
        }
        self.failure = Some(ReconcileFailure { kind, generation, message });
        true
    }

    /// Returns the highest generation that was applied without a failure.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// Returns the newest intent's failure.
    pub(crate) fn failure(&self) -> Option<&ReconcileFailure> {
        self.failure.as_ref()
    }
}

#[cfg(test)]
mod tests;
