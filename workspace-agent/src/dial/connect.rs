//! Connects to the URL of a gateway: resolves, connects, through a proxy if there is one, adds TLS.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use http::uri::{Authority, Scheme, Uri};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tunnel_link::causes;
use tunnel_link::connect::{DialedStream, HANDSHAKE_TIMEOUT, tcp};
use tunnel_link::pace::{LimitQueue, Pace, PacedStream};
use tunnel_link::proxy::{self, BadProxy, Proxy, ProxyError};
use tunnel_link::socket;

use super::DialFailure;
use super::credential::ClientFiles;
use super::decide::with_sources;

/// A gateway's listener for agents.
#[derive(Clone)]
pub struct Gateway {
    authority: Authority,
    host: String,
    port: u16,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    client: Option<ClientFiles>,
    proxy: Option<(Proxy, Option<Arc<ClientConfig>>)>,
}

/// Versions of HTTP that a TLS handshake offers (RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// HTTP/2 only.
    Http2,
    /// HTTP/1.1 only.
    Http1,
    /// Both, HTTP/2 first.
    Either,
}

/// A connection to a gateway.
pub struct GatewayConnection {
    pub(super) stream: Box<dyn DialedStream>,
    pub(super) pace: Arc<Pace>,
    /// The handshake settled on HTTP/1.1.
    pub(super) is_http1: bool,
}

impl GatewayConnection {
    /// Wraps a stream whose kernel queue `limit_queue` bounds, if it has one that can be bounded.
    pub fn new<S: DialedStream + 'static>(stream: S, limit_queue: LimitQueue<S>) -> Self {
        let (stream, pace) = PacedStream::new(stream, limit_queue);
        Self { stream: Box::new(stream), pace, is_http1: false }
    }

    /// Returns whether the handshake settled on HTTP/1.1.
    #[must_use]
    pub fn is_http1(&self) -> bool {
        self.is_http1
    }

    /// Returns the stream.
    #[must_use]
    pub fn into_stream(self) -> Box<dyn DialedStream> {
        self.stream
    }
}

impl fmt::Debug for GatewayConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connected").field("is_http1", &self.is_http1).finish_non_exhaustive()
    }
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
    /// A client certificate for a gateway without TLS.
    #[error("a client certificate is shown in TLS only: the URL has to begin with https://")]
    Certificate,
}

