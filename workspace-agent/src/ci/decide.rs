//! Pure decisions about the next step of a job that is run.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;

use super::end::End;
use crate::terminal::job::Choice;

/// Time before the expiry of its token at which an agent dials, if the command still runs: a token that was shown once
/// lets its process come back for as long as the gateway allows, and one that was not is worth nothing after its
/// expiry.
const BEFORE_EXPIRY: Duration = Duration::from_secs(60);

/// When a job is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// When its command failed.
    #[default]
    Failure,
    /// Whatever became of its command.
    Always,
    /// Never: the command is run and nothing else.
    Never,
}

impl fmt::Display for On {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Failure => "failure",
            Self::Always => "always",
            Self::Never => "never",
        })
    }
}

/// Decides whether a job is held: never after a signal asked this process to end.
pub(super) fn holds(on: On, end: End, asked_to_end: bool) -> bool {
    let wanted = match on {
        On::Failure => !end.is_passed(),
        On::Always => true,
        On::Never => false,
    };
    wanted && !asked_to_end
}

/// Decides how a held job ends. A user who fails a job whose command passed, as with [`On::Always`], gets a failure.
pub(super) fn end_of(command: End, chosen: Option<Choice>) -> End {
    match chosen {
        Some(Choice::Continue) => End::PASSED,
        Some(Choice::Fail) if command.is_passed() => End::FAILED,
        Some(Choice::Fail) | None => command,
    }
}

/// Decides how long an agent may wait for its command before it dials; `None` if its credential does not expire by
/// itself. Units: seconds since the Unix epoch.
pub(super) fn dial_after(expires_at: Option<u64>, now: u64) -> Option<Duration> {
    let left = Duration::from_secs(expires_at?.saturating_sub(now));
    Some(left.saturating_sub(BEFORE_EXPIRY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_is_held_as_asked_and_never_by_somebody_who_wants_it_to_end() {
        let failed = [End::Status(1), End::Status(127), End::Signal(11), End::Signal(9)];
        for end in failed {
            assert!(holds(On::Failure, end, false) && holds(On::Always, end, false), "{end:?}");
        }
        assert!(!holds(On::Failure, End::PASSED, false) && holds(On::Always, End::PASSED, false));
        for end in failed.into_iter().chain([End::PASSED]) {
            assert!(!holds(On::Never, end, false), "{end:?}");
            assert!(!holds(On::Failure, end, true) && !holds(On::Always, end, true), "{end:?}");
        }
    }

    #[test]
    fn job_that_a_person_fails_fails_also_if_its_command_passed() {
        for end in [End::Status(2), End::Signal(9)] {
            assert_eq!(end_of(end, Some(Choice::Fail)), end, "as the command did");
            assert_eq!(end_of(end, Some(Choice::Continue)), End::PASSED);
            assert_eq!(end_of(end, None), end);
        }
        assert_eq!(end_of(End::PASSED, Some(Choice::Fail)), End::Status(1));
        assert_eq!(end_of(End::PASSED, Some(Choice::Continue)), End::PASSED);
        assert_eq!(end_of(End::PASSED, None), End::PASSED);
    }

    #[test]
    fn agent_dials_a_minute_before_its_token_ends_and_else_when_it_is_needed() {
        assert_eq!(dial_after(None, 1_000), None);
        assert_eq!(dial_after(Some(1_300), 1_000), Some(Duration::from_secs(240)));
        for late in [1_060, 1_001, 1_000, 10] {
            assert_eq!(dial_after(Some(late), 1_000), Some(Duration::ZERO), "{late}");
        }
    }
}
