//! Certificate authorities trusted for the servers that the gateway asks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;

/// Certificate authorities trusted for the servers that the gateway asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those of the system.
    System,
    /// Those of the system, and those of a PEM file.
    SystemAnd(PathBuf),
    /// Those of a PEM file and no other.
    Only(PathBuf),
}

/// Failure to create a [`Fetch`](super::Fetch).
#[derive(Debug, Error)]
pub enum FetchSetupError {
    /// The file of authorities is not readable PEM.
    #[error("{path} cannot be read as PEM: {error}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// Error of the PEM parser.
        error: rustls::pki_types::pem::Error,
    },
    /// The file of authorities has none that can be used.
    #[error("{path} holds no certificate of an authority")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The client cannot be set up.
    #[error("the HTTP client cannot be set up: {0}")]
    Client(String),
}

/// Creates the TLS settings.
pub(super) fn tls(trust: &Trust) -> Result<ClientConfig, FetchSetupError> {
    let mut roots = RootCertStore::empty();
    let (system, file) = match trust {
        Trust::System => (true, None),
        Trust::SystemAnd(path) => (true, Some(path)),
        Trust::Only(path) => (false, Some(path)),
    };
    if system {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if let Some(path) = file {
        add_file(&mut roots, path)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), FetchSetupError> {
    let bad = |error| FetchSetupError::Pem { path: path.to_owned(), error };
    let certificates: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(bad)?.collect::<Result<_, _>>().map_err(bad)?;
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(FetchSetupError::Empty { path: path.to_owned() });
    }
    Ok(())
}
