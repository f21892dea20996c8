//! Second process of the group. It reports the signals that hit it: those went to the whole group, and so to the
//! command too. It also ends the command when the first process is killed, which cannot be caught: else the command
//! would run on, and its job with it.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use futures_util::FutureExt;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::signals::Signals;
use super::tree::Tree;

/// Name of the hidden command of this program that runs a witness.
pub const COMMAND: &str = "ci-witness";

/// Answer to a question: all signals that hit the witness are said. No signal has this number.
const ANSWER: u8 = 0;

/// A witness that runs.
pub(super) struct SignalProbe {
    child: Child,
    says: ChildStdout,
    /// Carries the ids of the command and of this process; every byte after that is a question. Its end means that this
    /// process was killed: else the witness is ended before.
    tells: ChildStdin,
}

/// Message of a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WitnessMessage {
    /// It was hit by a signal.
    Hit(i32),
    /// Answer to a question: it has said all.
    Answer,
}

impl SignalProbe {
    /// Starts a witness, if that is possible. Without one, every signal is handed on.
    pub(super) fn start(program: &Path) -> Option<Self> {
        let mut command = Command::new(program);
        command.arg(COMMAND).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self::of(command.kill_on_drop(true).spawn().ok()?)
    }

    fn of(mut child: Child) -> Option<Self> {
        let (says, tells) = (child.stdout.take()?, child.stdin.take()?);
        Some(Self { child, says, tells })
    }

    /// Tells the witness which process to end if this one is killed.
    pub(super) async fn guard(&mut self, command: u32) {
        // A witness that is gone guards nothing.
        let ids = [command, std::process::id()].map(u32::to_be_bytes);
        self.tells.write_all(ids.as_flattened()).await.unwrap_or_default();
    }

    /// Asks whether more signals hit the witness than it has said, once it knows the command. Returns whether it will
    /// hear that.
    pub(super) fn ask(&mut self) -> bool {
        matches!(self.tells.write(&[0]).now_or_never(), Some(Ok(1)))
    }

    /// Waits for the next message; `None` once the witness is gone.
    ///
    /// Cancel safety: safe; what it says is one byte.
    pub(super) async fn said(&mut self) -> Option<WitnessMessage> {
        let mut said = [0];
        match self.says.read(&mut said).await {
            Ok(1) if said == [ANSWER] => Some(WitnessMessage::Answer),
            Ok(1) => Some(WitnessMessage::Hit(i32::from(u8::from_be_bytes(said)))),
            Ok(_) | Err(_) => None,
        }
    }

    /// Ends the witness without a trace. Returns the signal that had killed it: one that hit it before it could say so.
    pub(super) async fn end(mut self) -> Option<i32> {
        // It is gone either way.
        self.child.kill().await.unwrap_or_default();
        self.child.wait().await.ok()?.signal()
    }
}

/// Runs a witness until the process that started it is gone.
///
/// # Errors
/// The system's.
pub async fn be() -> io::Result<ExitCode> {
    let mut signals = Signals::take()?;
    let (asks, mut asked) = mpsc::channel(1);
    let mut ended = tokio::task::spawn_blocking(move || guard(&mut io::stdin().lock(), &asks));
    loop {
        tokio::select! {
            number = signals.next() => say(number)?,
            Some(()) = asked.recv() => {
                // A signal that hit this process before it was asked has been taken by now, and is known after this.
                tokio::task::yield_now().await;
                while let Some(number) = signals.next().now_or_never() {
                    say(number)?;
                }
                say(ANSWER.into())?;
            }
            _ended = &mut ended => return Ok(ExitCode::SUCCESS),
        }
    }
}

fn say(what: i32) -> io::Result<()> {
    let Ok(what) = u8::try_from(what) else { return Ok(()) };
    let mut output = io::stdout().lock();
    output.write_all(&[what])?;
    output.flush()
}

/// Waits until the process that started this one is gone, and ends the command that it named. Hands questions on until
/// then.
fn guard(told: &mut impl Read, asks: &mpsc::Sender<()>) {
    let mut ids = [[0; 4]; 2];
    // The starter may be gone before there is a command.
    let is_told = told.read_exact(ids.as_flattened_mut()).is_ok();
    let [command, starter] = ids.map(i32::from_be_bytes);
    let command = if is_told { Tree::of(command) } else { None };
    // Still the parent after the handle was opened: so the handle means it, and no later process of that number.
    let open = |id| pidfd_open(id, PidfdFlags::empty()).ok().filter(|_| getppid() == Some(id));
    let starter = Pid::from_raw(starter).and_then(open);
    while told.read_exact(&mut [0]).is_ok() {
        // The receiver is gone when this process is about to end.
        asks.blocking_send(()).unwrap_or_default();
    }
    let Some(command) = command else { return };
    // The starter's files are closed before it is gone. If any process of its group were stopped at that moment, the
    // system would hang up all of that orphaned group (POSIX, _Exit(2)), and processes that are not the command's would
    // die with it. On a machine that stands still, that moment may take seconds.
    if let Some(starter) = starter {
        retry_on_intr(|| poll(&mut [PollFd::new(&starter, PollFlags::IN)], None)).unwrap_or_default();
    }
    command.kill();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(script: &str) -> SignalProbe {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        SignalProbe::of(command.spawn().expect("a shell")).expect("its pipes")
    }

    #[tokio::test]
    async fn signal_that_a_witness_died_of_is_known() {
        let mut dies = witness("kill -s TERM $$");
        assert_eq!((dies.said().await, dies.end().await), (None, Some(15)));
        let mut ends = witness("exit 3");
        assert_eq!((ends.said().await, ends.end().await), (None, None));
    }

    #[tokio::test]
    async fn witness_says_what_hit_it_and_answers() {
        let mut witness = witness(r"head -c 9 >/dev/null; printf '\017\000'; exec sleep 60");
        witness.guard(1).await;
        assert!(witness.ask());
        assert_eq!(
            (witness.said().await, witness.said().await),
            (Some(WitnessMessage::Hit(15)), Some(WitnessMessage::Answer))
        );
        witness.end().await;
    }
}
