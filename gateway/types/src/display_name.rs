//! Names of workspaces that people read.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::markup::is_printable;

/// Longest display name, in characters.
pub const DISPLAY_NAME_CHARS_MAX: usize = 60;

/// Name of a workspace that people read: 1 to [`DISPLAY_NAME_CHARS_MAX`] printable characters, without space at either end. Addresses
/// have the workspace's own name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisplayName(String);

/// The text is no display name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a display name has 1 to {DISPLAY_NAME_CHARS_MAX} printable characters, without space at either end")]
pub struct BadDisplayName;

impl DisplayName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DisplayName {
    type Err = BadDisplayName;

    fn from_str(text: &str) -> Result<Self, BadDisplayName> {
        let is_long = text.chars().nth(DISPLAY_NAME_CHARS_MAX).is_some();
        if text.is_empty() || is_long || text.trim() != text || !text.chars().all(is_printable) {
            return Err(BadDisplayName);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for DisplayName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_short_printable_and_trimmed() {
        for good in ["a", "Shop, new checkout", "déjà vu", &"x".repeat(60)] {
            assert_eq!(good.parse::<DisplayName>().map(|name| name.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", " a", "a ", "a\nb", "a\u{202e}b", &"x".repeat(61)] {
            assert!(bad.parse::<DisplayName>().is_err(), "{bad:?}");
        }
    }
}
