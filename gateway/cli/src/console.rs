//! Output of commands: data to one stream, words for people to the other.

use std::fmt::Display;
use std::io::{self, BufRead, IsTerminal, Write};

use serde_json::{Value, json};
use tunnel_link::causes;

use super::Exit;
use super::client::ClientError;

/// Standard output and standard error, or buffers in tests.
pub struct Console {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    err_is_terminal: bool,
    /// Answers that a person types; `None` without a person.
    answers: Option<Box<dyn BufRead + Send>>,
    /// The last line of standard error is a status, to be replaced.
    has_status: bool,
    /// Failure, for programs that get it in one object at the end.
    failure: Option<CommandFailure>,
}

/// Failure of a command, for programs.
#[derive(Debug, Default)]
struct CommandFailure {
    lines: Vec<String>,
    /// Refusal of a gateway, as it was sent.
    refusal: Option<Value>,
}

/// Longest status, in characters: one that does not fit in a line could not be replaced.
const STATUS_CHARS_MAX: usize = 79;

impl Console {
    /// Makes the console of this process.
    #[must_use]
    pub fn process() -> Self {
        let err_is_terminal = io::stderr().is_terminal();
        let console = Self::new(Box::new(io::stdout()), Box::new(io::stderr()), err_is_terminal);
        if io::stdin().is_terminal() {
            console.with_answers(Box::new(io::BufReader::new(io::stdin())))
        } else {
            console
        }
    }

    /// Makes a console of two streams. Hints are written only where `err_is_terminal`.
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>, err_is_terminal: bool) -> Self {
        Self { out, err, err_is_terminal, answers: None, has_status: false, failure: None }
    }

    /// Has failures written as one JSON object, by [`Console::end`].
    #[must_use]
    pub fn with_json_failures(self, is_json: bool) -> Self {
        Self { failure: is_json.then(CommandFailure::default), ..self }
    }

    /// Ends a command: if failures are JSON, writes the one that occurred, in the shape of the API's (RFC 9457).
    pub fn end(&mut self, exit: Exit) {
        let Some(failure) = self.failure.take() else { return };
        let detail = failure.lines.join("\n");
        if exit == Exit::Success {
            // Messages beside the data, such as a warning.
            if !detail.is_empty() {
                self.complain(detail);
            }
            return;
        }
        let mut problem = match failure.refusal {
            Some(Value::Object(said)) => said,
            Some(_) | None => serde_json::Map::new(),
        };
        if detail.is_empty() && problem.is_empty() {
            // The failure is on standard output already.
            return;
        }
        problem.insert("detail".to_owned(), detail.into());
        problem.entry("title").or_insert_with(|| "The command failed".into());
        problem.entry("code").or_insert_with(|| exit.name().into());
        self.complain(json!(problem));
    }

    /// Sets the source of answers to questions.
    #[must_use]
    pub fn with_answers(self, answers: Box<dyn BufRead + Send>) -> Self {
        Self { answers: Some(answers), ..self }
    }

    /// Asks the person at the terminal; only `y` and `yes` are a yes. Without a person, nothing is asked, and the
    /// answer is yes.
    pub fn confirm(&mut self, question: impl Display) -> bool {
        let Some(answers) = self.answers.as_mut().filter(|_| self.err_is_terminal) else { return true };
        // A question that cannot be shown has no answer, which is a no.
        if write!(self.err, "{question} [y/N] ").and_then(|()| self.err.flush()).is_err() {
            return false;
        }
        let mut answer = String::new();
        answers.read_line(&mut answer).is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
    }

    /// Shows progress on a terminal, in the place of the last status.
    pub fn status(&mut self, words: impl Display) {
        if self.err_is_terminal && self.failure.is_none() {
            let words: String = words.to_string().chars().take(STATUS_CHARS_MAX).collect();
            self.has_status = true;
            // No reader is left who could learn that standard error is gone.
            write!(self.err, "\r\x1b[2K{words}").and_then(|()| self.err.flush()).unwrap_or_default();
        }
    }

    /// Writes data and a line end, down to the system.
    ///
    /// # Errors
    /// What the stream says, such as a closed pipe.
    pub fn data(&mut self, data: impl Display) -> io::Result<()> {
        writeln!(self.out, "{data}")?;
        self.out.flush()
    }

    /// Writes data as [`Console::data`] does and returns how the command ends. A reader that has seen enough and closed
    /// the pipe is told nothing.
    pub fn finish_with(&mut self, data: impl Display) -> Exit {
        match self.data(data) {
            Ok(()) => Exit::Success,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Failed,
            Err(error) => {
                self.complain(format_args!("cannot write to standard output: {error}"));
                Exit::Failed
            }
        }
    }

    /// Writes lines about a failure.
    pub fn complain(&mut self, words: impl Display) {
        if let Some(failure) = &mut self.failure {
            failure.lines.push(words.to_string());
            return;
        }
        let clear = if std::mem::take(&mut self.has_status) { "\r\x1b[2K" } else { "" };
        // No reader is left who could learn that standard error is gone.
        writeln!(self.err, "{clear}{words}").unwrap_or_default();
    }

    /// Writes a line at once while the command goes on; where failures are JSON, as an object.
    pub fn report(&mut self, words: impl Display) {
        match self.failure.take() {
            Some(failure) => {
                self.complain(json!({"detail": words.to_string()}));
                self.failure = Some(failure);
            }
            None => self.complain(words),
        }
    }

    /// Writes an error with its causes, on one line, and the remedy if that is known.
    pub fn complain_of(&mut self, error: &(dyn std::error::Error + 'static)) {
        if let Some(failure) = &mut self.failure {
            failure.refusal = error.downcast_ref::<ClientError>().and_then(ClientError::said);
        }
        self.complain(causes::with_remedy(error, "--ca-file"));
    }

    /// Returns whether a person reads standard error.
    #[must_use]
    pub fn is_attended(&self) -> bool {
        self.err_is_terminal
    }

    /// Writes a line that helps a person and would only disturb a program.
    pub fn hint(&mut self, words: impl Display) {
        if self.err_is_terminal && self.failure.is_none() {
            self.complain(words);
        }
    }
}
