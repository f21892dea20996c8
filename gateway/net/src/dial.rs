//! Connects the command line to a gateway: from its public URL to a connection with one of its hosts.
//!
//! Every connection goes to the address of the public host, whichever host of the gateway it is for, so workspaces need
//! no DNS entry for that. The handshake and the request name the intended host, and its certificate is checked: the
//! gateway's listener has it, because browsers need it too.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Uri;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio_rustls::TlsConnector;
use tunnel_link::connect::{DialedStream, HANDSHAKE_TIMEOUT, tcp};
use tunnel_link::proxy::{self, BadProxy, Proxy, ProxyError};
use tunnel_link::socket;

use super::tls::certificates::facts_of;
use gateway_types::{PublicUrl, UnixSeconds};

/// Dials one gateway.
#[derive(Debug)]
pub struct Dialer {
    host: String,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    proxy: Option<(Proxy, Option<Arc<ClientConfig>>)>,
}

/// Failure to reach a gateway. The texts say which step failed.
#[derive(Debug, Error)]
pub enum DialError {
    /// The gateway does not accept connections at its address.
    #[error("{host}:{port} cannot be reached")]
    Connect {
        /// Host that was dialled.
        host: String,
        /// Its port.
        port: u16,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// TLS failed.
    #[error("the TLS handshake for {name} failed")]
    Tls {
        /// The host whose certificate was asked for.
        name: String,
        /// Error of the handshake.
        #[source]
        source: io::Error,
    },
    /// The host cannot be the name of a certificate.
    #[error("{0} is no name that a certificate can have")]
    Name(String),
    /// The proxy did not connect to the gateway.
    #[error("the proxy {proxy}")]
    Proxy {
        /// The proxy, without credentials.
        proxy: String,
        /// The proxy's failure.
        #[source]
        source: ProxyError,
    },
    /// A variable names no proxy.
    #[error(transparent)]
    BadProxy(#[from] BadProxy),
    /// The file of extra roots cannot be used.
    #[error("the certificates in {} cannot be used", path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// Error of reading or adding them.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The library refused its own defaults.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

/// A connection with facts of its handshake.
pub struct DialedConnection {
    /// The stream.
    pub stream: Box<dyn DialedStream>,
    /// The handshake settled on HTTP/2.
    pub is_http2: bool,
    /// End of the validity of the server's certificate; `None` without TLS.
    pub not_after: Option<UnixSeconds>,
}

impl fmt::Debug for DialedConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream: _, is_http2, not_after } = self;
        let mut shown = formatter.debug_struct("DialedConnection");
        shown.field("is_http2", is_http2).field("not_after", not_after).finish_non_exhaustive()
    }
}

impl Dialer {
    /// Creates a dialer for a gateway, through the proxy that `environment` has for it, if any. `ca_file` is trusted
    /// beside the system's authorities.
    ///
    /// # Errors
    /// [`DialError`] names the file or variable that cannot be used.
    pub fn new(
        gateway: &PublicUrl,
        ca_file: Option<&Path>,
        environment: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, DialError> {
        let is_https = gateway.scheme().as_str() == "https";
        let host = gateway.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let uri: Uri = gateway.to_string().parse().map_err(|_| DialError::Name(host.clone()))?;
        let proxy = proxy::choose(&uri, environment)?;
        let needs_tls = is_https || proxy.as_ref().is_some_and(Proxy::needs_tls);
        let config = if needs_tls { Some(client_config(ca_file)?) } else { None };
        let tls = config.clone().filter(|_| is_https);
        Ok(Self { host, port: gateway.port(), tls, proxy: proxy.map(|proxy| (proxy, config)) })
    }

    /// Connects for requests to `name`, a host of the gateway without a port.
    ///
    /// # Errors
    /// [`DialError`] says which step failed.
    ///
    /// Cancel safety: safe; a half-made connection is closed.
    pub async fn connect(&self, name: &str) -> Result<Box<dyn DialedStream>, DialError> {
        // A raw stream has a connection of its own; HTTP/2 would only put another layer around it.
        Ok(self.connect_offering(name, &[b"http/1.1"]).await?.stream)
    }

    /// Returns the proxy that leads to the gateway.
    #[must_use]
    pub fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref().map(|(proxy, _config)| proxy)
    }

    /// Connects as [`Dialer::connect`] does, and offers these protocols in the handshake (RFC 7301).
    ///
    /// # Errors
    /// [`DialError`] says which step failed.
    ///
    /// Cancel safety: safe; a half-made connection is closed.
    pub async fn connect_offering(&self, name: &str, alpn: &[&[u8]]) -> Result<DialedConnection, DialError> {
        let stream: Box<dyn DialedStream> = match &self.proxy {
            None => {
                // Not tuned as a link: a gateway may leave a stream unread for as long as its app does.
                let connected = tcp(&self.host, self.port, socket::tune).await;
                let unreached = |source| DialError::Connect { host: self.host.clone(), port: self.port, source };
                Box::new(connected.map_err(unreached)?)
            }
            Some((proxy, config)) => {
                let led = proxy.connect(&self.host, self.port, config.as_ref(), socket::tune).await;
                led.map_err(|source| DialError::Proxy { proxy: proxy.to_string(), source })?
            }
        };
        let Some(config) = &self.tls else { return Ok(DialedConnection { stream, is_http2: false, not_after: None }) };
        let server_name = ServerName::try_from(name.to_owned()).map_err(|_| DialError::Name(name.to_owned()))?;
        let mut config = ClientConfig::clone(config);
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let handshake = TlsConnector::from(Arc::new(config)).connect(server_name, stream);
        let done = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await;
        let done = done.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
        let stream = done.map_err(|source| DialError::Tls { name: name.to_owned(), source })?;
        let (_, session) = stream.get_ref();
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let leaf = session.peer_certificates().and_then(<[_]>::first);
        let not_after = leaf.and_then(facts_of).map(|facts| facts.not_after);
        Ok(DialedConnection { stream: Box::new(stream), is_http2, not_after })
    }
}

/// Returns the authorities of the system, and those of a file beside them.
pub(crate) fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, DialError> {
    let mut roots = RootCertStore::empty();
    // Systems without a store have none to add; the handshake then says that the issuer is unknown.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        let unusable = |source| DialError::Roots { path: path.to_owned(), source };
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unusable(error.into()))? {
            let certificate = certificate.map_err(|error| unusable(error.into()))?;
            roots.add(certificate).map_err(|error| unusable(error.into()))?;
        }
    }
    Ok(roots)
}

fn client_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, DialError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(DialError::Setup)?
        .with_root_certificates(roots(ca_file)?)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
