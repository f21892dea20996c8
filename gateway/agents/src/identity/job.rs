//! Finds the CI job of a token, its workspace, and the id of its single use.

use std::fmt::Write;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::Value;

use super::refusal::CredentialRefusal;
use gateway_auth::jwt::Claims;
use gateway_config::CiRule;
use gateway_types::{UserName, WorkspaceName};

/// Longest value of a claim that is used, in bytes.
const CLAIM_BYTES_MAX: usize = 512;

/// Longest value that becomes part of a name as it is, and longest beginning of one that does not, in characters.
const PLAIN_CHARS_MAX: usize = 40;
const SLUG_CHARS_MAX: usize = 24;

/// Characters of a hash at the end of a value that did not become part of a name as it is.
const HASH_CHARS: usize = 16;

/// Result of a rule for a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MatchedJob {
    pub(super) workspace: WorkspaceName,
    pub(super) owner: UserName,
    pub(super) create: bool,
    /// Unique at the issuer.
    pub(super) use_id: String,
}

impl MatchedJob {
    /// Finds the workspace of a token by the first rule that fits.
    ///
    /// # Errors
    /// [`CredentialRefusal::Rule`], [`CredentialRefusal::Name`] or [`CredentialRefusal::NoUse`].
    pub(super) fn of_claims(
        claims: &Claims,
        rules: &[CiRule],
        once_per: &[Box<str>],
    ) -> Result<Self, CredentialRefusal> {
        let claim = |name: &str| claim(claims, name);
        let fits =
            |rule: &&CiRule| rule.claims.iter().all(|(name, value)| claim(name).is_some_and(|said| said == **value));
        let rule = rules.iter().find(fits).ok_or(CredentialRefusal::Rule)?;
        Ok(Self {
            workspace: rule
                .workspace
                .name(|name| claim(name).map(|said| as_part_of_name(&said)))
                .map_err(CredentialRefusal::Name)?,
            owner: rule.owner.name(claim).map_err(CredentialRefusal::Name)?,
            create: rule.create,
            use_id: use_id(claim, once_per).ok_or(CredentialRefusal::NoUse)?,
        })
    }
}

/// Returns a claim as text. Only texts without control characters, whole numbers and truth values have one, and exactly
/// one: lists, objects and `null` equal nothing.
fn claim(claims: &Claims, name: &str) -> Option<String> {
    let own = match name {
        "iss" => claims.issuer.clone(),
        "sub" => claims.subject.clone(),
        "jti" => claims.id.clone(),
        "email" => claims.email.clone(),
        _ => match claims.rest.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Bool(truth) => Some(truth.to_string()),
            Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
            Value::Number(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
        },
    };
    // A line break in a name would be a line of its own in a log.
    own.filter(|text| !text.is_empty() && text.len() <= CLAIM_BYTES_MAX && !text.chars().any(char::is_control))
}

