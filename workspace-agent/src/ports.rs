//! Local ports of channels: which ones are allowed, and how they are reached.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use thiserror::Error;
use tokio::net::TcpStream;
use tunnel_link::socket;
use tunnel_proto::hello::{AppProtocol, HostMode, Port};
use tunnel_proto::inspector::INSPECTOR_PORT;
use tunnel_proto::listening::{LABEL_BYTES_MAX, LISTENING_MAX};
use tunnel_proto::reason::Reason;
use tunnel_proto::ssh::SSH_PORT;
use tunnel_proto::target::AppTls;
use tunnel_proto::terminal::TERMINAL_PORT;

use crate::listening::listeners;

/// Longest time for a loopback connection. A listener whose backlog is full makes the kernel retry for minutes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Most bytes that are read of one table of sockets: about seven thousand of them.
const TABLE_BYTES_MAX: u64 = 1024 * 1024;

/// Ports that an agent exposes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// The ports that were named; none means every loopback port.
    pub exposed: Vec<Port>,
    /// Ports of the agent itself and of its operator; never reached, even if named.
    pub denied: BTreeSet<u16>,
    /// Port of `{name}.{zone}`.
    pub default: Option<u16>,
    /// Options of ports, whether or not they were named. Expose and close nothing.
    pub apps: Vec<Port>,
    /// Host that apps see where nothing else says it.
    pub host: HostMode,
    /// Names that a person gave to ports, for lists of them.
    pub names: BTreeMap<u16, String>,
}

impl Ports {
    /// Decides whether a channel may go to `port`. The gateway decides too; this check stands on its own.
    #[must_use]
    pub fn allow(&self, port: u16) -> bool {
        let named = self.exposed.is_empty() || self.exposed.iter().any(|exposed| exposed.number == port);
        port > 0 && named && !self.denied.contains(&port)
    }

    /// Returns the TLS that the app on a port speaks, as far as it was named.
    #[must_use]
    pub fn tls_of(&self, port: u16) -> AppTls {
        let said = self.exposed.iter().chain(&self.apps).find(|said| said.number == port);
        match said {
            Some(Port { tls: true, protocol: AppProtocol::Http1, .. }) => AppTls::Http1,
            Some(Port { tls: true, protocol: AppProtocol::Http2, .. }) => AppTls::Http2,
            Some(_) | None => AppTls::None,
        }
    }
}

/// Ports that this process serves by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnPorts {
    /// That of terminals.
    pub terminal: bool,
    /// That of the SSH server.
    pub ssh: bool,
    /// That of the request inspector.
    pub inspector: bool,
}

impl OwnPorts {
    /// Returns their numbers.
    pub fn numbers(self) -> impl Iterator<Item = u16> {
        let terminal = self.terminal.then_some(TERMINAL_PORT);
        terminal.into_iter().chain(self.ssh.then_some(SSH_PORT)).chain(self.inspector.then_some(INSPECTOR_PORT))
    }
}

/// Returns the ports on which something listens that a channel could reach, in their order: at most [`LISTENING_MAX`],
/// and those that this process serves by itself among them.
///
/// Reads the kernel's tables of this process's own network: blocks for as long as that takes.
///
/// # Errors
/// The system's, where it has no such tables.
pub fn listening(ports: &Ports, own: OwnPorts) -> io::Result<Vec<u16>> {
    let mut found = BTreeSet::new();
    found.extend(listeners(&table("/proc/net/tcp")?));
    match table("/proc/net/tcp6") {
        Ok(table) => found.extend(listeners(&table)),
        // A machine without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    found.retain(|port| ports.allow(*port));
    found.extend(own.numbers().filter(|port| !ports.denied.contains(port)));
    Ok(found.into_iter().take(LISTENING_MAX).collect())
}

/// Reads one of the kernel's tables, or the beginning of a very large one. Listeners come first there.
pub(crate) fn table(path: &str) -> io::Result<String> {
    let mut table = Vec::new();
    std::fs::File::open(path)?.take(TABLE_BYTES_MAX).read_to_end(&mut table)?;
    Ok(String::from_utf8_lossy(&table).into_owned())
}

/// Connects to an allowed port on this machine: `127.0.0.1`, then `::1`, for dev servers that listen on either.
///
/// # Errors
/// The reason that the gateway is told.
///
/// Cancel safety: safe; a half-made connection is closed.
pub async fn connect(ports: &Ports, port: u16) -> Result<TcpStream, Reason> {
    if !ports.allow(port) {
        return Err(Reason::PortNotAllowed);
    }
    let deadline = tokio::time::Instant::now() + CONNECT_TIMEOUT;
    let mut reason = Reason::PortClosed;
    for address in [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))] {
        match tokio::time::timeout_at(deadline, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => match ready(stream) {
                Ok(Some(stream)) => return Ok(stream),
                Ok(None) => {}
                Err(_gone) => return Err(Reason::AppReset),
            },
            Ok(Err(_)) => {}
            Err(_elapsed) => reason = Reason::TimedOut,
        }
    }
    Err(reason)
}

