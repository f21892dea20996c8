//! End of a command, which this process repeats as its own.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};

use rustix::process::{Resource, Rlimit, setrlimit};

/// Base of the statuses that stand for signals where only statuses are seen (POSIX, "Exit Status for Commands").
const SIGNAL_BASE: i32 = 128;

/// End of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// It exited with this status.
    Status(u8),
    /// This signal ended it.
    Signal(i32),
}

impl CommandEnd {
    /// End of a step that passed.
    pub const PASSED: Self = Self::Status(0);

    /// End of a step that a person failed although its command passed.
    pub const FAILED: Self = Self::Status(1);

    pub(super) fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Status(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, Some(signal)) => Self::Signal(signal),
            // Neither: a process that was stopped has not ended, and is not waited for.
            (None, None) => Self::Status(u8::MAX),
        }
    }

    /// Returns whether a CI system counts it as passed.
    #[must_use]
    pub fn is_passed(self) -> bool {
        self == Self::PASSED
    }

    /// Returns the status as a shell has it in `$?`.
    #[must_use]
    pub fn in_shell(self) -> i32 {
        match self {
            Self::Status(status) => i32::from(status),
            Self::Signal(signal) => SIGNAL_BASE + signal,
        }
    }

    /// Ends this process in the same way: the returned status is for `main`, and a signal ends the process right here.
    #[must_use]
    pub fn finish(self) -> ExitCode {
        let status = u8::try_from(self.in_shell()).unwrap_or(u8::MAX);
        if let Self::Signal(signal) = self {
            // The core dump that matters is the command's, and stays as it is. A limit that cannot be set changes
            // nothing else.
            setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).unwrap_or_default();
            // Another program sends the signal, because the handlers of this one would prevent the death; the process
            // stays the same, and so does what its parent sees. `exec` returns only if there is no shell, and then the
            // status has to do.
            let script = format!("kill -{signal} $$; exit {status}");
            drop(Command::new("/bin/sh").arg("-c").arg(script).exec());
        }
        ExitCode::from(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_see_a_signal_as_128_and_its_number() {
        for (raw, end, in_shell) in [
            (0, CommandEnd::PASSED, 0),
            (3 << 8, CommandEnd::Status(3), 3),
            (255 << 8, CommandEnd::Status(255), 255),
            (15, CommandEnd::Signal(15), 143),
            (9, CommandEnd::Signal(9), 137),
            // With a core dump.
            (11 | 0x80, CommandEnd::Signal(11), 139),
        ] {
            let found = CommandEnd::of(ExitStatus::from_raw(raw));
            assert_eq!((found, found.in_shell()), (end, in_shell), "{raw}");
            assert_eq!(found.is_passed(), raw == 0);
        }
    }
}
