//! Schedule of a workspace's CI job: warning, renewal, end of the script, saving.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Times after which a CI system may end the job of a workspace: a shorter one would be over before it began, and no CI
/// system offers a longer one.
pub const JOB_TIMES: RangeInclusive<Duration> = Duration::from_secs(10 * 60)..=Duration::from_secs(30 * 24 * 60 * 60);

/// Times that a job may take to save its files.
pub const SAVE_TIMES: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(24 * 60 * 60);

/// Longest time from a job's renewal until its script would end by itself: clocks differ, and running programs have to
/// end.
const LEAD_MAX: Duration = Duration::from_secs(2 * 60);

/// Longest time from the warning of users until the job's renewal.
const NOTICE_MAX: Duration = Duration::from_secs(15 * 60);

/// Schedule of a workspace's job. All times count from the job's start.
///
/// ```text
/// start ──────── warn ────── renew ──── script's end ──── script's kill ──── end
///                  └─ notice ─┘└─ lead ─┘└─────────── files are saved ───────┘
/// ```
///
/// The gateway renews a job, and the job's script ends by itself if the gateway does not: both follow this schedule, so
/// neither can be in the other's way. Short jobs have a fraction of each span, long ones the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTime {
    end: Duration,
    saving: Duration,
    save_max: Duration,
}

impl JobTime {
    /// Divides the time of a job that the CI system ends after `job_timeout`, and whose files take `save_max` to save at most.
    #[must_use]
    pub fn of(job_timeout: Duration, save_max: Duration) -> Self {
        // Pipeline definitions have whole minutes.
        let end = Duration::from_secs(job_timeout.as_secs() / 60 * 60);
        let saving = Duration::from_secs(save_max.min(end / 8).as_secs());
        Self { end, saving, save_max }
    }

    /// Returns the time at which the CI system ends the job.
    #[must_use]
    pub fn end(self) -> Duration {
        self.end
    }

    /// Returns the time at which the runner kills a script that did not end by itself. Half of the time to save is left
    /// then.
    #[must_use]
    pub fn script_kill(self) -> Duration {
        self.end.saturating_sub(self.saving / 2)
    }

    /// Returns the time at which the job's script ends by itself.
    #[must_use]
    pub fn script_end(self) -> Duration {
        self.end.saturating_sub(self.saving)
    }

    /// Returns the time at which the job is told to end, and another takes its place.
    #[must_use]
    pub fn renew(self) -> Duration {
        self.script_end().saturating_sub(LEAD_MAX.min(self.end / 30))
    }

    /// Returns the time at which users are warned of the renewal.
    #[must_use]
    pub fn warn(self) -> Duration {
        self.renew().saturating_sub(NOTICE_MAX.min(self.end / 8))
    }

    /// Returns the time limit for saving the files of a job that was told to end.
    #[must_use]
    pub fn save_max(self) -> Duration {
        self.save_max
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Time that a job's script takes to end its processes.
    const SCRIPT_FINISH: Duration = Duration::from_secs(10);

    fn within(times: RangeInclusive<Duration>) -> impl Strategy<Value = Duration> {
        let (first, last) = (times.start().as_millis(), times.end().as_millis());
        let between = (0_u32..=1_000_000).prop_map(move |part| {
            let millis = first + (last - first) * u128::from(part) / 1_000_000;
            Duration::from_millis(u64::try_from(millis).unwrap())
        });
        // Most that is special is near the shortest.
        let short = (0_u64..7_200_000).prop_map(move |more| *times.start() + Duration::from_millis(more));
        prop_oneof![between, short, Just(Duration::from_millis(u64::try_from(first).unwrap()))]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn job_is_warned_of_then_renewed_then_ends_by_itself_and_has_room_to_save_for_every_time_that_is_allowed(
            job_timeout in within(JOB_TIMES),
            save_max in within(SAVE_TIMES),
        ) {
            let time = JobTime::of(job_timeout, save_max);
            prop_assert!(time.warn() >= time.end() / 2, "{time:?}");
            prop_assert!(time.warn() + Duration::from_secs(60) <= time.renew(), "{time:?}");
            prop_assert!(time.renew() + SCRIPT_FINISH + Duration::from_secs(10) <= time.script_end(), "{time:?}");
            prop_assert!(time.script_end() + SCRIPT_FINISH < time.script_kill(), "{time:?}");
            prop_assert!(time.script_kill() + Duration::from_secs(30) <= time.end(), "{time:?}");
            prop_assert!(time.end() <= job_timeout && job_timeout - time.end() < Duration::from_secs(60), "{time:?}");
            // All that saving may take, unless that would be too large a part of the job.
            let room = time.end() - time.script_end();
            let second = Duration::from_secs(1);
            prop_assert!(room + second > save_max.min(time.end() / 8) && room >= Duration::from_secs(60), "{time:?}");
            prop_assert_eq!(time.save_max(), save_max);
        }
    }

    #[test]
    fn usual_job_has_half_an_hour_to_save_and_is_warned_of_a_quarter_of_an_hour_before_its_renewal() {
        let minutes = |count: u64| Duration::from_secs(count * 60);
        let time = JobTime::of(minutes(480), minutes(30));
        assert_eq!([time.warn(), time.renew(), time.script_end()], [433, 448, 450].map(minutes));
        assert_eq!([time.script_kill(), time.end()], [465, 480].map(minutes));
        // The shortest.
        let time = JobTime::of(minutes(10), minutes(30));
        let seconds = [time.warn(), time.renew(), time.script_end(), time.script_kill(), time.end()];
        assert_eq!(seconds.map(|at| at.as_secs()), [430, 505, 525, 562, 600]);
    }
}
