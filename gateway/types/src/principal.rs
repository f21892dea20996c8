//! Principals: authenticated users, and their way of authentication.

use std::sync::Arc;
use std::time::Duration;

use crate::{GroupName, UnixSeconds, UserName};

/// Way in which a principal authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A session cookie, which a browser attaches on its own: the user need not have caused the request.
    Browser,
    /// An API token, attached only by a program that holds it.
    ApiToken,
}

/// A signed-in user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The user's name.
    pub user: UserName,
    /// The user's groups at the identity provider.
    pub groups: Arc<[GroupName]>,
    /// Way of authentication.
    pub via: Via,
}

/// Status of a user beside their name. A user who never signed in with a provider has the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserStatus {
    /// The operator has disabled the user.
    pub is_disabled: bool,
    /// Groups from the identity provider at the user's last sign-in, in any browser.
    pub groups: Arc<[GroupName]>,
    /// Time of that sign-in.
    pub signed_in_at: Option<UnixSeconds>,
}

impl Principal {
    /// Returns the principal with the user's groups; `None` for a disabled user.
    ///
    /// Groups count for `groups_age_max` after the sign-in that brought them, for a browser and for a token alike: old
    /// groups may be out of date, and a token lives on without any sign-in.
    #[must_use]
    pub fn with(self, status: &UserStatus, groups_age_max: Duration, now: UnixSeconds) -> Option<Self> {
        if status.is_disabled {
            return None;
        }
        let age_max = i64::try_from(groups_age_max.as_secs()).unwrap_or(i64::MAX);
        let is_fresh = |signed_in_at: UnixSeconds| now.get() < signed_in_at.get().saturating_add(age_max);
        let groups = match status.signed_in_at {
            Some(signed_in_at) if is_fresh(signed_in_at) => status.groups.clone(),
            Some(_) | None => Arc::default(),
        };
        Some(Self { groups, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE_MAX: Duration = Duration::from_secs(100);

    fn principal() -> Principal {
        Principal { user: "ann".parse().unwrap(), groups: Arc::default(), via: Via::ApiToken }
    }

    fn status(signed_in_at: Option<i64>) -> UserStatus {
        let groups = Arc::from(["devs".parse().unwrap()]);
        UserStatus { is_disabled: false, groups, signed_in_at: signed_in_at.map(UnixSeconds::new) }
    }

    #[test]
    fn groups_count_for_as_long_as_a_session_may_last_and_no_longer() {
        let now = UnixSeconds::new(1_000);
        let groups = |signed_in_at| principal().with(&status(signed_in_at), AGE_MAX, now).unwrap().groups.len();
        assert_eq!((groups(Some(1_000)), groups(Some(901))), (1, 1));
        assert_eq!((groups(Some(900)), groups(Some(0)), groups(None)), (0, 0, 0));
        assert_eq!(groups(Some(i64::MAX)), 1);
    }

    #[test]
    fn disabled_user_is_nobody_whatever_they_show() {
        for via in [Via::Browser, Via::ApiToken] {
            let status = UserStatus { is_disabled: true, ..status(Some(1_000)) };
            assert_eq!(Principal { via, ..principal() }.with(&status, AGE_MAX, UnixSeconds::new(1_000)), None);
        }
        assert_eq!(principal().with(&UserStatus::default(), AGE_MAX, UnixSeconds::new(0)), Some(principal()));
    }
}
