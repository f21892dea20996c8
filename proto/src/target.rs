//! The far end of a channel: a port, and the TLS that the agent speaks to the app there.

use crate::frame::FrameError;
use crate::wire;

/// TLS that an agent speaks to an app, and ends: the channel has what is inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AppTls {
    /// None: the bytes pass as they are.
    #[default]
    None,
    /// With `http/1.1` as the protocol inside (ALPN, RFC 7301).
    Http1,
    /// With `h2` as the protocol inside.
    Http2,
}

/// The far end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The port.
    pub port: u16,
    /// The TLS to the app.
    pub tls: AppTls,
}

impl From<u16> for Target {
    fn from(port: u16) -> Self {
        Self { port, tls: AppTls::None }
    }
}

impl AppTls {
    pub(crate) fn to_wire(self) -> i32 {
        match self {
            Self::None => wire::AppTls::None.into(),
            Self::Http1 => wire::AppTls::Http1.into(),
            Self::Http2 => wire::AppTls::Http2.into(),
        }
    }

    /// A value that is not known is an error: bytes sent in the clear to an app that expects TLS help no one.
    pub(crate) fn from_wire(number: i32) -> Result<Self, FrameError> {
        match wire::AppTls::try_from(number) {
            Ok(wire::AppTls::None) => Ok(Self::None),
            Ok(wire::AppTls::Http1) => Ok(Self::Http1),
            Ok(wire::AppTls::Http2) => Ok(Self::Http2),
            Err(_) => Err(FrameError::Field { field: "tls" }),
        }
    }
}
