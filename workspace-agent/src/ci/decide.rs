//! Pure decisions about the next step of a job that is run.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;

use super::end::CommandEnd;
use crate::terminal::job::Choice;

/// Time before the expiry of its token at which an agent dials, if the command still runs: a token that was shown once
/// lets its process come back for as long as the gateway allows, and one that was not is worth nothing after its
/// expiry.
const BEFORE_EXPIRY: Duration = Duration::from_secs(60);

/// Condition for holding a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HoldCondition {
    /// A failed command.
    #[default]
    Failure,
    /// Whatever became of its command.
    Always,
    /// Never: the command is run and nothing else.
    Never,
}

impl fmt::Display for HoldCondition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Failure => "failure",
            Self::Always => "always",
            Self::Never => "never",
        })
    }
}

/// Decides whether a job is held: never after a signal asked this process to end.
pub(super) fn holds(on: HoldCondition, end: CommandEnd, asked_to_end: bool) -> bool {
    let wanted = match on {
        HoldCondition::Failure => !end.is_passed(),
        HoldCondition::Always => true,
        HoldCondition::Never => false,
    };
    wanted && !asked_to_end
}

/// Decides how a held job ends. A user who fails a job whose command passed, as with [`HoldCondition::Always`], gets a failure.
pub(super) fn end_of(command: CommandEnd, chosen: Option<Choice>) -> CommandEnd {
    match chosen {
        Some(Choice::Continue) => CommandEnd::PASSED,
        Some(Choice::Fail) if command.is_passed() => CommandEnd::FAILED,
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
        let failed = [CommandEnd::Status(1), CommandEnd::Status(127), CommandEnd::Signal(11), CommandEnd::Signal(9)];
        for end in failed {
            assert!(holds(HoldCondition::Failure, end, false) && holds(HoldCondition::Always, end, false), "{end:?}");
        }
        assert!(
            !holds(HoldCondition::Failure, CommandEnd::PASSED, false)
                && holds(HoldCondition::Always, CommandEnd::PASSED, false)
        );
        for end in failed.into_iter().chain([CommandEnd::PASSED]) {
            assert!(!holds(HoldCondition::Never, end, false), "{end:?}");
            assert!(!holds(HoldCondition::Failure, end, true) && !holds(HoldCondition::Always, end, true), "{end:?}");
        }
    }

    #[test]
    fn job_that_a_person_fails_fails_also_if_its_command_passed() {
        for end in [CommandEnd::Status(2), CommandEnd::Signal(9)] {
            assert_eq!(end_of(end, Some(Choice::Fail)), end, "as the command did");
            assert_eq!(end_of(end, Some(Choice::Continue)), CommandEnd::PASSED);
            assert_eq!(end_of(end, None), end);
        }
        assert_eq!(end_of(CommandEnd::PASSED, Some(Choice::Fail)), CommandEnd::Status(1));
        assert_eq!(end_of(CommandEnd::PASSED, Some(Choice::Continue)), CommandEnd::PASSED);
        assert_eq!(end_of(CommandEnd::PASSED, None), CommandEnd::PASSED);
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
