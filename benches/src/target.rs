//! Target of the load: an address to connect to, and the headers that a request needs to arrive at the app.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use gateway_types::Scheme;
use http::header::{HOST, HeaderValue};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Name of the header that carries the user's token, so that the app's own `authorization` survives.
pub const TOKEN_HEADER: &str = "gateway-authorization";

/// A connection to the target, with or without TLS.
pub trait LoadStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> LoadStream for S {}

/// Any connection to a target.
pub type BoxedStream = Box<dyn LoadStream>;

/// The client's half of TLS towards one name.
#[derive(Clone)]
pub struct TlsClient {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("TlsClient").field(&self.name).finish()
    }
}

impl TlsClient {
    /// Makes a client with the trust of `config`, for the certificate of `name`.
    ///
    /// # Errors
    /// `name` is neither a host name nor an address.
    pub fn new(config: Arc<rustls::ClientConfig>, name: &str) -> anyhow::Result<Self> {
        let name = ServerName::try_from(name.to_owned())?;
        Ok(Self { connector: TlsConnector::from(config), name })
    }

    /// Makes a client that trusts this machine's authorities, or only those in a file.
    ///
    /// # Errors
    /// The file cannot be read or has no certificate, or `name` is no name.
    pub fn trusting(authorities: Option<&Path>, name: &str) -> anyhow::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        if let Some(path) = authorities {
            let read = CertificateDer::pem_file_iter(path).with_context(|| format!("reading {}", path.display()))?;
            for certificate in read {
                roots.add(certificate.with_context(|| format!("reading {}", path.display()))?)?;
            }
            anyhow::ensure!(!roots.is_empty(), "{} has no certificate", path.display());
        } else {
            // Unreadable certificates are not trusted; if all are, the handshake says so.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self::new(Arc::new(config), name)
    }
}

/// Target of the load.
#[derive(Clone)]
pub struct LoadTarget {
    /// Host and port to connect to.
    pub address: String,
    /// TLS, if the target speaks it.
    pub tls: Option<TlsClient>,
    /// `Host` of requests: it names the workspace and the port.
    pub host: String,
    /// The user's token.
    pub token: Option<String>,
    /// Scheme of the `Origin` that requests carry.
    pub scheme: Scheme,
}

impl fmt::Debug for LoadTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut formatter = formatter.debug_struct("Target");
        formatter.field("address", &self.address).field("tls", &self.tls).field("host", &self.host);
        formatter.field("has_token", &self.token.is_some()).finish_non_exhaustive()
    }
}

impl LoadTarget {
    /// Makes a target without TLS and without a token: the app itself, or a peer that forwards by address.
    #[must_use]
    pub fn plain(address: SocketAddr, host: &str) -> Self {
        Self { address: address.to_string(), tls: None, host: host.to_owned(), token: None, scheme: Scheme::Http }
    }

    /// Connects, with TLS if the target speaks it.
    ///
    /// # Errors
    /// Those of the network, and refusals of TLS.
    ///
    /// # Cancel safety
    /// Dropping it drops the connection.
    pub async fn connect(&self) -> io::Result<BoxedStream> {
        let stream = match self.address.parse::<SocketAddr>() {
            Ok(address) => TcpStream::connect(address).await?,
            Err(_) => TcpStream::connect(&self.address).await?,
        };
        stream.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some(tls) => Ok(Box::new(tls.connector.connect(tls.name.clone(), stream).await?)),
        }
    }

    /// Begins a request with the headers that bring it to the app.
    #[must_use]
    pub fn request(&self, method: http::Method, path: &str) -> http::request::Builder {
        let builder = http::Request::builder().method(method).uri(path).header(HOST, &self.host);
        match self.token.as_deref().map(|token| HeaderValue::try_from(format!("Bearer {token}"))) {
            Some(Ok(mut value)) => {
                value.set_sensitive(true);
                builder.header(TOKEN_HEADER, value)
            }
            Some(Err(_)) | None => builder,
        }
    }

    /// Returns the `Origin` of the app's own pages.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("{}://{}", self.scheme.as_str(), self.host)
    }
}
