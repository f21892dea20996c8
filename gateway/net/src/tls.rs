//! TLS settings from files, reloaded when they change. A broken new file never replaces a working old one.

pub(crate) mod certificates;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::certificates::CertificateFacts;
use self::certificates::{Certificates, files_in, read_chain};
use super::certificate::Certificate;
use gateway_config::{ClientCa, TlsFiles};
use gateway_types::UnixSeconds;

/// Interval between checks of the files. A `stat` call for each.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Protocols offered to users, best first.
pub const ALPN_USERS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Protocols offered to agents: HTTP/1.1 for those that HTTP/2 does not reach.
pub const ALPN_AGENTS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Failure to use the files. The text names the file.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file is not readable PEM of the kind it should hold.
    #[error("{path} cannot be read as PEM: {error}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// Error of the PEM parser.
        error: rustls::pki_types::pem::Error,
    },
    /// A certificate file holds none.
    #[error("{path} holds no certificate")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The key does not fit the certificate, or neither is usable.
    #[error("{path} and its key cannot be used together: {error}")]
    Pair {
        /// The certificate file.
        path: PathBuf,
        /// Error of TLS.
        error: rustls::Error,
    },
    /// Names or validity of a certificate cannot be read.
    #[error("{path} holds something that is no X.509 certificate")]
    Facts {
        /// The certificate file.
        path: PathBuf,
    },
    /// Two certificates are for the same name, so the choice is ambiguous.
    #[error("{path} and {other} are both for {name}")]
    Twice {
        /// The name, without `*.`.
        name: String,
        /// The one file.
        path: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// The folder of certificates cannot be read.
    #[error("the folder {path} cannot be read: {source}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The folder holds more certificates than any installation needs.
    #[error("the folder {path} holds more than {most} certificates")]
    TooMany {
        /// The folder.
        path: PathBuf,
        /// Largest number allowed.
        most: usize,
    },
    /// The certificates of `client_ca` cannot be used as roots.
    #[error("{path} cannot be used to check client certificates: {error}")]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// Error of the verifier.
        error: VerifierBuilderError,
    },
    /// A certificate of an authority's file is not an authority's.
    #[error(
        "{path} holds a certificate that is not an authority's (basicConstraints without cA): put the certificate there \
         that signs the others, not one of these"
    )]
    NotAuthority {
        /// The file.
        path: PathBuf,
    },
    /// The certificate of a replica is not for that role, so the others would refuse it.
    #[error("{path} is not a replica's certificate: its one URI has to be {wanted}")]
    Role {
        /// The file.
        path: PathBuf,
        /// URI of a replica's certificate.
        wanted: Arc<str>,
    },
}

/// TLS settings of a listener, always the latest good ones.
#[derive(Debug)]
pub struct Tls {
    files: ArcSwap<TlsFiles>,
    alpn: &'static [&'static [u8]],
    current: ArcSwap<Settings>,
    /// State of the files when they were read first.
    loaded: Stamp,
}

/// Each file with the time of its last change.
pub(crate) type Stamp = Vec<(PathBuf, Option<SystemTime>)>;

/// Files that were read, and are good.
#[derive(Debug)]
pub struct NewTls {
    files: TlsFiles,
    settings: Settings,
}

#[derive(Debug)]
struct Settings {
    config: Arc<ServerConfig>,
    not_after: UnixSeconds,
    certificates: Vec<CertificateFacts>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what is wrong with it.
    pub fn load(files: TlsFiles, alpn: &'static [&'static [u8]]) -> Result<Arc<Self>, TlsError> {
        // Before the files are read, so that later changes are seen.
        let loaded = stamp(&files);
        let current = ArcSwap::from_pointee(settings(&files, alpn)?);
        Ok(Arc::new(Self { files: ArcSwap::from_pointee(files), alpn, current, loaded }))
    }

    /// Returns the current settings. Connections keep those that they began with.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        self.current.load().config.clone()
    }

    /// Returns the end of validity of the certificate that expires first.
    #[must_use]
    pub fn not_after(&self) -> UnixSeconds {
        self.current.load().not_after
    }

    /// Returns the certificates that are in use, with their names.
    #[must_use]
    pub fn certificates(&self) -> Vec<CertificateFacts> {
        self.current.load().certificates.clone()
    }

    /// Checks the files regularly and takes over changes, until `stop`.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let reload = || {
            self.current.store(Arc::new(settings(&self.files.load(), self.alpn)?));
            Ok(())
        };
        let cert = self.files.load().cert.clone();
        watch_files(self.loaded.clone(), || stamp(&self.files.load()), reload, &cert, stop).await;
    }

    /// Reads files, perhaps others than before, without taking them over.
    ///
    /// # Errors
    /// As [`Tls::load`].
    pub fn prepare(&self, files: &TlsFiles) -> Result<NewTls, TlsError> {
        Ok(NewTls { files: files.clone(), settings: settings(files, self.alpn)? })
    }

    /// Takes over files that were read. Connections keep the settings that they began with.
    pub fn take_over(&self, new: NewTls) {
        self.files.store(Arc::new(new.files));
        self.current.store(Arc::new(new.settings));
    }
}

