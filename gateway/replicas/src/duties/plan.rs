//! Decides which duties to take, begin, stop and give up, from what the store says. Pure.

use std::collections::{BTreeMap, BTreeSet};

use gateway_store::{Duty, DutyOwners, Incarnation};

/// What is to be done about a duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DutyStep {
    /// Take it, as it is free.
    Take(Duty),
    /// Begin its work, as it is this replica's.
    Begin(Duty),
    /// Stop its work, as it is this replica's no longer.
    Lose(Duty),
    /// Give it up, as this replica drains and has no work of it.
    GiveUp(Duty),
}

/// Duties of this replica.
#[derive(Debug)]
pub(super) struct DutyPlan {
    replica: Incarnation,
    /// Duties that there is work for here.
    known: BTreeSet<Duty>,
    /// Duties whose work runs, also one that is ending.
    working: BTreeSet<Duty>,
    /// Free duties that were left to others, and for how many ticks.
    left: BTreeMap<Duty, u32>,
    is_draining: bool,
}

impl DutyPlan {
    pub(super) fn new(replica: Incarnation, known: impl IntoIterator<Item = Duty>) -> Self {
        let known = known.into_iter().collect();
        Self { replica, known, working: BTreeSet::new(), left: BTreeMap::new(), is_draining: false }
    }

    /// Takes and begins nothing from now on.
    pub(super) fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Notes that the work of a duty began.
    pub(super) fn begun(&mut self, duty: Duty) {
        self.working.insert(duty);
    }

    /// Notes that the work of a duty has ended.
    pub(super) fn ended(&mut self, duty: Duty) {
        self.working.remove(&duty);
    }

    /// Decides by what the store says. A replica that has its share leaves a free duty to the others for one tick, so that not all
    /// work is done by the replica that started first.
    pub(super) fn decide(&mut self, found: &DutyOwners) -> Vec<DutyStep> {
        let share = self.known.len().div_ceil(found.serving.max(1));
        let (mut steps, mut taken) = (Vec::new(), self.working.len());
        for &duty in &self.known {
            let owner = found.owners.get(&duty).copied();
            if owner.is_some() {
                self.left.remove(&duty);
            }
            match (owner == Some(self.replica), self.working.contains(&duty)) {
                (true, true) => {}
                (true, false) if self.is_draining => steps.push(DutyStep::GiveUp(duty)),
                // It was taken, and the answer was lost.
                (true, false) => {
                    taken += 1;
                    steps.push(DutyStep::Begin(duty));
                }
                (false, true) => steps.push(DutyStep::Lose(duty)),
                (false, false) if owner.is_some() || self.is_draining => {}
                (false, false) => {
                    let left = self.left.entry(duty).or_default();
                    if taken < share || *left > 0 {
                        *left = 0;
                        taken += 1;
                        steps.push(DutyStep::Take(duty));
                    } else {
                        *left = 1;
                    }
                }
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Numbers of process starts, which only a store gives out.
    async fn replicas() -> [Incarnation; 3] {
        let store = gateway_store::Store::open("sqlite::memory:").await.expect("a store");
        let mut made = Vec::new();
        for _ in 0..3 {
            let lease = Duration::from_secs(60);
            let new = gateway_store::NewReplica {
                peer_url: "https://a:1",
                version: "1",
                zone: "z",
                public_url: "https://z",
                lease,
            };
            made.push(store.add_replica(&new).await.expect("the store").expect("the same settings"));
        }
        made.try_into().expect("three")
    }

    fn found(serving: usize, owners: &[(Duty, Incarnation)]) -> DutyOwners {
        DutyOwners { owners: owners.iter().copied().collect(), serving, lease: Duration::from_secs(9) }
    }

    fn takes(duties: &[Duty]) -> Vec<DutyStep> {
        duties.iter().map(|&duty| DutyStep::Take(duty)).collect()
    }

    #[tokio::test]
    async fn one_replica_takes_everything_and_one_of_several_its_share_and_later_what_is_left() {
        let [own, ..] = replicas().await;
        let mut plan = DutyPlan::new(own, Duty::ALL);
        assert_eq!(plan.decide(&found(1, &[])), takes(&Duty::ALL));
        let mut plan = DutyPlan::new(own, Duty::ALL);
        assert_eq!(plan.decide(&found(3, &[])), takes(&Duty::ALL[..2]));
        plan.begun(Duty::Timers);
        plan.begun(Duty::Ci);
        let owns = [(Duty::Timers, own), (Duty::Ci, own)];
        // Left to the others for one tick each; what one of them takes and loses is left once more.
        assert_eq!(plan.decide(&found(3, &owns)), takes(&[Duty::Environments, Duty::Sweeps, Duty::Audit]));
    }

    #[tokio::test]
    async fn duty_that_another_takes_meanwhile_is_left_once_more_when_it_is_free_again() {
        let [own, other, _] = replicas().await;
        let mut plan = DutyPlan::new(own, [Duty::Timers, Duty::Ci]);
        plan.begun(Duty::Timers);
        let mine = (Duty::Timers, own);
        assert_eq!(plan.decide(&found(2, &[mine])), []);
        assert_eq!(plan.decide(&found(2, &[mine, (Duty::Ci, other)])), []);
        assert_eq!(plan.decide(&found(2, &[mine])), []);
        assert_eq!(plan.decide(&found(2, &[mine])), takes(&[Duty::Ci]));
    }

    #[tokio::test]
    async fn work_goes_on_only_while_the_store_says_that_it_is_this_replicas() {
        let [own, other, _] = replicas().await;
        let mut plan = DutyPlan::new(own, [Duty::Ci]);
        plan.begun(Duty::Ci);
        assert_eq!(plan.decide(&found(2, &[(Duty::Ci, own)])), []);
        // Another has it, or the own lease is over.
        for lost in [found(2, &[(Duty::Ci, other)]), found(1, &[])] {
            assert_eq!(plan.decide(&lost), [DutyStep::Lose(Duty::Ci)]);
        }
        // Not taken again before its work has ended here: two would be at it.
        assert_eq!(plan.decide(&found(1, &[])), [DutyStep::Lose(Duty::Ci)]);
        plan.ended(Duty::Ci);
        assert_eq!(plan.decide(&found(1, &[])), takes(&[Duty::Ci]));
        assert_eq!(plan.decide(&found(1, &[(Duty::Ci, own)])), [DutyStep::Begin(Duty::Ci)], "the answer was lost");
    }

    #[tokio::test]
    async fn replica_that_drains_takes_nothing_and_keeps_a_duty_until_its_work_has_ended() {
        let [own, ..] = replicas().await;
        let mut plan = DutyPlan::new(own, [Duty::Ci, Duty::Timers]);
        plan.begun(Duty::Ci);
        plan.drain();
        assert_eq!(plan.decide(&found(0, &[(Duty::Ci, own)])), []);
        plan.ended(Duty::Ci);
        assert_eq!(plan.decide(&found(0, &[(Duty::Ci, own)])), [DutyStep::GiveUp(Duty::Ci)]);
        assert_eq!(plan.decide(&found(0, &[])), []);
    }
}
