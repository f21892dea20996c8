//! Command of a job, run as it would run without a wrapper: same files, same process group, same terminal; signals that
//! only this process got are handed on.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::time::Instant;

use super::attach::Attachment;
use super::end::CommandEnd;
use super::signal_probe::{SignalProbe, WitnessMessage};
use super::signals::{Handing, Signals, asks_to_end};

/// Longest command that people are shown, in characters.
const SHOWN_CHARS_MAX: usize = 200;

/// Exit statuses of a shell for a command that is not there, and for one that cannot be run (POSIX, "Exit Status for
/// Commands").
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Interpreter of a script that does not name one.
const SHELL: &str = "/bin/sh";

/// A command and its arguments.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// Looked for in `PATH`, as a shell does.
    pub program: OsString,
    /// Arguments of the program.
    pub arguments: Vec<OsString>,
    /// Variable of this process that is hidden from the command: it holds the agent's token.
    pub hidden_variable: Option<OsString>,
}

/// Outcome of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    pub(super) end: CommandEnd,
    /// A signal asked the job to end meanwhile.
    pub(super) asked_to_end: bool,
}

impl CommandLine {
    fn command(&self) -> Command {
        // Standard input, output and error are inherited, and so is every other file that was meant to be.
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        if let Some(name) = &self.hidden_variable {
            command.env_remove(name);
        }
        command
    }

    /// Replaces this process by the command. Returns only if that cannot be done, after saying why.
    #[must_use]
    pub fn become_it(&self, say: impl FnOnce(&str)) -> CommandEnd {
        let mut error = self.command().exec();
        if let Some(script) = self.as_script(&error) {
            error = script.command().exec();
        }
        self.not_started(&error, say)
    }

    /// Starts the command.
    fn spawn(&self) -> io::Result<Child> {
        let start = |line: &Self| tokio::process::Command::from(line.command()).spawn();
        start(self).or_else(|error| self.as_script(&error).map_or(Err(error), |script| start(&script)))
    }

    /// Returns the command to run instead after an error: a file that the system cannot execute by itself is a script
    /// for the shell (POSIX.1, Shell Command Language, section 2.9.1.1), as it is without a wrapper. Some C libraries
    /// do so by themselves, in some calls.
    fn as_script(&self, error: &io::Error) -> Option<Self> {
        if error.raw_os_error() != Some(Errno::NOEXEC.raw_os_error()) {
            return None;
        }
        let words = std::iter::once(self.found()).chain(self.arguments.iter().cloned());
        Some(Self { program: SHELL.into(), arguments: words.collect(), ..self.clone() })
    }

    /// Returns the program's path, as the system finds it.
    fn found(&self) -> OsString {
        let places = std::env::var_os("PATH").unwrap_or_default();
        let is_path = Path::new(&self.program).components().count() > 1;
        let mut places = std::env::split_paths(&places).map(|place| place.join(&self.program));
        let found = if is_path { None } else { places.find(|path| path.is_file()) };
        found.map_or_else(|| self.program.clone(), PathBuf::into_os_string)
    }

    fn not_started(&self, error: &io::Error, say: impl FnOnce(&str)) -> CommandEnd {
        say(&format!("{}: {error}", self.program.display()));
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        CommandEnd::Status(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE })
    }

    /// Returns the command as one line for people.
    pub(super) fn shown(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.arguments).map(|word| shown_word(word));
        let line = words.collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(SHOWN_CHARS_MAX) {
            Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
            None => line,
        }
    }

    /// Runs the command to its end. Dials the gateway at `dial_at` if that comes first.
    pub(super) async fn run(
        &self,
        signals: &mut Signals,
        witness: Option<SignalProbe>,
        attachment: &mut Attachment,
        dial_at: Option<Instant>,
        say: impl Fn(&str),
    ) -> Ran {
        let child = match self.spawn() {
            Ok(child) => child,
            Err(error) => return Ran { end: self.not_started(&error, say), asked_to_end: false },
        };
        let mut running = RunningCommand { child, witness, handing: Handing::default(), asked_to_end: false };
        if let (Some(witness), Some(id)) = (&mut running.witness, running.child.id()) {
            witness.guard(id).await;
        }
        let end = running.until_end(signals, attachment, dial_at, say).await;
        if let Some(witness) = running.witness {
            witness.end().await;
        }
        Ran { end, asked_to_end: running.asked_to_end }
    }
}

struct RunningCommand {
    child: Child,
    witness: Option<SignalProbe>,
    handing: Handing,
    asked_to_end: bool,
}

