//! From a gateway's URL to a connected byte stream: resolve, connect, TLS.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::uri::{Authority, Scheme, Uri};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tunnel_link::pace::{Pace, Paced};
use tunnel_link::socket;

use super::DialFailure;

/// How long resolving and connecting may take together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A gateway's listener for agents.
#[derive(Clone)]
pub struct Gateway {
    authority: Authority,
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// The text is not a gateway's URL.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadGateway {
    /// Not a URL with scheme and host.
    #[error("`{0}` is not a URL such as https://gateway.example.com")]
    Url(String),
    /// A scheme that is not http or https.
    #[error("the scheme `{0}` is not http or https")]
    Scheme(String),
    /// A path or query, which mean nothing here.
    #[error("the gateway's URL has a path; give scheme, host and port only")]
    Path,
}

/// TLS could not be set up.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The file of extra roots is not readable PEM.
    #[error("the certificates in {path} cannot be read")]
    Roots {
        /// The file.
        path: String,
        /// Why.
        #[source]
        error: rustls::pki_types::pem::Error,
    },
    /// A certificate is not usable as a root.
    #[error("a certificate in {path} cannot be used as a root")]
    Root {
        /// The file.
        path: String,
        /// Why.
        #[source]
        error: rustls::Error,
    },
    /// The host is not a name that a certificate can have.
    #[error("`{0}` is not a host name that TLS can check")]
    Name(String),
    /// The library refused its own defaults.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

/// Either of the two errors of [`Gateway::parse`].
#[derive(Debug, Error)]
pub enum GatewayError {
    /// The URL.
    #[error(transparent)]
    Url(#[from] BadGateway),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Gateway {
    /// Reads a URL, and for `https` the roots to trust: the system's and those in `ca_file`.
    ///
    /// # Errors
    /// [`GatewayError`] names what is wrong.
    pub fn parse(url: &str, ca_file: Option<&Path>) -> Result<Self, GatewayError> {
        let bad = || BadGateway::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let authority = uri.authority().ok_or_else(bad)?.clone();
        let scheme = uri.scheme().ok_or_else(bad)?;
        if uri.path() != "/" || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(BadGateway::Path.into());
        }
        let tls = match scheme.as_str() {
            "http" => false,
            "https" => true,
            other => return Err(BadGateway::Scheme(other.to_owned()).into()),
        };
        // An IPv6 address stands in brackets in a URL and without them everywhere else.
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let tls = if tls {
            let name = ServerName::try_from(host.clone()).map_err(|_| TlsError::Name(host.clone()))?;
            Some((connector(ca_file)?, name))
        } else {
            None
        };
        Ok(Self { authority, host, port, tls })
    }

    /// Returns what stands in the request's `:authority` and `:scheme`.
    #[must_use]
    pub fn origin(&self) -> (Authority, Scheme) {
        let scheme = if self.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        (self.authority.clone(), scheme)
    }

    /// Connects.
    ///
    /// Cancel safety: safe; a half-made connection is closed.
    pub(super) async fn connect(&self) -> Result<Wire, DialFailure> {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let stream = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Err(_elapsed) => return Err(DialFailure::ConnectTimedOut),
            Ok(connected) => connected.map_err(DialFailure::Connect)?,
        };
        socket::tune_link(&stream).map_err(DialFailure::Connect)?;
        let Some((connector, name)) = &self.tls else { return Ok(wire(stream, socket::limit_queue)) };
        let handshake = connector.connect(name.clone(), stream);
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
            Err(_elapsed) => Err(DialFailure::ConnectTimedOut),
            Ok(Err(error)) => Err(DialFailure::Tls(error)),
            Ok(Ok(stream)) => Ok(wire(stream, |stream, bytes| socket::limit_queue(stream.get_ref().0, bytes))),
        }
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(formatter, "{scheme}://{}", self.authority)
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Gateway({self})")
    }
}

/// A connected stream, with or without TLS.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connected stream and its pace.
pub type Wire = (Box<dyn Stream>, Arc<Pace>);

/// Makes a wire of a stream whose kernel queue `limit_queue` bounds.
pub fn wire<S: Stream + 'static>(stream: S, limit_queue: fn(&S, usize)) -> Wire {
    let (paced, pace) = Paced::new(stream, limit_queue);
    (Box::new(paced), pace)
}

fn connector(ca_file: Option<&Path>) -> Result<TlsConnector, TlsError> {
    let mut roots = RootCertStore::empty();
    // Systems without a store have none to add; the handshake then says that the issuer is unknown.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = ca_file {
        let path = file.display().to_string();
        let unreadable = |error| TlsError::Roots { path: path.clone(), error };
        for certificate in CertificateDer::pem_file_iter(file).map_err(unreadable)? {
            let certificate = certificate.map_err(unreadable)?;
            roots.add(certificate).map_err(|error| TlsError::Root { path: path.clone(), error })?;
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: Result<(&str, u16, bool), BadGateway>) {
        let parsed = Gateway::parse(url, None);
        match (parsed, expected) {
            (Ok(gateway), Ok((host, port, tls))) => {
                assert_eq!((gateway.host.as_str(), gateway.port, gateway.tls.is_some()), (host, port, tls));
            }
            (Err(GatewayError::Url(error)), Err(expected)) => assert_eq!(error, expected),
            (parsed, expected) => panic!("{url}: {parsed:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn gateway_urls_are_read_and_refused_by_name() {
        check("http://localhost:8081", Ok(("localhost", 8081, false)));
        check("https://gateway.example.com", Ok(("gateway.example.com", 443, true)));
        check("http://[::1]:8081", Ok(("::1", 8081, false)));
        check("gateway.example.com", Err(BadGateway::Url("gateway.example.com".into())));
        check("ftp://a", Err(BadGateway::Scheme("ftp".into())));
        check("http://a/path", Err(BadGateway::Path));
        check("http://user@a", Err(BadGateway::Path));
        check("", Err(BadGateway::Url(String::new())));
    }
}
