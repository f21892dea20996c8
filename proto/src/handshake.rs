//! Pure decision about the gateway's answer to a Hello.

use thiserror::Error;

use crate::hello::{Hello, Role};
use crate::version::{self, VersionRange};

/// Reason why a Hello cannot be answered with a Welcome. The texts reach the agent's log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HelloRefusal {
    /// No protocol version is spoken by both.
    #[error(
        "the agent speaks protocol versions {} to {}, this gateway speaks {} to {}: install a matching agent",
        theirs.min, theirs.max, version::OURS.min, version::OURS.max
    )]
    Version {
        /// Versions that the agent speaks.
        theirs: VersionRange,
    },
    /// The credential is for another role than the agent claims.
    #[error("this credential is not for an agent of this role")]
    Role,
    /// A cluster agent that cannot reconcile has nothing to do.
    #[error("the cluster agent does not offer the feature `{}`: install a matching one", version::FEATURE_RECONCILE)]
    CannotReconcile,
}

/// Version and features that both sides will use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The protocol version.
    pub version: u32,
    /// The features that both named.
    pub features: Vec<String>,
}

impl Agreement {
    /// Returns whether both named a feature.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|name| name == feature)
    }
}

/// Decides the version and features to use with an agent whose credential stands for `role`.
///
/// # Errors
/// [`HelloRefusal`] with the cause that the agent is told.
pub fn agree(hello: &Hello, role: Role) -> Result<Agreement, HelloRefusal> {
    if hello.role != role {
        return Err(HelloRefusal::Role);
    }
    let version = version::OURS.agree(hello.versions).ok_or(HelloRefusal::Version { theirs: hello.versions })?;
    let agreement = Agreement { version, features: version::agree_features(&hello.features, role) };
    if role == Role::Cluster && !agreement.has(version::FEATURE_RECONCILE) {
        return Err(HelloRefusal::CannotReconcile);
    }
    Ok(agreement)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::HostMode;
    use crate::limit::OPEN_CREDIT_BYTES;

    fn hello(versions: VersionRange) -> Hello {
        Hello {
            versions,
            features: vec!["unheard-of".into()],
            agent_version: "9".into(),
            role: Role::Workspace,
            instance: 1,
            resume: None,
            open_credit_bytes: OPEN_CREDIT_BYTES,
            ports: Vec::new(),
            default_port: None,
            join: None,
            lanes: 1,
            apps: Vec::new(),
            host: HostMode::Auto,
            relay: None,
            seal: bytes::Bytes::new(),
        }
    }

    #[test]
    fn unknown_features_are_left_out_and_the_version_is_common() {
        let agreement = agree(&hello(VersionRange { min: 1, max: 7 }), Role::Workspace);
        assert_eq!(agreement, Ok(Agreement { version: 1, features: Vec::new() }));
    }

    #[test]
    fn version_from_the_future_and_foreign_role_are_refused_by_name() {
        let theirs = VersionRange { min: 8, max: 9 };
        assert_eq!(agree(&hello(theirs), Role::Workspace), Err(HelloRefusal::Version { theirs }));
        assert_eq!(agree(&hello(version::OURS), Role::Cluster), Err(HelloRefusal::Role));
    }

    #[test]
    fn cluster_agent_must_be_able_to_reconcile_and_nobody_else_can() {
        let offers = |role, feature: &str| Hello { role, features: vec![feature.into()], ..hello(version::OURS) };
        let cluster = agree(&offers(Role::Cluster, version::FEATURE_RECONCILE), Role::Cluster);
        assert!(cluster.is_ok_and(|agreement| agreement.has(version::FEATURE_RECONCILE)));
        let old = agree(&offers(Role::Cluster, version::FEATURE_RESUME), Role::Cluster);
        assert_eq!(old, Err(HelloRefusal::CannotReconcile));
        let workspace = agree(&offers(Role::Workspace, version::FEATURE_RECONCILE), Role::Workspace);
        assert!(workspace.is_ok_and(|agreement| agreement.features.is_empty()));
    }
}
