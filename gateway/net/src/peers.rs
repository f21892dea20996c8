//! Mutual TLS between the replicas of one gateway. A certificate proves a role: it is signed by the authority of
//! `tls.peers.ca`, and its one URI is `spiffe://ZONE/replica`. Names of hosts do not count, because replicas are dialed by
//! address.

mod issue;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use gateway_config::PeersConfig;
use gateway_types::{UnixSeconds, Zone};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use tokio_util::sync::CancellationToken;

use crate::certificate::Certificate;
use crate::tls::certificates::read_chain;
use crate::tls::{Stamp, TlsError, stamp_of, watch_files};

pub use self::issue::{IssueError, IssuedCertificate, issue};

/// Time limit of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The protocol of a connection between replicas.
const ALPN: &[u8] = b"h2";

/// Name that a caller asks for: TLS wants one, and no certificate is checked for it.
const NAME: &str = "replica.invalid";

/// Reason why the other end of a connection is not taken for a replica.
#[derive(Debug, Error)]
pub enum PeerRefused {
    /// It showed no certificate.
    #[error("it showed no certificate")]
    NoCertificate,
    /// Its certificate is signed by another authority.
    #[error("its certificate is not signed by an authority of tls.peers.ca")]
    Authority,
    /// Its certificate is not valid now.
    #[error("its certificate has expired, or is not valid yet")]
    Expired,
    /// Its certificate is for another role.
    #[error("its certificate is not a replica's: its one URI has to be {wanted}")]
    Role {
        /// The URI of a replica.
        wanted: Arc<str>,
    },
    /// TLS failed otherwise, or the other end refused.
    #[error("the TLS handshake failed: {0}")]
    Handshake(std::io::Error),
    /// The handshake took too long.
    #[error("the TLS handshake took too long")]
    Timeout,
}

impl PeerRefused {
    /// Returns the stable code for logs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoCertificate => "no_certificate",
            Self::Authority => "authority",
            Self::Expired => "expired",
            Self::Role { .. } => "role",
            Self::Handshake(_) => "handshake",
            Self::Timeout => "timeout",
        }
    }
}

/// TLS of one replica towards the others, always by the latest good files.
#[derive(Debug)]
pub struct PeerTls {
    files: PeersConfig,
    current: ArcSwap<Settings>,
    /// State of the files when they were read first.
    loaded: Stamp,
    /// URI of a replica's certificate.
    uri: Arc<str>,
}

#[derive(Debug)]
struct Settings {
    acceptor: Arc<ServerConfig>,
    connector: Arc<ClientConfig>,
    /// End of validity of the certificate, and of those that came with it.
    not_after: UnixSeconds,
}

impl PeerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what is wrong with it.
    pub fn load(files: &PeersConfig, zone: &Zone) -> Result<Self, TlsError> {
        let uri = replica_uri(zone).into();
        // Before the files are read, so that later changes are seen.
        let loaded = stamp(files);
        let current = ArcSwap::from_pointee(Settings::read(files, &uri)?);
        Ok(Self { files: files.clone(), current, loaded, uri })
    }

    /// Returns the end of validity of this replica's certificate.
    #[must_use]
    pub fn not_after(&self) -> UnixSeconds {
        self.current.load().not_after
    }

    /// Checks the files regularly and takes over changes, until `stop`. Connections keep what they began with.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let reload = || {
            self.current.store(Arc::new(Settings::read(&self.files, &self.uri)?));
            Ok(())
        };
        watch_files(self.loaded.clone(), || stamp(&self.files), reload, &self.files.cert, stop).await;
    }

    /// Shakes hands with a caller.
    ///
    /// # Errors
    /// [`PeerRefused`], whose code says what was wrong.
    ///
    /// # Cancel safety
    /// Dropped, it closes the connection.
    pub async fn accept(&self, stream: TcpStream) -> Result<server::TlsStream<TcpStream>, PeerRefused> {
        let handshake = TlsAcceptor::from(self.current.load().acceptor.clone()).accept(stream);
        let stream = in_time(handshake).await?;
        self.check(stream.get_ref().1.peer_certificates())?;
        Ok(stream)
    }

    /// Shakes hands with a replica that was dialed.
    ///
    /// # Errors
    /// [`PeerRefused`], whose code says what was wrong.
    ///
    /// # Cancel safety
    /// Dropped, it closes the connection.
    pub async fn connect(&self, stream: TcpStream) -> Result<client::TlsStream<TcpStream>, PeerRefused> {
        let name = ServerName::try_from(NAME).map_err(|error| PeerRefused::Handshake(std::io::Error::other(error)))?;
        let handshake = TlsConnector::from(self.current.load().connector.clone()).connect(name, stream);
        let stream = in_time(handshake).await?;
        self.check(stream.get_ref().1.peer_certificates())?;
        Ok(stream)
    }

    /// Checks the role of a verified certificate.
    fn check(&self, chain: Option<&[CertificateDer<'_>]>) -> Result<(), PeerRefused> {
        let leaf = chain.and_then(<[_]>::first).ok_or(PeerRefused::NoCertificate)?;
        if is_replica(leaf, &self.uri) { Ok(()) } else { Err(PeerRefused::Role { wanted: self.uri.clone() }) }
    }
}

