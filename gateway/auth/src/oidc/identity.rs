//! Derives a user's identity from a verified ID token, by the rules of the configuration.

use serde_json::Value;
use thiserror::Error;

use crate::jwt::Claims;
use gateway_types::{GroupName, UserName};

/// Groups of one user at most.
pub const GROUPS_MAX: usize = 256;

/// Longest `sub`, in bytes (Core 1.0, section 2).
pub const SUBJECT_BYTES_MAX: usize = 255;

/// Longest logged name of a refused user, in characters.
const CLAIMED_CHARS_MAX: usize = 128;

/// Names that stand for no person: dev mode's user, and the operator at the command line.
const RESERVED: [&str; 2] = ["dev", "operator"];

/// Claims that hold the user's name and groups, and the group required for sign-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The claim with the user's name.
    pub username_claim: String,
    /// The claim with the user's groups.
    pub groups_claim: String,
    /// Only members of this group may sign in.
    pub required_group: Option<GroupName>,
}

/// Identity of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderIdentity {
    /// The provider's own name for the user, never given to another one.
    pub subject: String,
    /// Desired user name; used at the first sign-in.
    pub wanted: UserName,
    /// Groups, sorted, each once.
    pub groups: Vec<GroupName>,
}

/// Reason why an authenticated user is not admitted. Each has a page of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotAdmitted {
    /// `sub` is empty or too long.
    #[error("the subject is empty or longer than {SUBJECT_BYTES_MAX} bytes")]
    Subject,
    /// The claim of `auth.oidc.username_claim` is not there, or no text.
    #[error("the claim with the user's name is not there, or no text")]
    NoName,
    /// The name is not a valid user name.
    #[error("the user's name cannot be one here")]
    UnusableName,
    /// The name is an email address that the provider has not verified.
    #[error("the user's name is an email address that the provider has not verified")]
    UnverifiedEmail,
    /// The claim of `auth.oidc.groups_claim` is no list of texts.
    #[error("the claim with the groups is not a list of texts")]
    GroupsType,
    /// More than [`GROUPS_MAX`] groups.
    #[error("there are more than {GROUPS_MAX} groups")]
    TooManyGroups,
    /// Not in `auth.oidc.required_group`.
    #[error("the user is not in the required group")]
    NotMember,
    /// The name belongs to another person already.
    #[error("the name is another person's")]
    NameTaken,
    /// The operator has disabled the user.
    #[error("the user is disabled")]
    Disabled,
}

/// Returns whether the claims hold all that the rules use. Providers may leave claims out of the ID token and serve
/// them at the userinfo endpoint (Core 1.0, section 5.4).
#[must_use]
pub fn is_complete(claims: &Claims, rules: &Rules) -> bool {
    claims.text(&rules.username_claim).is_some() && claims.rest.contains_key(&rules.groups_claim)
}

/// Reads a user's identity from the claims of their ID token.
///
/// # Errors
///
/// [`NotAdmitted`].
pub fn identity(claims: &Claims, rules: &Rules) -> Result<ProviderIdentity, NotAdmitted> {
    let subject = claims.subject.clone().unwrap_or_default();
    if !(1..=SUBJECT_BYTES_MAX).contains(&subject.len()) {
        return Err(NotAdmitted::Subject);
    }
    let groups = groups(claims.rest.get(&rules.groups_claim))?;
    if rules.required_group.as_ref().is_some_and(|required| !groups.contains(required)) {
        return Err(NotAdmitted::NotMember);
    }
    let name = claims.text(&rules.username_claim).ok_or(NotAdmitted::NoName)?;
    if rules.username_claim == "email" && claims.email_verified != Some(true) {
        return Err(NotAdmitted::UnverifiedEmail);
    }
    Ok(ProviderIdentity { subject, wanted: user_name(name)?, groups })
}

/// Returns the name in the claims, for the log, valid as a user name or not: cut, and with plain printable characters
/// only.
#[must_use]
pub fn claimed_name(claims: &Claims, rules: &Rules) -> Option<String> {
    let name = claims.text(&rules.username_claim)?;
    let is_plain = |letter: &char| matches!(letter, '!'..='~');
    Some(name.chars().filter(is_plain).take(CLAIMED_CHARS_MAX).collect())
}

/// Makes a user name of a claim. Case is dropped, because readers would not tell apart names that differ in case only.
/// Anything else that could be mistaken for another name, or for more than a name, makes the claim unusable.
fn user_name(claim: &str) -> Result<UserName, NotAdmitted> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'@' | b'+');
    let begins_plain = claim.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !begins_plain || !claim.bytes().all(plain) {
        return Err(NotAdmitted::UnusableName);
    }
    let name = claim.to_ascii_lowercase();
    if RESERVED.contains(&name.as_str()) {
        return Err(NotAdmitted::UnusableName);
    }
    name.parse().map_err(|_| NotAdmitted::UnusableName)
}

