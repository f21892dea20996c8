//! TLS to apps on loopback ports: the agent speaks it, and the channel has what is inside.
//!
//! The app's certificate is not checked. It comes from a process of this same machine, over an interface that no other machine is
//! on; which process may take the port is decided by the machine, and a certificate for `localhost` has no issuer that anything could
//! know. A check would only tell people to make certificates that prove nothing.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tracing::debug;
use tunnel_proto::reason::Reason;
use tunnel_proto::target::AppTls;

/// Longest handshake. A server that expects another protocol may wait for ever for the rest of what it takes for a request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);

/// Name that the app is asked for (SNI, RFC 6066, section 3): certificates of dev servers are for it. The host that users ask for is in
/// the request.
const NAME: &str = "localhost";

/// One configuration for each protocol inside; they share what the apps' servers gave out to be resumed.
static CLIENTS: LazyLock<Option<Clients>> = LazyLock::new(Clients::new);

#[derive(Debug)]
struct Clients {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl Clients {
    fn new() -> Option<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().ok()?;
        let mut http1 = config
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        let mut http2 = http1.clone();
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        http2.alpn_protocols = vec![b"h2".to_vec()];
        Some(Self { http1: Arc::new(http1), http2: Arc::new(http2) })
    }
}

/// Makes TLS of a connection to an app.
///
/// # Errors
/// [`Reason::AppTls`] if the app does not speak it, or not with the protocol inside that is asked for.
///
/// Cancel safety: safe; the connection is closed.
pub(crate) async fn connect(stream: TcpStream, tls: AppTls) -> Result<Box<TlsStream<TcpStream>>, Reason> {
    let clients = CLIENTS.as_ref().ok_or(Reason::AppTls)?;
    let config = match tls {
        AppTls::None | AppTls::Http1 => &clients.http1,
        AppTls::Http2 => &clients.http2,
    };
    let name = ServerName::try_from(NAME).map_err(|_| Reason::AppTls)?;
    let handshake = TlsConnector::from(config.clone()).connect(name, stream);
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => Ok(Box::new(stream)),
        Ok(Err(error)) => {
            debug!(%error, "the app did not speak TLS");
            Err(Reason::AppTls)
        }
        Err(_elapsed) => Err(Reason::AppTls),
    }
}

/// Takes every certificate, and checks that the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn app_that_speaks_no_tls_is_told_apart_from_one_that_is_not_there() {
        let app = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = app.local_addr().expect("bound");
        let plain = async {
            let (mut stream, _) = app.accept().await.expect("a connection");
            let mut hello = [0; 5];
            stream.read_exact(&mut hello).await.expect("the beginning of a ClientHello");
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await.expect("written");
        };
        let client = async {
            let stream = TcpStream::connect(address).await.expect("connected");
            connect(stream, AppTls::Http1).await.map(drop)
        };
        let ((), connected) = tokio::join!(plain, client);
        assert_eq!(connected, Err(Reason::AppTls));
    }
}
