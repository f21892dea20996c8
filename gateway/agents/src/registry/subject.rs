//! Subject of an agent: its workspace or its cluster.

use std::fmt;

use tunnel_proto::hello::Role;

use gateway_types::{ClusterName, WorkspaceName};

/// Subject of an agent's credential: exactly one workspace or one cluster. A workspace and a cluster of one name are
/// two.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// The agent in a workspace.
    Workspace(WorkspaceName),
    /// The cluster agent of a cluster.
    Cluster(ClusterName),
}

impl Subject {
    /// Returns the role of such an agent.
    #[must_use]
    pub fn role(&self) -> Role {
        match self {
            Self::Workspace(_) => Role::Workspace,
            Self::Cluster(_) => Role::Cluster,
        }
    }

    /// Returns the name, which does not tell a workspace from a cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Workspace(name) => name.as_str(),
            Self::Cluster(name) => name.as_str(),
        }
    }

    /// Returns the workspace, if it is one.
    #[must_use]
    pub fn workspace(&self) -> Option<&WorkspaceName> {
        match self {
            Self::Workspace(name) => Some(name),
            Self::Cluster(_) => None,
        }
    }

    /// Returns the cluster, if it is one.
    #[must_use]
    pub fn cluster(&self) -> Option<&ClusterName> {
        match self {
            Self::Workspace(_) => None,
            Self::Cluster(name) => Some(name),
        }
    }
}

impl fmt::Display for Subject {
    /// Writes `workspace NAME` or `cluster NAME`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workspace(name) => write!(formatter, "workspace {name}"),
            Self::Cluster(name) => write!(formatter, "cluster {name}"),
        }
    }
}
