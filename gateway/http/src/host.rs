//! Total parser of the host of a request: the public site, or a workspace and port.
//!
//! Every route decision starts from [`HostRules::parse`] and from nothing else. It is a grammar, not a search: text
//! that is not exactly `[PORT-]NAME.ZONE` or the public host is no host of this gateway.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use http::header::HOST;
use http::request::Parts;
use http::{HeaderValue, Version};
use thiserror::Error;

use crate::respond::Failure;
use gateway_types::{LABEL_BYTES_MAX, Port, Scheme, WORKSPACE_NAME_BYTES_MAX, WorkspaceName, Zone};

/// Longest DNS name in text form (RFC 1035, section 2.3.4), in bytes.
const HOST_BYTES_MAX: usize = 253;

// A port and a name within their own bounds always fit one label, so the parser need not measure it again.
const _: () = assert!(WORKSPACE_NAME_BYTES_MAX + "65535-".len() <= LABEL_BYTES_MAX);

/// Destination of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostTarget {
    /// The dashboard, the API and sign-in.
    Public,
    /// Workspaces by path: see [`crate::paths`].
    Paths,
    /// A port of a workspace.
    Workspace {
        /// The workspace.
        name: WorkspaceName,
        /// The port, or the workspace's default port if none was written.
        port: Option<Port>,
    },
}

/// The text names no host of this gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no such host")]
pub struct NoSuchHost;

/// Reason a request names no single host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadHost {
    /// No host at all (RFC 9112, section 3.2: answered with 400, also over HTTP/1.0).
    #[error("the request names no host")]
    Missing,
    /// More than one Host field.
    #[error("the request has several Host fields")]
    Duplicate,
    /// `:authority` and Host differ (RFC 9113, section 8.3.1).
    #[error("`:authority` and Host differ")]
    Disagree,
    /// The Host field is not visible ASCII.
    #[error("the Host field is not visible ASCII")]
    NotText,
}

impl BadHost {
    /// Returns the failure shown to the user.
    #[must_use]
    pub fn failure(self) -> Failure {
        match self {
            Self::Missing => Failure::BadRequest { reason: "host_missing" },
            Self::Duplicate => Failure::BadRequest { reason: "host_duplicate" },
            Self::Disagree => Failure::BadRequest { reason: "host_conflict" },
            Self::NotText => Failure::NoSuchHost,
        }
    }
}

/// The names under which this gateway is reached.
#[derive(Clone, Debug)]
pub struct HostRules {
    public_host: Box<str>,
    paths_host: Option<Box<str>>,
    zone: Zone,
}

impl HostRules {
    /// Takes the authority of `public_url` (a port in it is ignored) and the zone.
    ///
    /// # Errors
    ///
    /// The public authority is not a host name or an address.
    pub fn new(public_authority: &str, zone: Zone) -> Result<Self, NoSuchHost> {
        let (host, _) = split_authority(public_authority).ok_or(NoSuchHost)?;
        Ok(Self { public_host: host.into(), paths_host: None, zone })
    }

    /// Adds the host of `paths_url`, which is not the public one and none of a workspace.
    ///
    /// # Errors
    ///
    /// It is neither a host name nor an address.
    pub fn with_paths(self, authority: &str) -> Result<Self, NoSuchHost> {
        let (host, _) = split_authority(authority).ok_or(NoSuchHost)?;
        Ok(Self { paths_host: Some(host.into()), ..self })
    }

    /// Returns the domain under which workspaces live.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Returns the host of `paths_url`, if there is one.
    #[must_use]
    pub fn paths_host(&self) -> Option<&str> {
        self.paths_host.as_deref()
    }

    /// Parses an authority, with or without a port suffix and one trailing dot, in any case.
    ///
    /// The host of `paths_url` and then the public host are recognised first, so they may lie under the zone or be the zone. While
    /// the public host is `localhost`, the loopback addresses mean the same; any other address is no host of this gateway.
    ///
    /// # Errors
    ///
    /// Text outside the grammar, and names that a browser would show as another script (`xn--`).
    pub fn parse(&self, authority: &str) -> Result<HostTarget, NoSuchHost> {
        let (host, _) = split_authority(authority).ok_or(NoSuchHost)?;
        if self.paths_host.as_deref() == Some(&*host) {
            return Ok(HostTarget::Paths);
        }
        let loopback_alias = &*self.public_host == "localhost" && matches!(&*host, "127.0.0.1" | "[::1]");
        if *host == *self.public_host || loopback_alias {
            return Ok(HostTarget::Public);
        }
        if host.parse::<Ipv4Addr>().is_ok() {
            return Err(NoSuchHost);
        }
        let label = host.strip_suffix(self.zone.as_str()).and_then(|head| head.strip_suffix('.')).ok_or(NoSuchHost)?;
        let (port, name) = match label.split_once('-') {
            Some((head, rest)) if !head.is_empty() && head.bytes().all(|byte| byte.is_ascii_digit()) => {
                (Some(head.parse::<Port>().map_err(|_| NoSuchHost)?), rest)
            }
            _ => (None, label),
        };
        if name.starts_with("xn--") {
            return Err(NoSuchHost);
        }
        let name = name.parse::<WorkspaceName>().map_err(|_| NoSuchHost)?;
        Ok(HostTarget::Workspace { name, port })
    }

