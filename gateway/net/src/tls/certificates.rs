//! Certificates from PEM files, and the choice among them by server name (RFC 6066, section 3).

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::TlsError;
use gateway_config::TlsFiles;
use gateway_types::UnixSeconds;

/// Most pairs in one folder; more are taken for a mistake.
const PAIRS_MAX: usize = 4096;

/// All certificates of one listener. A certificate for exactly the name comes before one for a wildcard that covers it.
/// A client without a name, or with an unknown one, gets the first certificate: its request is refused later, by name.
#[derive(Debug)]
pub(super) struct Certificates {
    first: Arc<CertifiedKey>,
    exact: HashMap<String, Pair>,
    /// By the part after `*.`.
    wildcard: HashMap<String, Pair>,
    not_after: UnixSeconds,
    /// All of them, in the order in which they were read.
    facts: Vec<CertificateFacts>,
}

/// A certificate as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Its file.
    pub path: PathBuf,
    /// DNS names that it is valid for, in lower case.
    pub names: Vec<String>,
    /// End of its validity.
    pub not_after: UnixSeconds,
}

#[derive(Debug)]
struct Pair {
    key: Arc<CertifiedKey>,
    path: PathBuf,
}

/// Names and validity of a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// DNS names that it is valid for, in lower case.
    pub(crate) names: Vec<String>,
    /// Beginning of its validity.
    pub(crate) not_before: UnixSeconds,
    /// End of its validity.
    pub(crate) not_after: UnixSeconds,
}

impl Certificates {
    /// Reads `cert` and `key`, and the pairs of `certs_dir`.
    pub(super) fn read(files: &TlsFiles, provider: &CryptoProvider) -> Result<Self, TlsError> {
        let (first, facts) = read_pair(&files.cert, &files.key, provider)?;
        let (exact, wildcard) = (HashMap::new(), HashMap::new());
        let mut all = Self { first: first.clone(), exact, wildcard, not_after: facts.not_after, facts: Vec::new() };
        all.add(&files.cert, &first, facts)?;
        if let Some(folder) = &files.certs_dir {
            for (cert, key) in pairs_in(folder)? {
                let (pair, facts) = read_pair(&cert, &key, provider)?;
                all.add(&cert, &pair, facts)?;
            }
        }
        Ok(all)
    }

    /// Returns the end of validity of the certificate that expires first.
    pub(super) fn not_after(&self) -> UnixSeconds {
        self.not_after
    }

    /// Returns all of them.
    pub(super) fn facts(&self) -> &[CertificateFacts] {
        &self.facts
    }

    fn add(&mut self, path: &Path, key: &Arc<CertifiedKey>, facts: Facts) -> Result<(), TlsError> {
        self.not_after = self.not_after.min(facts.not_after);
        let shown = CertificateFacts { path: path.to_owned(), names: facts.names.clone(), not_after: facts.not_after };
        self.facts.push(shown);
        for name in facts.names {
            let (names, name) = match name.strip_prefix("*.") {
                Some(parent) => (&mut self.wildcard, parent.to_owned()),
                None => (&mut self.exact, name),
            };
            if let Some(other) = names.get(&name) {
                let (path, other) = (path.to_owned(), other.path.clone());
                return Err(TlsError::Twice { name, path, other });
            }
            names.insert(name, Pair { key: key.clone(), path: path.to_owned() });
        }
        Ok(())
    }

    /// Tells whether one of them covers a host, in lower case.
    pub(super) fn covers(&self, host: &str) -> bool {
        let parent = host.split_once('.').map(|(_, parent)| parent);
        self.exact.contains_key(host) || parent.is_some_and(|parent| self.wildcard.contains_key(parent))
    }

    fn find(&self, name: &str) -> &Arc<CertifiedKey> {
        let lower;
        let name = if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            lower = name.to_ascii_lowercase();
            &lower
        } else {
            name
        };
        let covered = || self.wildcard.get(name.split_once('.')?.1);
        self.exact.get(name).or_else(covered).map_or(&self.first, |pair| &pair.key)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(hello.server_name().map_or(&self.first, |name| self.find(name)).clone())
    }
}

/// Returns the files of a listener's certificates, to be checked for changes.
pub(super) fn files_in(folder: &Path) -> Vec<PathBuf> {
    pairs_in(folder).unwrap_or_default().into_iter().flat_map(|(cert, key)| [cert, key]).collect()
}

/// Returns every `NAME.crt` or `NAME.pem` with its `NAME.key`, sorted by name. Other files are ignored; a certificate
/// without a key is a mistake.
fn pairs_in(folder: &Path) -> Result<Vec<(PathBuf, PathBuf)>, TlsError> {
    let failed = |source| TlsError::Folder { path: folder.to_owned(), source };
    let mut pairs = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let cert = entry.map_err(failed)?.path();
        if !cert.extension().is_some_and(|ending| ending == "crt" || ending == "pem") {
            continue;
        }
        if pairs.len() >= PAIRS_MAX {
            return Err(TlsError::TooMany { path: folder.to_owned(), most: PAIRS_MAX });
        }
        let key = cert.with_extension("key");
        pairs.push((cert, key));
    }
    pairs.sort();
    Ok(pairs)
}