/// Returns the connection, if it leads to an app.
fn ready(stream: TcpStream) -> io::Result<Option<TcpStream>> {
    // A port on which nothing listens can be connected to itself when it is in the ephemeral range (TCP simultaneous
    // open); that is no app.
    if stream.local_addr()? == stream.peer_addr()? {
        return Ok(None);
    }
    socket::tune(&stream)?;
    Ok(Some(stream))
}

/// The text is not `PORT[:host=localhost|original][:protocol=http1|h2|https|h2s][:name=NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadPort {
    /// Not 1 to 65535.
    #[error("`{0}` is not a port from 1 to 65535")]
    Number(String),
    /// An option that is not known.
    #[error(
        "`{0}` is not one of host=original, host=localhost, protocol=http1, protocol=h2, protocol=https, protocol=h2s, name=NAME"
    )]
    Option(String),
    /// No name of a port.
    #[error("`{0}` is no name of a port: small letters, digits and dashes, at most {NAME_BYTES_MAX}")]
    Name(String),
}

/// A port as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortArgument {
    /// The port, and how to speak to it.
    pub port: Port,
    /// Its name in lists.
    pub name: Option<String>,
}

/// The host that apps see, as the command line names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HostArgument {
    /// The one that the user asked for, and localhost for a dev server that refuses that one.
    #[default]
    Auto,
    /// `localhost:PORT`
    Localhost,
}

impl HostArgument {
    /// Returns the mode to announce to the gateway.
    #[must_use]
    pub fn mode(self) -> HostMode {
        match self {
            Self::Auto => HostMode::Auto,
            Self::Localhost => HostMode::Localhost,
        }
    }
}

/// Longest name of a port, in bytes.
const NAME_BYTES_MAX: usize = LABEL_BYTES_MAX;

fn name_of(text: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    ((1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)).then(|| text.to_owned())
}

impl FromStr for PortArgument {
    type Err = BadPort;

