//! Syntax of one forwarding: `PORT`, `LOCAL:PORT` or `ADDRESS:LOCAL:PORT`. Pure.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

use gateway_types::{BadWorkspaceName, Port, WorkspaceName};

/// Suffix of ssh's host names of workspaces.
const SSH_DOMAIN: &str = ".gateway";

/// A port of a workspace, and where it is on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// Address to listen on; `None` for the same port of 127.0.0.1.
    pub local: Option<SocketAddr>,
    /// The workspace's port.
    pub port: Port,
}

/// The text is no forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadForwarding {
    /// The workspace's port is not one.
    #[error("the port of the workspace is not a number from 1 to 65535")]
    Port,
    /// The local port is not one.
    #[error("the local port is not a number from 0 to 65535")]
    Local,
    /// The local address is not one.
    #[error("the local address is not an IP address such as 127.0.0.1 or [::1]")]
    Address,
}

impl Forwarding {
    /// Returns the address to listen on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.local.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, self.port.get()).into())
    }
}

impl FromStr for Forwarding {
    type Err = BadForwarding;

    fn from_str(text: &str) -> Result<Self, BadForwarding> {
        let (before, port) = match text.rsplit_once(':') {
            Some((before, port)) => (Some(before), port),
            None => (None, text),
        };
        let port = port.parse().map_err(|_| BadForwarding::Port)?;
        let Some(before) = before else { return Ok(Self { local: None, port }) };
        let (address, local) = match before.rsplit_once(':') {
            Some((address, local)) => (read_address(address)?, local),
            None => (Ipv4Addr::LOCALHOST.into(), before),
        };
        let is_number = !local.is_empty() && local.bytes().all(|byte| byte.is_ascii_digit());
        let local: u16 = local.parse().ok().filter(|_| is_number).ok_or(BadForwarding::Local)?;
        Ok(Self { local: Some((address, local).into()), port })
    }
}

/// An IPv6 address stands in brackets, as everywhere beside a port.
fn read_address(text: &str) -> Result<IpAddr, BadForwarding> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address: IpAddr = bare.unwrap_or(text).parse().map_err(|_| BadForwarding::Address)?;
    if address.is_ipv6() == bare.is_some() { Ok(address) } else { Err(BadForwarding::Address) }
}

/// Reads the name of a workspace, also as ssh has it: `my-app.gateway`.
///
/// # Errors
/// [`BadWorkspaceName`].
pub(crate) fn parse_workspace(text: &str) -> Result<WorkspaceName, BadWorkspaceName> {
    text.strip_suffix(SSH_DOMAIN).unwrap_or(text).parse()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(&str, u16), BadForwarding>) {
        let found = text.parse::<Forwarding>().map(|found| (found.address().to_string(), found.port.get()));
        assert_eq!(found, expected.map(|(address, port)| (address.to_owned(), port)), "{text}");
    }

    #[test]
    fn forwardings_are_read_and_refused_by_name() {
        check("5432", Ok(("127.0.0.1:5432", 5432)));
        check("15432:5432", Ok(("127.0.0.1:15432", 5432)));
        check("0:5432", Ok(("127.0.0.1:0", 5432)));
        check("0.0.0.0:80:8080", Ok(("0.0.0.0:80", 8080)));
        check("[::1]:0:22", Ok(("[::1]:0", 22)));
        for text in ["", "0", "x", "1:0", "1:", "1:65536", "1: 2", "[::1]:1:0"] {
            check(text, Err(BadForwarding::Port));
        }
        for text in [":1", "x:1", "65536:1", "+1:1", "127.0.0.1:1", "-1:1"] {
            check(text, Err(BadForwarding::Local));
        }
        for text in [":1:2", "localhost:1:2", "::1:1:2", "[127.0.0.1]:1:2", "[::1:1:2", "1:2:3"] {
            check(text, Err(BadForwarding::Address));
        }
    }

    #[test]
    fn workspace_is_read_with_and_without_the_name_that_ssh_has() {
        assert_eq!(parse_workspace("my-app").map(|name| name.to_string()), Ok("my-app".to_owned()));
        assert_eq!(parse_workspace("my-app.gateway").map(|name| name.to_string()), Ok("my-app".to_owned()));
        for text in ["", ".gateway", "a.b", "a.gateway.gateway", "-oProxyCommand=x"] {
            assert!(parse_workspace(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_is_read(address: SocketAddr, port in 1u16..) {
            // Scopes of IPv6 addresses are not typed.
            prop_assume!(!matches!(address, SocketAddr::V6(six) if six.scope_id() != 0 || six.flowinfo() != 0));
            let read: Forwarding = format!("{address}:{port}").parse().expect("written by its own grammar");
            prop_assert_eq!((read.address(), read.port.get()), (address, port));
        }

        #[test]
        fn no_text_is_read_as_something_else(text in "[0-9:.\\[\\]a-f+ -]{0,24}") {
            if let Ok(read) = text.parse::<Forwarding>() {
                prop_assert!(text.ends_with(&read.port.to_string()));
            }
        }
    }
}
