//! Protocol versions and features, and the agreement of two peers on them: a replica serves agents of the previous
//! minor version.

use crate::hello::Role;

/// Lowest protocol version that this program speaks.
pub const VERSION_MIN: u32 = 1;

/// Highest protocol version that this program speaks.
pub const VERSION_MAX: u32 = 1;

/// A session outlives its link: frames that were not acknowledged are sent again on the next one.
pub const FEATURE_RESUME: &str = "resume";

/// A session can have several links at once, and spreads its channels over them.
pub const FEATURE_LANES: &str = "lanes";

/// The channel to port 0 carries desired and observed state (`tunnel_proto::reconcile`); for cluster agents only.
pub const FEATURE_RECONCILE: &str = "reconcile";

/// The agent of a workspace says on which ports something listens, when it is asked (`tunnel_proto::listening`).
pub const FEATURE_LISTENING: &str = "listening";

/// The agent of a workspace adds lanes that end at other replicas, when it is asked to.
pub const FEATURE_RELAY_LANES: &str = "relay_lanes";

/// The agent of a workspace moves to another replica when it is asked to: it has a new session first, and the one before
/// lives on as a relay lane until its streams have ended.
pub const FEATURE_MOVES: &str = "moves";

/// The agent of a workspace takes newer seals of its generation while its session lives.
pub const FEATURE_SEALS: &str = "seals";

/// The agent of a workspace speaks TLS to an app where the gateway asks for it (`tunnel_proto::target`).
pub const FEATURE_APP_TLS: &str = "app_tls";

/// Features that this program can use when the peer can too. Names are stable.
pub const FEATURES: &[&str] = &[
    FEATURE_RESUME,
    FEATURE_LANES,
    FEATURE_LISTENING,
    FEATURE_RELAY_LANES,
    FEATURE_MOVES,
    FEATURE_SEALS,
    FEATURE_APP_TLS,
];

/// The same for sessions of cluster agents, which have no lanes: they carry one conversation.
pub const FEATURES_CLUSTER: &[&str] = &[FEATURE_RESUME, FEATURE_RECONCILE];

/// A range of protocol versions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    /// Lowest version spoken.
    pub min: u32,
    /// Highest version spoken.
    pub max: u32,
}

/// Versions that this program speaks.
pub const OURS: VersionRange = VersionRange { min: VERSION_MIN, max: VERSION_MAX };

impl VersionRange {
    /// Returns the highest version that both ranges hold, or `None`. An inverted range holds nothing.
    #[must_use]
    pub fn agree(self, other: Self) -> Option<u32> {
        let highest = self.max.min(other.max);
        let lowest = self.min.max(other.min);
        (self.min <= self.max && other.min <= other.max && lowest <= highest && highest > 0).then_some(highest)
    }
}

/// Returns the features that are for agents of a role.
#[must_use]
pub fn features(role: Role) -> &'static [&'static str] {
    match role {
        Role::Workspace => FEATURES,
        Role::Cluster => FEATURES_CLUSTER,
    }
}

/// Returns the features that both sides named and that are for the role, in our order and each once.
#[must_use]
pub fn agree_features(offered: &[String], role: Role) -> Vec<String> {
    features(role)
        .iter()
        .filter(|ours| offered.iter().any(|theirs| theirs == *ours))
        .map(|ours| (*ours).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_agree_on_the_highest_common_one() {
        let range = |min, max| VersionRange { min, max };
        assert_eq!(range(1, 3).agree(range(2, 5)), Some(3));
        assert_eq!(range(1, 1).agree(range(1, 1)), Some(1));
        assert_eq!(range(1, 2).agree(range(3, 4)), None);
        assert_eq!(range(3, 1).agree(range(1, 4)), None, "an inverted range is nobody's");
        assert_eq!(range(0, 0).agree(range(0, 0)), None, "version 0 is an absent field");
    }
}
