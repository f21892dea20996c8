//! The decision who is an operator, who may see and change what belongs to all users, and `OperatorGrant`, the proof of
//! it.

use gateway_types::principal::{Principal, Via};
use gateway_types::{GroupName, UserName};

/// Users who are operators, as the configuration has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operators {
    /// By name.
    pub names: Vec<UserName>,
    /// By a group of the identity provider.
    pub group: Option<GroupName>,
    /// The user of dev mode, who has the machine.
    pub dev: Option<UserName>,
}

/// Permission to act as operator, now.
///
/// # Invariants
///
/// Only [`operate`] makes one, so code that takes an `OperatorGrant` cannot run for a request without a decision. Its
/// field is private: no other module can fill it in.
///
/// ```compile_fail,E0451
/// use gateway_auth::policy::OperatorGrant;
///
/// fn forge(user: gateway_types::UserName) -> OperatorGrant {
///     OperatorGrant { user }
/// }
/// ```
///
/// With the same imports, code that reads one compiles:
///
/// ```
/// use gateway_auth::policy::OperatorGrant;
///
/// fn read(grant: &OperatorGrant) -> &gateway_types::UserName {
///     grant.user()
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct OperatorGrant {
    user: UserName,
}

impl OperatorGrant {
    /// Returns the operator.
    #[must_use]
    pub fn user(&self) -> &UserName {
        &self.user
    }
}

/// Decides whether `principal` may act as operator.
///
/// Agents and CI jobs are no principals, and a disabled user is none either
/// ([`Principal::with`]). A user's own API token speaks for the user in everything, so in this too. Groups count for as
/// long as they do for shares.
#[must_use]
pub fn operate(principal: &Principal, operators: &Operators) -> Option<OperatorGrant> {
    let is_proven = match principal.via {
        // That no other site's page caused the request is checked before there is a principal.
        Via::Browser | Via::ApiToken => true,
    };
    let user = &principal.user;
    let is_named = operators.names.contains(user) || operators.dev.as_ref() == Some(user);
    let is_member = operators.group.as_ref().is_some_and(|group| principal.groups.contains(group));
    (is_proven && (is_named || is_member)).then(|| OperatorGrant { user: user.clone() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use gateway_types::UnixSeconds;
    use gateway_types::principal::UserStatus;

    const NOW: UnixSeconds = UnixSeconds::new(1_800_000_000);
    const AGE_MAX: Duration = Duration::from_hours(12);

    fn user(name: &str) -> UserName {
        name.parse().unwrap()
    }

    fn by(name: &str, via: Via) -> Principal {
        Principal { user: user(name), via, groups: Arc::default() }
    }

    fn operators() -> Operators {
        Operators { names: vec![user("olga")], group: Some("platform".parse().unwrap()), dev: None }
    }

    fn status(groups: &[&str], signed_in_at: UnixSeconds) -> UserStatus {
        let groups = groups.iter().map(|group| group.parse().unwrap()).collect();
        UserStatus { is_disabled: false, groups, signed_in_at: Some(signed_in_at) }
    }

    #[test]
    fn operators_are_named_or_members_of_the_group_however_they_prove_it() {
        for via in [Via::Browser, Via::ApiToken] {
            let ask = |name: &str, groups: &[&str]| {
                let principal = by(name, via).with(&status(groups, NOW), AGE_MAX, NOW).unwrap();
                operate(&principal, &operators()).map(|grant| grant.user().clone())
            };
            assert_eq!(ask("olga", &[]), Some(user("olga")));
            assert_eq!(ask("ann", &["devs", "platform"]), Some(user("ann")));
            assert_eq!(ask("ann", &["devs"]), None);
            assert_eq!(ask("platform", &[]), None, "a user by the name of the group");
            assert_eq!(ask("ann", &["olga", "platforms", "Platform"]), None);
        }
    }

    #[test]
    fn nobody_is_operator_unless_the_configuration_says_so() {
        let everything = by("olga", Via::ApiToken).with(&status(&["platform"], NOW), AGE_MAX, NOW).unwrap();
        assert_eq!(operate(&everything, &Operators::default()), None);
        let dev = Operators { dev: Some(user("dev")), ..Operators::default() };
        assert!(operate(&by("dev", Via::Browser), &dev).is_some());
        assert_eq!(operate(&everything, &dev), None);
    }

    #[test]
    fn disabled_operator_is_no_principal_and_old_groups_make_none() {
        let disabled = UserStatus { is_disabled: true, ..status(&["platform"], NOW) };
        assert_eq!(by("olga", Via::ApiToken).with(&disabled, AGE_MAX, NOW), None);
        let long_ago = UnixSeconds::new(NOW.get() - 13 * 60 * 60);
        let stale = by("ann", Via::ApiToken).with(&status(&["platform"], long_ago), AGE_MAX, NOW).unwrap();
        assert_eq!(operate(&stale, &operators()), None, "groups count until the next sign-in is due");
    }

    proptest! {
        #[test]
        fn decision_is_that_of_the_documentation(
            name in prop::sample::select(vec!["olga", "ann", "dev"]),
            groups in prop::collection::vec(prop::sample::select(vec!["devs", "platform"]), 0..3),
            names in prop::collection::vec(prop::sample::select(vec!["olga", "bob"]), 0..2),
            group in prop::option::of(prop::sample::select(vec!["devs", "ops"])),
            is_dev in any::<bool>(),
        ) {
            let principal = by(name, Via::ApiToken).with(&status(&groups, NOW), AGE_MAX, NOW).unwrap();
            let operators = Operators {
                names: names.iter().map(|name| user(name)).collect(),
                group: group.map(|group| group.parse().unwrap()),
                dev: is_dev.then(|| user("dev")),
            };
            let expected = names.contains(&name)
                || group.is_some_and(|group| groups.contains(&group))
                || (is_dev && name == "dev");
            let granted = operate(&principal, &operators);
            prop_assert_eq!(granted.is_some(), expected);
            prop_assert!(granted.is_none_or(|grant| *grant.user() == principal.user));
        }
    }
}
