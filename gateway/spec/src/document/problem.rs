//! Mistakes in a file, with their places, in an order that does not depend on the order of the checks.

use std::fmt;

use super::Location;

/// Most problems that are reported for one file: the further ones are mostly one mistake, repeated.
const TOLD_MAX: usize = 100;

/// One mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the value, as `components[2].container.env[0].name`; empty for the whole file.
    pub path: String,
    /// The value's line, counted from 1; `None` where there is nothing to point at.
    pub line: Option<u32>,
    /// The value's column in characters, counted from 1.
    pub column: Option<u32>,
    /// Description of the mistake. Text of the file in it is shortened and escaped.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.path.as_str()) {
            (Some(line), "") => write!(formatter, "line {line}: ")?,
            (Some(line), path) => write!(formatter, "line {line}, {path}: ")?,
            (None, "") => {}
            (None, path) => write!(formatter, "{path}: ")?,
        }
        formatter.write_str(&self.message)
    }
}

/// The mistakes of one file, while it is being read.
#[derive(Debug, Default)]
pub struct Problems {
    list: Vec<Problem>,
}

impl Problems {
    /// Notes a mistake.
    pub fn add(&mut self, path: impl Into<String>, place: Option<Location>, message: impl Into<String>) {
        let (line, column) = (place.map(|place| place.line), place.map(|place| place.column));
        self.list.push(Problem { path: path.into(), line, column, message: message.into() });
    }

    /// Ends the reading: returns the mistakes from the first line to the last, each once, and no more than people read.
    #[must_use]
    pub fn finish(mut self) -> Vec<Problem> {
        self.list.sort_by(|one, other| key(one).cmp(&key(other)));
        self.list.dedup();
        let untold = self.list.len().saturating_sub(TOLD_MAX);
        self.list.truncate(TOLD_MAX);
        if untold > 0 {
            self.add("", None, format!("and {untold} more problems"));
        }
        self.list
    }
}

fn key(problem: &Problem) -> (Option<u32>, Option<u32>, &str, &str) {
    (problem.line, problem.column, &problem.path, &problem.message)
}
