//! Problems of a configuration, in words that say what to do.

use std::fmt;

use super::Origin;
use super::value::mask_credentials;

/// Longest part of a value that a problem repeats, in characters; more would bury the message.
const SHOWN_CHARS_MAX: usize = 60;

/// Every mistake of one configuration. Never empty; displays one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadConfig {
    /// The mistakes, in the order in which they were found.
    pub problems: Vec<ConfigProblem>,
}

impl std::error::Error for BadConfig {}

impl fmt::Display for BadConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(formatter, "{separator}{problem}")?;
        }
        Ok(())
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Place of the value.
    pub place: ValueOrigin,
    /// The dotted key; `None` for a file that cannot be read at all.
    pub key: Option<String>,
    /// The value as shown to people: shortened, escaped, without credentials; `None` for secrets and unknown keys.
    pub value: Option<String>,
    /// Description of the mistake.
    pub wrong: String,
    /// Values that would be accepted instead.
    pub accepted: Option<&'static str>,
}

impl ConfigProblem {
    /// Makes a problem of a whole place, without a key.
    pub(super) fn of_place(place: ValueOrigin, wrong: impl Into<String>) -> Self {
        Self { place, key: None, value: None, wrong: wrong.into(), accepted: None }
    }

    /// Makes a problem of a key, without showing its value.
    pub(super) fn of_key(place: ValueOrigin, key: impl Into<String>, wrong: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..Self::of_place(place, wrong) }
    }

    /// Adds the value, made fit for showing.
    pub(super) fn showing(mut self, value: &str) -> Self {
        let masked = mask_credentials(value);
        let mut shown: String = masked.chars().take(SHOWN_CHARS_MAX).collect();
        if shown.len() < masked.len() {
            shown.push('…');
        }
        self.value = Some(format!("{shown:?}"));
        self
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.place)?;
        if let Some(key) = &self.key {
            write!(formatter, "{key}")?;
            if let Some(value) = &self.value {
                write!(formatter, " = {value}")?;
            }
            formatter.write_str(": ")?;
        }
        formatter.write_str(&self.wrong)?;
        if let Some(accepted) = self.accepted {
            write!(formatter, "; accepted: {accepted}")?;
        }
        Ok(())
    }
}

/// Place of a value, so that a person can go there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// Nowhere: it is the default.
    Default,
    /// A line of the TOML file; `None` when the whole file is meant.
    File {
        /// The path as it was given.
        path: String,
        /// Counted from 1.
        line: Option<usize>,
    },
    /// An environment variable.
    Environment {
        /// The variable's name.
        name: String,
    },
    /// A command-line flag.
    Flag {
        /// The flag with its dashes.
        name: &'static str,
    },
}

impl ValueOrigin {
    /// Returns the layer of this place.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match self {
            Self::Default => Origin::Default,
            Self::File { .. } => Origin::File,
            Self::Environment { .. } => Origin::Environment,
            Self::Flag { .. } => Origin::Flag,
        }
    }
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File { path, line: Some(line) } => write!(formatter, "{path}:{line}"),
            Self::File { path, line: None } => formatter.write_str(path),
            Self::Environment { name } => write!(formatter, "environment {name}"),
            Self::Flag { name } => write!(formatter, "flag {name}"),
        }
    }
}
