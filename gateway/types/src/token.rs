//! Tokens of agents and of programs: their form, checksum and stored hash.
//!
//! A token is `gwa_` (agent), `gwc_` (cluster agent) or `gwu_` (user), 43 characters of base64url (RFC 4648, section 5,
//! no padding) that hold 256 random bits, and 6 characters of base64url that hold a checksum: the first 4 bytes of the
//! SHA-256 of all characters before. The prefix lets secret scanners find a leaked token; the checksum refuses a cut or
//! mistyped one before the store is asked, and covers the prefix, so one kind cannot be retyped as the other.
//!
//! Only the SHA-256 of the whole text is stored. A slow hash would add nothing: 256 random bits cannot be guessed. The
//! store finds a token by that hash, so no two secrets are ever compared byte by byte and no comparison has to be in
//! constant time: an attacker who times the index learns only about hashes of texts of his own.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thiserror::Error;

use crate::hexadecimal;

const PREFIX_CHARS: usize = 4;
const SECRET_BYTES: usize = 32;
const SECRET_CHARS: usize = 43;
const CHECKSUM_BYTES: usize = 4;
const CHECKSUM_CHARS: usize = 6;

/// Length of every token, in characters (all ASCII).
pub const TOKEN_CHARS: usize = PREFIX_CHARS + SECRET_CHARS + CHECKSUM_CHARS;

/// Characters at the end that lists show. They belong to the checksum, so they tell nothing about the random part.
const HINT_CHARS: usize = 4;

const _: () = assert!(SECRET_CHARS == (SECRET_BYTES * 8).div_ceil(6));
const _: () = assert!(CHECKSUM_CHARS == (CHECKSUM_BYTES * 8).div_ceil(6));
const _: () = assert!(HINT_CHARS <= CHECKSUM_CHARS);

/// Party that a token speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// The agent of one workspace.
    Agent,
    /// The cluster agent of one cluster.
    Cluster,
    /// A program of one user.
    User,
}

impl TokenKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Agent, Self::Cluster, Self::User];

    /// Returns the kind as one lower-case word, as stored and printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Cluster => "cluster",
            Self::User => "user",
        }
    }

    /// Returns the prefix of its tokens.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Agent => "gwa_",
            Self::Cluster => "gwc_",
            Self::User => "gwu_",
        }
    }
}

impl fmt::Display for TokenKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A well-formed token: it may still be unknown, expired or revoked.
///
/// Invariants: the text has [`TOKEN_CHARS`] ASCII characters and a matching checksum.
#[derive(Clone)]
pub struct Token {
    kind: TokenKind,
    text: String,
}

/// Reason why a text is not a token. Carries no part of the text, so that it can be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadToken {
    /// It begins with none of `gwa_`, `gwc_` and `gwu_`.
    #[error("a token begins with gwa_, gwc_ or gwu_")]
    Prefix,
    /// It is longer or shorter than [`TOKEN_CHARS`].
    #[error("a token has {TOKEN_CHARS} characters; was it cut?")]
    Length,
    /// A character that is not of base64url, or bits after the 256th.
    #[error("a token has letters, digits, dash and underscore only")]
    Character,
    /// The end does not fit the rest.
    #[error("the token's checksum is wrong; was it mistyped?")]
    Checksum,
}

/// The system gave no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the system gave no random bytes")]
pub struct NoRandomness;

/// Makes an unguessable text of hexadecimal digits from random bytes of the system.
///
/// # Errors
/// [`NoRandomness`] when the system's source fails.
pub fn random_key<const BYTES: usize>() -> Result<String, NoRandomness> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(hexadecimal(&bytes))
}

impl Token {
    /// Makes a new token from 256 random bits of the system.
    ///
    /// # Errors
    /// [`NoRandomness`] when the system's source fails.
    pub fn generate(kind: TokenKind) -> Result<Self, NoRandomness> {
        let mut secret = [0; SECRET_BYTES];
        SystemRandom::new().fill(&mut secret).map_err(|_| NoRandomness)?;
        Ok(Self::from_secret(kind, secret))
    }

