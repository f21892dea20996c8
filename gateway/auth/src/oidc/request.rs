//! Requests to the provider: sign-in address, code exchange, sign-out address.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::metadata::Metadata;
use super::pending::Pending;
use super::{ClientRegistration, ProviderSession};
use gateway_types::Endpoint;
use gateway_types::opaque::Opaque;

/// Client authentication of this gateway at the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenAuth {
    /// None: a public client, which PKCE alone protects.
    Nothing,
    /// `client_secret_basic`.
    Basic,
    /// `client_secret_post`.
    Post,
}

impl TokenAuth {
    /// Chooses from the methods that the provider announces. A provider that announces neither gets the one that all
    /// must support.
    #[must_use]
    pub fn choose(metadata: &Metadata, has_secret: bool) -> Self {
        let announces = |method: &str| metadata.token_auth_methods.iter().any(|known| known == method);
        match has_secret {
            false => Self::Nothing,
            true if announces("client_secret_post") && !announces("client_secret_basic") => Self::Post,
            true => Self::Basic,
        }
    }
}

/// Returns the address that asks the provider to sign a user in (Core 1.0, section 3.1.2.1).
#[must_use]
pub fn sign_in_address(
    authorization: &Endpoint,
    client: &ClientRegistration,
    state: &Opaque,
    pending: &Pending,
) -> String {
    let mut url = authorization.url().clone();
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &client.id)
        .append_pair("redirect_uri", &client.redirect_uri)
        .append_pair("scope", &client.scopes)
        .append_pair("state", &state.reveal())
        .append_pair("nonce", &pending.nonce.reveal())
        .append_pair("code_challenge", &challenge(&pending.verifier))
        .append_pair("code_challenge_method", "S256");
    url.into()
}

/// Returns the form that exchanges a code (RFC 6749, section 4.1.3). `secret` is there for [`TokenAuth::Post`] only.
#[must_use]
pub fn token_form<'a>(
    client: &'a ClientRegistration,
    code: &'a str,
    verifier: &'a str,
    auth: TokenAuth,
    secret: Option<&'a str>,
) -> Vec<(&'a str, &'a str)> {
    let mut form = vec![
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", client.redirect_uri.as_str()),
        ("code_verifier", verifier),
    ];
    match (auth, secret) {
        // With Basic the header names the client, and some providers refuse to be told twice.
        (TokenAuth::Basic, _) => {}
        (TokenAuth::Post, Some(secret)) => form.extend([("client_id", client.id.as_str()), ("client_secret", secret)]),
        (TokenAuth::Nothing | TokenAuth::Post, _) => form.push(("client_id", client.id.as_str())),
    }
    form
}

/// Returns the address that asks the provider to end its own session too (RP-Initiated Logout 1.0, section 2).
#[must_use]
pub fn sign_out_address(end_session: &Endpoint, client: &ClientRegistration, session: &ProviderSession) -> String {
    let mut url = end_session.url().clone();
    {
        let mut query = url.query_pairs_mut();
        if let Some(id_token) = session.reveal_id_token() {
            query.append_pair("id_token_hint", id_token);
        }
        query.append_pair("client_id", &client.id);
        query.append_pair("post_logout_redirect_uri", &client.signed_out_uri);
    }
    url.into()
}