impl RunningCommand {
    async fn until_end(
        &mut self,
        signals: &mut Signals,
        attachment: &mut Attachment,
        dial_at: Option<Instant>,
        say: impl Fn(&str),
    ) -> CommandEnd {
        loop {
            tokio::select! {
                // Signals first: one that ended the command and asks this process to end too came before that end.
                biased;
                number = signals.next() => {
                    self.asked_to_end |= asks_to_end(number);
                    self.handing.came(number, Instant::now());
                    if self.witness.is_none() {
                        self.handing.unwitnessed(Instant::now());
                    }
                }
                status = self.child.wait() => match status {
                    Ok(status) => return CommandEnd::of(status),
                    Err(error) => {
                        say(&format!("how the command ended cannot be found out: {error}"));
                        return CommandEnd::Status(u8::MAX);
                    }
                },
                said = said(self.witness.as_mut()) => match said {
                    Some(WitnessMessage::Hit(number)) => self.handing.witnessed(number, Instant::now()),
                    Some(WitnessMessage::Answer) => self.handing.answered(Instant::now()),
                    None => self.without_witness().await,
                },
                () = at(self.handing.next_due()) => {}
                () = at(dial_at), if attachment.is_planned() => attachment.begin(),
            }
            if self.handing.asks(Instant::now()) && !self.witness.as_mut().is_some_and(SignalProbe::ask) {
                self.handing.answered(Instant::now());
            }
            while let Some(number) = self.handing.due(Instant::now()) {
                self.hand_on(number);
            }
        }
    }

    /// Stops waiting for a witness that is gone.
    async fn without_witness(&mut self) {
        if let Some(witness) = self.witness.take()
            && let Some(number) = witness.end().await
        {
            self.handing.witnessed(number, Instant::now());
        }
        self.handing.unwitnessed(Instant::now());
    }

    fn hand_on(&self, number: i32) {
        // The child has not been waited for, so the number is still its own.
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let (Some(id), Some(signal)) = (id, Signal::from_named_raw(number)) {
            // An error means that it has ended and is about to be waited for.
            kill_process(id, signal).unwrap_or_default();
        }
    }
}

async fn said(witness: Option<&mut SignalProbe>) -> Option<WitnessMessage> {
    match witness {
        Some(witness) => witness.said().await,
        None => std::future::pending().await,
    }
}

/// Waits until a time; for ever if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Writes a word as one would type it, fit for one line.
fn shown_word(word: &OsStr) -> String {
    let text: String = word
        .to_string_lossy()
        .chars()
        .map(|character| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character })
        .collect();
    let is_plain = |character: char| character.is_alphanumeric() || "-_./=:,+@%".contains(character);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> CommandLine {
        let (program, arguments) = words.split_first().expect("a program");
        CommandLine {
            program: program.into(),
            arguments: arguments.iter().map(Into::into).collect(),
            hidden_variable: None,
        }
    }

    #[test]
    fn command_is_shown_as_one_line_that_says_which_words_there_are() {
        assert_eq!(line(&["make", "-j2", "test"]).shown(), "make -j2 test");
        assert_eq!(line(&["sh", "-c", "echo it's\n<b>", ""]).shown(), "sh -c 'echo it'\\''s\u{fffd}<b>' ''");
        let long = line(&["x", &"ä".repeat(500)]).shown();
        assert_eq!((long.chars().count(), long.ends_with("ä…")), (SHOWN_CHARS_MAX + 1, true));
    }

    #[test]
    fn what_the_system_cannot_execute_is_a_script_for_the_shell_whatever_the_c_library_makes_of_it() {
        let line = line(&["./script", "an argument"]);
        let script = line.as_script(&Errno::NOEXEC.into()).expect("a script");
        assert_eq!(
            (script.program.to_str(), script.arguments),
            (Some(SHELL), ["./script", "an argument"].map(OsString::from).to_vec())
        );
        for other in [Errno::NOENT, Errno::ACCESS] {
            assert!(line.as_script(&other.into()).is_none(), "{other:?}");
        }
    }

    #[test]
    fn command_that_cannot_be_started_has_the_status_that_a_shell_gives_it() {
        for (program, status) in
            [("/no/such/program", NOT_FOUND), ("/etc/passwd", NOT_EXECUTABLE), ("/", NOT_EXECUTABLE)]
        {
            let line = line(&[program]);
            let mut said = String::new();
            assert_eq!(line.become_it(|text| said = text.to_owned()), CommandEnd::Status(status));
            assert!(said.starts_with(&format!("{program}: ")), "{said}");
        }
    }
}