    /// Reads a token.
    ///
    /// # Errors
    /// Says what is wrong with the text, without repeating any of it.
    pub fn parse(text: &str) -> Result<Self, BadToken> {
        let kind = check(text)?;
        Ok(Self { kind, text: text.to_owned() })
    }

    /// Returns only the kind and the hash of a token: [`Token::kind`] and [`Token::hash`] of what [`Token::parse`]
    /// returns. Each request comes through here, so nothing is allocated.
    ///
    /// # Errors
    /// As [`Token::parse`].
    pub fn kind_and_hash(text: &str) -> Result<(TokenKind, [u8; 32]), BadToken> {
        let kind = check(text)?;
        Ok((kind, sha256(text.as_bytes())))
    }

    /// Returns the kind of party that the token speaks for.
    #[must_use]
    pub fn kind(&self) -> TokenKind {
        self.kind
    }

    /// Returns the store's key of the token: the SHA-256 of its text.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        sha256(self.text.as_bytes())
    }

    /// Returns the last characters, for people to tell tokens apart.
    #[must_use]
    pub fn hint(&self) -> &str {
        self.text.get(TOKEN_CHARS - HINT_CHARS..).unwrap_or_default()
    }

    /// Returns the text itself. Every caller is a place to review.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.text
    }

    fn from_secret(kind: TokenKind, secret: [u8; SECRET_BYTES]) -> Self {
        let head = format!("{}{}", kind.prefix(), URL_SAFE_NO_PAD.encode(secret));
        let tail = URL_SAFE_NO_PAD.encode(checksum(&head));
        Self { kind, text: head + &tail }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Token({self})")
    }
}

impl fmt::Display for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}****{}", self.kind.prefix(), self.hint())
    }
}

/// Returns the kind of a well-formed token.
fn check(text: &str) -> Result<TokenKind, BadToken> {
    let kind = TokenKind::ALL.into_iter().find(|kind| text.starts_with(kind.prefix())).ok_or(BadToken::Prefix)?;
    if text.len() != TOKEN_CHARS {
        return Err(BadToken::Length);
    }
    // `None` only if the text is not ASCII: the index is then inside a character.
    let (head, tail) = text.split_at_checked(PREFIX_CHARS + SECRET_CHARS).ok_or(BadToken::Character)?;
    let secret = head.get(PREFIX_CHARS..).ok_or(BadToken::Character)?;
    // Strict decoding: each token has one spelling, or revoking one would leave its twins.
    if URL_SAFE_NO_PAD.decode_slice(secret, &mut [0; SECRET_BYTES]) != Ok(SECRET_BYTES) {
        return Err(BadToken::Character);
    }
    let mut expected = [0; CHECKSUM_CHARS];
    let is_written = URL_SAFE_NO_PAD.encode_slice(checksum(head), &mut expected) == Ok(CHECKSUM_CHARS);
    if is_written && tail.as_bytes() == expected { Ok(kind) } else { Err(BadToken::Checksum) }
}

