//! What a connection offered last, so that its next request with the same credential is not hashed again: a token costs two SHA-256 of
//! two blocks, which is a twelfth of all that a kept-alive request takes.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use parking_lot::Mutex;

use gateway_types::opaque::{Digest, Opaque};
use gateway_types::token::{TOKEN_CHARS, Token, TokenKind};

/// The latest credential of one connection, and what it stands for. Neither is valid for that: each request asks again whether it is.
///
/// The secret itself is kept no longer than the connection, whose buffers had it anyway. A front shares its connections among users, so
/// that what comes in is compared with it in constant time.
#[derive(Default)]
pub struct LastOffered(Mutex<Hashed>);

/// One of both, because a connection has the memory of an idle WebSocket.
#[derive(Default)]
enum Hashed {
    #[default]
    Nothing,
    Token {
        text: [u8; TOKEN_CHARS],
        hash: [u8; 32],
    },
    Session {
        id: Opaque,
        digest: Digest,
    },
}

impl LastOffered {
    /// Returns the hash of a user's token; `None` for any other text.
    pub(crate) fn user_token(&self, offered: &[u8]) -> Option<[u8; 32]> {
        let offered: &[u8; TOKEN_CHARS] = offered.try_into().ok()?;
        let mut last = self.0.lock();
        if let Hashed::Token { text, hash } = &*last
            && verify_slices_are_equal(text, offered).is_ok()
        {
            return Some(*hash);
        }
        match Token::kind_and_hash(str::from_utf8(offered).ok()?).ok()? {
            (TokenKind::User, hash) => {
                *last = Hashed::Token { text: *offered, hash };
                Some(hash)
            }
            (TokenKind::Agent | TokenKind::Cluster, _) => None,
        }
    }

    /// Returns the digest of a session's id.
    pub(crate) fn session(&self, offered: Opaque) -> Digest {
        let mut last = self.0.lock();
        if let Hashed::Session { id, digest } = &*last
            && id.is_same(&offered)
        {
            return *digest;
        }
        let digest = offered.digest();
        *last = Hashed::Session { id: offered, digest };
        digest
    }
}

impl fmt::Debug for LastOffered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LastOffered(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(kind: TokenKind) -> Token {
        Token::generate(kind).unwrap()
    }

    #[test]
    fn credential_after_another_is_never_taken_for_it() {
        let last = LastOffered::default();
        let (one, two) = (token(TokenKind::User), token(TokenKind::User));
        for each in [&one, &one, &two, &one, &two, &two] {
            assert_eq!(last.user_token(each.reveal().as_bytes()), Some(each.hash()));
        }
        let (one, two) = (Opaque::random().unwrap(), Opaque::random().unwrap());
        let again = |id: &Opaque| Opaque::parse(&id.reveal()).unwrap();
        for each in [&one, &one, &two, &one, &two, &two] {
            assert_eq!(last.session(again(each)), each.digest());
        }
        let token = token(TokenKind::User);
        for _ in 0..2 {
            assert_eq!(last.user_token(token.reveal().as_bytes()), Some(token.hash()));
            assert_eq!(last.session(again(&one)), one.digest());
        }
    }

    #[test]
    fn text_that_is_no_token_of_a_user_is_refused_before_and_after_a_good_one() {
        let last = LastOffered::default();
        let good = token(TokenKind::User);
        let mut mistyped = good.reveal().to_owned();
        let end = mistyped.pop().map(|end| if end == 'A' { 'B' } else { 'A' });
        mistyped.extend(end);
        let (agent, cluster) = (token(TokenKind::Agent), token(TokenKind::Cluster));
        let bad = [
            &mistyped,
            &good.reveal()[1..],
            agent.reveal(),
            cluster.reveal(),
            "",
            "gwu_",
            &"\u{fc}".repeat(TOKEN_CHARS),
        ];
        for _ in 0..2 {
            for text in bad {
                assert_eq!(last.user_token(text.as_bytes()), None, "{text}");
            }
            assert_eq!(last.user_token(good.reveal().as_bytes()), Some(good.hash()));
        }
    }

    #[test]
    fn no_secret_is_printed() {
        let last = LastOffered::default();
        let good = token(TokenKind::User);
        last.user_token(good.reveal().as_bytes());
        assert_eq!(format!("{last:?}"), "LastOffered(..)");
    }
}
