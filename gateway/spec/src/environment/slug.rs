//! Makes names fit for names of objects in the way of GitLab (GitLab documentation, `CI_ENVIRONMENT_SLUG` and
//! `CI_PROJECT_PATH_SLUG`), so that a job's own variables and rendered templates agree.

use aws_lc_rs::digest;

use super::facts::ENVIRONMENT_SLUG_MAX;

/// Characters that are kept of a name which is too long or had to be changed.
const KEPT_MAX: usize = 17;

/// Base-36 digits of the suffix that tells such names from each other.
const SUFFIX_DIGITS: usize = 6;

/// Number of such suffixes.
const SUFFIXES: u64 = 36 * 36 * 36 * 36 * 36 * 36;

/// Longest slug of a path, in characters.
const PATH_SLUG_MAX: usize = 63;

const _: () = assert!(KEPT_MAX + 1 + SUFFIX_DIGITS == ENVIRONMENT_SLUG_MAX);

/// Returns the slug of an environment's name: lower case, at most 24 of `a-z`, `0-9` and inner dashes, a letter first.
/// A changed or shortened name ends in digits of a hash of the whole name.
#[must_use]
pub fn environment_slug(name: &str) -> String {
    let mut slug = dashed(name);
    if !slug.starts_with(|first: char| first.is_ascii_lowercase()) {
        slug.insert_str(0, "env-");
    }
    // No two dashes follow each other.
    let mut before = None;
    slug.retain(|letter| before.replace(letter) != Some('-') || letter != '-');
    if slug.len() <= ENVIRONMENT_SLUG_MAX && slug == name {
        slug.truncate(slug.trim_end_matches('-').len());
        return slug;
    }
    slug.truncate(KEPT_MAX);
    if !slug.ends_with('-') {
        slug.push('-');
    }
    slug + &suffix(name)
}

/// Returns the slug of a project's path: lower case, at most 63 of `a-z`, `0-9` and inner dashes. Different paths may
/// have the same slug.
#[must_use]
pub fn path_slug(path: &str) -> String {
    let slug: String = dashed(path).chars().take(PATH_SLUG_MAX).collect();
    slug.trim_matches('-').to_owned()
}

/// Writes a text in lower case, with dashes for all that is neither letter nor digit of ASCII.
fn dashed(text: &str) -> String {
    let one = |letter: char| if letter.is_ascii_lowercase() || letter.is_ascii_digit() { letter } else { '-' };
    text.chars().flat_map(char::to_lowercase).map(one).collect()
}

/// Returns the last digits, to base 36, of a name's SHA-256 as one number.
fn suffix(name: &str) -> String {
    let hashed = digest::digest(&digest::SHA256, name.as_bytes());
    let mut rest = hashed.as_ref().iter().fold(0_u64, |rest, byte| (rest * 256 + u64::from(*byte)) % SUFFIXES);
    let mut digits = Vec::with_capacity(SUFFIX_DIGITS);
    for _ in 0..SUFFIX_DIGITS {
        let digit = u32::try_from(rest % 36).unwrap_or_default();
        digits.push(char::from_digit(digit, 36).unwrap_or('0'));
        rest /= 36;
    }
    digits.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::syntax::is_dns_label;

    #[test]
    fn names_that_are_slugs_stay_and_others_get_digits() {
        // The digits were computed with Python's hashlib from the rule as it is documented.
        for (name, slug) in [
            ("production", "production"),
            ("staging-2", "staging-2"),
            ("dash-", "dash"),
            ("review/feature-1", "review-feature-1-1q251u"),
            ("Production", "production-iis43c"),
            ("1", "env-1-x3mbm3"),
            ("", "env-qhkd3p"),
            ("a--b", "a-b-m3ql0o"),
            ("/a/", "env-a-tz4rl0"),
            ("review/a-very-long-branch-name", "review-a-very-lon-vgbi69"),
            ("exactly-seventeen/x", "exactly-seventeen-u9r19x"),
            ("ÄÖ", "env-0bu4t9"),
            ("xxxxxxxxxxxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxxxxxxxxxxx"),
            ("xxxxxxxxxxxxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxxxx-lb3sqk"),
        ] {
            assert_eq!(environment_slug(name), slug, "{name}");
        }
        for (path, slug) in [
            ("group/shop", "group-shop"),
            ("Group/Sub.Group/My_Shop", "group-sub-group-my-shop"),
            ("-a-", "a"),
            ("/", ""),
        ] {
            assert_eq!(path_slug(path), slug, "{path}");
        }
        assert_eq!(path_slug(&format!("{}/b", "a".repeat(62))), "a".repeat(62), "cut, then trimmed");
    }

    proptest! {
        #[test]
        fn slugs_of_any_names_are_slugs(name: String) {
            let slug = environment_slug(&name);
            prop_assert!(is_dns_label(&slug) && slug.len() <= ENVIRONMENT_SLUG_MAX, "{slug}");
            prop_assert!(slug.starts_with(|first: char| first.is_ascii_lowercase()), "{slug}");
            prop_assert!(!slug.contains("--"), "{slug}");
            prop_assert_eq!(environment_slug(&slug), slug, "a slug is its own");
            let path = path_slug(&name);
            prop_assert!(path.is_empty() || is_dns_label(&path), "{path}");
        }
    }
}
