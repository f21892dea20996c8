//! The public keys of an issuer (JWK Set, RFC 7517), read once and chosen by id and algorithm.

use std::fmt;

use jsonwebtoken::DecodingKey;
use serde_json::Value;
use thiserror::Error;

use super::algorithm::Algorithm;

/// Keys of one set at most. An issuer has one or two in use and a few on their way out.
pub const KEYS_MAX: usize = 64;

/// The document is no key set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadKeys {
    /// No object with a list `keys`.
    #[error("the document is not a set of keys")]
    Shape,
    /// More than [`KEYS_MAX`] keys.
    #[error("the set has more than {KEYS_MAX} keys")]
    TooMany,
    /// No key can check a signature.
    #[error("the set has no public key for signatures")]
    NoneUsable,
}

/// An issuer's keys that can check signatures.
#[derive(Clone, Debug)]
pub struct IssuerKeys(Vec<PublicKey>);

/// One public key.
#[derive(Clone)]
pub(super) struct PublicKey {
    id: Option<String>,
    key_type: String,
    curve: Option<String>,
    /// The only algorithm that the issuer uses it with, if it says so.
    only: Option<String>,
    key: DecodingKey,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Key").field("id", &self.id).field("key_type", &self.key_type).finish_non_exhaustive()
    }
}

impl IssuerKeys {
    /// Reads a key set. Skips keys of unknown kinds or not for signatures, as RFC 7517, section 5 asks: an issuer may
    /// have keys for other purposes.
    ///
    /// # Errors
    ///
    /// [`BadKeys`] when no key is left, or there are too many.
    pub fn parse(document: &Value) -> Result<Self, BadKeys> {
        let listed = document.get("keys").and_then(Value::as_array).ok_or(BadKeys::Shape)?;
        if listed.len() > KEYS_MAX {
            return Err(BadKeys::TooMany);
        }
        let keys: Vec<PublicKey> = listed.iter().filter_map(PublicKey::parse).collect();
        if keys.is_empty() { Err(BadKeys::NoneUsable) } else { Ok(Self(keys)) }
    }

    /// Returns the key for a token: the one of that id; without an id, the only one that fits.
    pub(super) fn find(&self, algorithm: Algorithm, id: Option<&str>) -> Option<KeyFor<'_>> {
        let mut fitting = self.0.iter().filter(|key| key.fits(algorithm));
        let key = match id {
            Some(id) => fitting.find(|key| key.id.as_deref() == Some(id))?,
            None => {
                let only = fitting.next()?;
                if fitting.next().is_some() {
                    return None;
                }
                only
            }
        };
        Some(KeyFor { key, algorithm })
    }
}

/// A key and the algorithm that it is used with.
pub(super) struct KeyFor<'k> {
    key: &'k PublicKey,
    algorithm: Algorithm,
}

impl KeyFor<'_> {
    /// Returns whether `signature` (base64url) is this key's over `signed`.
    pub(super) fn is_signature(&self, signed: &str, signature: &str) -> bool {
        let checked =
            jsonwebtoken::crypto::verify(signature, signed.as_bytes(), &self.key.key, self.algorithm.of_library());
        checked.unwrap_or(false)
    }
}

impl PublicKey {
    fn parse(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let operations = value.get("key_ops").and_then(Value::as_array);
        if operations.is_some_and(|listed| !listed.iter().any(|operation| operation == "verify")) {
            return None;
        }
        let key_type = text("kty")?;
        // A shared secret (`oct`) has no place in a public document: any reader could sign with it.
        let key = match key_type {
            "RSA" => DecodingKey::from_rsa_components(text("n")?, text("e")?).ok()?,
            "EC" => DecodingKey::from_ec_components(text("x")?, text("y")?).ok()?,
            "OKP" => DecodingKey::from_ed_components(text("x")?).ok()?,
            _ => return None,
        };
        Some(Self {
            id: text("kid").map(str::to_owned),
            key_type: key_type.to_owned(),
            curve: text("crv").map(str::to_owned),
            only: text("alg").map(str::to_owned),
            key,
        })
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        self.key_type == algorithm.key_type()
            && self.curve.as_deref() == algorithm.curve()
            && self.only.as_deref().is_none_or(|only| only == algorithm.as_str())
    }
}
