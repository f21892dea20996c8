//! Credentials in heads of requests and responses, which are left out before anything is kept. Pure.

use std::borrow::Cow;

use super::form::decoded;

/// Text in place of a credential.
pub(crate) const REDACTED: &str = "[redacted]";

/// Value of a query parameter in place of a credential: every character of it may stand in an address.
const REDACTED_PARAMETER: &str = "redacted";

/// Parts of names of fields and parameters whose values are credentials; `_` counts as `-`.
const PARTS: [&str; 18] = [
    "access-key",
    "auth-key",
    "functions-key",
    "subscription-key",
    "sessid",
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

/// Whole names of parameters whose values are credentials.
const PARAMETERS: [&str; 13] =
    ["auth", "code", "jwt", "key", "otp", "pin", "pwd", "samlresponse", "sid", "sig", "state", "ticket", "xsrf"];

/// Fields whose values are addresses, or hold some.
const ADDRESSES: [&str; 12] = [
    "location",
    "content-location",
    "referer",
    "refresh",
    "link",
    "x-original-url",
    "x-original-uri",
    "x-forwarded-uri",
    "hx-redirect",
    "hx-location",
    "hx-current-url",
    "turbo-location",
];

/// Longest name of a protocol in a WebSocket's list that is kept: a longer one may be a token, for which browsers have no other place.
const PROTOCOL_BYTES_MAX: usize = 32;

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
    if is_credential(name) {
        return (Cow::Borrowed(REDACTED), true);
    }
    if name.eq_ignore_ascii_case("sec-websocket-protocol") {
        return protocols(value);
    }
    if ADDRESSES.iter().any(|address| name.eq_ignore_ascii_case(address)) {
        return address(value);
    }
    (Cow::Borrowed(value), false)
}

/// Decides whether an encoded address at the beginning of a value has a credential: `%2Fcallback%3Fcode%3D1`. What is not encoded is
/// read where it stands.
fn has_secret_inside(value: &str, ends: &[char]) -> bool {
    let end = value.find(['?', '#', '&', ';', ' ', '>']).unwrap_or(value.len());
    let inner = decoded(value.get(..end).unwrap_or_default());
    matches!(inner, Cow::Owned(_))
        && (without_user(&inner).is_some() || without_parameters(&inner, ends, Depth::Inside).1)
}

/// Returns the list of a WebSocket's protocols, without any of it if one may be a token: a browser has no other field for these.
fn protocols(value: &str) -> (Cow<'_, str>, bool) {
    let is_plain = |protocol: &str| {
        protocol.len() <= PROTOCOL_BYTES_MAX && !is_credential(protocol) && !protocol.eq_ignore_ascii_case("bearer")
    };
    if value.split(',').map(str::trim).all(is_plain) {
        return (Cow::Borrowed(value), false);
    }
    (Cow::Borrowed(REDACTED), true)
}

/// Decides whether the value of a parameter of this name is a credential.
fn is_secret_parameter(name: &str) -> bool {
    is_credential(name) || PARAMETERS.iter().any(|whole| name.eq_ignore_ascii_case(whole))
}

/// Returns an address without the user and password before its host.
fn without_user(text: &str) -> Option<String> {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_changed = false;
    while let Some(begin) = rest.find("//") {
        let (before, behind) = rest.split_at(begin + 2);
        kept.push_str(before);
        let end = behind.find(['/', '?', '#', ' ', '>', '"']).unwrap_or(behind.len());
        let (authority, behind) = behind.split_at(end);
        match authority.rsplit_once('@') {
            Some((_, host)) => {
                is_changed = true;
                kept.push_str(host);
            }
            None => kept.push_str(authority),
        }
        rest = behind;
    }
    kept.push_str(rest);
    is_changed.then_some(kept)
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
    match without_user(text) {
        Some(text) => (Cow::Owned(without_parameters(&text, ends, Depth::Address).0.into_owned()), true),
        None => without_parameters(text, ends, Depth::Address),
    }
}

/// Where parameters are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// In an address.
    Address,
    /// In an address that is a value of one, and was decoded.
    Inside,
}

/// Takes time in proportion to the text, whatever is in it.
fn without_parameters<'a>(text: &'a str, ends: &[char], depth: Depth) -> (Cow<'a, str>, bool) {
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
        if is_secret_parameter(&decoded(name)) || (depth == Depth::Address && has_secret_inside(value, ends)) {
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
            "X-Auth-Key",
            "X-Functions-Key",
            "Ocp-Apim-Subscription-Key",
            "WWW-Authenticate",
        ] {
            assert_eq!(field(name, "abc"), (Cow::Borrowed(REDACTED), true), "{name}");
        }
        for name in ["accept", "host", "x-forwarded-for", "content-type", "etag", "x-request-id"] {
            assert_eq!(field(name, "abc?token=1"), (Cow::Borrowed("abc?token=1"), false), "{name}");
        }
        assert!(field("sec-websocket-protocol", "v4, base64url.Bearer.authorization.k8s.io.eHg").1);
        assert!(field("sec-websocket-protocol", "access_token, eyJhbGciOiJIUzI1NiJ9.e30.c2ln").1);
        assert!(field("sec-websocket-protocol", "graphql-ws, header-eyJob3N0IjoiYSIsIkF1dGhvcml6YXRpb24iOiJ4In0").1);
        assert!(!field("sec-websocket-protocol", "graphql-ws, v12.stomp").1);
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
            ("/cb?code=1&scope=a", "/cb?code=redacted&scope=a"),
            ("/blob?sv=1&sig=a%2Bb", "/blob?sv=1&sig=redacted"),
            ("/login?next=%2Fcb%3Faccess_token%3Dabc&x=1", "/login?next=redacted&x=1"),
            ("http://user:pw@host/a?b=c", "http://host/a?b=c"),
        ] {
            assert_eq!(target(text), (Cow::Borrowed(kept), true), "{text}");
        }
        for text in
            ["/", "/token=1", "/a?token=&b", "/a?b=token", "/a?token", "/a?next=%2Fb%3Fc%3D1", "/a?zipcode=1", "/@a/b"]
        {
            assert_eq!(target(text), (Cow::Borrowed(text), false), "{text}");
        }
        let links = "</a?token=1>; rel=next, </b?token=2>";
        assert_eq!(field("Link", links).0, "</a?token=redacted>; rel=next, </b?token=redacted>");
        assert_eq!(field("Refresh", "0; url=/b?token=1").0, "0; url=/b?token=redacted");
        assert_eq!(field("Referer", "http://a/?secret=1").0, "http://a/?secret=redacted");
        assert_eq!(field("Location", "/cb?id_token=1").0, "/cb?id_token=redacted");
        assert_eq!(field("Location", "https://user:pw@host/?code=1").0, "https://host/?code=redacted");
        assert_eq!(field("HX-Redirect", "/cb?jwt=1").0, "/cb?jwt=redacted");
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
