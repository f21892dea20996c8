//! Spreads agents again after replicas have come: one that has more than its share asks a few each second to move. They lose
//! nothing by that, and the rate keeps their dials from being a storm.

use std::sync::Arc;
use std::time::Duration;

use gateway_agents::registry::Registry;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::members::Members;

/// Interval at which agents are asked.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time for which the same replicas have to serve before agents are asked to move: others may be about to come or go.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// Load at which it begins, and at which it ends, in hundredths of the mean.
const BEGIN_ABOVE: u64 = 120;
const END_BELOW: u64 = 105;

/// Fewest agents above the mean for which it begins.
const EXCESS_MIN: u64 = 10;

/// Most agents that are asked in an interval, as a part of all that are here.
const PART_MAX: u64 = 100;

/// Time that an agent has to move. Nothing ends when it is over.
const MOVE_TIME: Duration = Duration::from_secs(30);

/// Decides how many agents are asked to move. Pure.
#[derive(Debug, Default)]
struct Rebalance {
    is_under_way: bool,
}

impl Rebalance {
    /// Returns the number for this interval, from the agents here, those at each other replica that serves, and the time for
    /// which these replicas have served.
    fn due(&mut self, own: u64, others: &[u64], settled: Duration) -> u64 {
        let replicas = u64::try_from(others.len()).unwrap_or(u64::MAX).saturating_add(1);
        let mean = others.iter().fold(own, |sum, agents| sum.saturating_add(*agents)) / replicas;
        let is_above = |hundredths: u64| own.saturating_mul(100) > mean.saturating_mul(hundredths);
        let excess = own.saturating_sub(mean);
        self.is_under_way = !others.is_empty()
            && settled >= SETTLED_AFTER
            && (if self.is_under_way { is_above(END_BELOW) } else { is_above(BEGIN_ABOVE) && excess >= EXCESS_MIN });
        if self.is_under_way { excess.min((own / PART_MAX).max(1)) } else { 0 }
    }
}

/// Asks agents to move whenever there are too many here, until `stop`.
pub async fn keep(registry: Arc<Registry>, members: Arc<Members>, own: u64, stop: CancellationToken) {
    let (mut rebalance, mut ticks) = (Rebalance::default(), tokio::time::interval(INTERVAL));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let agents = u64::try_from(registry.len()).unwrap_or(u64::MAX);
        let due = rebalance.due(agents, &members.agents_of_others(own), members.settled_for());
        if due == 0 {
            continue;
        }
        let due = usize::try_from(due).unwrap_or(usize::MAX);
        // Lanes and clusters do not move.
        let sessions = registry.with_relays();
        let staying = sessions.iter().filter(|session| !session.is_moving());
        let asked = staying.filter(|session| session.ask_to_move(MOVE_TIME, INTERVAL)).take(due).count();
        info!(asked, agents, "this replica has more agents than the others: some are asked to move");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = SETTLED_AFTER;

    #[test]
    fn agents_are_asked_once_the_replicas_have_settled() {
        let mut rebalance = Rebalance::default();
        assert_eq!(rebalance.due(3000, &[0, 0], LONG - Duration::from_secs(1)), 0);
        assert_eq!(rebalance.due(3000, &[0, 0], LONG), 30);
        assert_eq!(rebalance.due(3000, &[0, 0], Duration::ZERO), 0, "a replica came or went");
        assert_eq!(rebalance.due(3000, &[], LONG), 0, "there is no other");
    }

    #[test]
    fn it_begins_far_above_the_mean_and_ends_near_it() {
        let mut rebalance = Rebalance::default();
        assert_eq!(rebalance.due(1190, &[900, 910], LONG), 0);
        assert_eq!(rebalance.due(1300, &[900, 900], LONG), 13);
        assert_eq!(rebalance.due(1150, &[975, 975], LONG), 11, "it goes on");
        assert_eq!(rebalance.due(1050, &[1020, 1030], LONG), 0);
        assert_eq!(rebalance.due(1150, &[975, 975], LONG), 0, "and begins anew only above the bound");
        assert_eq!(rebalance.due(6, &[0, 0], LONG), 0, "a few are no load");
    }

    #[test]
    fn all_end_within_the_bound_and_the_sum_stays() {
        let (mut machines, mut loads) =
            (vec![(); 4].into_iter().map(|()| Rebalance::default()).collect::<Vec<_>>(), vec![10_000, 5, 0, 400]);
        for _ in 0..600 {
            for index in 0..loads.len() {
                let others: Vec<u64> =
                    loads.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, load)| *load).collect();
                let due = machines[index].due(loads[index], &others, LONG);
                // Led to the others in turn, as balancers do.
                for moved in 0..due {
                    let to = (index + 1 + usize::try_from(moved).unwrap() % (loads.len() - 1)) % loads.len();
                    loads[index] -= 1;
                    loads[to] += 1;
                }
            }
        }
        let mean = 10_405 / 4;
        assert_eq!(loads.iter().sum::<u64>(), 10_405);
        assert!(loads.iter().all(|load| *load * 100 <= mean * BEGIN_ABOVE), "{loads:?}");
    }
}
