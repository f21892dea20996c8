//! The name of a CI system in which workspaces run.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use super::is_label;

/// Longest name of a provider, in bytes: it stands in keys of the configuration and in lists.
pub const PROVIDER_NAME_BYTES_MAX: usize = 40;

/// The name that the operator gave a CI system: `[a-z0-9]([a-z0-9-]*[a-z0-9])?`, at most [`PROVIDER_NAME_BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProviderName(Arc<str>);

/// The text is no name of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the name of a provider has 1 to {PROVIDER_NAME_BYTES_MAX} characters of a-z, 0-9 and inner dashes")]
pub struct BadProviderName;

impl ProviderName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProviderName {
    type Err = BadProviderName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_label(text, PROVIDER_NAME_BYTES_MAX) { Ok(Self(text.into())) } else { Err(BadProviderName) }
    }
}

impl fmt::Display for ProviderName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_providers_are_labels_of_bounded_length() {
        for good in ["a", "7", "gitlab-1", &"x".repeat(PROVIDER_NAME_BYTES_MAX)] {
            assert_eq!(good.parse::<ProviderName>().map(|name| name.to_string()).as_deref(), Ok(good));
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "é", &"x".repeat(PROVIDER_NAME_BYTES_MAX + 1)] {
            assert_eq!(bad.parse::<ProviderName>(), Err(BadProviderName), "{bad}");
        }
    }
}
