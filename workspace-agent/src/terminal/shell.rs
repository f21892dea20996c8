//! Shell in a session of its own, whose controlling terminal is one of the agent's.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use pty_process::{Command, Pty};
use tokio::process::Child;

use super::TerminalOptions;
use super::message::Size;

/// Paths of shells to try if none is named.
const SHELLS: [&str; 3] = ["/bin/bash", "/usr/bin/bash", "/bin/sh"];

/// Terminal type that the page's emulator understands, by the name that programs look up.
const TERM: &str = "xterm-256color";

/// Variables that are the agent's own, or say something about another terminal.
const FOREIGN: [&str; 4] = ["COLUMNS", "LINES", "TERMCAP", "WORKSPACE_GATEWAY_TOKEN"];

/// Beginning of the names of the agent's settings.
const SETTINGS: &[u8] = b"WORKSPACE_AGENT_";

/// Starts a shell. It is interactive, but no login shell: one of those reads `/etc/profile`, which sets the environment of a job or
/// container back to a login's.
///
/// # Errors
/// The system's: no terminal is to be had, or the shell does not start.
pub(super) fn start(options: &TerminalOptions, size: Size) -> io::Result<(Pty, Child)> {
    let (pty, pts) = pty_process::open().map_err(into_io)?;
    pty.resize(into_size(size)).map_err(into_io)?;
    let shell = choose(options.shell.as_deref(), std::env::var_os("SHELL"));
    let mut command = Command::new(&shell).kill_on_drop(true);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_foreign(name, &options.without)) {
        command = command.env_remove(name);
    }
    let added = options.environment.iter().map(|(name, value)| (name, value));
    command = command.env("TERM", TERM).env("COLORTERM", "truecolor").env("SHELL", &shell).envs(added);
    // A folder that is not there any more would prevent the terminal altogether.
    if let Some(directory) = options.directory.as_deref().filter(|directory| directory.is_dir()) {
        command = command.current_dir(directory);
    }
    let child = command.spawn(pts).map_err(into_io)?;
    Ok((pty, child))
}

/// Writes a size as the system has it.
pub(super) fn into_size(Size { columns, rows }: Size) -> pty_process::Size {
    pty_process::Size::new(rows, columns)
}

/// Returns an exit status as shells do: 128 and the signal's number for a process that a signal ended.
pub(super) fn status_of(status: ExitStatus) -> Option<i32> {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal))
}

pub(super) fn into_io(error: pty_process::Error) -> io::Error {
    io::Error::other(error)
}

/// Returns whether a variable is none of what a shell of the workspace gets: the agent's own, or about another terminal.
pub(crate) fn is_foreign(name: &OsStr, without: &[OsString]) -> bool {
    let is_setting = name.as_encoded_bytes().starts_with(SETTINGS);
    is_setting || FOREIGN.iter().any(|foreign| name == *foreign) || without.iter().any(|left| name == left)
}

/// Chooses the shell: the one that was named, the one of the environment if it can be started, one that is there.
pub(crate) fn choose(named: Option<&Path>, environment: Option<OsString>) -> PathBuf {
    if let Some(named) = named {
        return named.to_owned();
    }
    let can_run = |path: &Path| {
        let found = path.metadata();
        path.is_absolute() && found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let usual = environment.map(PathBuf::from).into_iter().chain(SHELLS.map(PathBuf::from));
    usual.into_iter().find(|path| can_run(path)).unwrap_or_else(|| PathBuf::from("sh"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_is_the_named_one_or_one_that_can_run() {
        assert_eq!(choose(Some(Path::new("/x/fish")), Some("/bin/sh".into())), Path::new("/x/fish"));
        assert_eq!(choose(None, Some("/bin/sh".into())), Path::new("/bin/sh"));
        for unusable in [
            None,
            Some("sh"),
            Some("/no/such/shell"),
            Some(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")),
            Some("/bin"),
        ] {
            let chosen = choose(None, unusable.map(OsString::from));
            assert!(SHELLS.iter().any(|shell| chosen == Path::new(shell)), "{unusable:?}: {}", chosen.display());
        }
    }

    #[test]
    fn what_belongs_to_the_agent_does_not_reach_a_shell() {
        let without = [OsString::from("JOB_TOKEN")];
        for (name, expected) in [
            ("WORKSPACE_AGENT_TOKEN_FILE", true),
            ("WORKSPACE_GATEWAY_TOKEN", true),
            ("JOB_TOKEN", true),
            ("COLUMNS", true),
            ("PATH", false),
            ("CI_JOB_NAME", false),
        ] {
            assert_eq!(is_foreign(OsStr::new(name), &without), expected, "{name}");
        }
    }
}
