//! Leader election by a Lease (Kubernetes, "Leases"), as client-go's `leaderelection` does it. Pure.
//!
//! Clocks of two machines are never compared: a leader counts as gone once its record has not changed for the duration
//! in it, by the local clock.

use std::time::Duration;

/// Longest silence of a leader before another takes over.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(15);

/// Time for which a leader that cannot renew goes on. Less than [`LEASE_DURATION`]: it has stopped before another
/// begins.
pub(crate) const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// Interval between two attempts to acquire or renew.
pub(crate) const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// Longest time for one request for the Lease: some attempts have to fit before the deadline.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

const _: () = assert!(RENEW_DEADLINE.as_secs() + REQUEST_TIMEOUT.as_secs() < LEASE_DURATION.as_secs());
const _: () = assert!(RETRY_PERIOD.as_secs() + 2 * REQUEST_TIMEOUT.as_secs() < RENEW_DEADLINE.as_secs());

/// Contents of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseRecord {
    /// Identity of the holder; empty if there is none.
    pub(crate) holder: String,
    /// Opaque; changes with each renewal.
    pub(crate) renewed: String,
    /// Longest silence of its holder.
    pub(crate) duration: Duration,
    /// Number of times that it changed hands.
    pub(crate) transitions: i64,
}

/// Next action on the Lease that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Write it with this many transitions: it is free, expired, or ours.
    Write { transitions: i64 },
    /// Another candidate leads.
    StandBy { leader: String },
}

/// State of one candidate.
#[derive(Debug)]
pub(crate) struct Election {
    identity: String,
    /// Record that was seen last, and the time since which it has been so.
    seen: Option<(LeaseRecord, Duration)>,
    /// Time of the last write by this candidate, if that is in force.
    held: Option<Duration>,
}

impl Election {
    /// Makes a candidate that does not lead.
    pub(crate) fn new(identity: String) -> Self {
        Self { identity, seen: None, held: None }
    }

    /// Decides about the Lease that was found, if there is one. `now` is any clock that never goes back.
    pub(crate) fn found(&mut self, record: Option<LeaseRecord>, now: Duration) -> Action {
        let Some(record) = record else {
            self.seen = None;
            return Action::Write { transitions: 0 };
        };
        let since = match &self.seen {
            Some((seen, since)) if *seen == record => *since,
            Some(_) | None => {
                self.seen = Some((record.clone(), now));
                now
            }
        };
        if record.holder == self.identity {
            return Action::Write { transitions: record.transitions };
        }
        // Another candidate has it: this one does not hold it any more.
        self.held = None;
        let is_over = now.saturating_sub(since) >= record.duration.max(RETRY_PERIOD);
        if record.holder.is_empty() || is_over {
            return Action::Write { transitions: record.transitions.saturating_add(1) };
        }
        Action::StandBy { leader: record.holder }
    }

    /// Notes that the Lease was written. `began` is the start of the request: others count from no earlier.
    pub(crate) fn written(&mut self, began: Duration) {
        self.held = Some(began);
    }

    /// Returns the time until which this candidate leads, if it does.
    pub(crate) fn leads_until(&self) -> Option<Duration> {
        self.held.map(|held| held + RENEW_DEADLINE)
    }

    /// Returns whether this candidate leads.
    pub(crate) fn leads(&self, now: Duration) -> bool {
        self.leads_until().is_some_and(|until| now < until)
    }

    /// Notes that this candidate leads no more.
    pub(crate) fn lost(&mut self) {
        self.held = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(holder: &str, renewed: u32) -> LeaseRecord {
        LeaseRecord { holder: holder.into(), renewed: renewed.to_string(), duration: LEASE_DURATION, transitions: 4 }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn free_lease_is_taken_and_ones_own_renewed() {
        let mut election = Election::new("me".into());
        assert_eq!(election.found(None, at(0)), Action::Write { transitions: 0 });
        assert!(!election.leads(at(0)), "not before it is written");
        election.written(at(0));
        assert!(election.leads(at(9)));
        assert_eq!(election.found(Some(record("me", 1)), at(9)), Action::Write { transitions: 4 });
        assert_eq!(election.found(Some(record("", 1)), at(9)), Action::Write { transitions: 5 });
    }

    #[test]
    fn leader_counts_as_gone_only_after_its_silence_was_seen_from_here() {
        let mut election = Election::new("me".into());
        let stand_by = Action::StandBy { leader: "other".into() };
        assert_eq!(election.found(Some(record("other", 1)), at(100)), stand_by, "however old its record says it is");
        assert_eq!(election.found(Some(record("other", 1)), at(114)), stand_by);
        assert_eq!(election.found(Some(record("other", 2)), at(115)), stand_by, "it renewed");
        assert_eq!(election.found(Some(record("other", 2)), at(129)), stand_by);
        assert_eq!(election.found(Some(record("other", 2)), at(130)), Action::Write { transitions: 5 });
    }

    #[test]
    fn leader_that_cannot_renew_stops_before_another_may_begin() {
        let mut election = Election::new("me".into());
        election.found(None, at(0));
        election.written(at(0));
        assert!(election.leads(at(9)));
        assert!(!election.leads(RENEW_DEADLINE));
        election.written(at(10));
        election.found(Some(record("other", 1)), at(11));
        assert!(!election.leads(at(11)), "somebody else has it");
    }

    #[derive(Clone, Copy, Debug)]
    enum ElectionEvent {
        /// A candidate asks and writes; both may be lost on the way.
        Try {
            who: usize,
            reads: bool,
            writes: bool,
        },
        Wait(u64),
    }

    fn events() -> impl Strategy<Value = ElectionEvent> {
        prop_oneof![
            (0..3_usize, any::<bool>(), any::<bool>()).prop_map(|(who, reads, writes)| ElectionEvent::Try {
                who,
                reads,
                writes
            }),
            (0..6_000_u64).prop_map(ElectionEvent::Wait),
        ]
    }

    proptest! {
        /// Whatever requests are lost and however long each candidate is cut off, no two lead at once.
        #[test]
        fn two_never_lead_at_once(events in proptest::collection::vec(events(), 0..200)) {
            let mut candidates: Vec<_> = (0..3).map(|who| Election::new(format!("c{who}"))).collect();
            let (mut lease, mut now, mut renewals) = (None::<LeaseRecord>, Duration::ZERO, 0_u32);
            for event in events {
                match event {
                    ElectionEvent::Wait(millis) => now += Duration::from_millis(millis),
                    ElectionEvent::Try { reads: false, .. } => {}
                    ElectionEvent::Try { who, writes, .. } => {
                        let began = now;
                        if let Action::Write { transitions } = candidates[who].found(lease.clone(), now)
                            && writes
                        {
                            renewals += 1;
                            lease = Some(LeaseRecord { transitions, ..record(&format!("c{who}"), renewals) });
                            candidates[who].written(began);
                        }
                    }
                }
                let leading = candidates.iter().filter(|candidate| candidate.leads(now)).count();
                prop_assert!(leading <= 1);
            }
        }
    }
}
