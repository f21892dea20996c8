//! Opaque ids: 256 random bits, sent once, to one browser; only the SHA-256 is kept.

use std::fmt;

use aws_lc_rs::{constant_time, digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::token::NoRandomness;

/// Size of an opaque id and of its digest, in bytes.
pub const SECRET_BYTES: usize = 32;

/// Size of half a secret, in bytes.
pub const HALF_BYTES: usize = SECRET_BYTES / 2;

/// A secret of 256 random bits: a session id, a one-time code, a nonce. Not `Clone`, and masked in `Debug`.
#[derive(PartialEq, Eq)]
pub struct Opaque([u8; SECRET_BYTES]);

impl Opaque {
    /// Draws a new secret from the system's generator.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`] when the generator fails; no user can be signed in then.
    pub fn random() -> Result<Self, NoRandomness> {
        let mut bytes = [0; SECRET_BYTES];
        rand::fill(&mut bytes).map_err(|_| NoRandomness)?;
        Ok(Self(bytes))
    }

    /// Makes a secret of 128 random bits and a proof of them.
    #[must_use]
    pub fn of_halves(random: [u8; HALF_BYTES], proof: [u8; HALF_BYTES]) -> Self {
        let mut bytes = [0; SECRET_BYTES];
        bytes.iter_mut().zip(random.into_iter().chain(proof)).for_each(|(to, from)| *to = from);
        Self(bytes)
    }

    /// Returns both halves.
    #[must_use]
    pub fn halves(&self) -> ([u8; HALF_BYTES], [u8; HALF_BYTES]) {
        let mut halves = [[0; HALF_BYTES]; 2];
        halves.iter_mut().flatten().zip(self.0).for_each(|(to, from)| *to = from);
        halves.into()
    }

    /// Reads the text form strictly: 43 characters of unpadded base64url (RFC 4648, section 5), no spare bits set.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        decode(text).map(Self)
    }

    /// Returns the digest of a secret that a client showed as bytes; `None` for bytes that are no text form of a
    /// secret.
    #[must_use]
    pub fn digest_of(shown: &[u8]) -> Option<Digest> {
        let secret = std::str::from_utf8(shown).ok().and_then(Self::parse)?;
        Some(secret.digest())
    }

    /// Returns whether both are one secret, in constant time.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }

    /// Returns the text form, for a cookie or a link. The caller must not log it.
    #[must_use]
    pub fn reveal(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Returns the SHA-256, under which the secret is stored. A look-up by it needs no constant-time comparison: an
    /// attacker who chooses the secret cannot steer its digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut bytes = [0; SECRET_BYTES];
        let hashed = digest::digest(&digest::SHA256, &self.0);
        for (to, from) in bytes.iter_mut().zip(hashed.as_ref()) {
            *to = *from;
        }
        Digest(bytes)
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Opaque(..)")
    }
}

/// The SHA-256 of an [`Opaque`]. It does not help to find the secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; SECRET_BYTES]);

impl Digest {
    /// Reads the text form, as strictly as [`Opaque::parse`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        decode(text).map(Self)
    }

    /// Wraps stored bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, as stored.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// Returns the SHA-256 of a text that is too short to be a secret of its own.
    pub fn of(text: &[u8]) -> Self {
        let mut bytes = [0; SECRET_BYTES];
        let hashed = digest::digest(&digest::SHA256, text);
        bytes.iter_mut().zip(hashed.as_ref()).for_each(|(to, from)| *to = *from);
        Self(bytes)
    }

    /// Returns the text form: unpadded base64url.
    #[must_use]
    pub fn encoded(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Returns a displayable name for the thing that the secret opens: the name neither opens it nor leads back to this
    /// digest. `what` keeps names for different uses apart.
    #[must_use]
    pub fn named(&self, what: &str) -> String {
        let mut hashed = digest::Context::new(&digest::SHA256);
        hashed.update(what.as_bytes());
        hashed.update(&[0]);
        hashed.update(&self.0);
        let hashed = hashed.finish();
        // 96 bits: far more than there are sessions to mix up.
        URL_SAFE_NO_PAD.encode(hashed.as_ref().get(..12).unwrap_or_default())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Digest(..)")
    }
}

/// Decodes without allocating; `None` for any text that is not exactly one encoding of 32 bytes.
fn decode(text: &str) -> Option<[u8; SECRET_BYTES]> {
    let mut bytes = [0; SECRET_BYTES];
    match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
        Ok(SECRET_BYTES) => Some(bytes),
        Ok(_) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn opaque_survives_its_text_form_and_hides_in_debug() {
        let secret = Opaque::random().unwrap();
        let text = secret.reveal();
        assert_eq!(text.len(), 43);
        assert_eq!(Opaque::parse(&text).map(|read| read.digest()), Some(secret.digest()));
        assert!(!format!("{secret:?}{:?}", secret.digest()).contains(&text));
        assert_ne!(Opaque::random().unwrap().digest(), secret.digest());
    }

    #[test]
    fn digest_is_sha256_of_the_bytes() {
        // FIPS 180-4 over 32 zero bytes.
        let hex: String = Opaque([0; 32]).digest().0.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925");
    }

    #[test]
    fn opaque_refuses_other_spellings_of_the_same_bytes() {
        let text = Opaque([0; 32]).reveal();
        assert!(Opaque::parse(&text).is_some());
        for other in [format!("{text}="), format!(" {text}"), format!("{text}A"), text[1..].to_owned()] {
            assert!(Opaque::parse(&other).is_none(), "{other:?}");
        }
        // The last character carries two spare bits; they have to be zero.
        assert!(Opaque::parse(&format!("{}B", &text[..42])).is_none());
        assert!(Opaque::parse("").is_none());
    }

    proptest! {
        #[test]
        fn accepted_text_is_the_only_text_of_its_secret(text in "[A-Za-z0-9_-]{42,44}") {
            if let Some(secret) = Opaque::parse(&text) {
                prop_assert_eq!(secret.reveal(), text);
            }
        }
    }
}