fn read_pair(cert: &Path, key: &Path, provider: &CryptoProvider) -> Result<(Arc<CertifiedKey>, Facts), TlsError> {
    let chain = read_chain(cert)?;
    let facts =
        chain.first().and_then(|leaf| facts_of(leaf)).ok_or_else(|| TlsError::Facts { path: cert.to_owned() })?;
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::Pem { path: key.to_owned(), error })?;
    let pair = CertifiedKey::from_der(chain, key_der, provider);
    let pair = pair.map_err(|error| TlsError::Pair { path: cert.to_owned(), error })?;
    Ok((Arc::new(pair), facts))
}

/// Reads a chain of certificates, leaf first.
pub(crate) fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |error| TlsError::Pem { path: path.to_owned(), error };
    let chain: Vec<_> = CertificateDer::pem_file_iter(path).map_err(bad)?.collect::<Result<_, _>>().map_err(bad)?;
    if chain.is_empty() { Err(TlsError::Empty { path: path.to_owned() }) } else { Ok(chain) }
}

/// Reads names and validity of a certificate (RFC 5280, sections 4.1.2.5 and 4.2.1.6); `None` if it cannot be read.
pub(crate) fn facts_of(leaf: &CertificateDer<'_>) -> Option<Facts> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let names = certificate.subject_alternative_name().ok()?.map(|names| &names.value.general_names);
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::OtherName(..)
        | GeneralName::RFC822Name(_)
        | GeneralName::X400Address(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::URI(_)
        | GeneralName::IPAddress(_)
        | GeneralName::RegisteredID(_)
        | GeneralName::Invalid(..) => None,
    };
    let validity = certificate.validity();
    Some(Facts {
        names: names.into_iter().flatten().filter_map(dns).collect(),
        not_before: UnixSeconds::new(validity.not_before.timestamp()),
        not_after: UnixSeconds::new(validity.not_after.timestamp()),
    })
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::default_provider;

    use super::*;

    fn write(folder: &Path, file: &str, names: &[&str]) -> (PathBuf, PathBuf) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let (cert, key) = (folder.join(format!("{file}.crt")), folder.join(format!("{file}.key")));
        fs::write(&cert, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        (cert, key)
    }

    fn files(folder: &Path, first: (PathBuf, PathBuf)) -> TlsFiles {
        TlsFiles { cert: first.0, key: first.1, certs_dir: Some(folder.to_owned()), client_ca: None }
    }

    #[test]
    fn name_gets_its_own_certificate_before_a_wildcard_before_the_first() {
        let (own, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = write(own.path(), "first", &["gw.example"]);
        write(folder.path(), "zone", &["*.ws.example", "ws.example"]);
        write(folder.path(), "one", &["3000-app.ws.example"]);
        fs::write(folder.path().join("README"), "no certificate").unwrap();
        let all = Certificates::read(&files(folder.path(), first), &default_provider()).unwrap();
        let names_of = |asked: &str| {
            let key = all.find(asked);
            facts_of(key.cert.first().unwrap()).unwrap().names.first().unwrap().clone()
        };
        for (asked, expected) in [
            ("gw.example", "gw.example"),
            ("GW.Example", "gw.example"),
            ("3000-app.ws.example", "3000-app.ws.example"),
            ("3001-app.ws.example", "*.ws.example"),
            ("ws.example", "*.ws.example"),
            ("a.b.ws.example", "gw.example"),
            ("other.example", "gw.example"),
            ("", "gw.example"),
        ] {
            assert_eq!(names_of(asked), expected, "{asked}");
        }
    }

    #[test]
    fn folder_with_a_mistake_is_refused_by_name() {
        let (own, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = write(own.path(), "first", &["gw.example"]);
        let read = |folder: &Path| Certificates::read(&files(folder, first.clone()), &default_provider()).unwrap_err();
        let (cert, key) = write(folder.path(), "a", &["x.example"]);
        write(folder.path(), "b", &["y.example", "x.example"]);
        let text = read(folder.path()).to_string();
        assert!(text.contains("x.example") && text.contains("a.crt") && text.contains("b.crt"), "{text}");
        fs::remove_file(folder.path().join("b.crt")).unwrap();
        fs::remove_file(key).unwrap();
        let text = read(folder.path()).to_string();
        assert!(text.contains("a.key"), "{text}");
        fs::write(&cert, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        let text = read(folder.path()).to_string();
        assert!(text.contains("a.crt"), "{text}");
        let text = read(Path::new("/nowhere")).to_string();
        assert!(text.contains("/nowhere"), "{text}");
    }

    #[test]
    fn facts_are_names_and_validity() {
        let mut params = rcgen::CertificateParams::new(["A.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 4, 1);
        let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let facts = facts_of(made.der()).unwrap();
        assert_eq!(facts.names, ["a.example"]);
        assert_eq!(facts.not_after.get() - facts.not_before.get(), 90 * 24 * 3600);
        assert_eq!(facts_of(&CertificateDer::from(vec![0; 40])), None);
    }
}
