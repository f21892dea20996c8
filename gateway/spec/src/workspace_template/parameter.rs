//! Parameters of a template: which values each takes.

use regex::{Regex, RegexBuilder};
use thiserror::Error;

use super::{VALUE_BYTES_MAX, VALUES_BYTES_MAX};
use crate::project::BadProject;

/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 512;

/// Largest compiled pattern, in bytes.
const COMPILED_BYTES_MAX: usize = 256 * 1024;

/// Longest number, in characters.
const NUMBER_MAX: usize = 32;

/// A parameter of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, as [`super::is_parameter_name`] has it.
    pub name: String,
    /// Its name for people.
    pub title: Option<String>,
    /// What it is for, for people.
    pub description: Option<String>,
    /// The value if none is given; it is one of those that it takes.
    pub default: Option<String>,
    /// Which values it takes.
    pub kind: ParameterKind,
    /// Whether it takes no empty value. Without a default, one has to be given.
    pub is_required: bool,
}

/// Which values a parameter takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// Any text.
    Text,
    /// A text that a pattern matches.
    Pattern(ParameterPattern),
    /// One of these texts, of which there is at least one and none twice.
    Options(Vec<String>),
    /// A decimal number.
    Number,
    /// `true` or `false`.
    Boolean,
}

impl ParameterKind {
    /// Returns the name of the kind in files and answers.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Text | Self::Pattern(_) | Self::Options(_) => "text",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    /// Returns the texts that it takes, if they are listed.
    #[must_use]
    pub fn options(&self) -> &[String] {
        match self {
            Self::Options(options) => options,
            Self::Text | Self::Pattern(_) | Self::Number | Self::Boolean => &[],
        }
    }

    /// Returns the pattern, if it has one.
    #[must_use]
    pub fn pattern(&self) -> Option<&str> {
        match self {
            Self::Pattern(pattern) => Some(&pattern.text),
            Self::Text | Self::Options(_) | Self::Number | Self::Boolean => None,
        }
    }
}

/// A regular expression that has to match a whole value, in time that grows with the value's length alone.
#[derive(Clone, Debug)]
pub struct ParameterPattern {
    text: String,
    whole: Regex,
}

impl PartialEq for ParameterPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ParameterPattern {}

impl ParameterPattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("is longer than {PATTERN_BYTES_MAX} bytes"));
        }
        let compile = |text: &str| RegexBuilder::new(text).size_limit(COMPILED_BYTES_MAX).build();
        // By itself first: a parenthesis too many would close the group around it.
        let compiled = compile(text).and_then(|_| compile(&format!("^(?:{text})$")));
        let whole = compiled.map_err(|error| {
            if matches!(error, regex::Error::CompiledTooBig(_)) {
                return "is too large when it is compiled".to_owned();
            }
            let last = error.to_string().lines().last().unwrap_or_default().trim().to_owned();
            format!("is no regular expression: {}", last.strip_prefix("error: ").unwrap_or(&last))
        })?;
        Ok(Self { text: text.to_owned(), whole })
    }
}

/// What is wrong with a value. No value is repeated, only what the operator wrote.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadValue {
    /// There is none, and no default.
    #[error("is missing")]
    Missing,
    /// The template has no such parameter.
    #[error("is no parameter of the template")]
    Unknown,
    /// Longer than a value may be.
    #[error("is longer than {VALUE_BYTES_MAX} bytes")]
    TooLong,
    /// All values together are longer than they may be.
    #[error("are longer than {VALUES_BYTES_MAX} bytes together")]
    AllTooLong,
    /// A character that no argument, file name or variable can hold.
    #[error("holds U+0000, which no value can")]
    Nul,
    /// None of the options.
    #[error("has to be one of: {}", .0.join(", "))]
    Option(Vec<String>),
    /// The pattern does not match.
    #[error("has to match the pattern {0}")]
    Pattern(String),
    /// Not a number.
    #[error("has to be a decimal number, such as 4, -1 or 0.5")]
    Number,
    /// Neither.
    #[error("has to be true or false")]
    Boolean,
    /// A project of the template becomes one that cannot be cloned.
    #[error("makes a project that {0}")]
    Project(BadProject),
}

impl Parameter {
    /// Says whether it takes a value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, value: &str) -> Result<(), BadValue> {
        if value.is_empty() && self.is_required {
            return Err(BadValue::Missing);
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(BadValue::TooLong);
        }
        if value.contains('\0') {
            return Err(BadValue::Nul);
        }
        // Nothing was said, where nothing has to be.
        if value.is_empty() && self.default.is_none() {
            return Ok(());
        }
        match &self.kind {
            ParameterKind::Text => Ok(()),
            ParameterKind::Pattern(pattern) if pattern.whole.is_match(value) => Ok(()),
            ParameterKind::Pattern(pattern) => Err(BadValue::Pattern(pattern.text.clone())),
            ParameterKind::Options(options) if options.iter().any(|option| option == value) => Ok(()),
            ParameterKind::Options(options) => Err(BadValue::Option(options.clone())),
            ParameterKind::Number if is_number(value) => Ok(()),
            ParameterKind::Number => Err(BadValue::Number),
            ParameterKind::Boolean if matches!(value, "true" | "false") => Ok(()),
            ParameterKind::Boolean => Err(BadValue::Boolean),
        }
    }

    /// Returns the value of a parameter for which none is given, if it needs none.
    #[must_use]
    pub fn unsaid(&self) -> Option<&str> {
        match (&self.default, &self.kind) {
            (Some(default), _) => Some(default),
            (None, ParameterKind::Boolean) if !self.is_required => Some("false"),
            (None, _) => (!self.is_required).then_some(""),
        }
    }

    /// Returns a value that it takes, if one can be known without a user.
    pub(super) fn sample(&self) -> Option<&str> {
        let first = match &self.kind {
            ParameterKind::Options(options) => options.first().map(String::as_str),
            ParameterKind::Boolean => Some("false"),
            ParameterKind::Text | ParameterKind::Pattern(_) | ParameterKind::Number => None,
        };
        self.default.as_deref().or(first).or_else(|| self.unsaid())
    }
}

/// Returns whether a text is a decimal number: digits, perhaps with a sign and a fraction.
fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    text.len() <= NUMBER_MAX && digits(whole) && digits(fraction)
}
