//! The lines in which git speaks with a credential helper (git-credential(1), "INPUT/OUTPUT FORMAT").

use std::fmt;
use std::io::Read;

use thiserror::Error;
use tunnel_proto::git::GitProtocol;

/// Most bytes that are read: git's own lines have a few KiB, and headers of an answer may be among them.
const BYTES_MAX: u64 = 64 * 1024;

/// The text is not what git writes. Repeats nothing of it: a password may be in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadFields {
    /// It cannot be read to its end.
    #[error("it cannot be read")]
    Unreadable,
    /// Too many bytes.
    #[error("it is longer than {BYTES_MAX} bytes")]
    TooLong,
    /// A line without `=`.
    #[error("a line is not NAME=VALUE")]
    Line,
    /// Bytes that are not UTF-8.
    #[error("it is not text in UTF-8")]
    Text,
}

/// What git says of a credential. `Debug` shows no password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fields {
    protocol: Option<String>,
    host: Option<String>,
    user: Option<String>,
}

impl fmt::Debug for Fields {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Fields")
            .field("protocol", &self.protocol)
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

impl Fields {
    /// Reads lines until an empty one or the end.
    ///
    /// # Errors
    /// [`BadFields`].
    pub fn read(input: impl Read) -> Result<Self, BadFields> {
        let mut bytes = Vec::new();
        let read = input.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|_| BadFields::Unreadable)?;
        if u64::try_from(read).is_ok_and(|read| read > BYTES_MAX) {
            return Err(BadFields::TooLong);
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| BadFields::Text)?;
        let mut fields = Self::default();
        for line in text.lines().take_while(|line| !line.is_empty()) {
            let (name, value) = line.split_once('=').ok_or(BadFields::Line)?;
            let field = match name {
                "protocol" => &mut fields.protocol,
                "host" => &mut fields.host,
                "username" => &mut fields.user,
                // A helper ignores what it does not know.
                _ => continue,
            };
            *field = Some(value.to_owned());
        }
        Ok(fields)
    }

    /// Returns the server, if it is one that is asked about.
    #[must_use]
    pub fn server(&self) -> Option<(GitProtocol, &str)> {
        let protocol = GitProtocol::parse(self.protocol.as_deref()?)?;
        Some((protocol, self.host.as_deref().filter(|host| !host.is_empty())?))
    }

    /// Returns the user that the URL names.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref().filter(|user| !user.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gits_words_are_read_to_the_empty_line() {
        let text = "capability[]=authtype\nprotocol=https\nhost=git.example.com:8443\nusername=a=b\nwwwauth[]=Basic realm=\"x\"\n\nhost=evil\n";
        let fields = Fields::read(text.as_bytes()).unwrap();
        assert_eq!(fields.server(), Some((GitProtocol::Https, "git.example.com:8443")));
        assert_eq!(fields.user(), Some("a=b"));
        for (text, server) in
            [("", None), ("protocol=https\nhost=\n", None), ("protocol=http\nhost=h", Some((GitProtocol::Http, "h")))]
        {
            assert_eq!(Fields::read(text.as_bytes()).unwrap().server(), server, "{text}");
        }
        assert_eq!(Fields::read(&b"protocol\n"[..]), Err(BadFields::Line));
        assert_eq!(Fields::read(&b"host=\xff\n"[..]), Err(BadFields::Text));
        assert_eq!(Fields::read(vec![b'x'; 70_000].as_slice()), Err(BadFields::TooLong));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_and_no_password_is_shown(bytes: Vec<u8>, password in "[a-z]{12}") {
            drop(Fields::read(bytes.as_slice()));
            let text = format!("protocol=https\nhost=h\npassword={password}\n");
            let fields = Fields::read(text.as_bytes()).unwrap();
            let shown = format!("{fields:?}");
            prop_assert!(!shown.contains(&password));
        }
    }
}
