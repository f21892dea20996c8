//! Recognises `Expect: 100-continue` (RFC 9110, section 10.1.1).
//!
//! A client that expects `100 Continue` holds its body back, so the interim answer must wait until the request is
//! authorised and the channel is open: until then a refusal costs no upload.

use http::header::EXPECT;
use http::{HeaderMap, Version};
use thiserror::Error;

use gateway_http::respond::Failure;

/// Interim answer that a client waits for before it sends the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// None: the body comes at once.
    Nothing,
    /// An interim `100 Continue`.
    Continue,
}

/// The request expects something other than `100-continue`; answered with 417.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the request expects something other than 100-continue")]
pub struct UnknownExpectation;

impl UnknownExpectation {
    /// Returns the failure shown to the user.
    #[must_use]
    pub fn failure(self) -> Failure {
        Failure::ExpectationFailed
    }
}

/// Reads the expectation of a request. HTTP/1.0 knows no interim answers, so there the field is ignored.
///
/// # Errors
///
/// Any expectation that is not `100-continue` alone.
pub fn expectation(version: Version, headers: &HeaderMap) -> Result<Expectation, UnknownExpectation> {
    if version <= Version::HTTP_10 {
        return Ok(Expectation::Nothing);
    }
    let mut expectation = Expectation::Nothing;
    for value in headers.get_all(EXPECT) {
        if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") {
            return Err(UnknownExpectation);
        }
        expectation = Expectation::Continue;
    }
    Ok(expectation)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[track_caller]
    fn check(version: Version, values: &[&'static str], expected: Result<Expectation, UnknownExpectation>) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(EXPECT, HeaderValue::from_static(value));
        }
        assert_eq!(expectation(version, &headers), expected, "{version:?} {values:?}");
    }

    #[test]
    fn only_100_continue_is_understood() {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            check(version, &[], Ok(Expectation::Nothing));
            check(version, &["100-continue"], Ok(Expectation::Continue));
            check(version, &["100-Continue", "100-continue"], Ok(Expectation::Continue));
            for other in ["", "200-ok", "100-continue, x", "100-continue;q=1"] {
                check(version, &[other], Err(UnknownExpectation));
            }
            check(version, &["100-continue", "x"], Err(UnknownExpectation));
        }
    }

    #[test]
    fn http10_expectation_is_ignored() {
        check(Version::HTTP_10, &["100-continue"], Ok(Expectation::Nothing));
        check(Version::HTTP_10, &["x"], Ok(Expectation::Nothing));
    }
}