fn checksum(head: &str) -> [u8; CHECKSUM_BYTES] {
    let hash = sha256(head.as_bytes());
    let mut first = [0; CHECKSUM_BYTES];
    first.iter_mut().zip(hash).for_each(|(slot, byte)| *slot = byte);
    first
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.iter_mut().zip(digest(&SHA256, bytes).as_ref()).for_each(|(slot, byte)| *slot = *byte);
    hash
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds() -> impl Strategy<Value = TokenKind> {
        proptest::sample::select(TokenKind::ALL.to_vec())
    }

    #[test]
    fn token_of_known_bits_has_this_text_and_hash_forever() {
        let token = Token::from_secret(TokenKind::Agent, [7; 32]);
        insta::assert_snapshot!(token.reveal(), @"gwa_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcTttsEQ");
        let hash = hexadecimal(token.hash().as_ref());
        insta::assert_snapshot!(hash, @"6dbcdcbc2c64ff0b22ac14dadf204080958c088ba8b9b2ef7c03484689e20f15");
    }

    #[test]
    fn generated_tokens_parse_and_differ() {
        for kind in TokenKind::ALL {
            let (one, other) = (Token::generate(kind).unwrap(), Token::generate(kind).unwrap());
            let parsed = Token::parse(one.reveal()).unwrap();
            assert_eq!((parsed.kind(), parsed.hash()), (kind, one.hash()));
            assert_ne!(one.reveal(), other.reveal());
            assert_ne!(one.hash(), other.hash());
        }
    }

    #[test]
    fn printing_shows_the_hint_only() {
        let token = Token::from_secret(TokenKind::User, [1; 32]);
        let shown = format!("{token} {token:?}");
        let secret = &token.reveal()[PREFIX_CHARS..PREFIX_CHARS + SECRET_CHARS];
        assert!(!shown.contains(&secret[..3]), "{shown}");
        assert_eq!(shown, format!("gwu_****{hint} Token(gwu_****{hint})", hint = token.hint()));
        assert_eq!(token.hint().len(), HINT_CHARS);
    }

    #[test]
    fn other_spelling_of_the_same_bits_is_refused() {
        let token = Token::from_secret(TokenKind::Agent, [0; 32]);
        let mut text = token.reveal().to_owned();
        // The 43rd character holds 4 bits; `B` would set the two that are left over.
        let last = PREFIX_CHARS + SECRET_CHARS - 1;
        text.replace_range(last..=last, "B");
        assert_eq!(Token::parse(&text).unwrap_err(), BadToken::Character);
    }

    #[test]
    fn malformed_texts_say_what_is_wrong() {
        let good = Token::from_secret(TokenKind::Agent, [3; 32]).reveal().to_owned();
        let retyped = good.replacen("gwa_", "gwu_", 1);
        let promoted = good.replacen("gwa_", "gwc_", 1);
        let wide = format!("gwa_{}ä{}", "A".repeat(42), "A".repeat(5));
        for (text, expected) in [
            ("", BadToken::Prefix),
            ("gwx_", BadToken::Prefix),
            ("gwa_", BadToken::Length),
            (&good[..good.len() - 1], BadToken::Length),
            (&format!("{good}A"), BadToken::Length),
            (&format!(" {good}"), BadToken::Prefix),
            (&wide, BadToken::Character),
            (&format!("gwa_{}", "=".repeat(49)), BadToken::Character),
            (&retyped, BadToken::Checksum),
            (&promoted, BadToken::Checksum),
        ] {
            assert_eq!(Token::parse(text).unwrap_err(), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_token_reads_back(kind in kinds(), secret: [u8; 32]) {
            let token = Token::from_secret(kind, secret);
            prop_assert_eq!(token.reveal().len(), TOKEN_CHARS);
            let parsed = Token::parse(token.reveal()).unwrap();
            prop_assert_eq!(Token::kind_and_hash(token.reveal()), Ok((kind, parsed.hash())));
            prop_assert_eq!(parsed.kind(), kind);
            prop_assert_eq!(parsed.reveal(), token.reveal());
        }

        #[test]
        fn one_changed_character_is_always_noticed(
            kind in kinds(),
            secret: [u8; 32],
            at in 0..TOKEN_CHARS,
            other in "[A-Za-z0-9_-]",
        ) {
            let mut text = Token::from_secret(kind, secret).reveal().to_owned();
            prop_assume!(text[at..=at] != other);
            text.replace_range(at..=at, &other);
            prop_assert!(Token::parse(&text).is_err());
        }

        #[test]
        fn any_text_is_answered(text: String, tail in ".{0,60}") {
            prop_assert!(Token::parse(&text).is_err());
            let text = format!("gwa_{tail}");
            prop_assert!(Token::parse(&text).is_err());
        }
    }
}
