//! Header fields of the gateway's own answers, and lists in header fields.

use http::{HeaderMap, HeaderName};

/// Carries the code of a failure that the gateway itself answered.
pub const GATEWAY_ERROR: HeaderName = HeaderName::from_static("gateway-error");
/// Carries the reason of a failure: which case of its code, or which limit or rule.
pub const GATEWAY_REASON: HeaderName = HeaderName::from_static("gateway-reason");
/// Carries the side that a failure is of.
pub const GATEWAY_SIDE: HeaderName = HeaderName::from_static("gateway-side");
/// Carries the trace id of a failure.
pub const GATEWAY_TRACE: HeaderName = HeaderName::from_static("gateway-trace");

/// Says whether a comma-separated list field holds a token, in any case (RFC 9110, section 5.6.1).
#[must_use]
pub fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|found| found.eq_ignore_ascii_case(token.as_bytes()))
}

/// Iterates over the elements of a comma-separated list field, over all its lines, empty ones left out.
pub fn tokens<'map>(headers: &'map HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'map [u8]> {
    let values = headers.get_all(name).iter();
    values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}
