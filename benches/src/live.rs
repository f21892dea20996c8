//! Progress while a run goes on: one line redrawn on a terminal, plain lines elsewhere.

use std::io::IsTerminal;

use crate::clock::float;
use crate::load::LoadSpec;
use crate::outcome::Second;
use crate::units::{show_bytes, show_count, show_micros};

/// Escape sequence that returns to the first column and clears the line.
const REDRAW: &str = "\r\x1b[2K";

/// Destination of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum SinkKind {
    /// No output.
    #[default]
    Quiet,
    /// Lines on standard error.
    Lines,
    /// One line on a terminal.
    Terminal,
}

/// Reports the progress of a run. Clones write to the same output.
#[derive(Clone, Debug, Default)]
pub struct ProgressReporter {
    kind: SinkKind,
    label: String,
}

impl ProgressReporter {
    /// Makes one that reports nothing.
    #[must_use]
    pub fn quiet() -> Self {
        Self::default()
    }

    /// Makes one that reports on standard error, each line beginning with `label`.
    #[must_use]
    pub fn on_stderr(label: &str) -> Self {
        let kind = if std::io::stderr().is_terminal() { SinkKind::Terminal } else { SinkKind::Lines };
        Self { kind, label: label.to_owned() }
    }

    /// Reports the beginning of a phase.
    pub fn phase(&self, words: &str) {
        self.tell(words, false);
    }

    /// Reports the figures of one second.
    pub fn second(&self, load: &LoadSpec, second: &Second) {
        self.tell(&line(load, second), false);
    }

    /// Reports a line that stays on the screen.
    pub fn note(&self, words: &str) {
        self.tell(words, true);
    }

    /// Ends the redrawn line.
    pub fn clear(&self) {
        if self.kind == SinkKind::Terminal {
            write(REDRAW);
        }
    }

    fn tell(&self, words: &str, stays: bool) {
        match self.kind {
            SinkKind::Quiet => {}
            SinkKind::Lines => write(&format!("{}: {words}\n", self.label)),
            SinkKind::Terminal => {
                write(&format!("{REDRAW}{}: {words}{}", self.label, if stays { "\n" } else { "" }));
            }
        }
    }
}

fn write(text: &str) {
    // A failure to write progress is no reason to stop, nor to wait in the middle of a measurement.
    program_log::stderr().push(text.as_bytes());
}

/// Writes one second in one line, short enough for a terminal of 100 columns.
fn line(load: &LoadSpec, second: &Second) -> String {
    let total = load.duration.as_secs();
    let mut line = format!("{:>3}/{total} s", second.at + 1);
    if load.rate.per_second().is_some() {
        line += &format!("  offered {}/s", show_count(float(second.offered)));
    }
    line += &format!("  carried {}/s", show_count(float(second.carried)));
    let bytes = float(second.bytes_down + second.bytes_up);
    if bytes > 0.0 {
        line += &format!("  {}/s", show_bytes(bytes));
    }
    if second.carried > 0 {
        line += &format!("  p50 {}  p99 {}", show_micros(float(second.p50_us)), show_micros(float(second.p99_us)));
    }
    line + &format!("  errors {}", second.failed)
}