    fn from_str(text: &str) -> Result<Self, BadPort> {
        let mut parts = text.split(':');
        let number = parts.next().unwrap_or_default();
        let number = match number.parse() {
            Ok(number) if number > 0 => number,
            Ok(0_u16..) | Err(_) => return Err(BadPort::Number(number.to_owned())),
        };
        let (protocol, host) = (AppProtocol::default(), HostMode::default());
        let (mut port, mut given) = (Port { number, protocol, host, tls: false }, None);
        for option in parts {
            match option {
                "host=original" => port.host = HostMode::Original,
                "host=localhost" => port.host = HostMode::Localhost,
                "protocol=http1" => (port.protocol, port.tls) = (AppProtocol::Http1, false),
                "protocol=h2" => (port.protocol, port.tls) = (AppProtocol::Http2, false),
                "protocol=https" => (port.protocol, port.tls) = (AppProtocol::Http1, true),
                "protocol=h2s" => (port.protocol, port.tls) = (AppProtocol::Http2, true),
                _ => {
                    let name = option.strip_prefix("name=").ok_or_else(|| BadPort::Option(option.to_owned()))?;
                    given = Some(name_of(name).ok_or_else(|| BadPort::Name(name.to_owned()))?);
                }
            }
        }
        Ok(Self { port, name: given })
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    fn port(number: u16) -> Port {
        Port { number, protocol: AppProtocol::Http1, host: HostMode::Auto, tls: false }
    }

    #[test]
    fn unnamed_and_denied_ports_are_not_reached() {
        let open = Ports::default();
        assert!(open.allow(8080));
        assert!(!open.allow(0));
        let named = Ports { exposed: vec![port(8080)], denied: BTreeSet::from([9090]), ..Ports::default() };
        assert!(named.allow(8080));
        assert!(!named.allow(8081));
        let denied = Ports { denied: BTreeSet::from([8080]), ..named };
        assert!(!denied.allow(8080), "denied wins over named");
    }

    #[test]
    fn tls_is_spoken_where_a_person_said_so() {
        let app = |number, protocol, tls| Port { protocol, tls, ..port(number) };
        let ports = Ports {
            exposed: vec![app(1, AppProtocol::Http1, true), app(2, AppProtocol::Http2, true)],
            apps: vec![app(3, AppProtocol::Http2, false)],
            ..Ports::default()
        };
        let said = [1, 2, 3, 4].map(|number| ports.tls_of(number));
        assert_eq!(said, [AppTls::Http1, AppTls::Http2, AppTls::None, AppTls::None]);
    }

    #[test]
    fn port_arguments_are_read_and_refused_by_name() {
        let unnamed = |port| PortArgument { port, name: None };
        assert_eq!("8080".parse(), Ok(unnamed(port(8080))));
        let h2 = Port { protocol: AppProtocol::Http2, host: HostMode::Localhost, ..port(5173) };
        assert_eq!("5173:host=localhost:protocol=h2".parse(), Ok(unnamed(h2)));
        for (protocol, version) in [("https", AppProtocol::Http1), ("h2s", AppProtocol::Http2)] {
            let tls = Port { protocol: version, tls: true, ..port(8443) };
            assert_eq!(format!("8443:protocol={protocol}").parse(), Ok(unnamed(tls)));
        }
        let named = PortArgument { port: port(80), name: Some("web-1".to_owned()) };
        assert_eq!("80:name=web-1".parse(), Ok(named));
        for name in ["", "Web", "a b", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert_eq!(format!("80:name={name}").parse::<PortArgument>(), Err(BadPort::Name(name.to_owned())));
        }
        assert_eq!("0".parse::<PortArgument>(), Err(BadPort::Number("0".into())));
        assert_eq!("65536".parse::<PortArgument>(), Err(BadPort::Number("65536".into())));
        assert_eq!("80:tls".parse::<PortArgument>(), Err(BadPort::Option("tls".into())));
    }

    #[tokio::test]
    async fn both_loopback_families_are_tried_and_a_closed_port_is_named() {
        let four = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let number = four.local_addr().expect("bound").port();
        assert!(connect(&Ports::default(), number).await.is_ok());
        drop(four);
        // Bound, so that no other test gets it, and nothing listens on it.
        let closed = TcpSocket::new_v4().expect("a socket");
        closed.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        let number = closed.local_addr().expect("bound").port();
        assert_eq!(connect(&Ports::default(), number).await.err(), Some(Reason::PortClosed));
        let named = Ports { exposed: vec![port(1)], ..Ports::default() };
        assert_eq!(connect(&named, number).await.err(), Some(Reason::PortNotAllowed));
        // Machines without IPv6 cannot show the second half.
        if let Ok(six) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await {
            let number = six.local_addr().expect("bound").port();
            assert!(connect(&Ports::default(), number).await.is_ok());
        }
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn what_listens_is_found_unless_it_is_not_exposed() {
        let app = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let number = app.local_addr().expect("bound").port();
        let found = |ports: &Ports| listening(ports, OwnPorts::default()).expect("tables").contains(&number);
        assert!(found(&Ports::default()));
        let denied = Ports { denied: BTreeSet::from([number]), ..Ports::default() };
        assert!(!found(&denied));
        let other = Ports { exposed: vec![port(1)], ..Ports::default() };
        assert!(!found(&other));
        for (own, expected) in [
            (OwnPorts { terminal: true, ..OwnPorts::default() }, &[TERMINAL_PORT][..]),
            (OwnPorts { terminal: true, ssh: true, inspector: false }, &[TERMINAL_PORT, SSH_PORT]),
            (OwnPorts { inspector: true, ..OwnPorts::default() }, &[INSPECTOR_PORT]),
        ] {
            assert_eq!(listening(&other, own).expect("tables"), expected, "they are this process's own");
        }
        drop(app);
        // A program that another test starts at this moment has the socket as well, until it begins.
        let gone = async {
            while found(&Ports::default()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), gone).await.expect("a port that is closed is found no more");
    }

    #[tokio::test]
    async fn port_that_is_connected_to_itself_is_nobodys_app() {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        let itself = socket.local_addr().expect("bound");
        let stream = socket.connect(itself).await.expect("connected");
        assert!(ready(stream).expect("it is there").is_none());
    }
}
