//! The name of a cluster.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use super::is_label;

/// Longest name of a cluster, in bytes: it stands in label values and in names of namespaces beside a workspace's name.
pub const CLUSTER_NAME_BYTES_MAX: usize = 40;

/// The name of a cluster, which is that of its cluster agent: `[a-z0-9]([a-z0-9-]*[a-z0-9])?`, at most
/// [`CLUSTER_NAME_BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterName(Arc<str>);

/// The text is no name of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the name of a cluster has 1 to {CLUSTER_NAME_BYTES_MAX} characters of a-z, 0-9 and inner dashes")]
pub struct BadClusterName;

impl ClusterName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClusterName {
    type Err = BadClusterName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_label(text, CLUSTER_NAME_BYTES_MAX) { Ok(Self(text.into())) } else { Err(BadClusterName) }
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clusters_are_labels_of_bounded_length() {
        for good in ["a", "7", "prod-eu-1", &"x".repeat(CLUSTER_NAME_BYTES_MAX)] {
            assert_eq!(good.parse::<ClusterName>().map(|name| name.to_string()).as_deref(), Ok(good));
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "é", &"x".repeat(CLUSTER_NAME_BYTES_MAX + 1)] {
            assert_eq!(bad.parse::<ClusterName>(), Err(BadClusterName), "{bad}");
        }
    }
}