/// TLS could not be set up.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The file of extra roots is not readable PEM.
    #[error("the certificates in {path} cannot be read")]
    Roots {
        /// The file.
        path: String,
        /// Cause.
        #[source]
        error: rustls::pki_types::pem::Error,
    },
    /// A certificate is not usable as a root.
    #[error("a certificate in {path} cannot be used as a root")]
    Root {
        /// The file.
        path: String,
        /// Cause.
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

/// Any of the errors of making a [`Gateway`].
#[derive(Debug, Error)]
pub enum GatewayError {
    /// The URL.
    #[error(transparent)]
    Url(#[from] BadGateway),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The proxy.
    #[error(transparent)]
    Proxy(#[from] BadProxy),
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
            Some((client_config(ca_file)?, name))
        } else {
            None
        };
        Ok(Self { authority, host, port, tls, client: None, proxy: None })
    }

    /// Shows a client certificate to the gateway, read anew for each connection. Proxies are not shown it.
    ///
    /// # Errors
    /// [`BadGateway::Certificate`] for a gateway without TLS.
    pub fn showing(mut self, client: ClientFiles) -> Result<Self, GatewayError> {
        if self.tls.is_none() {
            return Err(BadGateway::Certificate.into());
        }
        self.client = Some(client);
        Ok(self)
    }

    /// Goes through the proxy that an environment has for this gateway, if any (see [`proxy::choose`]). `ca_file` is
    /// trusted for a proxy over TLS too.
    ///
    /// # Errors
    /// [`GatewayError`] names the variable.
    pub fn behind(
        mut self,
        environment: impl Fn(&'static str) -> Option<String>,
        ca_file: Option<&Path>,
    ) -> Result<Self, GatewayError> {
        let uri = self.to_string().parse().map_err(|_| BadGateway::Url(self.to_string()))?;
        let Some(proxy) = proxy::choose(&uri, environment)? else { return Ok(self) };
        let config = match &self.tls {
            Some((config, _name)) => Some(config.clone()),
            None if proxy.needs_tls() => Some(client_config(ca_file)?),
            None => None,
        };
        self.proxy = Some((proxy, config));
        Ok(self)
    }

    /// Returns the proxy that leads to it.
    #[must_use]
    pub fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref().map(|(proxy, _config)| proxy)
    }

    /// Returns the host, an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns whether the URL is one of TLS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns whether it is shown a client certificate.
    #[must_use]
    pub fn shows_certificate(&self) -> bool {
        self.client.is_some()
    }

    /// Goes through the proxy and no further; `None` if there is none.
    ///
    /// # Errors
    /// [`ProxyError`] says which step failed, and what can be done.
    ///
    /// Cancel safety: safe; a half-made connection is closed.
    pub async fn try_proxy(&self) -> Option<Result<(), ProxyError>> {
        let (proxy, config) = self.proxy.as_ref()?;
        let led = proxy.connect(&self.host, self.port, config.as_ref(), socket::tune_link).await;
        Some(led.map(drop))
    }

    /// Returns whether a gateway without TLS in its URL speaks it all the same, whatever its certificate.
    ///
    /// Cancel safety: safe.
    pub async fn speaks_tls(&self) -> bool {
        let https = format!("https://{}:{}", self.authority.host(), self.port);
        let Ok(other) = Self::parse(&https, None) else { return false };
        if self.is_https() {
            return false;
        }
        match (Self { proxy: self.proxy.clone(), ..other }).connect(Offer::Either).await {
            Ok(_) => true,
            Err(DialFailure::Tls(error)) => {
                matches!(causes::tls_error(&error), Some(rustls::Error::InvalidCertificate(_)))
            }
            Err(_) => false,
        }
    }

    /// Returns the request's `:authority` and `:scheme`.
    #[must_use]
    pub fn origin(&self) -> (Authority, Scheme) {
        let scheme = if self.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        (self.authority.clone(), scheme)
    }

    /// Connects to the gateway.
    ///
    /// # Errors
    /// [`DialFailure`] names the step that failed.
    ///
    /// Cancel safety: safe; a half-made connection is closed.
    pub async fn connect(&self, offer: Offer) -> Result<GatewayConnection, DialFailure> {
        let Some((proxy, config)) = &self.proxy else {
            let stream = tcp(&self.host, self.port, socket::tune_link).await.map_err(|error| {
                let is_late = error.kind() == io::ErrorKind::TimedOut;
                if is_late { DialFailure::ConnectTimedOut } else { DialFailure::Connect(error) }
            })?;
            return self.secured(stream, offer).await;
        };
        let connected = proxy.connect(&self.host, self.port, config.as_ref(), socket::tune_link).await;
        let stream =
            connected.map_err(|error| DialFailure::Proxy { proxy: proxy.to_string(), cause: with_sources(&error) })?;
        self.secured(stream, offer).await
    }

    /// Performs the TLS handshake if the gateway has TLS.
    async fn secured<S: DialedStream + BoundedSendQueue + 'static>(
        &self,
        stream: S,
        offer: Offer,
    ) -> Result<GatewayConnection, DialFailure> {
        let Some((config, name)) = &self.tls else {
            return Ok(GatewayConnection::new(stream, BoundedSendQueue::limit));
        };
        let mut config = ClientConfig::clone(config);
        if let Some(client) = &self.client {
            client.load().await.map_err(DialFailure::Certificate)?.show_in(&mut config);
        }
        secure(stream, config, name, offer).await
    }
}

async fn secure<S: DialedStream + BoundedSendQueue + 'static>(
    stream: S,
    mut config: ClientConfig,
    name: &ServerName<'static>,
    offer: Offer,
) -> Result<GatewayConnection, DialFailure> {
    let offered: &[&[u8]] = match offer {
        Offer::Http2 => &[b"h2"],
        Offer::Http1 => &[b"http/1.1"],
        Offer::Either => &[b"h2", b"http/1.1"],
    };
    config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
    let handshake = TlsConnector::from(Arc::new(config)).connect(name.clone(), stream);
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Err(_elapsed) => Err(DialFailure::ConnectTimedOut),
        Ok(Err(error)) => Err(DialFailure::Tls(error)),
        Ok(Ok(stream)) => {
            let is_http1 = stream.get_ref().1.alpn_protocol() == Some(b"http/1.1");
            let (stream, pace) = PacedStream::new(stream, |stream, bytes| stream.get_ref().0.limit(bytes));
            Ok(GatewayConnection { stream: Box::new(stream), pace, is_http1 })
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

/// A stream whose queue of unsent bytes in the kernel may have a bound.
trait BoundedSendQueue {
    fn limit(&self, bytes: usize) -> Option<usize>;
}

impl BoundedSendQueue for TcpStream {
    fn limit(&self, bytes: usize) -> Option<usize> {
        socket::limit_queue(self, bytes)
    }
}

/// A stream through a proxy keeps the bound that every link begins with.
impl BoundedSendQueue for Box<dyn DialedStream> {
    fn limit(&self, _bytes: usize) -> Option<usize> {
        None
    }
}

fn client_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, TlsError> {
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
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
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