/// Reads the groups. Skips a group whose name no share could spell: it can open nothing.
fn groups(claim: Option<&Value>) -> Result<Vec<GroupName>, NotAdmitted> {
    let Some(claim) = claim else { return Ok(Vec::new()) };
    let listed = claim.as_array().ok_or(NotAdmitted::GroupsType)?;
    if listed.len() > GROUPS_MAX {
        return Err(NotAdmitted::TooManyGroups);
    }
    let texts: Option<Vec<&str>> = listed.iter().map(Value::as_str).collect();
    let mut groups: Vec<GroupName> =
        texts.ok_or(NotAdmitted::GroupsType)?.into_iter().filter_map(|text| text.parse().ok()).collect();
    groups.sort();
    groups.dedup();
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn rules() -> Rules {
        Rules {
            username_claim: "preferred_username".to_owned(),
            groups_claim: "groups".to_owned(),
            required_group: None,
        }
    }

    fn claims(rest: &Value) -> Claims {
        let rest = rest.as_object().unwrap().clone();
        Claims { subject: Some("u-1".to_owned()), rest, ..Claims::default() }
    }

    #[track_caller]
    fn check(rest: &Value, expected: Result<(&str, &[&str]), NotAdmitted>) {
        let found = identity(&claims(rest), &rules());
        let found =
            found.map(|found| (found.wanted.to_string(), found.groups.iter().map(ToString::to_string).collect()));
        let expected = expected.map(|(name, groups)| {
            (name.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect::<Vec<_>>())
        });
        assert_eq!(found, expected, "{rest}");
    }

    #[test]
    fn name_and_groups_are_read_strictly() {
        check(&json!({"preferred_username": "Ann.Lee"}), Ok(("ann.lee", &[])));
        check(
            &json!({"preferred_username": "ann@example.com", "groups": ["b", "a", "b"]}),
            Ok(("ann@example.com", &["a", "b"])),
        );
        check(&json!({"preferred_username": "ann", "groups": []}), Ok(("ann", &[])));
        check(&json!({"preferred_username": "ann", "groups": ["Team A", "ok", "gröup", ""]}), Ok(("ann", &["ok"])));
        for groups in [json!("admins"), json!(null), json!({"a": true}), json!(["a", 1]), json!([["a"]]), json!(true)] {
            check(&json!({"preferred_username": "ann", "groups": groups}), Err(NotAdmitted::GroupsType));
        }
        check(
            &json!({"preferred_username": "ann", "groups": vec!["a"; GROUPS_MAX + 1]}),
            Err(NotAdmitted::TooManyGroups),
        );
    }

    #[test]
    fn name_that_cannot_be_one_is_refused() {
        check(&json!({}), Err(NotAdmitted::NoName));
        for name in [json!(1), json!(null), json!(["ann"])] {
            check(&json!({ "preferred_username": name }), Err(NotAdmitted::NoName));
        }
        let long = "a".repeat(129);
        for name in [
            "", " ann", "ann ", "a b", "ann\0", "änn", "аnn", "-ann", "../x", "a/b", "a:b", "<b>", "dev", "Operator",
            &long,
        ] {
            check(&json!({ "preferred_username": name }), Err(NotAdmitted::UnusableName));
        }
    }

    #[test]
    fn email_is_a_name_only_when_the_provider_verified_it() {
        let rules = Rules { username_claim: "email".to_owned(), ..rules() };
        let with = |verified| Claims {
            email: Some("ann@example.com".to_owned()),
            email_verified: verified,
            ..claims(&json!({}))
        };
        assert_eq!(identity(&with(Some(true)), &rules).unwrap().wanted.as_str(), "ann@example.com");
        assert_eq!(identity(&with(Some(false)), &rules), Err(NotAdmitted::UnverifiedEmail));
        assert_eq!(identity(&with(None), &rules), Err(NotAdmitted::UnverifiedEmail));
    }

    #[test]
    fn subject_can_be_the_name_and_is_bounded() {
        let rules = Rules { username_claim: "sub".to_owned(), ..rules() };
        assert_eq!(identity(&claims(&json!({})), &rules).unwrap().wanted.as_str(), "u-1");
        for subject in [None, Some(String::new()), Some("x".repeat(SUBJECT_BYTES_MAX + 1))] {
            let claims = Claims { subject, ..claims(&json!({"preferred_username": "ann"})) };
            assert_eq!(identity(&claims, &rules), Err(NotAdmitted::Subject));
        }
    }

    #[test]
    fn only_members_of_a_required_group_come_in() {
        let rules = Rules { required_group: Some("devs".parse().unwrap()), ..rules() };
        let with = |groups: Value| identity(&claims(&json!({"preferred_username": "ann", "groups": groups})), &rules);
        assert!(with(json!(["devs"])).is_ok());
        for groups in [json!([]), json!(["dev", "devs2", "Devs", "devs "])] {
            assert_eq!(with(groups), Err(NotAdmitted::NotMember));
        }
        assert_eq!(with(json!("devs")), Err(NotAdmitted::GroupsType));
        assert_eq!(identity(&claims(&json!({"preferred_username": "ann"})), &rules), Err(NotAdmitted::NotMember));
    }

    proptest! {
        #[test]
        fn any_name_is_refused_or_becomes_one_that_needs_no_escaping(name in "\\PC{0,140}") {
            if let Ok(read) = user_name(&name) {
                prop_assert_eq!(read.as_str(), name.to_ascii_lowercase());
                prop_assert!(!read.as_str().contains(['<', '>', '&', '"', '\'', '/', ' ', ':']));
            }
        }
    }
}