impl Settings {
    /// Reads the files. The others would refuse every connection of a certificate for another role than `uri` says.
    fn read(files: &PeersConfig, uri: &Arc<str>) -> Result<Self, TlsError> {
        let chain = read_chain(&files.cert)?;
        if !chain.first().is_some_and(|leaf| is_replica(leaf, uri)) {
            return Err(TlsError::Role { path: files.cert.clone(), wanted: uri.clone() });
        }
        Self::with_chain(files, chain)
    }

    /// Reads key and authorities of a certificate's chain.
    fn with_chain(files: &PeersConfig, chain: Vec<CertificateDer<'static>>) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let pair = |error| TlsError::Pair { path: files.cert.clone(), error };
        let read_key = || {
            PrivateKeyDer::from_pem_file(&files.key).map_err(|error| TlsError::Pem { path: files.key.clone(), error })
        };
        let roots = Arc::new(roots(&files.ca)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| TlsError::ClientCa { path: files.ca.clone(), error })?;
        let versions = &[&rustls::version::TLS13];
        let not_after = Certificate::of_chain(&chain).ok().flatten().map_or(UnixSeconds::new(0), |read| read.not_after);
        let mut acceptor = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(pair)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), read_key()?)
            .map_err(pair)?;
        acceptor.alpn_protocols = vec![ALPN.to_vec()];
        let mut connector = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(pair)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(SignedByAuthority { roots, provider }))
            .with_client_auth_cert(chain, read_key()?)
            .map_err(pair)?;
        connector.alpn_protocols = vec![ALPN.to_vec()];
        // A resumed handshake would show the certificate of an earlier one.
        connector.resumption = rustls::client::Resumption::disabled();
        acceptor.send_tls13_tickets = 0;
        Ok(Self { acceptor: Arc::new(acceptor), connector: Arc::new(connector), not_after })
    }
}

/// Returns the one URI of a replica's certificate.
fn replica_uri(zone: &Zone) -> String {
    format!("spiffe://{zone}/replica")
}

fn is_replica(leaf: &CertificateDer<'_>, uri: &str) -> bool {
    Certificate::read(leaf).is_ok_and(|leaf| matches!(&leaf.uris[..], [one] if **one == *uri))
}

fn stamp(files: &PeersConfig) -> Stamp {
    stamp_of([&files.cert, &files.key, &files.ca].map(Clone::clone))
}

/// Reads the authorities. A root is trusted whatever it says of itself, so each has to be one.
fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let authorities = read_chain(path)?;
    if !authorities.iter().all(|one| Certificate::read(one).is_ok_and(|one| one.is_authority)) {
        return Err(TlsError::NotAuthority { path: path.to_owned() });
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities);
    Ok(roots)
}

/// Waits for a handshake.
async fn in_time<S>(handshake: impl Future<Output = std::io::Result<S>>) -> Result<S, PeerRefused> {
    timeout(HANDSHAKE_TIMEOUT, handshake).await.map_err(|_elapsed| PeerRefused::Timeout)?.map_err(refused)
}

/// Names the reason of a failed handshake.
fn refused(error: std::io::Error) -> PeerRefused {
    match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::NoCertificatesPresented) => PeerRefused::NoCertificate,
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            PeerRefused::Authority
        }
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        )) => PeerRefused::Expired,
        Some(_) | None => PeerRefused::Handshake(error),
    }
}

/// Verifies a dialed replica's chain, and no name.
#[derive(Debug)]
struct SignedByAuthority {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for SignedByAuthority {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let leaf = ParsedCertificate::try_from(leaf)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&leaf, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
