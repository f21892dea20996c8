//! Ports of a workspace that were named before any program opened them: by the devfile, or in the request for the workspace.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::{Audience, BadPort, LABEL_BYTES_MAX, Port, is_label};

/// Most named ports of one workspace.
pub const NAMED_PORTS_MAX: usize = 128;

/// A named port, and how the gateway speaks to the app there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    /// The port.
    pub port: Port,
    /// Its name in lists.
    pub name: Option<PortName>,
    /// The protocol of its app.
    pub protocol: PortProtocol,
    /// The host that its app sees.
    pub host: PortHost,
    /// The audience that the devfile wants it to be open to. Nothing is open before the owner shares it.
    pub proposed: Option<Audience>,
}

impl NamedPort {
    /// Makes one of which nothing but the port is said.
    #[must_use]
    pub fn new(port: Port) -> Self {
        Self { port, name: None, protocol: PortProtocol::default(), host: PortHost::default(), proposed: None }
    }
}

/// The text is not `PORT[:name=NAME][:protocol=PROTOCOL][:host=HOST]`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadNamedPort {
    /// No port.
    #[error(transparent)]
    Port(#[from] BadPort),
    /// No name.
    #[error(transparent)]
    Name(#[from] BadPortName),
    /// No protocol.
    #[error(transparent)]
    Protocol(#[from] BadPortProtocol),
    /// No host.
    #[error(transparent)]
    Host(#[from] BadPortHost),
    /// An option that is not known.
    #[error("a port is PORT, or PORT with :name=NAME, :protocol=PROTOCOL or :host=HOST behind it")]
    Option,
}

impl FromStr for NamedPort {
    type Err = BadNamedPort;

    fn from_str(text: &str) -> Result<Self, BadNamedPort> {
        let mut parts = text.split(':');
        let mut named = Self::new(parts.next().unwrap_or_default().parse()?);
        for part in parts {
            match part.split_once('=') {
                Some(("name", name)) => named.name = Some(name.parse()?),
                Some(("protocol", protocol)) => named.protocol = protocol.parse()?,
                Some(("host", host)) => named.host = host.parse()?,
                Some(_) | None => return Err(BadNamedPort::Option),
            }
        }
        Ok(named)
    }
}

/// Name of a port: a DNS label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortName(Box<str>);

/// The text is no name of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a port's name is small letters, digits and inner dashes, at most {LABEL_BYTES_MAX} characters")]
pub struct BadPortName;

impl PortName {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PortName {
    type Err = BadPortName;

    fn from_str(text: &str) -> Result<Self, BadPortName> {
        is_label(text, LABEL_BYTES_MAX).then(|| Self(text.into())).ok_or(BadPortName)
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $bad:ident, $problem:literal, $($(#[$of:meta])* $variant:ident = $word:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name { $($(#[$of])* $variant,)* }

        /// The text is none of the words.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
        #[error($problem)]
        pub struct $bad;

        impl $name {
            /// Every word, in the order of the variants.
            pub const WORDS: &'static [&'static str] = &[$($word,)*];

            /// Returns the word, as stored and printed.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl FromStr for $name {
            type Err = $bad;

            fn from_str(text: &str) -> Result<Self, $bad> {
                match text { $($word => Ok(Self::$variant),)* _ => Err($bad) }
            }
        }
    };
}

words! {
    /// The protocol of an app.
    PortProtocol, BadPortProtocol, "a port's protocol is http1, h2, https, h2s or tcp",
    /// HTTP/1.1.
    #[default]
    Http1 = "http1",
    /// HTTP/2 with prior knowledge, as gRPC servers speak it.
    Http2 = "h2",
    /// HTTP/1.1 inside TLS, with a certificate of the app's own.
    Https = "https",
    /// HTTP/2 inside TLS.
    Http2Tls = "h2s",
    /// Something else: browsers do not reach it, `gateway forward` does.
    Tcp = "tcp",
}

words! {
    /// The host that an app sees.
    PortHost, BadPortHost, "a port's host is auto, original or localhost",
    /// The one that users ask for, and `localhost` for an app that refuses that one.
    #[default]
    Auto = "auto",
    /// The one that users ask for.
    Original = "original",
    /// `localhost:PORT`, for dev servers that insist on it.
    Localhost = "localhost",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_with_options_is_read_and_what_is_wrong_is_named() {
        let named: NamedPort = "8443:name=admin:protocol=https:host=localhost".parse().unwrap();
        assert_eq!(named.port.get(), 8443);
        assert_eq!(named.name.as_ref().map(PortName::as_str), Some("admin"));
        assert_eq!((named.protocol, named.host), (PortProtocol::Https, PortHost::Localhost));
        assert_eq!("80".parse(), Ok(NamedPort::new(Port::new(80).unwrap())));
        assert_eq!("80:tls".parse::<NamedPort>(), Err(BadNamedPort::Option));
        assert_eq!("80:protocol=udp".parse::<NamedPort>(), Err(BadNamedPort::Protocol(BadPortProtocol)));
        assert!(matches!("0".parse::<NamedPort>(), Err(BadNamedPort::Port(_))));
    }

    #[test]
    fn words_come_back_and_others_are_refused() {
        for word in PortProtocol::WORDS {
            assert_eq!(word.parse::<PortProtocol>().map(PortProtocol::as_str), Ok(*word));
        }
        for word in PortHost::WORDS {
            assert_eq!(word.parse::<PortHost>().map(PortHost::as_str), Ok(*word));
        }
        assert_eq!("http".parse::<PortProtocol>(), Err(BadPortProtocol));
        assert_eq!("".parse::<PortHost>(), Err(BadPortHost));
        for name in ["", "Web", "-a", "a b", &"x".repeat(LABEL_BYTES_MAX + 1)] {
            assert_eq!(name.parse::<PortName>(), Err(BadPortName), "{name}");
        }
        assert_eq!("web-1".parse::<PortName>().map(|name| name.to_string()), Ok("web-1".to_owned()));
    }
}
