//! Signature algorithms with public keys. Algorithms with a shared secret, or with none, are left out.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A signature algorithm (RFC 7518, section 3.1; RFC 8037, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RSA PKCS #1 v1.5 with SHA-256.
    Rs256,
    /// RSA PKCS #1 v1.5 with SHA-384.
    Rs384,
    /// RSA PKCS #1 v1.5 with SHA-512.
    Rs512,
    /// RSA PSS with SHA-256.
    Ps256,
    /// RSA PSS with SHA-384.
    Ps384,
    /// RSA PSS with SHA-512.
    Ps512,
    /// ECDSA over P-256 with SHA-256.
    Es256,
    /// ECDSA over P-384 with SHA-384.
    Es384,
    /// EdDSA over Curve25519.
    EdDsa,
}

/// The text names no algorithm that can be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not an algorithm with public keys")]
pub struct BadAlgorithm;

impl Algorithm {
    /// Algorithms accepted unless the operator configures others.
    pub const DEFAULT: &'static [Self] = &[Self::Rs256, Self::Es256, Self::Ps256, Self::EdDsa];

    const ALL: [Self; 9] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];

    /// Returns the name in a token's header.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Returns the `crv` of a key that fits; `None` for RSA, which has none.
    pub(super) fn curve(self) -> Option<&'static str> {
        match self {
            Self::Es256 => Some("P-256"),
            Self::Es384 => Some("P-384"),
            Self::EdDsa => Some("Ed25519"),
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512 => None,
        }
    }

    /// Returns the `kty` of a key that fits.
    pub(super) fn key_type(self) -> &'static str {
        match self {
            Self::Es256 | Self::Es384 => "EC",
            Self::EdDsa => "OKP",
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512 => "RSA",
        }
    }

    pub(super) fn of_library(self) -> jsonwebtoken::Algorithm {
        match self {
            Self::Rs256 => jsonwebtoken::Algorithm::RS256,
            Self::Rs384 => jsonwebtoken::Algorithm::RS384,
            Self::Rs512 => jsonwebtoken::Algorithm::RS512,
            Self::Ps256 => jsonwebtoken::Algorithm::PS256,
            Self::Ps384 => jsonwebtoken::Algorithm::PS384,
            Self::Ps512 => jsonwebtoken::Algorithm::PS512,
            Self::Es256 => jsonwebtoken::Algorithm::ES256,
            Self::Es384 => jsonwebtoken::Algorithm::ES384,
            Self::EdDsa => jsonwebtoken::Algorithm::EdDSA,
        }
    }
}

impl FromStr for Algorithm {
    type Err = BadAlgorithm;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|known| known.as_str() == text).ok_or(BadAlgorithm)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_what_needs_a_shared_secret_has_none() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        for text in ["none", "None", "HS256", "HS512", "rs256", "", "RS256 "] {
            assert_eq!(text.parse::<Algorithm>(), Err(BadAlgorithm), "{text:?}");
        }
    }
}