    /// Writes the host of a workspace, or of one of its ports; [`HostRules::parse`] reads it back.
    #[must_use]
    pub fn format(&self, name: &WorkspaceName, port: Option<Port>) -> String {
        match port {
            Some(port) => format!("{port}-{name}.{}", self.zone),
            None => format!("{name}.{}", self.zone),
        }
    }
}

/// Returns the authority a request was sent to, as written.
///
/// HTTP/1: exactly one Host field, and an absolute-form target wins over it (RFC 9112, section 3.2.2; that both agree
/// is the guard's rule). HTTP/2: `:authority`, and a Host field must agree with it (RFC 9113, section 8.3.1).
///
/// # Errors
///
/// See [`BadHost`].
pub fn authority_of(parts: &Parts) -> Result<&str, BadHost> {
    let mut fields = parts.headers.get_all(HOST).iter();
    let host = match (fields.next(), fields.next()) {
        (_, Some(_)) => return Err(BadHost::Duplicate),
        (Some(value), None) => Some(host_text(value)?),
        (None, None) => None,
    };
    let is_http2 = parts.version == Version::HTTP_2;
    match (parts.uri.authority(), host) {
        (Some(authority), Some(host)) if is_http2 => {
            let scheme = Scheme::of(&parts.uri).unwrap_or(Scheme::Http);
            let agree = authorities_agree(scheme, authority.as_str(), host);
            if agree { Ok(authority.as_str()) } else { Err(BadHost::Disagree) }
        }
        (Some(authority), Some(_)) => Ok(authority.as_str()),
        (Some(authority), None) if is_http2 => Ok(authority.as_str()),
        (None, Some(host)) => Ok(host),
        (Some(_) | None, None) => Err(BadHost::Missing),
    }
}

/// Finds the Host field in the beginning of a connection, for a guess and nothing else: the head is not checked, and may
/// be cut anywhere.
#[must_use]
pub fn host_in(head: &[u8]) -> Option<&str> {
    // The first piece is the request line; a line without its end may be half a name.
    head.split_inclusive(|byte| *byte == b'\n').skip(1).find_map(|line| {
        let (name, value) = line.strip_suffix(b"\n")?.split_at_checked(b"host:".len())?;
        let value = name.eq_ignore_ascii_case(b"host:").then_some(value)?;
        std::str::from_utf8(value.trim_ascii()).ok()
    })
}

fn host_text(value: &HeaderValue) -> Result<&str, BadHost> {
    value.to_str().map_err(|_| BadHost::NotText)
}

/// Says whether two authorities are the same host and port, a missing port being the scheme's.
#[must_use]
pub fn authorities_agree(scheme: Scheme, left: &str, right: &str) -> bool {
    let full = |authority| Some((split_authority(authority)?.0, listener_port(scheme, authority)?));
    matches!((full(left), full(right)), (Some(left), Some(right)) if left == right)
}

/// Returns the port that an authority means, or `None` if it is not in the grammar.
#[must_use]
pub fn listener_port(scheme: Scheme, authority: &str) -> Option<u16> {
    let (_, port) = split_authority(authority)?;
    Some(port.map_or(scheme.default_port(), Port::get))
}

/// Says whether the name of the TLS handshake is the host of the request. If not, the answer is `misdirected` (RFC
/// 9110, section 7.4), because the certificate and its policy were chosen for another host.
///
/// A handshake without a name agrees with every host.
#[must_use]
pub fn server_name_agrees(server_name: Option<&str>, authority: &str) -> bool {
    let Some(server_name) = server_name else {
        return true;
    };
    match (split_authority(server_name), split_authority(authority)) {
        (Some((name, None)), Some((host, _))) => name == host,
        _ => false,
    }
}

/// Splits an authority into the host (lower case, without trailing dot) and the port. `None` unless the host has only
/// letters, digits, dots and dashes, or is a bracketed IPv6 address, so user information, paths and escapes are out.
fn split_authority(authority: &str) -> Option<(Cow<'_, str>, Option<Port>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, rest) = rest.split_once(']')?;
        let address = address.parse::<Ipv6Addr>().ok()?;
        let port = match rest {
            "" => None,
            _ => Some(rest.strip_prefix(':')?.parse().ok()?),
        };
        return Some((format!("[{address}]").into(), port));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse().ok()?)),
        None => (authority, None),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    let in_grammar = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    if host.is_empty() || host.len() > HOST_BYTES_MAX || !host.bytes().all(in_grammar) {
        return None;
    }
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some((host.to_ascii_lowercase().into(), port));
    }
    Some((host.into(), port))
}

#[cfg(test)]
mod tests;