/// Makes a value fit for the name of a workspace, so that two values never become one: those that are labels stay as they
/// are; of all others, the letters and digits are kept, for people, and a hash of the whole is put behind them.
fn as_part_of_name(value: &str) -> String {
    let is_label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_plain = value.len() <= PLAIN_CHARS_MAX
        && value.bytes().all(is_label)
        && !value.starts_with('-')
        && !value.ends_with('-')
        && !value.contains("--")
        && !has_hash(value);
    if is_plain {
        return value.to_owned();
    }
    let mut slug = String::new();
    for letter in value.chars().map(|letter| letter.to_ascii_lowercase()) {
        if slug.len() >= SLUG_CHARS_MAX {
            break;
        }
        if letter.is_ascii_alphanumeric() {
            slug.push(letter);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    if !slug.is_empty() && !slug.ends_with('-') {
        slug.push('-');
    }
    for byte in digest(&SHA256, value.as_bytes()).as_ref().iter().take(HASH_CHARS / 2) {
        // Writing into a string cannot fail.
        write!(slug, "{byte:02x}").unwrap_or_default();
    }
    slug
}

/// Tells whether a value ends like one that got a hash: taken as it is, it could be mistaken for such a value.
fn has_hash(value: &str) -> bool {
    let tail = value.rsplit('-').next().unwrap_or_default();
    tail.len() == HASH_CHARS && tail.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Returns the id of the single use: the claims that the operator names, else the token's own id, else the job's.
fn use_id(claim: impl Fn(&str) -> Option<String>, once_per: &[Box<str>]) -> Option<String> {
    /// A job that is run again counts as another one even if its number stays.
    const OF_JOBS: [&[&str]; 3] = [&["jti"], &["job_id"], &["run_id", "run_attempt"]];
    let all = |names: &mut dyn Iterator<Item = &str>| -> Option<String> {
        let mut id = String::new();
        for name in names {
            let value = claim(name)?;
            let separator = if id.is_empty() { "" } else { " " };
            // The length keeps values apart, whatever is in them.
            write!(id, "{separator}{name}={}:{value}", value.len()).ok()?;
        }
        Some(id)
    };
    if !once_per.is_empty() {
        return all(&mut once_per.iter().map(|name| &**name));
    }
    OF_JOBS.iter().find_map(|names| all(&mut names.iter().copied()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn claims(rest: Value) -> Claims {
        let Value::Object(rest) = rest else { panic!("an object") };
        Claims {
            issuer: Some("https://ci.test".to_owned()),
            subject: Some("project_path:group/project:ref_type:branch:ref:main".to_owned()),
            id: Some("token-1".to_owned()),
            rest,
            ..Claims::default()
        }
    }

    fn job() -> Claims {
        claims(json!({
            "project_path": "group/project", "project_id": "22", "job_id": "301", "ref": "main", "ref_protected": "true",
            "user_login": "alice", "environment": null, "attempt": 2, "is_fork": false, "share": 1.5, "list": ["main"],
        }))
    }

    fn rule(claims: &[(&str, &str)]) -> CiRule {
        CiRule {
            claims: claims.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            workspace: "ci-{project_id}--{job_id}".parse().unwrap(),
            owner: "{user_login}".parse().unwrap(),
            create: true,
        }
    }

    #[test]
    fn rule_fits_when_every_claim_is_exactly_what_it_says() {
        let fits = |wanted: &[(&str, &str)]| MatchedJob::of_claims(&job(), &[rule(wanted)], &[]).is_ok();
        assert!(fits(&[("project_path", "group/project"), ("ref", "main"), ("ref_protected", "true")]));
        assert!(fits(&[("attempt", "2"), ("is_fork", "false"), ("iss", "https://ci.test")]));
        for wanted in [
            ("project_path", "group/projec"),
            ("project_path", "group/project2"),
            ("project_path", "Group/Project"),
            ("project_path", "group/*"),
            ("ref", "refs/heads/main"),
            ("ref_protected", "1"),
            ("environment", "null"),
            ("environment", ""),
            ("share", "1.5"),
            ("list", "main"),
            ("missing", ""),
        ] {
            assert!(!fits(&[wanted]), "{wanted:?}");
            assert!(!fits(&[("ref", "main"), wanted]), "{wanted:?}");
        }
    }

    #[test]
    fn first_rule_that_fits_names_workspace_and_owner() {
        let other = CiRule { owner: "bob".parse().unwrap(), ..rule(&[("ref", "release")]) };
        let found = MatchedJob::of_claims(&job(), &[other.clone(), rule(&[("ref", "main")]), rule(&[])], &[]).unwrap();
        assert_eq!((found.workspace.as_str(), found.owner.as_str()), ("ci-22--301", "alice"));
        assert_eq!(MatchedJob::of_claims(&job(), &[other], &[]), Err(CredentialRefusal::Rule));
        assert_eq!(MatchedJob::of_claims(&job(), &[], &[]), Err(CredentialRefusal::Rule));
        let unnamed = CiRule { owner: "{user_email}".parse().unwrap(), ..rule(&[("ref", "main")]) };
        assert!(matches!(MatchedJob::of_claims(&job(), &[unnamed], &[]), Err(CredentialRefusal::Name(_))));
    }

    #[test]
    fn what_is_used_once_is_the_token_or_what_the_operator_names() {
        let of = |claims: &Claims, names: &[&str]| {
            let names: Vec<Box<str>> = names.iter().map(|name| (*name).into()).collect();
            MatchedJob::of_claims(claims, &[rule(&[("ref", "main")])], &names).map(|job| job.use_id)
        };
        assert_eq!(of(&job(), &[]).as_deref(), Ok("jti=7:token-1"));
        assert_eq!(of(&job(), &["project_id", "job_id"]).as_deref(), Ok("project_id=2:22 job_id=3:301"));
        assert_eq!(of(&job(), &["project_id", "environment"]), Err(CredentialRefusal::NoUse));
        let broken = Claims { id: Some("a\nINFO forged".to_owned()), ..job() };
        assert_eq!(of(&broken, &["jti"]), Err(CredentialRefusal::NoUse));
        let without_id = Claims { id: None, ..job() };
        assert_eq!(of(&without_id, &[]).as_deref(), Ok("job_id=3:301"));
        let mut bare = without_id;
        bare.rest.remove("job_id");
        bare.rest.insert("run_id".to_owned(), json!(9));
        let rule = CiRule { workspace: "x".parse().unwrap(), ..rule(&[("ref", "main")]) };
        assert_eq!(
            MatchedJob::of_claims(&bare, std::slice::from_ref(&rule), &[]),
            Err(CredentialRefusal::NoUse),
            "no attempt"
        );
        bare.rest.insert("run_attempt".to_owned(), json!("1"));
        assert_eq!(
            MatchedJob::of_claims(&bare, &[rule], &[]).map(|job| job.use_id).as_deref(),
            Ok("run_id=1:9 run_attempt=1:1")
        );
    }

    #[test]
    fn values_that_are_no_labels_are_told_apart_by_a_hash() {
        assert_eq!(as_part_of_name("group-project"), "group-project");
        assert_eq!(as_part_of_name("301"), "301");
        insta::assert_snapshot!(as_part_of_name("group/project"), @"group-project-de9eb2b1e9f4a081");
        let alike =
            ["group/project", "group.project", "Group/project", "group-project", "group--project", "/group/project"];
        let made: std::collections::BTreeSet<String> = alike.iter().map(|value| as_part_of_name(value)).collect();
        assert_eq!(made.len(), alike.len(), "{made:?}");
        let forged = as_part_of_name("group/project");
        assert_ne!(as_part_of_name(&forged), forged, "nobody gets another's name by spelling it out");
        assert_eq!(as_part_of_name("ä").len(), HASH_CHARS);
    }

    proptest! {
        #[test]
        fn part_of_a_name_is_a_label_and_unmistakable(one in ".{1,60}", other in "[a-z0-9/-]{1,30}") {
            for value in [&one, &other] {
                let part = as_part_of_name(value);
                prop_assert!(part.len() <= SLUG_CHARS_MAX + 1 + HASH_CHARS, "{}", part);
                prop_assert!(!part.contains("--") && !part.starts_with('-') && !part.ends_with('-'), "{}", part);
                prop_assert!(format!("a{part}").parse::<WorkspaceName>().is_ok(), "{}", part);
            }
            prop_assert_eq!(one == other, as_part_of_name(&one) == as_part_of_name(&other));
        }
    }
}
