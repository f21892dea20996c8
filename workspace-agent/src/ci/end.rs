//! How a command ended, and how this process ends the same way.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};

use rustix::process::{Resource, Rlimit, setrlimit};

/// Statuses above this one say which signal it was, to those who only see statuses (POSIX, "Exit Status for Commands").
const SIGNAL_BASE: i32 = 128;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this status.
    Status(u8),
    /// This signal ended it.
    Signal(i32),
}

impl End {
    /// What a step that passed ends with.
    pub const PASSED: Self = Self::Status(0);

    /// What a step ends with that a person failed although its command passed.
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

    /// Ends this process in the same way: what it returns is for `main`, and a signal ends it right here.
    #[must_use]
    pub fn finish(self) -> ExitCode {
        let status = u8::try_from(self.in_shell()).unwrap_or(u8::MAX);
        if let Self::Signal(signal) = self {
            // The core that matters is the command's, and stays as it is. A limit that cannot be set is no reason to go on.
            setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).unwrap_or_default();
            // In another program, because the handlers of this one are in the way of dying; the process stays the same, and
            // so does what its parent sees. Comes back only where there is no shell, and then the status has to do.
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
            (0, End::PASSED, 0),
            (3 << 8, End::Status(3), 3),
            (255 << 8, End::Status(255), 255),
            (15, End::Signal(15), 143),
            (9, End::Signal(9), 137),
            // With a core dump.
            (11 | 0x80, End::Signal(11), 139),
        ] {
            let found = End::of(ExitStatus::from_raw(raw));
            assert_eq!((found, found.in_shell()), (end, in_shell), "{raw}");
            assert_eq!(found.is_passed(), raw == 0);
        }
    }
}
