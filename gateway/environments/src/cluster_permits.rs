//! Queues calls to each cluster's agent: an agent takes a bounded number of calls at a time, and a busy cluster delays
//! no other. Pure: return values name the environments whose turn has come.

use std::collections::{BTreeSet, HashMap};

use gateway_store::{ClusterId, EnvironmentId};

/// Calls to one cluster's agent at a time. An agent takes eight, counts one for a moment longer than its answer is on
/// the way, and another replica of the gateway may have some under way too.
pub(super) const CLUSTER_CALLS_MAX: usize = 6;

/// Most preparations that overtake a waiting removal: a cluster in which jobs start all the time removes objects too.
const PREPARATIONS_MAX: usize = 8;

/// Kind of call, in the order of priority: jobs wait for preparations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallTurn {
    /// To apply, or to remove what is in the way of that.
    Preparation,
    /// To remove objects while no job waits.
    Removal,
}

/// Place in a queue, in the order of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePosition {
    turn: CallTurn,
    /// Grows with each place that is given.
    number: u64,
    id: EnvironmentId,
}

#[derive(Debug, Default)]
struct CallQueue {
    taken: usize,
    waiting: BTreeSet<QueuePosition>,
    /// Preparations that overtook a waiting removal.
    preferred: usize,
}

impl CallQueue {
    /// Returns the environments whose turn has come.
    fn called(&self) -> impl Iterator<Item = &QueuePosition> {
        let overdue = self.first_removal().filter(|_| self.preferred >= PREPARATIONS_MAX);
        let others = self.waiting.iter().filter(move |place| Some(*place) != overdue);
        overdue.into_iter().chain(others).take(CLUSTER_CALLS_MAX.saturating_sub(self.taken))
    }

    fn first_removal(&self) -> Option<&QueuePosition> {
        let first = QueuePosition { turn: CallTurn::Removal, number: 0, id: EnvironmentId::new(0) };
        self.waiting.range(first..).next()
    }

    fn permit(&mut self, place: &QueuePosition) {
        self.waiting.remove(place);
        self.taken = self.taken.saturating_add(1);
        let is_before_a_removal = place.turn == CallTurn::Preparation && self.first_removal().is_some();
        self.preferred = if is_before_a_removal { self.preferred.saturating_add(1) } else { 0 };
    }
}

/// Permits for calls to all clusters, and the environments that wait for one.
///
/// Invariants: `places` has those of all queues, and a queue that is kept has a permit taken or an environment waiting.
#[derive(Debug, Default)]
pub(super) struct ClusterPermits {
    queues: HashMap<ClusterId, CallQueue>,
    places: HashMap<EnvironmentId, (ClusterId, QueuePosition)>,
    next: u64,
}

impl ClusterPermits {
    /// Takes a permit.
    ///
    /// # Errors
    /// Others are before, and the environment's place in the queue is kept. Returns the environments whose turn has
    /// come: one that was called and now asks for another kind of turn leaves its old one to the next.
    pub(super) fn take(
        &mut self,
        cluster: ClusterId,
        id: EnvironmentId,
        turn: CallTurn,
    ) -> Result<(), Vec<EnvironmentId>> {
        let known =
            self.places.get(&id).filter(|(of, place)| *of == cluster && place.turn == turn).map(|(_, place)| *place);
        let left = if known.is_none() { self.forget(id) } else { None };
        let place = known.unwrap_or_else(|| {
            self.next = self.next.saturating_add(1);
            QueuePosition { turn, number: self.next, id }
        });
        let queue = self.queues.entry(cluster).or_default();
        queue.waiting.insert(place);
        if !queue.called().any(|called| *called == place) {
            self.places.insert(id, (cluster, place));
            return Err(left.map(|left| self.called(left)).unwrap_or_default());
        }
        queue.permit(&place);
        self.places.remove(&id);
        Ok(())
    }

    /// Returns the number of permits taken, of all clusters' agents.
    pub(super) fn taken(&self) -> usize {
        self.queues.values().map(|queue| queue.taken).sum()
    }

    /// Gives a permit back. Returns the environments whose turn has come.
    pub(super) fn give_back(&mut self, cluster: ClusterId) -> Vec<EnvironmentId> {
        if let Some(queue) = self.queues.get_mut(&cluster) {
            queue.taken = queue.taken.saturating_sub(1);
        }
        self.called(cluster)
    }

    /// Leaves the queue, if the environment is in one. Returns the environments whose turn has come because of that.
    pub(super) fn leave(&mut self, id: EnvironmentId) -> Vec<EnvironmentId> {
        self.forget(id).map(|cluster| self.called(cluster)).unwrap_or_default()
    }

    fn forget(&mut self, id: EnvironmentId) -> Option<ClusterId> {
        let (cluster, place) = self.places.remove(&id)?;
        if let Some(queue) = self.queues.get_mut(&cluster) {
            queue.waiting.remove(&place);
        }
        Some(cluster)
    }

