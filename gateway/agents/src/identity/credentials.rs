//! Reads an agent's credentials in one way and once, so that exactly these decide whether it is admitted.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::Value;

use super::refusal::CredentialRefusal;
use gateway_auth::jwt::{self, TOKEN_BYTES_MAX};
use gateway_net::certificate::Certificate;

/// A bearer credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bearer<'a> {
    /// Taken for a token of this gateway.
    Own(&'a str),
    /// Signed by another issuer.
    Signed(&'a str),
}

/// Reads the `authorization` of a call, if it has one.
///
/// # Errors
/// [`CredentialRefusal::Ambiguous`] for several: the one that counts must not depend on the reader.
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<Bearer<'_>>, CredentialRefusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(CredentialRefusal::Ambiguous);
    }
    let text = value.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")).ok_or(CredentialRefusal::Missing)?;
    // A JSON object in base64url begins so; tokens of this gateway have no dots.
    let is_signed = text.starts_with("eyJ") && text.contains('.');
    Ok(Some(if is_signed { Bearer::Signed(text) } else { Bearer::Own(text) }))
}

/// Reads the issuer that a signed token claims. Nothing is proven by that: it only selects the keys for the check.
///
/// # Errors
/// [`CredentialRefusal::Token`] when the token tells no issuer.
pub(super) fn claimed_issuer(token: &str) -> Result<String, CredentialRefusal> {
    match unverified(token)?.get("iss") {
        Some(Value::String(issuer)) => Ok(issuer.clone()),
        Some(_) => Err(CredentialRefusal::Token(jwt::TokenRefused::Claim("iss"))),
        None => Err(CredentialRefusal::Token(jwt::TokenRefused::Missing("iss"))),
    }
}

/// Reads the claims of an unchecked token.
///
/// # Errors
/// [`CredentialRefusal::Token`] for text that is not three parts with an object in the middle.
pub(super) fn unverified(token: &str) -> Result<Value, CredentialRefusal> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(CredentialRefusal::Token(jwt::TokenRefused::TooLong));
    }
    let malformed = || CredentialRefusal::Token(jwt::TokenRefused::Malformed);
    let mut parts = token.split('.');
    let (Some(_header), Some(claims), Some(_signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(malformed());
    };
    let bytes = URL_SAFE_NO_PAD.decode(claims).map_err(|_| malformed())?;
    let claims: Value = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
    if claims.is_object() { Ok(claims) } else { Err(malformed()) }
}

/// Returns the workspace that a verified client certificate names: its one URI that begins with `prefix`. Other names
/// count for nothing here, above all the common name, which any party may have been given for any purpose.
///
/// `None` for a certificate that names none: beside a token it may be there for other reasons.
///
/// # Errors
/// [`CredentialRefusal::CertificateIdentity`] for one that names several, or is not for clients, or is an authority's.
pub(super) fn workspace_of<'a>(
    certificate: &'a Certificate,
    prefix: &str,
) -> Result<Option<&'a str>, CredentialRefusal> {
    if certificate.is_authority {
        return Err(CredentialRefusal::CertificateIdentity("the client certificate is an authority's, and no agent's"));
    }
    if !certificate.is_for_clients {
        return Err(CredentialRefusal::CertificateIdentity("the client certificate is not for client authentication"));
    }
    match certificate.uris.as_slice() {
        [] => Ok(None),
        // As in SPIFFE (X.509-SVID, section 2): exactly one URI, so that there is no choice.
        [uri] => Ok(uri.strip_prefix(prefix)),
        [_, _, ..] => Err(CredentialRefusal::CertificateIdentity("the client certificate has more than one URI")),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use gateway_types::UnixSeconds;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_str(value).unwrap())).collect()
    }

    fn token(claims: &Value) -> String {
        format!("eyJhbGciOiJFZERTQSJ9.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn one_bearer_is_read_and_told_by_its_shape() {
        assert_eq!(bearer(&headers(&[])), Ok(None));
        assert_eq!(bearer(&headers(&["Bearer gwa_x"])), Ok(Some(Bearer::Own("gwa_x"))));
        assert_eq!(bearer(&headers(&["Bearer eyJ.x.y"])), Ok(Some(Bearer::Signed("eyJ.x.y"))));
        assert_eq!(bearer(&headers(&["Bearer eyJx"])), Ok(Some(Bearer::Own("eyJx"))));
        assert_eq!(bearer(&headers(&["Basic x"])), Err(CredentialRefusal::Missing));
        assert_eq!(bearer(&headers(&["Bearer gwa_x", "Bearer gwa_x"])), Err(CredentialRefusal::Ambiguous));
    }

    #[test]
    fn issuer_is_one_text() {
        assert_eq!(claimed_issuer(&token(&json!({"iss": "a"}))).as_deref(), Ok("a"));
        for claims in [json!({}), json!({"iss": 1}), json!({"iss": ["a"]}), json!({"iss": null}), json!(["iss"])] {
            assert!(matches!(claimed_issuer(&token(&claims)), Err(CredentialRefusal::Token(_))), "{claims}");
        }
        for text in ["", "eyJ", "a.b", "a.b.c.d", "a.!.c", &"a.".repeat(TOKEN_BYTES_MAX)] {
            assert!(matches!(claimed_issuer(text), Err(CredentialRefusal::Token(_))));
        }
    }

    fn certificate(uris: &[&str]) -> Certificate {
        Certificate {
            uris: uris.iter().map(|uri| (*uri).into()).collect(),
            is_for_clients: true,
            is_authority: false,
            not_after: UnixSeconds::new(0),
            fingerprint: "f".into(),
        }
    }

    #[test]
    fn certificate_names_one_workspace_or_none() {
        let prefix = "spiffe://ws.test/workspace/";
        let of = |uris: &[&str]| workspace_of(&certificate(uris), prefix).map(|name| name.map(str::to_owned));
        assert_eq!(of(&["spiffe://ws.test/workspace/app"]), Ok(Some("app".to_owned())));
        assert_eq!(of(&[]), Ok(None));
        for other in ["spiffe://other.test/workspace/app", "SPIFFE://ws.test/workspace/app", "https://app", ""] {
            assert_eq!(of(&[other]), Ok(None), "{other}");
        }
        for several in [
            ["spiffe://ws.test/workspace/app", "spiffe://ws.test/workspace/other"],
            ["spiffe://ws.test/workspace/app", "spiffe://ws.test/workspace/app"],
            ["https://example.com", "spiffe://ws.test/workspace/app"],
        ] {
            assert!(matches!(of(&several), Err(CredentialRefusal::CertificateIdentity(_))), "{several:?}");
        }
        let good = certificate(&["spiffe://ws.test/workspace/app"]);
        let of_a_server = Certificate { is_for_clients: false, ..good.clone() };
        let of_an_authority = Certificate { is_authority: true, ..good };
        for bad in [of_a_server, of_an_authority] {
            assert!(matches!(workspace_of(&bad, prefix), Err(CredentialRefusal::CertificateIdentity(_))), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text: String, claims in "[A-Za-z0-9_=-]{0,40}") {
            drop(claimed_issuer(&text));
            drop(claimed_issuer(&format!("eyJ.{claims}.x")));
        }
    }
}
