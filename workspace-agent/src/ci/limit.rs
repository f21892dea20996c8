//! Time limit of the CI system for a job, whatever becomes of its command: it counts the time of a held job too.

use jiff::Timestamp;

use super::length::Length;

/// Part of the job's time that is left for the steps after its command: caches, artifacts, `after_script`.
const AFTERWARDS_SECONDS: u64 = 60;

/// Shortest hold in which a user could follow the link.
const WORTHWHILE_SECONDS: u64 = 10;

/// Length of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// As long as asked for.
    Asked(Length),
    /// Shorter, because the job's own time ends before.
    Cut(Length),
    /// Not at all: the job's own time is nearly over.
    NoTime,
}

/// Reads the end of a job from what GitLab tells it: `CI_JOB_STARTED_AT` (ISO 8601) and `CI_JOB_TIMEOUT` (seconds).
/// Units: seconds since the Unix epoch.
pub(crate) fn ends_at(started_at: &str, timeout: &str) -> Option<u64> {
    let started_at: Timestamp = started_at.trim().parse().ok()?;
    u64::try_from(started_at.as_second()).ok()?.checked_add(timeout.trim().parse().ok()?)
}

/// Decides for how long a job is held. If the job runs although its time is over, its clock differs from the CI
/// system's, and its end is unknown. Units: seconds since the Unix epoch.
pub(super) fn hold(asked: Length, ends_at: Option<u64>, now: u64) -> Hold {
    let Some(left) = ends_at.and_then(|end| end.checked_sub(now)).filter(|left| *left > 0) else {
        return Hold::Asked(asked);
    };
    let left = left.saturating_sub(AFTERWARDS_SECONDS);
    match Length::seconds(left) {
        enough if enough >= asked => Hold::Asked(asked),
        _ if left < WORTHWHILE_SECONDS => Hold::NoTime,
        cut => Hold::Cut(cut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_job_is_read_from_what_gitlab_says() {
        assert_eq!(ends_at("2022-01-31T16:47:55Z", "3600"), Some(1_643_651_275));
        assert_eq!(ends_at("2022-01-31T17:47:55+01:00\n", " 3600"), Some(1_643_651_275));
        for (started_at, timeout) in [
            ("", "3600"),
            ("2022-01-31T16:47:55Z", ""),
            ("2022-01-31T16:47:55Z", "1h"),
            ("2022-01-31T16:47:55Z", "-1"),
            ("2022-01-31T16:47:55Z", "18446744073709551615"),
            ("1922-01-31T16:47:55Z", "3600"),
            ("2022-01-31", "3600"),
            ("1643647675", "3600"),
        ] {
            assert_eq!(ends_at(started_at, timeout), None, "{started_at} {timeout}");
        }
    }

    #[test]
    fn job_is_not_held_beyond_its_own_time() {
        let asked = Length::seconds(1800);
        for (left, held) in [
            (1860, Hold::Asked(asked)),
            (1859, Hold::Cut(Length::seconds(1799))),
            (70, Hold::Cut(Length::seconds(10))),
            (69, Hold::NoTime),
            (1, Hold::NoTime),
        ] {
            assert_eq!(hold(asked, Some(5_000 + left), 5_000), held, "{left}");
        }
        let short = Length::seconds(2);
        assert_eq!(hold(short, Some(5_062), 5_000), Hold::Asked(short), "all that was asked for");
    }

    #[test]
    fn job_whose_end_nobody_knows_is_held_as_asked() {
        let asked = Length::seconds(1800);
        for ends_at in [None, Some(0), Some(4_999), Some(5_000)] {
            assert_eq!(hold(asked, ends_at, 5_000), Hold::Asked(asked), "{ends_at:?}");
        }
    }
}