    fn called(&mut self, cluster: ClusterId) -> Vec<EnvironmentId> {
        let Some(queue) = self.queues.get(&cluster) else { return Vec::new() };
        if queue.taken == 0 && queue.waiting.is_empty() {
            self.queues.remove(&cluster);
            return Vec::new();
        }
        queue.called().map(|place| place.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn environment(number: u64) -> EnvironmentId {
        EnvironmentId::new(number)
    }

    fn cluster(number: i64) -> ClusterId {
        format!("c-{number}").parse().unwrap()
    }

    #[test]
    fn cluster_whose_seats_are_taken_keeps_no_other_waiting_and_preparations_go_first() {
        let mut permits = ClusterPermits::default();
        for number in 0..6 {
            assert!(permits.take(cluster(1), environment(number), CallTurn::Removal).is_ok());
        }
        for (number, turn) in [(10, CallTurn::Removal), (11, CallTurn::Removal), (12, CallTurn::Preparation)] {
            assert_eq!(permits.take(cluster(1), environment(number), turn), Err(Vec::new()));
        }
        assert!(
            permits.take(cluster(2), environment(20), CallTurn::Removal).is_ok(),
            "another cluster's agent has nothing to do"
        );
        assert_eq!(permits.give_back(cluster(1)), [environment(12)]);
        assert!(permits.take(cluster(1), environment(10), CallTurn::Removal).is_err(), "it is not its turn");
        assert!(permits.take(cluster(1), environment(12), CallTurn::Preparation).is_ok());
        assert_eq!(permits.give_back(cluster(1)), [environment(10)]);
        assert_eq!(permits.leave(environment(10)), [environment(11)], "its turn is not lost");
        assert!(permits.take(cluster(1), environment(11), CallTurn::Removal).is_ok());
        assert_eq!(permits.leave(environment(11)), [], "it has a permit, and no place");
    }

    #[test]
    fn one_that_was_called_and_wants_something_else_by_now_leaves_its_turn_to_the_next() {
        let mut permits = ClusterPermits::default();
        for number in 0..6 {
            assert!(permits.take(cluster(1), environment(number), CallTurn::Preparation).is_ok());
        }
        for number in [10, 11] {
            assert_eq!(permits.take(cluster(1), environment(number), CallTurn::Preparation), Err(Vec::new()));
        }
        assert_eq!(permits.give_back(cluster(1)), [environment(10)]);
        // Stopped before it looked.
        let called = permits.take(cluster(1), environment(10), CallTurn::Removal);
        assert_eq!(called, Err(vec![environment(11)]), "a permit is free, and who waits for it sleeps");
        assert!(permits.take(cluster(1), environment(11), CallTurn::Preparation).is_ok());
        assert_eq!(permits.take(cluster(1), environment(10), CallTurn::Removal), Err(Vec::new()));
        assert_eq!(permits.taken(), CLUSTER_CALLS_MAX);
    }

    #[test]
    fn removal_for_which_somebody_waits_goes_before_those_for_which_nobody_does() {
        let mut permits = ClusterPermits::default();
        for number in 0..6 {
            assert!(permits.take(cluster(1), environment(number), CallTurn::Removal).is_ok());
        }
        for number in [10, 11] {
            assert!(permits.take(cluster(1), environment(number), CallTurn::Removal).is_err());
        }
        // A job came for the second.
        assert!(permits.take(cluster(1), environment(11), CallTurn::Preparation).is_err());
        assert_eq!(permits.give_back(cluster(1)), [environment(11)]);
    }

    #[test]
    fn removal_gets_its_turn_however_many_preparations_there_are() {
        let mut permits = ClusterPermits::default();
        for number in 0..6 {
            assert!(permits.take(cluster(1), environment(number), CallTurn::Preparation).is_ok());
        }
        for number in [100, 101] {
            assert!(permits.take(cluster(1), environment(number), CallTurn::Removal).is_err());
        }
        let mut gone = Vec::new();
        for number in 6..60 {
            assert!(permits.take(cluster(1), environment(number), CallTurn::Preparation).is_err());
            let called = permits.give_back(cluster(1));
            let turn = if called[0].get() >= 100 { CallTurn::Removal } else { CallTurn::Preparation };
            assert!(permits.take(cluster(1), called[0], turn).is_ok(), "called, and no permit for it");
            if turn == CallTurn::Removal {
                gone.push((number, called[0].get()));
            }
        }
        assert_eq!(gone, [(14, 100), (23, 101)], "behind eight preparations each");
    }

    proptest! {
        #[test]
        fn seats_are_never_more_than_there_are_and_whoever_waits_gets_one(
            acts in prop::collection::vec((0..3_u8, 0..12_u64, any::<bool>()), 0..80)
        ) {
            let (mut permits, mut holding, mut waiting) = (ClusterPermits::default(), Vec::new(), BTreeSet::new());
            for (act, number, is_removal) in acts {
                let turn = if is_removal { CallTurn::Removal } else { CallTurn::Preparation };
                match act {
                    0 if !holding.contains(&number) => {
                        match permits.take(cluster(1), environment(number), turn) {
                            Ok(()) => {
                                holding.push(number);
                                waiting.remove(&number);
                            }
                            Err(called) => {
                                let is_there = called.iter().all(|id| waiting.contains(&id.get()) && id.get() != number);
                                prop_assert!(is_there, "{called:?} are called, and do not wait");
                                waiting.insert(number);
                            }
                        }
                    }
                    1 if !holding.is_empty() => {
                        holding.remove(0);
                        let called = permits.give_back(cluster(1));
                        prop_assert_eq!(called.is_empty(), waiting.is_empty(), "somebody waits, and nobody is called");
                    }
                    _ => {
                        permits.leave(environment(number));
                        waiting.remove(&number);
                    }
                }
                prop_assert!(holding.len() <= CLUSTER_CALLS_MAX);
            }
            loop {
                let called: Vec<_> = permits.queues.get(&cluster(1)).into_iter().flat_map(CallQueue::called).copied().collect();
                for QueuePosition { turn, id, .. } in called {
                    prop_assert!(permits.take(cluster(1), id, turn).is_ok(), "called, and no permit for it");
                    waiting.remove(&id.get());
                    holding.push(id.get());
                }
                if holding.pop().is_none() {
                    break;
                }
                permits.give_back(cluster(1));
            }
            prop_assert!(waiting.is_empty() && permits.queues.is_empty() && permits.places.is_empty());
        }
    }
}
