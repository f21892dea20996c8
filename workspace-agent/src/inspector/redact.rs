//! Credentials in heads of requests and responses, which are left out before anything is kept. Pure.

use std::borrow::Cow;

use super::form::decoded;

/// Text in place of a credential.
pub(crate) const REDACTED: &str = "[redacted]";

/// Value of a query parameter in place of a credential: every character of it may stand in an address.
const REDACTED_PARAMETER: &str = "redacted";

/// Parts of names of fields and parameters whose values are credentials; `_` counts as `-`.
const PARTS: [&str; 13] = [
    "authorization",
    "authenticate",
    "cookie",
    "token",
    "secret",
    "api-key",
    "apikey",
    "passw",
    "credential",
    "signature",
    "session",
    "assertion",
    "private-key",
];

/// Fields whose values are addresses, or hold some.
const ADDRESSES: [&str; 7] =
    ["location", "content-location", "referer", "refresh", "link", "x-original-url", "x-original-uri"];

/// Most bytes of a name that are read: the rest of a longer one decides nothing.
const NAME_BYTES_MAX: usize = 256;

/// Decides whether the value of a field or parameter of this name is a credential.
#[must_use]
pub(crate) fn is_credential(name: &str) -> bool {
    let name: String = name.bytes().take(NAME_BYTES_MAX).map(plain).map(char::from).collect();
    PARTS.iter().any(|part| name.contains(part))
}

fn plain(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }
}

/// Returns the value of a field as it may be kept, and whether something was left out of it.
#[must_use]
pub(crate) fn field<'a>(name: &str, value: &'a str) -> (Cow<'a, str>, bool) {
    // A browser can put a bearer token into the list of protocols: it has no other field for its WebSockets.
    let is_bearer =
        name.eq_ignore_ascii_case("sec-websocket-protocol") && value.to_ascii_lowercase().contains("bearer");
    if is_credential(name) || is_bearer {
        return (Cow::Borrowed(REDACTED), true);
    }
    if ADDRESSES.iter().any(|address| name.eq_ignore_ascii_case(address)) {
        return address(value);
    }
    (Cow::Borrowed(value), false)
}

/// Returns what an app was asked for, without the values of parameters whose names say that they are credentials, and whether there
/// were any. Parameters are read behind `?` and `#`, and a value ends where another parameter can begin in every reading.
#[must_use]
pub(crate) fn target(text: &str) -> (Cow<'_, str>, bool) {
    without_values(text, &['&', '#'])
}

/// The same for a field with addresses, which end at a bracket or a space.
fn address(text: &str) -> (Cow<'_, str>, bool) {
    without_values(text, &['&', '#', '>', ' '])
}

fn without_values<'a>(text: &'a str, ends: &[char]) -> (Cow<'a, str>, bool) {
    if !text.contains('=') {
        return (Cow::Borrowed(text), false);
    }
    let mut kept = String::with_capacity(text.len());
    let mut is_redacted = false;
    let mut rest = text;
    while let Some(begin) = rest.find(['?', '#', '&', ';']) {
        let (before, behind) = rest.split_at(begin + 1);
        kept.push_str(before);
        rest = behind;
        let name_end = rest.find(['?', '#', '&', ';', '=', ' ', '>']).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(name_end);
        let Some(value) = behind.strip_prefix('=') else { continue };
        if is_credential(&decoded(name)) {
            let end = value.find(ends).unwrap_or(value.len());
            let (value, behind) = value.split_at(end);
            kept.push_str(name);
            kept.push('=');
            kept.push_str(if value.is_empty() { "" } else { REDACTED_PARAMETER });
            is_redacted |= !value.is_empty();
            rest = behind;
        }
    }
    kept.push_str(rest);
    if is_redacted { (Cow::Owned(kept), true) } else { (Cow::Borrowed(text), false) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_that_prove_something_are_left_out_by_their_names() {
        for name in [
            "Cookie",
            "Set-Cookie",
            "Authorization",
            "Proxy-Authorization",
            "X-Api-Key",
            "apikey",
            "X_API_KEY",
            "x-csrf-token",
            "X-Amz-Security-Token",
            "client_secret",
            "X-Session-Id",
            "WWW-Authenticate",
        ] {
            assert_eq!(field(name, "abc"), (Cow::Borrowed(REDACTED), true), "{name}");
        }
        for name in ["accept", "host", "x-forwarded-for", "content-type", "etag", "x-request-id"] {
            assert_eq!(field(name, "abc?token=1"), (Cow::Borrowed("abc?token=1"), false), "{name}");
        }
        assert!(field("sec-websocket-protocol", "v4, base64url.Bearer.authorization.k8s.io.eHg").1);
        assert!(!field("sec-websocket-protocol", "graphql-ws").1);
    }

    #[test]
    fn parameters_are_left_out_wherever_an_address_has_them() {
        for (text, kept) in [
            ("/a?token=1&b=2", "/a?token=redacted&b=2"),
            ("/a?b=2&access_token=1#id_token=x&c=d", "/a?b=2&access_token=redacted#id_token=redacted&c=d"),
            ("/a?%74oken=1", "/a?%74oken=redacted"),
            ("/a?API_KEY=1;secret=2", "/a?API_KEY=redacted"),
            ("/a?b=1;secret=2,3?4;5&c=6", "/a?b=1;secret=redacted&c=6"),
            ("/a?x=1?token=2", "/a?x=1?token=redacted"),
        ] {
            assert_eq!(target(text), (Cow::Borrowed(kept), true), "{text}");
        }
        for text in ["/", "/token=1", "/a?token=&b", "/a?b=token", "/a?token"] {
            assert_eq!(target(text), (Cow::Borrowed(text), false), "{text}");
        }
        let links = "</a?token=1>; rel=next, </b?token=2>";
        assert_eq!(field("Link", links).0, "</a?token=redacted>; rel=next, </b?token=redacted>");
        assert_eq!(field("Refresh", "0; url=/b?token=1").0, "0; url=/b?token=redacted");
        assert_eq!(field("Referer", "http://a/?secret=1").0, "http://a/?secret=redacted");
        assert_eq!(field("Location", "/cb?id_token=1").0, "/cb?id_token=redacted");
    }

    proptest! {
        #[test]
        fn no_value_of_a_credential_is_left_in_any_address(before in "[a-z/?&=#;.%+]{0,20}", behind in "[&#][a-z=]{0,9}") {
            let text = format!("{before}&my_token=s3cr3t{behind}");
            let (kept, is_redacted) = target(&text);
            prop_assert!(is_redacted && !kept.contains("s3cr3t"), "{text} {kept}");
            prop_assert_eq!(target(&kept).0, kept.clone());
        }
    }
}
