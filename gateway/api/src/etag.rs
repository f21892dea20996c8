//! Entity tags: they identify a list as it was read, so that no client overwrites changes that it has not seen (RFC
//! 9110, sections 8.8.3 and 13.1).

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName};

use super::problem::{ApiProblem, ProblemRow};
use gateway_types::Share;

/// Makes the tag of a list of shares, which does not depend on their order.
pub(super) fn of_shares(shares: &[Share]) -> String {
    let mut lines: Vec<String> = shares
        .iter()
        .map(|share| {
            let until = share.expires_at.map_or(0, gateway_types::UnixSeconds::get);
            format!("{} {} {until}\n", share.port, share.audience)
        })
        .collect();
    lines.sort();
    let hashed = digest::digest(&digest::SHA256, lines.concat().as_bytes());
    format!("\"{}\"", URL_SAFE_NO_PAD.encode(hashed.as_ref().get(..16).unwrap_or_default()))
}

/// A condition of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No condition.
    Absent,
    /// `*`: any value, as long as there is one.
    Any,
    /// One of these.
    OneOf(Vec<String>),
}

impl Condition {
    /// Reads `If-Match` or `If-None-Match`.
    ///
    /// Weak tags are kept as they are written, so they never match a tag of ours: `If-Match` compares strongly.
    pub(super) fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Self, ProblemRow> {
        let mut tags = Vec::new();
        for value in headers.get_all(name) {
            let text = value.to_str().map_err(|_| ApiProblem::BadRequest { reason: "bad_condition" })?;
            // Our own tags have no commas inside, so another way to split cannot make a match.
            tags.extend(text.split(',').map(|tag| tag.trim().to_owned()));
        }
        match tags.as_slice() {
            [] => Ok(Self::Absent),
            [only] if only == "*" => Ok(Self::Any),
            all if all.iter().any(|tag| tag == "*") => Err(ApiProblem::BadRequest { reason: "bad_condition" }.into()),
            _ => Ok(Self::OneOf(tags)),
        }
    }

    /// Returns whether a request with this `If-Match` may go on.
    pub(super) fn allows_change_of(&self, tag: &str) -> bool {
        match self {
            Self::Absent | Self::Any => true,
            Self::OneOf(tags) => tags.iter().any(|one| one == tag),
        }
    }

    /// Returns whether a client with this `If-None-Match` has it already. This one compares weakly.
    pub(super) fn has(&self, tag: &str) -> bool {
        match self {
            Self::Absent => false,
            Self::Any => true,
            Self::OneOf(tags) => tags.iter().any(|one| one.strip_prefix("W/").unwrap_or(one) == tag),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::IF_MATCH;
    use proptest::prelude::*;

    use super::*;
    use gateway_types::{Port, UnixSeconds};

    fn share(port: u16, audience: &str, expires_at: Option<i64>) -> Share {
        let expires_at = expires_at.map(UnixSeconds::new);
        Share { port: Port::new(port).unwrap(), audience: audience.parse().unwrap(), expires_at }
    }

    fn condition(values: &[&str]) -> Result<Condition, ProblemRow> {
        let headers = values.iter().map(|value| (IF_MATCH, value.parse().unwrap())).collect();
        Condition::read(&headers, &IF_MATCH)
    }

    #[test]
    fn condition_lets_through_what_names_the_present_state() {
        let tag = of_shares(&[]);
        assert!(condition(&[]).unwrap().allows_change_of(&tag));
        assert!(condition(&["*"]).unwrap().allows_change_of(&tag));
        assert!(condition(&[&format!("\"x\", {tag}")]).unwrap().allows_change_of(&tag));
        assert!(condition(&["\"x\"", &tag]).unwrap().allows_change_of(&tag));
        let weak = condition(&[&format!("W/{tag}")]).unwrap();
        assert!(!weak.allows_change_of(&tag) && weak.has(&tag));
        for other in ["\"x\"", "", tag.trim_matches('"')] {
            assert!(!condition(&[other]).unwrap().allows_change_of(&tag), "{other}");
        }
        assert!(condition(&["*", &tag]).is_err());
    }

    proptest! {
        #[test]
        fn tag_is_the_same_exactly_for_the_same_shares(
            left in prop::collection::btree_set((1..4_u16, "[ab]", prop::option::of(1..3_i64)), 0..4),
            right in prop::collection::btree_set((1..4_u16, "[ab]", prop::option::of(1..3_i64)), 0..4),
        ) {
            let shares = |set: &std::collections::BTreeSet<(u16, String, Option<i64>)>| -> Vec<Share> {
                set.iter().map(|(port, user, ends)| share(*port, &format!("user:{user}"), *ends)).collect()
            };
            let mut reversed = shares(&left);
            reversed.reverse();
            prop_assert_eq!(of_shares(&shares(&left)), of_shares(&reversed));
            prop_assert_eq!(of_shares(&shares(&left)) == of_shares(&shares(&right)), left == right);
        }
    }
}
