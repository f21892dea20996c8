//! A second process of the group. It says which signals hit it: those went to the whole group, and so to the command too. And it ends
//! the command when the first one is killed, which nobody can catch: else the command would run on, and its job with it.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{PidfdFlags, getppid, pidfd_open};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::signals::Signals;
use super::tree::Tree;

/// The hidden command of this program that is one.
pub const COMMAND: &str = "ci-witness";

/// How long a process that has closed its files may take to be gone. Longer is not waited: it may not be the one that was meant.
const GONE_WITHIN: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// A witness that runs.
pub(super) struct Witness {
    child: Child,
    says: ChildStdout,
    /// Says which process is the command. When it is closed, this process was killed: else the witness is ended before.
    tells: ChildStdin,
}

impl Witness {
    /// Starts one, if that is possible. Without one, every signal is handed on.
    pub(super) fn start(program: &Path) -> Option<Self> {
        let mut command = Command::new(program);
        command.arg(COMMAND).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().ok()?;
        let (says, tells) = (child.stdout.take()?, child.stdin.take()?);
        Some(Self { child, says, tells })
    }

    /// Tells it which process it is to end if this one is killed.
    pub(super) async fn guard(&mut self, command: u32) {
        // One that is gone guards nothing.
        self.tells.write_all(&command.to_be_bytes()).await.unwrap_or_default();
    }

    /// Waits until it is hit; `None` when it is gone.
    ///
    /// Cancel safety: safe; what it says is one byte.
    pub(super) async fn hit(&mut self) -> Option<i32> {
        let mut number = [0];
        match self.says.read(&mut number).await {
            Ok(1) => Some(i32::from(u8::from_be_bytes(number))),
            Ok(_) | Err(_) => None,
        }
    }

    /// Ends it, and leaves no trace of it.
    pub(super) async fn end(mut self) {
        // It is gone either way.
        self.child.kill().await.unwrap_or_default();
    }
}

/// Is a witness, until the one who started it is gone.
///
/// # Errors
/// The system's.
pub async fn be() -> io::Result<ExitCode> {
    let mut signals = Signals::take()?;
    let mut ended = tokio::task::spawn_blocking(|| guard(&mut io::stdin().lock()));
    loop {
        tokio::select! {
            number = signals.next() => {
                let Ok(number) = u8::try_from(number) else { continue };
                let mut output = io::stdout().lock();
                output.write_all(&[number])?;
                output.flush()?;
            }
            _ended = &mut ended => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Waits until the one who started this process is gone, and ends the command that was told.
fn guard(told: &mut impl Read) {
    let starter = getppid().and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok());
    let mut command = [0; 4];
    // It may be gone before there is a command.
    let is_told = told.read_exact(&mut command).is_ok();
    let command = i32::from_be_bytes(command);
    let command = if is_told { Tree::of(command) } else { None };
    // Nothing more ever comes: what is waited for is the end of it.
    told.read_exact(&mut [0]).unwrap_or_default();
    let Some(command) = command else { return };
    // Its files are closed before it is gone. If any process of its group were stopped at that moment, the system would hang up
    // all of that group, which nobody leads any more (POSIX, _Exit(2)), and what is not the command's would die with it.
    if let Some(starter) = starter {
        retry_on_intr(|| poll(&mut [PollFd::new(&starter, PollFlags::IN)], Some(&GONE_WITHIN))).unwrap_or_default();
    }
    command.kill();
}
