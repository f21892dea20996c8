//! Where commands write: data to one stream, words for people to the other.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use super::Exit;

/// Standard output and standard error, or buffers in tests.
pub struct Console {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    err_is_terminal: bool,
}

impl Console {
    /// Makes the console of this process.
    #[must_use]
    pub fn process() -> Self {
        let err_is_terminal = io::stderr().is_terminal();
        Self::new(Box::new(io::stdout()), Box::new(io::stderr()), err_is_terminal)
    }

    /// Makes a console of two streams. Hints are written only where `err_is_terminal`.
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>, err_is_terminal: bool) -> Self {
        Self { out, err, err_is_terminal }
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

    /// Writes lines about what went wrong.
    pub fn complain(&mut self, words: impl Display) {
        // Nobody is left to be told that standard error is gone.
        writeln!(self.err, "{words}").unwrap_or_default();
    }

    /// Writes an error with its sources, on one line.
    pub fn complain_of(&mut self, error: &(dyn std::error::Error + 'static)) {
        let causes = std::iter::successors(error.source(), |cause| cause.source());
        let line = causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"));
        self.complain(line);
    }

    /// Returns whether a person sees what is written about the work.
    #[must_use]
    pub fn is_attended(&self) -> bool {
        self.err_is_terminal
    }

    /// Writes a line that helps a person and would only disturb a program.
    pub fn hint(&mut self, words: impl Display) {
        if self.err_is_terminal {
            self.complain(words);
        }
    }
}
