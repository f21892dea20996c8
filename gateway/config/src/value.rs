//! Parsers from raw text to typed values, each with a description of what it accepts.

mod hosts;
mod measure;
mod network;
mod store;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use gateway_types::{Endpoint, PublicUrl, Secret, Zone};

pub(super) use hosts::HOST_NAMES;
pub use measure::parse_duration;
pub(super) use measure::{COUNT, COUNT_32, DURATION, SIZE};
pub use network::IpNetwork;
pub(super) use network::NETWORKS;
pub(super) use store::STORE_URL;
pub use store::{BadStoreUrl, PostgresUrl, StoreUrl};

/// Parser, writer and description of one kind of value.
///
/// Invariants: `parse(show(value))` gives `value` again, except for secrets.
pub(super) struct ValueKind<T> {
    /// Accepted values, for people.
    pub(super) accepted: &'static str,
    /// Reads the text; the error is its problem.
    pub(super) parse: fn(&str) -> Result<T, String>,
    /// Writes the value as the file would spell it.
    pub(super) show: fn(&T) -> String,
    /// Neither value nor mistake is ever shown.
    pub(super) secret: bool,
    /// Lets the relative paths in a value start at a folder.
    pub(super) anchor: Option<fn(T, &Path) -> T>,
}

impl<T> ValueKind<T> {
    /// Makes a kind whose values may be shown, and have no paths in them.
    pub(super) const fn new(
        accepted: &'static str,
        parse: fn(&str) -> Result<T, String>,
        show: fn(&T) -> String,
    ) -> Self {
        Self { accepted, parse, show, secret: false, anchor: None }
    }

    /// Makes the kind of a type that has a text of its own.
    pub(super) const fn of_text(accepted: &'static str) -> Self
    where
        T: FromStr<Err: ToString> + ToString,
    {
        Self::new(accepted, |text| text.parse().map_err(|error: T::Err| error.to_string()), ToString::to_string)
    }

    /// Keeps values and mistakes from being shown.
    pub(super) const fn secret(self) -> Self {
        Self { secret: true, ..self }
    }

    /// Has relative paths of the file start at its folder.
    pub(super) const fn anchored(self, anchor: fn(T, &Path) -> T) -> Self {
        Self { anchor: Some(anchor), ..self }
    }
}

/// Makes the kind of a value that is one of a few words, from what is accepted, the mistake, and the words.
macro_rules! words {
    ($accepted:literal, $wrong:literal, $($text:literal => $value:path),+) => {
        ValueKind::new(
            $accepted,
            |text| match text {
                $($text => Ok($value),)+
                _ => Err($wrong.to_owned()),
            },
            |value| match value {
                $($value => $text.to_owned(),)+
            },
        )
    };
}

pub(super) use words;

/// Masks the text between `://` and the last `@` of the authority, and the text behind `password=`: people put URLs
/// with passwords into wrong keys too. The authority is taken to reach as far as an `@` can be found, because passwords
/// contain anything.
pub(super) fn mask_credentials(text: &str) -> String {
    let masked = match text.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, after)) => format!("{scheme}://{}@{after}", Secret::MASK),
            None => text.to_owned(),
        },
        None => text.to_owned(),
    };
    match masked.split_once("password=") {
        Some((before, _)) => format!("{before}password={}", Secret::MASK),
        None => masked,
    }
}

pub(super) const ZONE: ValueKind<Zone> = ValueKind::new(
    "a lower-case DNS name such as `localhost` or `workspaces.example.com`",
    |text| text.parse().map_err(|_| "not a DNS name".to_owned()),
    ToString::to_string,
);

pub(super) const PUBLIC_URL: ValueKind<PublicUrl> = ValueKind::new(
    "an http or https URL without a path such as `https://gateway.example.com`",
    PublicUrl::parse,
    ToString::to_string,
);

pub(super) const ADDRESS: ValueKind<SocketAddr> = ValueKind::new(
    "an IP address and a port such as `127.0.0.1:8080` or `[::]:8080`",
    parse_address,
    ToString::to_string,
);

pub(super) const ADDRESS_OR_OFF: ValueKind<Option<SocketAddr>> = ValueKind::new(
    "an IP address and a port such as `127.0.0.1:8082`, or `off`",
    |text| if text == "off" { Ok(None) } else { parse_address(text).map(Some) },
    |address| address.map_or_else(|| "off".to_owned(), |address| address.to_string()),
);

pub(super) const YES_OR_NO: ValueKind<bool> = ValueKind::new(
    "`true` or `false`",
    |text| text.parse().map_err(|_| "neither true nor false".to_owned()),
    ToString::to_string,
);

pub(super) const FILE_PATH: ValueKind<PathBuf> = ValueKind::new(
    "the path of a file or folder",
    |text| match text {
        "" => Err("the path is missing".to_owned()),
        text if text.contains('\0') => Err("the path contains NUL".to_owned()),
        text => Ok(PathBuf::from(text)),
    },
    |path| path.display().to_string(),
)
.anchored(|path, folder| folder.join(path));

pub(super) const FILE_PATHS: ValueKind<Vec<PathBuf>> = ValueKind::new(
    "`off`, or paths of files with commas between them",
    |text| off_or_list(text, FILE_PATH.parse),
    |paths| show_off_or_list(paths, FILE_PATH.show),
)
.anchored(|paths, folder| paths.into_iter().map(|path| folder.join(path)).collect());

pub(super) const ENDPOINT: ValueKind<Endpoint> = ValueKind::of_text("an https URL; http for this machine only");

pub(super) const TEXT: ValueKind<Box<str>> =
    ValueKind::new("1 to 255 printable ASCII characters without spaces", parse_exact_text::<255>, ToString::to_string);

pub(super) const LONG_TEXT: ValueKind<Box<str>> =
    ValueKind::new("1 to 512 printable ASCII characters without spaces", parse_exact_text::<512>, ToString::to_string);

pub(super) const ANY_TEXT: ValueKind<String> = ValueKind::new("a text", |text| Ok(text.to_owned()), String::clone);

/// Reads values with commas between them; `off` for none.
fn off_or_list<T>(text: &str, parse: fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    if text == "off" { Ok(Vec::new()) } else { text.split(',').map(|part| parse(part.trim())).collect() }
}

fn show_off_or_list<T>(values: &[T], show: fn(&T) -> String) -> String {
    if values.is_empty() { "off".to_owned() } else { values.iter().map(show).collect::<Vec<_>>().join(", ") }
}

fn parse_exact_text<const BYTES_MAX: usize>(text: &str) -> Result<Box<str>, String> {
    let is_text = (1..=BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_text { Ok(text.into()) } else { Err("empty, too long, or with characters that do not count".to_owned()) }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "not an IP address and a port".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_urls_are_masked_wherever_the_at_sign_is() {
        assert_eq!(mask_credentials("postgres://u:p@h/db"), "postgres://********@h/db");
        assert_eq!(mask_credentials("postgres://u:p/w@x@h/db"), "postgres://********@h/db");
        assert_eq!(mask_credentials("sqlite://gateway.db"), "sqlite://gateway.db");
        assert_eq!(mask_credentials("user@host"), "user@host");
        assert_eq!(mask_credentials("postgres://h/db?password=p&x=1"), "postgres://h/db?password=********");
    }
}
