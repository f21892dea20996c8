//! Judges the certificates of files as a client would: by the chain to its authorities, and by the name.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use thiserror::Error;

use super::dial::{DialError, roots};
use super::tls::TlsError;
use super::tls::certificates::{facts_of, read_chain};
use gateway_types::UnixSeconds;

/// Authorities that a client trusts.
pub struct ClientTrust(Arc<WebPkiServerVerifier>);

impl std::fmt::Debug for ClientTrust {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ClientTrust").finish_non_exhaustive()
    }
}

/// Failure to set up the authorities.
#[derive(Debug, Error)]
pub enum NoTrust {
    /// The file of authorities cannot be used.
    #[error(transparent)]
    File(#[from] DialError),
    /// The system has none, and no file names one.
    #[error("this machine has no authorities to compare with")]
    Empty,
}

impl ClientTrust {
    /// Trusts the authorities of the system, and those of a file beside them.
    ///
    /// # Errors
    /// [`NoTrust`].
    pub fn new(ca_file: Option<&Path>) -> Result<Self, NoTrust> {
        let roots = Arc::new(roots(ca_file)?);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        verifier.map(Self).map_err(|_| NoTrust::Empty)
    }

    /// Checks a chain for a name at a time, as a client does in a handshake.
    ///
    /// # Errors
    /// Error of the verifier.
    pub fn check(&self, chain: &CertificateChain, name: &str, now: UnixSeconds) -> Result<(), rustls::Error> {
        let unnamed = || rustls::Error::General(format!("{name} is no name that a certificate can have"));
        let name = ServerName::try_from(name.to_owned()).map_err(|_| unnamed())?;
        let Some((leaf, above)) = chain.0.split_first() else { return Err(rustls::Error::NoCertificatesPresented) };
        let since = Duration::from_secs(u64::try_from(now.get()).unwrap_or_default());
        self.0.verify_server_cert(leaf, above, &name, &[], UnixTime::since_unix_epoch(since)).map(drop)
    }
}

/// Certificates of a file, the server's own first.
#[derive(Debug)]
pub struct CertificateChain(Vec<CertificateDer<'static>>);

impl CertificateChain {
    /// Reads a file.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn read(path: &Path) -> Result<Self, TlsError> {
        read_chain(path).map(Self)
    }

    /// Returns the first moment at which one of them is not valid any more.
    #[must_use]
    pub fn not_after(&self) -> Option<UnixSeconds> {
        self.0.iter().filter_map(facts_of).map(|facts| facts.not_after).min()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::CertificateError;

    use super::*;

    fn authority(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params
    }

    #[test]
    fn chain_is_judged_as_a_client_does() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let root = CertifiedIssuer::self_signed(authority("root"), KeyPair::generate().unwrap()).unwrap();
        let middle = CertifiedIssuer::signed_by(authority("middle"), KeyPair::generate().unwrap(), &root).unwrap();
        let mut params = CertificateParams::new(["gw.example".to_owned(), "*.ws.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 4, 1);
        let leaf = params.signed_by(&KeyPair::generate().unwrap(), &middle).unwrap().pem();
        let roots = write("root.pem", &root.pem());
        let whole = CertificateChain::read(&write("whole.pem", &format!("{leaf}{}", middle.pem()))).unwrap();
        let short = CertificateChain::read(&write("short.pem", &leaf)).unwrap();
        let trust = ClientTrust::new(Some(&roots)).unwrap();
        let (within, after) = (UnixSeconds::new(1_769_000_000), UnixSeconds::new(1_780_000_000));
        assert_eq!(whole.not_after().map(UnixSeconds::get), Some(1_775_001_600));
        trust.check(&whole, "gw.example", within).unwrap();
        trust.check(&whole, "3000-app.ws.example", within).unwrap();
        let wrong = |chain: &CertificateChain, name: &str, now| match trust.check(chain, name, now) {
            Err(rustls::Error::InvalidCertificate(wrong)) => wrong,
            other => panic!("{other:?}"),
        };
        assert!(matches!(wrong(&short, "gw.example", within), CertificateError::UnknownIssuer));
        assert!(matches!(
            wrong(&whole, "elsewhere.example", within),
            CertificateError::NotValidForNameContext { .. } | CertificateError::NotValidForName
        ));
        assert!(matches!(
            wrong(&whole, "gw.example", after),
            CertificateError::ExpiredContext { .. } | CertificateError::Expired
        ));
    }
}
