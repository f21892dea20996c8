//! Connects the command line to a gateway: from its public URL to a connection with one of its hosts.
//!
//! Every connection goes to the address of the public host, whichever host of the gateway it is for, so workspaces need
//! no DNS entry for that. The handshake and the request name the intended host, and its certificate is checked: the
//! gateway's listener has it, because browsers need it too.

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

use gateway_types::PublicUrl;

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
        let Some(config) = &self.tls else { return Ok(stream) };
        let server_name = ServerName::try_from(name.to_owned()).map_err(|_| DialError::Name(name.to_owned()))?;
        let handshake = TlsConnector::from(config.clone()).connect(server_name, stream);
        let done = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await;
        let done = done.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
        Ok(Box::new(done.map_err(|source| DialError::Tls { name: name.to_owned(), source })?))
    }
}

fn client_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, DialError> {
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
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(DialError::Setup)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // A raw stream has a connection of its own; HTTP/2 would only put another layer around it.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
