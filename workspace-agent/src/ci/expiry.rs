//! Expiry of a token as the token itself says. Nothing is trusted because of it: it only tells when waiting is of no
//! use.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

/// Returns the expiry of a signed token (RFC 7519, section 4.1.4); `None` for any other text. Units: seconds since the
/// Unix epoch.
pub(super) fn expires_at(token: &str) -> Option<u64> {
    let mut parts = token.trim().split('.');
    let (_header, claims, _signature) = (parts.next()?, parts.next()?, parts.next()?);
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    let end = claims.get("exp")?;
    // A NumericDate may have a fraction; the second before it is early enough.
    end.as_u64().or_else(|| end.to_string().split('.').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_signed_token_is_found_and_anything_else_has_none() {
        let token = |claims: &str| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
        assert_eq!(expires_at(&token(r#"{"nested":{"exp":1},"exp":1790000000}"#)), Some(1_790_000_000));
        assert_eq!(expires_at(&format!("{}\n", token(r#"{"exp":1790000000.9}"#))), Some(1_790_000_000));
        for claims in ["{}", r#"{"exp":"1790000000"}"#, r#"{"exp":null}"#, r#"{"exp":-5}"#, "[]", "exp", ""] {
            assert_eq!(expires_at(&token(claims)), None, "{claims}");
        }
        for text in ["", "gwa_0123456789", "a.b", "a.b.c", "..", "a.\u{e4}.c"] {
            assert_eq!(expires_at(text), None, "{text}");
        }
    }
}