/// Checks files regularly, and calls `reload` when one of them has changed, until `stop`. `cert` names them in the log.
pub(crate) async fn watch_files(
    mut seen: Stamp,
    stamp: impl Fn() -> Stamp,
    reload: impl Fn() -> Result<(), TlsError>,
    cert: &Path,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
        let stamp = stamp();
        if stamp == seen {
            continue;
        }
        match reload() {
            Ok(()) => info!(cert = %cert.display(), "certificates reloaded"),
            // Certificate and key may be replaced one after the other; the next check finds both.
            Err(error) => warn!(%error, "changed certificates cannot be used, keeping the old ones"),
        }
        seen = stamp;
    }
}

/// Returns a function that tells whether a listener's certificates are for a host.
///
/// # Errors
/// As [`Tls::load`].
pub fn covered(files: &TlsFiles) -> Result<impl Fn(&str) -> bool, TlsError> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let certificates = Certificates::read(files, &provider)?;
    Ok(move |host: &str| certificates.covers(host))
}

fn stamp(files: &TlsFiles) -> Stamp {
    let client_ca = files.client_ca.as_ref().map(|ca| &ca.file);
    let more = files.certs_dir.as_deref().map(files_in).unwrap_or_default();
    stamp_of([Some(&files.cert), Some(&files.key), client_ca].into_iter().flatten().cloned().chain(more))
}

/// Returns when each file was changed last.
pub(crate) fn stamp_of(files: impl IntoIterator<Item = PathBuf>) -> Stamp {
    let modified = |path: &Path| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    files.into_iter().map(|path| (path.clone(), modified(&path))).collect()
}

fn settings(files: &TlsFiles, alpn: &[&[u8]]) -> Result<Settings, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let certificates = Certificates::read(files, &provider)?;
    let pair = |error| TlsError::Pair { path: files.cert.clone(), error };
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().map_err(pair)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => builder.with_client_cert_verifier(client_verifier(ca, provider)?),
    };
    let (not_after, facts) = (certificates.not_after(), certificates.facts().to_vec());
    let mut config = builder.with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Ok(Settings { config: Arc::new(config), not_after, certificates: facts })
}

fn client_verifier(
    ca: &ClientCa,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let path = &ca.file;
    let authorities = read_chain(path)?;
    // A root is trusted whatever it says of itself: a leaf configured by mistake would let its holder sign others.
    if !authorities.iter().all(|one| Certificate::read(one).is_ok_and(|one| one.is_authority)) {
        return Err(TlsError::NotAuthority { path: path.clone() });
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities);
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if ca.required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| TlsError::ClientCa { path: path.clone(), error })
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str) -> TlsFiles {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        let files =
            TlsFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem"), certs_dir: None, client_ca: None };
        std::fs::write(&files.cert, made.cert.pem()).expect("written");
        std::fs::write(&files.key, made.signing_key.serialize_pem()).expect("written");
        files
    }

    #[tokio::test(start_paused = true)]
    async fn changed_files_are_taken_over_and_broken_ones_are_not() {
        let folder = tempfile::tempdir().expect("folder");
        let files = write(folder.path(), "one.test");
        let tls = Tls::load(files.clone(), ALPN_USERS).expect("good files");
        let loaded = tls.current();
        write(folder.path(), "meanwhile.test");
        touch(&files.cert, 30);
        let stop = CancellationToken::new();
        let mut watch = tokio::task::JoinSet::new();
        watch.spawn(tls.clone().watch(stop.clone()));
        tokio::time::sleep(2 * CHECK_INTERVAL).await;
        let first = tls.current();
        assert!(!Arc::ptr_eq(&first, &loaded), "what came between reading and watching was not taken over");

        std::fs::write(&files.cert, "not a certificate").expect("written");
        touch(&files.cert, 60);
        tokio::time::sleep(2 * CHECK_INTERVAL).await;
        assert!(Arc::ptr_eq(&tls.current(), &first), "a broken file replaced a good one");

        write(folder.path(), "two.test");
        touch(&files.cert, 120);
        tokio::time::sleep(2 * CHECK_INTERVAL).await;
        assert!(!Arc::ptr_eq(&tls.current(), &first), "a good file was not taken over");
        stop.cancel();
        while watch.join_next().await.is_some() {}
    }

    /// Sets a time in the future: file systems may not tell two writes within one tick apart.
    fn touch(path: &Path, seconds: u64) {
        let file = std::fs::File::options().write(true).open(path).expect("open");
        let modified = file.metadata().and_then(|metadata| metadata.modified()).expect("a time");
        file.set_modified(modified + Duration::from_secs(seconds)).expect("set");
    }
}
