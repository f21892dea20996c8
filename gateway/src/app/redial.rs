//! Times at which agents dial again after a drain. Pure.

use std::time::Duration;

/// Earliest redial of agents after their session was drained, so that a restart does not become a storm.
const REDIAL_AFTER: Duration = Duration::from_secs(1);

/// Longest time over which agents are spread: their users wait for them.
const SPREAD_MAX: Duration = Duration::from_secs(30);

/// Returns the earliest redial of the agent with that index among so many. They are spread over the time that `others`, the other
/// replicas, take to admit all of them at `sessions_per_second` each. Agents of one gateway alone wait for its next start.
pub(super) fn redial_after(index: usize, agents: usize, others: usize, sessions_per_second: u32) -> Duration {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let rate = count(others).saturating_mul(sessions_per_second);
    if rate == 0 || agents == 0 {
        return REDIAL_AFTER;
    }
    let spread = (Duration::from_secs(1).saturating_mul(count(agents)) / rate).min(SPREAD_MAX);
    REDIAL_AFTER + spread.mul_f64(f64::from(count(index)) / f64::from(count(agents)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_come_to_the_other_replicas_no_faster_than_these_admit_them() {
        let times: Vec<_> = (0..10_000).map(|index| redial_after(index, 10_000, 2, 500)).collect();
        for second in 0..10 {
            let of_second = Duration::from_secs(1 + second)..Duration::from_secs(2 + second);
            assert_eq!(times.iter().filter(|time| of_second.contains(*time)).count(), 1_000, "second {second}");
        }
        // More replicas take them sooner, and none waits without an end.
        assert_eq!(redial_after(5_000, 10_000, 4, 500), REDIAL_AFTER + Duration::from_millis(2_500));
        assert!(redial_after(999_999, 1_000_000, 1, 1) <= REDIAL_AFTER + SPREAD_MAX);
    }

    #[test]
    fn agents_of_one_gateway_alone_are_told_the_same_time_as_before() {
        assert_eq!(redial_after(7_000, 10_000, 0, 500), REDIAL_AFTER);
        assert_eq!(redial_after(0, 1, 3, 500), REDIAL_AFTER);
    }
}
