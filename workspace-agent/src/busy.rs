//! `workspace-agent busy -- COMMAND…` keeps its workspace from being stopped for idleness while the command runs.
//!
//! It says so by a file in a folder of its user, locked for as long as it counts: the kernel takes the lock back however the
//! process ends. The agent of the same machine looks into the folder when its gateway asks how the workspace is. Neither waits for
//! the other, either may be started first, and there is no connection that could be lost.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use crate::ci::Length;

/// Most files that the agent looks at.
const FILES_MAX: usize = 256;

/// Times for which a command can count.
const TIMES: std::ops::RangeInclusive<Length> = Length::seconds(1)..=Length::seconds(8760 * 3600);

/// Exit status of a command that was not found, and of one that cannot be run, as of shells.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

/// Arguments of `busy`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  workspace-agent busy -- make -j8 release
  workspace-agent busy --for 2h -- ./train.sh

While the command runs, its workspace counts as used. The gateway bounds how long one command counts (idle.busy_max, 12 h unless \
its operator says otherwise), and the workspace's other time limits hold as ever. Exit status: the command's own, 128 and the \
signal's number if a signal ended it, 127 if there is no such command.")]
pub struct BusyArguments {
    /// Longest time for which the command counts; it goes on after that.
    #[arg(long = "for", value_name = "TIME", value_parser = |text: &str| Length::parse_within(text, &TIMES))]
    pub time: Option<Length>,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

/// A sign that the workspace is busy, until it is dropped or its process ends.
#[derive(Debug)]
pub struct BusySign {
    _file: File,
    path: PathBuf,
}

impl BusySign {
    /// Puts the sign up in a folder.
    ///
    /// # Errors
    /// The system's, and for a folder that is another user's.
    pub fn put_up(folder: &Path) -> io::Result<Self> {
        prepare(folder)?;
        let path = folder.join(std::process::id().to_string());
        // One that an earlier process of the same number left is no sign of this one.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { _file: file, path })
    }
}

impl Drop for BusySign {
    fn drop(&mut self) {
        // The lock goes with the file.
        drop(std::fs::remove_file(&self.path));
    }
}

/// Returns the folder of the signs of this user's processes.
#[must_use]
pub fn folder() -> PathBuf {
    PathBuf::from(format!("/tmp/workspace-agent-busy-{}", geteuid().as_raw()))
}

/// Makes the folder, and refuses one that another user could write: they could put anything in its place.
fn prepare(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let found = std::fs::symlink_metadata(folder)?;
    let is_ours = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0;
    if is_ours { Ok(()) } else { Err(io::Error::other(format!("{} is not a folder of yours alone", folder.display()))) }
}

/// Returns for how long the workspace has been busy, by the youngest sign that is up; `None` if none is.
#[must_use]
pub fn read(folder: &Path) -> Option<Duration> {
    let entries = std::fs::read_dir(folder).ok()?;
    entries.flatten().take(FILES_MAX).filter_map(|entry| age(&entry.path())).min()
}

/// Returns the age of a sign, if its process holds it up.
fn age(path: &Path) -> Option<Duration> {
    // A pipe of that name would wait for a writer.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits() | rustix::fs::OFlags::NOFOLLOW.bits()).ok()?;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let made = file.metadata().ok().filter(std::fs::Metadata::is_file)?.modified().ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        // No process holds it: it was left behind.
        Ok(()) => None,
        Err(_locked) => Some(made.elapsed().unwrap_or_default()),
    }
}

/// Runs a command under a sign, and returns its exit status.
///
/// # Errors
/// No sign can be put up, or signals cannot be taken.
pub(crate) async fn run(arguments: BusyArguments) -> anyhow::Result<ExitCode> {
    let folder = folder();
    let mut sign =
        Some(BusySign::put_up(&folder).with_context(|| format!("no sign can be put up in {}", folder.display()))?);
    // A terminal sends its signals to the command as well; this process has to be there when it ends.
    let (_interrupts, _quits) = (signal(SignalKind::interrupt())?, signal(SignalKind::quit())?);
    let (mut terminations, mut hangups) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let Some((program, rest)) = arguments.command.split_first() else { return Ok(ExitCode::from(NOT_FOUND)) };
    let mut command = tokio::process::Command::from(Command::new(program));
    let mut child = match command.args(rest).spawn() {
        Ok(child) => child,
        Err(error) => {
            crate::ci::say(&format!("{}: {error}", program.display()));
            let is_absent = error.kind() == io::ErrorKind::NotFound;
            return Ok(ExitCode::from(if is_absent { NOT_FOUND } else { NOT_RUNNABLE }));
        }
    };
    let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let hand_on = |signal| id.map(|id| kill_process(id, signal));
    let time = arguments.time.map_or(Duration::MAX, |Length(time)| time);
    let over = tokio::time::sleep(time);
    tokio::pin!(over);
    loop {
        tokio::select! {
            ended = child.wait() => {
                let ended = ended?;
                let status = ended.code().or_else(|| ended.signal().map(|signal| 128 + signal)).unwrap_or(1);
                return Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)));
            }
            _ = terminations.recv() => drop(hand_on(Signal::TERM)),
            _ = hangups.recv() => drop(hand_on(Signal::HUP)),
            () = &mut over, if sign.is_some() => drop(sign.take()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_is_up_until_it_is_dropped_and_what_is_left_behind_is_none() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("busy");
        assert_eq!(read(&folder), None, "no folder");
        let sign = BusySign::put_up(&folder).unwrap();
        assert!(read(&folder).is_some_and(|age| age < Duration::from_secs(60)));
        drop(sign);
        assert_eq!(read(&folder), None);
        std::fs::write(folder.join("4711"), "").unwrap();
        assert_eq!(read(&folder), None, "its process is gone");
    }

    #[test]
    fn folder_that_others_can_write_is_not_used() {
        use std::os::unix::fs::PermissionsExt as _;
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("busy");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(BusySign::put_up(&folder).is_err());
        std::os::unix::fs::symlink("/tmp", parent.path().join("link")).unwrap();
        assert!(BusySign::put_up(&parent.path().join("link")).is_err());
    }
}
