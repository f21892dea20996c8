//! Return paths after sign-in, and the paths of a workspace host reserved for the gateway.

/// Longest return path, in bytes. It travels percent-encoded inside another URL, at worst three times as long, and has
/// to fit common limits there. A longer one is replaced by `/`.
pub const RETURN_PATH_BYTES_MAX: usize = 4096;

/// The first segment of the paths that the gateway answers itself, on every host.
const RESERVED_SEGMENT: &[u8] = b".gateway";

/// A path and query on the same host, byte for byte as the browser asked for it.
///
/// # Invariants
///
/// Begins with exactly one slash and holds visible ASCII only, no `#`, and no backslash before the query. So a browser
/// that is redirected to it cannot end up on another host, whatever it does to the text: `//host`, `/\host` and
/// `/<tab>/host` are not among these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnPath(Box<str>);

impl ReturnPath {
    /// Reads a path with an optional query.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let path = text.split('?').next().unwrap_or_default();
        let is_clean = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') && !path.contains('\\');
        let stays = path.starts_with('/') && !path.starts_with("//");
        (is_clean && stays && text.len() <= RETURN_PATH_BYTES_MAX).then(|| Self(text.into()))
    }

    /// Reads a path, or settles for `/`.
    #[must_use]
    pub fn parse_or_root(text: &str) -> Self {
        Self::parse(text).unwrap_or_else(|| Self("/".into()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns whether a workspace host's `path` is the gateway's own (`/.gateway/…`) under any reading that an app might
/// have: percent-encoded, with doubled slashes, backslashes or dot segments. Such a request never reaches an app.
#[must_use]
pub fn is_reserved(path: &str) -> bool {
    // Almost every path is settled by this scan.
    if !path.contains("/.") && !path.contains(['%', '\\']) {
        return false;
    }
    let decoded = percent_decoded(path.as_bytes());
    let mut depth_first: Vec<&[u8]> = Vec::new();
    for segment in decoded.split(|byte| matches!(byte, b'/' | b'\\')) {
        match segment {
            b"" | b"." => {}
            b".." => drop(depth_first.pop()),
            name => depth_first.push(name),
        }
    }
    // The slash at the front is taken literally too: an app may read the first segment before it resolves the dots.
    let literal = decoded.split(|byte| matches!(byte, b'/' | b'\\')).find(|segment| !matches!(*segment, b"" | b"."));
    depth_first.first() == Some(&RESERVED_SEGMENT) || literal == Some(RESERVED_SEGMENT)
}

/// Decodes `%XX` once (RFC 3986, section 2.1) and leaves everything else, broken escapes included, as it is.
fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let escape = match (first, after) {
            (b'%', [high, low, tail @ ..]) => digit(*high).zip(digit(*low)).map(|(high, low)| (high * 16 + low, tail)),
            _ => None,
        };
        let (byte, tail) = escape.unwrap_or((*first, after));
        decoded.push(byte);
        rest = tail;
    }
    decoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn return_path_cannot_leave_its_host() {
        for text in [
            "",
            "evil",
            "//evil.example",
            "///evil",
            "/\\evil.example",
            "\\\\evil.example",
            "\\evil",
            "http:evil",
            "http://evil.example/",
            "javascript:alert(1)",
            "/\t/evil",
            "/\n/evil",
            "\t//evil",
            " /a",
            "/a b",
            "/a\r\nx: y",
            "/a\0",
            "/a#b",
            "/a\\b",
            "/\u{e4}",
            "/\u{2028}",
            "?a",
            "//?a",
        ] {
            assert_eq!(ReturnPath::parse(text), None, "{text:?}");
            assert_eq!(ReturnPath::parse_or_root(text).as_str(), "/");
        }
    }

    #[test]
    fn return_path_keeps_every_byte() {
        for text in ["/", "/a//b/../c;d=e", "/a?b=//evil&c=%2f%2F+\\|&&=", "/%2e%2e/?", "/a?b?c"] {
            assert_eq!(ReturnPath::parse(text).unwrap().as_str(), text);
        }
        let longest = format!("/{}", "a".repeat(RETURN_PATH_BYTES_MAX - 1));
        assert!(ReturnPath::parse(&longest).is_some());
        assert!(ReturnPath::parse(&format!("{longest}a")).is_none());
    }

    #[test]
    fn reserved_paths_are_recognised_in_every_spelling() {
        for path in [
            "/.gateway",
            "/.gateway/",
            "/.gateway/callback",
            "//.gateway/x",
            "/./.gateway/x",
            "/a/../.gateway/x",
            "/%2egateway/x",
            "/%2Egatewa%79",
            "/.gateway%2fx",
            "/..%2f.gateway/x",
            "\\.gateway\\x",
            "/.gateway/../x",
            "/%5c.gateway",
            "/a/%2e%2e/.gateway/x",
            "/../../.gateway",
        ] {
            assert!(is_reserved(path), "{path}");
        }
        for path in [
            "/",
            "/a",
            "/gateway/x",
            "/.gatewayx",
            "/a/.gateway/x",
            "/.well-known/x",
            "/%252egateway",
            "/x%",
            "/%2",
            "*",
            "/a/../b",
            "/.gate%way",
        ] {
            assert!(!is_reserved(path), "{path}");
        }
    }

    proptest! {
        #[test]
        fn accepted_return_path_resolves_to_the_same_host(text in "[/\\\\.?#:@ a%\t]{0,12}") {
            if let Some(path) = ReturnPath::parse(&text) {
                let bytes = path.as_str().as_bytes();
                prop_assert_eq!(path.as_str(), &text);
                prop_assert_eq!(bytes[0], b'/');
                prop_assert!(!matches!(bytes.get(1), Some(b'/' | b'\\')));
                prop_assert!(bytes.iter().all(u8::is_ascii_graphic));
            }
        }

        #[test]
        fn escaping_any_byte_does_not_hide_a_reserved_path(escaped in prop::collection::vec(any::<bool>(), 12)) {
            let text: String = "/.gateway/x"
                .bytes()
                .zip(&escaped)
                .enumerate()
                .map(|(at, (byte, escape))| if *escape && at > 0 { format!("%{byte:02x}") } else { char::from(byte).into() })
                .collect();
            prop_assert!(is_reserved(&text), "{}", text);
        }
    }
}
