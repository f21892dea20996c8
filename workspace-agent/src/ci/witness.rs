//! A second process of the group, which says which signals hit it: those went to the whole group, and so to the command too.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{ExitCode, Stdio};

use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::signals::Signals;

/// The hidden command of this program that is one.
pub const COMMAND: &str = "ci-witness";

/// A witness that runs.
pub(super) struct Witness {
    child: Child,
    says: ChildStdout,
    /// Ends the witness when it is closed, also by the end of this process.
    _ends: ChildStdin,
}

impl Witness {
    /// Starts one, if that is possible. Without one, every signal is handed on.
    pub(super) fn start(program: &Path) -> Option<Self> {
        let mut command = Command::new(program);
        command.arg(COMMAND).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().ok()?;
        let (says, ends) = (child.stdout.take()?, child.stdin.take()?);
        Some(Self { child, says, _ends: ends })
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
    // Nothing ever comes: what is waited for is the end of it.
    let mut ended = tokio::task::spawn_blocking(|| io::stdin().read(&mut [0]));
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
