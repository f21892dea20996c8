//! Credentials of an agent. All are read anew for each dial, because other programs renew them while the agent runs: a
//! kubelet its tokens, a certificate manager its certificates.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use thiserror::Error;

use super::DialEnded;
use crate::TokenSource;

/// Longest file that is taken for a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 * 1024;

/// Reads the token, if there is one to be read.
pub(crate) async fn read_token(source: &TokenSource) -> Result<Option<String>, DialEnded> {
    match source {
        TokenSource::None => Ok(None),
        TokenSource::Value(token) => Ok(Some(token.as_ref().to_owned())),
        TokenSource::File(path) => {
            let unusable = |error| DialEnded::Token { path: path.display().to_string(), error };
            let metadata = tokio::fs::metadata(path).await.map_err(unusable)?;
            if metadata.len() > TOKEN_BYTES_MAX {
                return Err(unusable(io::Error::other("it is too long for a token")));
            }
            let text = tokio::fs::read_to_string(path).await.map_err(unusable)?;
            let token = text.trim();
            if token.is_empty() {
                return Err(unusable(io::Error::other("it is empty")));
            }
            Ok(Some(token.to_owned()))
        }
    }
}

/// PEM files of a client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificate chain, leaf first.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A client certificate cannot be used.
#[derive(Debug, Error)]
pub enum BadClientFiles {
    /// A file cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// The file.
        path: String,
        /// Cause.
        #[source]
        error: io::Error,
    },
    /// A file is not PEM of what it should hold.
    #[error("{path} does not hold what it should in PEM")]
    Pem {
        /// The file.
        path: String,
        /// Cause.
        #[source]
        error: pem::Error,
    },
    /// Certificate and key are no pair.
    #[error("the client certificate {path} and its key cannot be used together")]
    Pair {
        /// The certificate's file.
        path: String,
        /// Cause.
        #[source]
        error: rustls::Error,
    },
}

impl ClientFiles {
    /// Reads both files.
    ///
    /// # Errors
    /// [`BadClientFiles`] names the file. The error may pass, if the files are just being replaced.
    pub async fn load(&self) -> Result<ClientKey, BadClientFiles> {
        let read = async |path: &PathBuf| {
            let shown = path.display().to_string();
            let bytes = tokio::fs::read(path).await;
            bytes.map_err(|error| BadClientFiles::Read { path: shown.clone(), error }).map(|bytes| (bytes, shown))
        };
        let (cert, cert_path) = read(&self.cert).await?;
        let (key, key_path) = read(&self.key).await?;
        let chain = CertificateDer::pem_slice_iter(&cert).collect::<Result<Vec<_>, _>>();
        let chain = chain.and_then(|chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) });
        let chain = chain.map_err(|error| BadClientFiles::Pem { path: cert_path.clone(), error })?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| BadClientFiles::Pem { path: key_path, error })?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let certified = CertifiedKey::from_der(chain, key, &provider)
            .map_err(|error| BadClientFiles::Pair { path: cert_path, error })?;
        Ok(ClientKey(Arc::new(SingleCertAndKey::from(certified))))
    }
}

/// A client certificate that was read.
#[derive(Debug)]
pub struct ClientKey(Arc<dyn ResolvesClientCert>);

impl ClientKey {
    /// Shows the certificate in the handshakes of a configuration. TLS sessions are not resumed: the gateway would see
    /// the certificate of the earlier handshake.
    pub(super) fn show_in(self, config: &mut ClientConfig) {
        config.client_auth_cert_resolver = self.0;
        config.resumption = Resumption::disabled();
    }
}
