//! Parsers from raw text to typed values, each with a description of what it accepts.

mod hosts;
mod measure;
mod network;
mod store;

use std::net::SocketAddr;
use std::path::PathBuf;

use gateway_types::{BadEndpoint, Endpoint, PublicUrl, Secret, Zone};

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
}

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

pub(super) const ZONE: ValueKind<Zone> = ValueKind {
    accepted: "a lower-case DNS name such as `localhost` or `workspaces.example.com`",
    parse: |text| text.parse().map_err(|_| "not a DNS name".to_owned()),
    show: ToString::to_string,
    secret: false,
};

pub(super) const PUBLIC_URL: ValueKind<PublicUrl> = ValueKind {
    accepted: "an http or https URL without a path such as `https://gateway.example.com`",
    parse: PublicUrl::parse,
    show: ToString::to_string,
    secret: false,
};

pub(super) const ADDRESS: ValueKind<SocketAddr> = ValueKind {
    accepted: "an IP address and a port such as `127.0.0.1:8080` or `[::]:8080`",
    parse: parse_address,
    show: ToString::to_string,
    secret: false,
};

pub(super) const ADDRESS_OR_OFF: ValueKind<Option<SocketAddr>> = ValueKind {
    accepted: "an IP address and a port such as `127.0.0.1:8082`, or `off`",
    parse: |text| if text == "off" { Ok(None) } else { parse_address(text).map(Some) },
    show: |address| address.map_or_else(|| "off".to_owned(), |address| address.to_string()),
    secret: false,
};

pub(super) const FILE_PATH: ValueKind<PathBuf> = ValueKind {
    accepted: "the path of a file or folder",
    parse: |text| match text {
        "" => Err("the path is missing".to_owned()),
        text if text.contains('\0') => Err("the path contains NUL".to_owned()),
        text => Ok(PathBuf::from(text)),
    },
    show: |path| path.display().to_string(),
    secret: false,
};

pub(super) const FILE_PATHS: ValueKind<Vec<PathBuf>> = ValueKind {
    accepted: "`off`, or paths of files with commas between them",
    parse: |text| match text {
        "off" => Ok(Vec::new()),
        text => text.split(',').map(|part| (FILE_PATH.parse)(part.trim())).collect(),
    },
    show: |paths| match paths.as_slice() {
        [] => "off".to_owned(),
        paths => paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
    },
    secret: false,
};

pub(super) const ENDPOINT: ValueKind<Endpoint> = ValueKind {
    accepted: "an https URL; http for this machine only",
    parse: |text| text.parse().map_err(|error: BadEndpoint| error.to_string()),
    show: |endpoint| endpoint.as_str().to_owned(),
    secret: false,
};

pub(super) const TEXT: ValueKind<Box<str>> = ValueKind {
    accepted: "1 to 255 printable ASCII characters without spaces",
    parse: |text| {
        let is_text = (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_text { Ok(text.into()) } else { Err("empty, too long, or with characters that do not count".to_owned()) }
    },
    show: |text| text.to_string(),
    secret: false,
};

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
