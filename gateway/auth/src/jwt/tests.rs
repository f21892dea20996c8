//! Tokens of every kind of forgery, signed with real keys.

mod fetching;

use std::sync::LazyLock;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use jsonwebtoken::{EncodingKey, Header};
use proptest::prelude::*;
use serde_json::json;

use super::*;

pub(crate) const ISSUER: &str = "https://id.example.com";
pub(crate) const CLIENT: &str = "gateway";
pub(crate) const NOW: UnixSeconds = UnixSeconds::new(1_800_000_000);

/// A key pair of Curve25519: what it signs with, and its public half as an issuer publishes it.
pub(crate) struct Signer {
    pub(crate) kid: String,
    key: EncodingKey,
    public: String,
}

impl Signer {
    pub(crate) fn new(kid: &str) -> Self {
        let pair = Ed25519KeyPair::generate().unwrap();
        let der = pair.to_pkcs8().unwrap();
        let public = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
        Self { kid: kid.to_owned(), key: EncodingKey::from_ed_der(der.as_ref()), public }
    }

    pub(crate) fn jwk(&self) -> Value {
        json!({"kty": "OKP", "crv": "Ed25519", "x": self.public, "kid": self.kid, "use": "sig", "alg": "EdDSA"})
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(jsonwebtoken::Algorithm::EdDSA);
        header.kid = Some(self.kid.clone());
        jsonwebtoken::encode(&header, claims, &self.key).unwrap()
    }

    /// Signs with a header of the test's choice.
    pub(crate) fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature =
            jsonwebtoken::crypto::sign(signed.as_bytes(), &self.key, jsonwebtoken::Algorithm::EdDSA).unwrap();
        format!("{signed}.{signature}")
    }
}

static SIGNER: LazyLock<Signer> = LazyLock::new(|| Signer::new("one"));

fn keys() -> IssuerKeys {
    IssuerKeys::parse(&json!({"keys": [SIGNER.jwk()]})).unwrap()
}

fn expect() -> Expect<'static> {
    Expect { issuer: ISSUER, audience: CLIENT, algorithms: Algorithm::DEFAULT, token_use: TokenUse::IdToken }
}