/// Encodes one half of client credentials for HTTP Basic (RFC 6749, section 2.3.1: as in a form, before Basic's own
/// encoding).
#[must_use]
pub fn form_encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Returns the `code_challenge` of a verifier: over its text, not its bytes (RFC 7636, section 4.2).
fn challenge(verifier: &Opaque) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.reveal().as_bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::pending::Destination;
    use super::*;
    use crate::sign_in::path::ReturnPath;

    fn client() -> ClientRegistration {
        ClientRegistration {
            id: "gateway & co".to_owned(),
            scopes: "openid profile".to_owned(),
            redirect_uri: "https://gw.example/.gateway/oidc/callback".to_owned(),
            signed_out_uri: "https://gw.example/.gateway/signed-out".to_owned(),
        }
    }

    fn endpoint(text: &str) -> Endpoint {
        text.parse().unwrap()
    }

    #[test]
    fn challenge_is_the_example_of_the_rfc() {
        // RFC 7636, appendix B.
        let verifier = Opaque::parse("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk").unwrap();
        assert_eq!(challenge(&verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn question_carries_everything_that_binds_the_answer_and_keeps_the_providers_own_query() {
        let random = || Opaque::random().unwrap();
        let destination = Destination::Public(ReturnPath::parse_or_root("/secret-path"));
        let pending = Pending { pre: random().digest(), nonce: random(), verifier: random(), destination };
        let state = random();
        let address = sign_in_address(&endpoint("https://id.example/auth?tenant=a"), &client(), &state, &pending);
        let url = url::Url::parse(&address).unwrap();
        let value = |name: &str| {
            let mut found = url.query_pairs().filter(|(key, _)| key == name);
            let (_, value) = found.next().unwrap_or_else(|| panic!("no {name}"));
            assert!(found.next().is_none());
            value.into_owned()
        };
        assert_eq!((value("tenant"), value("response_type")), ("a".to_owned(), "code".to_owned()));
        assert_eq!(value("client_id"), "gateway & co");
        assert_eq!(value("redirect_uri"), "https://gw.example/.gateway/oidc/callback");
        assert_eq!((value("state"), value("nonce")), (state.reveal(), pending.nonce.reveal()));
        assert_eq!(value("code_challenge_method"), "S256");
        assert!(!address.contains("secret-path") && !address.contains(&pending.verifier.reveal()));
    }

    #[test]
    fn secret_goes_the_way_that_the_provider_announces_and_never_twice() {
        let metadata = |methods: &[&str]| {
            let document = json!({
                "issuer": "https://id.example", "jwks_uri": "https://id.example/k",
                "token_endpoint_auth_methods_supported": methods,
            });
            Metadata::parse(&document, &endpoint("https://id.example")).unwrap()
        };
        for (methods, has_secret, expected) in [
            (&["client_secret_basic", "client_secret_post"][..], true, TokenAuth::Basic),
            (&["client_secret_post", "private_key_jwt"], true, TokenAuth::Post),
            (&["private_key_jwt"], true, TokenAuth::Basic),
            (&["client_secret_basic"], false, TokenAuth::Nothing),
        ] {
            assert_eq!(TokenAuth::choose(&metadata(methods), has_secret), expected, "{methods:?}");
        }
        let client = client();
        let names = |auth, secret| -> Vec<&str> {
            token_form(&client, "c", "v", auth, secret).into_iter().map(|(name, _)| name).collect()
        };
        let common = ["grant_type", "code", "redirect_uri", "code_verifier"];
        assert_eq!(names(TokenAuth::Basic, None), common);
        assert_eq!(names(TokenAuth::Nothing, None), [&common[..], &["client_id"]].concat());
        assert_eq!(names(TokenAuth::Post, Some("s")), [&common[..], &["client_id", "client_secret"]].concat());
        assert_eq!(form_encoded("a b:c%ü"), "a+b%3Ac%25%C3%BC");
    }

    #[test]
    fn sign_out_hands_the_id_token_back_unless_it_is_too_long_to_keep() {
        let address = |id_token: &str| {
            let session = ProviderSession::new("u", None, id_token);
            sign_out_address(&endpoint("https://id.example/end"), &client(), &session)
        };
        assert!(
            address("a.b.c").contains("id_token_hint=a.b.c&client_id=gateway+%26+co&post_logout_redirect_uri=https%3A")
        );
        assert!(!address(&"x".repeat(HINT)).contains("id_token_hint"));
    }

    const HINT: usize = super::super::HINT_BYTES_MAX + 1;
}