fn good() -> Value {
    json!({"iss": ISSUER, "aud": CLIENT, "sub": "u-1", "exp": NOW.get() + 300, "iat": NOW.get(), "nonce": "n"})
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = good();
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = good();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

#[track_caller]
fn check(claims: &Value, expected: Result<(), TokenRefused>) {
    let found = verify(&SIGNER.sign(claims), &expect(), &keys(), NOW).map(|_| ());
    assert_eq!(found, expected, "{claims}");
}

#[test]
fn good_token_gives_its_claims() {
    let claims = with("groups", json!(["a"]));
    let read = verify(&SIGNER.sign(&claims), &expect(), &keys(), NOW).unwrap();
    assert_eq!((read.subject.as_deref(), read.nonce.as_deref()), (Some("u-1"), Some("n")));
    assert_eq!((read.audience, read.rest["groups"].clone()), (vec![CLIENT.to_owned()], json!(["a"])));
    assert!(!read.rest.contains_key("sub"));
}

#[test]
fn what_the_issuer_says_elsewhere_adds_and_never_replaces() {
    let token = || Claims { subject: Some("u-1".to_owned()), rest: object_of(&json!({"a": 1})), ..Claims::default() };
    let complete = |more: Value| token().complete(object_of(&more));
    let both = complete(json!({"sub": "u-1", "a": 2, "b": 3, "email": "x@y", "email_verified": true})).unwrap();
    assert_eq!(Value::Object(both.rest), json!({"a": 1, "b": 3}));
    assert_eq!((both.email.as_deref(), both.email_verified), (Some("x@y"), Some(true)));
    for other in [json!({"sub": "u-2"}), json!({}), json!({"sub": "U-1"})] {
        assert_eq!(complete(other), Err(TokenRefused::Subject));
    }
    assert_eq!(complete(json!({"sub": "u-1", "email_verified": "true"})), Err(TokenRefused::Claim("email_verified")));
    let own = Claims { email: Some("own@y".to_owned()), email_verified: None, ..token() };
    let more = json!({"sub": "u-1", "email": "other@y", "email_verified": true});
    let kept = own.complete(object_of(&more)).unwrap();
    assert_eq!((kept.email.as_deref(), kept.email_verified), (Some("own@y"), None), "it was said of another address");
}

fn object_of(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn issuer_audience_and_party_are_compared_exactly() {
    check(&with("iss", json!("https://id.example.com/")), Err(TokenRefused::Issuer));
    check(&with("iss", json!("https://evil.example")), Err(TokenRefused::Issuer));
    check(&without("iss"), Err(TokenRefused::Missing("iss")));
    check(&with("aud", json!("other")), Err(TokenRefused::Audience));
    check(&with("aud", json!([])), Err(TokenRefused::Missing("aud")));
    check(&without("aud"), Err(TokenRefused::Missing("aud")));
    check(&with("aud", json!([CLIENT])), Ok(()));
    check(&with("aud", json!([CLIENT, "other"])), Err(TokenRefused::AuthorizedParty));
    let mut several = with("aud", json!(["other", CLIENT]));
    several["azp"] = json!(CLIENT);
    check(&several, Ok(()));
    several["azp"] = json!("other");
    check(&several, Err(TokenRefused::AuthorizedParty));
    check(&with("azp", json!("other")), Err(TokenRefused::AuthorizedParty));
    check(&with("azp", json!(CLIENT)), Ok(()));
}

#[test]
fn times_count_with_a_minute_of_leeway_and_no_more() {
    let now = NOW.get();
    check(&with("exp", json!(now - 59)), Ok(()));
    check(&with("exp", json!(now - 60)), Err(TokenRefused::Expired));
    check(&with("nbf", json!(now + 60)), Ok(()));
    check(&with("nbf", json!(now + 61)), Err(TokenRefused::NotYet));
    check(&with("iat", json!(now + 61)), Err(TokenRefused::NotYet));
    check(&with("exp", json!(now as f64 + 1.5)), Ok(()));
    check(&with("exp", json!(i64::MIN)), Err(TokenRefused::Expired));
    check(&with("exp", json!(i64::MAX)), Ok(()));
    check(&without("exp"), Err(TokenRefused::Missing("exp")));
    check(&without("iat"), Err(TokenRefused::Missing("iat")));
    check(&without("sub"), Err(TokenRefused::Missing("sub")));
}

#[test]
fn claims_must_have_exactly_their_types() {
    for (name, value) in [
        ("iss", json!([ISSUER])),
        ("sub", json!(1)),
        ("sub", json!(null)),
        ("aud", json!({"a": 1})),
        ("aud", json!([CLIENT, 1])),
        ("exp", json!("1800000300")),
        ("exp", json!(true)),
        ("exp", json!(1e300)),
        ("iat", json!(null)),
        ("nbf", json!([])),
        ("azp", json!(1)),
        ("nonce", json!(7)),
        ("email", json!(["a@b"])),
        ("email_verified", json!("true")),
        ("email_verified", json!("false")),
        ("email_verified", json!(1)),
    ] {
        let refused = TokenRefused::Claim(
            ["iss", "sub", "aud", "exp", "iat", "nbf", "azp", "nonce", "email", "email_verified"]
                .into_iter()
                .find(|known| *known == name)
                .unwrap(),
        );
        check(&with(name, value), Err(refused));
    }
}

#[test]
fn algorithm_is_ours_to_choose_and_never_the_tokens() {
    let keys = keys();
    let check = |token: &str, expected: TokenRefused| {
        assert_eq!(verify(token, &expect(), &keys, NOW), Err(expected), "{token}");
    };
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    for named in ["none", "None", "NONE", "nOnE", "", "HS256", "RS1", "eddsa"] {
        let unsigned = format!("{}.{}.", part(&json!({"alg": named})), part(&good()));
        check(&unsigned, TokenRefused::Algorithm);
        check(&SIGNER.sign_with(&json!({"alg": named, "kid": "one"}), &good()), TokenRefused::Algorithm);
    }
    // The oldest trick: the public key, which everybody has, as the secret of a HMAC.
    let jwk = SIGNER.jwk();
    let secret = EncodingKey::from_secret(&URL_SAFE_NO_PAD.decode(jwk["x"].as_str().unwrap()).unwrap());
    let mut header = Header::new(jsonwebtoken::Algorithm::HS256);
    header.kid = Some("one".to_owned());
    check(&jsonwebtoken::encode(&header, &good(), &secret).unwrap(), TokenRefused::Algorithm);
    // Another algorithm that counts, on a key of another kind.
    check(&SIGNER.sign_with(&json!({"alg": "RS256", "kid": "one"}), &good()), TokenRefused::UnknownKey);
    check(&SIGNER.sign_with(&json!({"alg": "EdDSA", "kid": "one", "crit": ["b64"]}), &good()), TokenRefused::Critical);
    let narrow = Expect { algorithms: &[Algorithm::Rs256], ..expect() };
    assert_eq!(verify(&SIGNER.sign(&good()), &narrow, &keys, NOW), Err(TokenRefused::Algorithm));
}

#[test]
fn signature_and_every_part_that_is_signed_count() {
    let token = SIGNER.sign(&good());
    let [header, claims, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!("three parts") };
    let other = Signer::new("one").sign(&good());
    let changed = URL_SAFE_NO_PAD.encode(with("sub", json!("root")).to_string());
    for (forged, expected) in [
        (format!("{header}.{claims}."), TokenRefused::Signature),
        (format!("{header}.{changed}.{signature}"), TokenRefused::Signature),
        (other, TokenRefused::Signature),
        (format!("{header}.{claims}.!!!"), TokenRefused::Signature),
        (format!("{header}.{claims}"), TokenRefused::Malformed),
        (format!("{token}.x"), TokenRefused::Malformed),
        (format!("{header}=.{claims}.{signature}"), TokenRefused::Malformed),
        (String::new(), TokenRefused::Malformed),
        ("..".to_owned(), TokenRefused::Malformed),
        ("x".repeat(TOKEN_BYTES_MAX + 1), TokenRefused::TooLong),
    ] {
        assert_eq!(verify(&forged, &expect(), &keys(), NOW), Err(expected), "{forged}");
    }
}

#[test]
fn key_is_found_by_its_id_or_when_it_is_the_only_one() {
    let (one, two) = (Signer::new("one"), Signer::new("two"));
    let both = IssuerKeys::parse(&json!({"keys": [one.jwk(), two.jwk()]})).unwrap();
    assert!(verify(&two.sign(&good()), &expect(), &both, NOW).is_ok());
    let nameless = two.sign_with(&json!({"alg": "EdDSA"}), &good());
    assert_eq!(verify(&nameless, &expect(), &both, NOW), Err(TokenRefused::UnknownKey));
    let alone = IssuerKeys::parse(&json!({"keys": [two.jwk()]})).unwrap();
    assert!(verify(&nameless, &expect(), &alone, NOW).is_ok());
    assert_eq!(verify(&one.sign(&good()), &expect(), &alone, NOW), Err(TokenRefused::UnknownKey));
    assert_eq!(
        verify(&two.sign_with(&json!({"alg": "EdDSA", "kid": 2}), &good()), &expect(), &alone, NOW),
        Err(TokenRefused::Malformed)
    );
}

#[test]
fn keys_for_other_purposes_and_shared_secrets_are_passed_over() {
    let mut encrypts = SIGNER.jwk();
    encrypts["use"] = json!("enc");
    let mut signs_only = SIGNER.jwk();
    signs_only["key_ops"] = json!(["sign"]);
    let unusable =
        [encrypts, signs_only, json!({"kty": "oct", "k": "c2VjcmV0"}), json!({"kty": "RSA"}), json!(1), json!({})];
    assert_eq!(IssuerKeys::parse(&json!({"keys": unusable})).unwrap_err(), BadKeys::NoneUsable);
    let mut among = unusable.to_vec();
    among.push(SIGNER.jwk());
    assert!(IssuerKeys::parse(&json!({"keys": among})).is_ok());
    assert_eq!(IssuerKeys::parse(&json!({"keys": {}})).unwrap_err(), BadKeys::Shape);
    assert_eq!(IssuerKeys::parse(&json!([])).unwrap_err(), BadKeys::Shape);
    assert_eq!(IssuerKeys::parse(&json!({"keys": vec![json!(1); KEYS_MAX + 1]})).unwrap_err(), BadKeys::TooMany);
}

#[test]
fn token_of_an_elliptic_curve_key_is_good_on_its_own_curve_only() {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let point = pair.public_key().as_ref()[1..].to_vec();
    let (x, y) = point.split_at(32);
    let key = EncodingKey::from_ec_der(pair.to_pkcs8v1().unwrap().as_ref());
    let mut header = Header::new(jsonwebtoken::Algorithm::ES256);
    header.kid = Some("ec".to_owned());
    let token = jsonwebtoken::encode(&header, &good(), &key).unwrap();
    let jwk = |curve: &str| json!({"kty": "EC", "crv": curve, "kid": "ec", "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y)});
    let verify_on = |curve: &str| {
        verify(&token, &expect(), &IssuerKeys::parse(&json!({"keys": [jwk(curve)]})).unwrap(), NOW).map(|_| ())
    };
    assert_eq!(verify_on("P-256"), Ok(()));
    assert_eq!(verify_on("P-384"), Err(TokenRefused::UnknownKey));
}

#[test]
fn logout_and_program_tokens_need_other_claims() {
    let token = |claims: &Value| SIGNER.sign(claims);
    let as_use =
        |claims: &Value, token_use| verify(&token(claims), &Expect { token_use, ..expect() }, &keys(), NOW).map(|_| ());
    assert_eq!(as_use(&without("exp"), TokenUse::LogoutToken), Ok(()));
    assert_eq!(as_use(&without("iat"), TokenUse::LogoutToken), Err(TokenRefused::Missing("iat")));
    assert_eq!(as_use(&without("iat"), TokenUse::Program), Ok(()));
    assert_eq!(as_use(&without("exp"), TokenUse::Program), Err(TokenRefused::Missing("exp")));
    assert_eq!(as_use(&with("aud", json!([CLIENT, "other"])), TokenUse::Program), Ok(()));
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "\\PC{0,200}", dots in "[A-Za-z0-9_-]{0,40}\\.[A-Za-z0-9_-]{0,40}\\.[A-Za-z0-9_-]{0,90}") {
        prop_assert!(verify(&text, &expect(), &keys(), NOW).is_err());
        prop_assert!(verify(&dots, &expect(), &keys(), NOW).is_err());
    }

    #[test]
    fn one_changed_byte_is_always_noticed(at in any::<prop::sample::Index>(), other in "[A-Za-z0-9_-]") {
        let mut token = SIGNER.sign(&good());
        let at = at.index(token.len());
        // The last character of a part has spare bits; another spelling of the same bytes is refused by the decoder.
        prop_assume!(token[at..=at] != other && token[at..=at] != *".");
        token.replace_range(at..=at, &other);
        prop_assert!(verify(&token, &expect(), &keys(), NOW).is_err());
    }
}
