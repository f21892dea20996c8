//! Files of an account and its certificate. Only their owner may read keys, and a file is either complete or absent.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use instant_acme::AccountCredentials;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::tls::certificates::{Facts, facts_of};
use gateway_types::UnixSeconds;

/// Failure to use a file.
#[derive(Debug, Error)]
#[error("{} cannot be {what}: {source}", path.display())]
pub struct KeptError {
    path: PathBuf,
    what: &'static str,
    source: io::Error,
}

#[derive(Debug)]
pub(super) struct AcmeFiles {
    folder: PathBuf,
}

/// Content of `account.json`. An account is valid at one authority only.
#[derive(Deserialize, Serialize)]
struct AccountFile<C> {
    directory: String,
    credentials: C,
}

impl AcmeFiles {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns names and validity of the certificate; `None` if there is none.
    pub(super) fn facts(&self) -> Option<Facts> {
        facts_of(&CertificateDer::from_pem_file(self.folder.join("cert.pem")).ok()?)
    }

    /// Returns the account at this authority, if there is one.
    pub(super) fn account(&self, directory: &str) -> Result<Option<AccountCredentials>, KeptError> {
        let Some(text) = self.account_file()? else { return Ok(None) };
        let path = self.folder.join("account.json");
        let file: Result<AccountFile<AccountCredentials>, _> = serde_json::from_str(&text);
        let file = file.map_err(|error| KeptError { path, what: "read", source: error.into() })?;
        Ok((file.directory == directory).then_some(file.credentials))
    }

    pub(super) fn keep_account(&self, directory: &str, credentials: &AccountCredentials) -> Result<(), KeptError> {
        let file = AccountFile { directory: directory.to_owned(), credentials };
        let text = serde_json::to_string_pretty(&file);
        let text = text.map_err(|error| self.failed("account.json")(error.into()))?;
        self.write("account.json", &text)
    }

    /// Returns the file of the account; `None` if there is none.
    pub(super) fn account_file(&self) -> Result<Option<String>, KeptError> {
        match self.read("account.json") {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the file of an account.
    pub(super) fn write_account(&self, text: &str) -> Result<(), KeptError> {
        self.write("account.json", text)
    }

    /// Returns the certificate and its key.
    pub(super) fn pair(&self) -> Result<(String, String), KeptError> {
        Ok((self.read("cert.pem")?, self.read("key.pem")?))
    }

    fn read(&self, name: &str) -> Result<String, KeptError> {
        let path = self.folder.join(name);
        fs::read_to_string(&path).map_err(|source| KeptError { path, what: "read", source })
    }

    /// Writes a certificate and its key. A reader between the two writes finds a pair that does not fit, and reads
    /// again.
    pub(super) fn keep(&self, chain: &str, key: &str) -> Result<(), KeptError> {
        self.write("key.pem", key)?;
        self.write("cert.pem", chain)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), KeptError> {
        let failed = self.failed(name);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(&failed)?;
        let (path, fresh) = (self.folder.join(name), self.folder.join(format!("{name}.new")));
        let write = |fresh: &Path| {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(fresh)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(fresh, &path)
        };
        write(&fresh).map_err(failed)
    }

    fn failed(&self, name: &str) -> impl Fn(io::Error) -> KeptError {
        let path = self.folder.join(name);
        move |source| KeptError { path: path.clone(), what: "written", source }
    }
}

/// Returns names and validity of the first certificate of a chain.
pub(super) fn facts_in(chain: &str) -> Option<Facts> {
    facts_of(&CertificateDer::from_pem_slice(chain.as_bytes()).ok()?)
}

/// Tells whether less than a third of the validity is left, as authorities recommend.
pub(super) fn is_due(facts: &Facts, now: UnixSeconds) -> bool {
    let whole = facts.not_after.get().saturating_sub(facts.not_before.get());
    facts.not_after.get().saturating_sub(now.get()) < whole / 3
}

/// Returns the interval between checks, short enough that a short-lived certificate is renewed in time.
pub(super) fn look_interval(facts: &Facts) -> Duration {
    let whole = facts.not_after.get().saturating_sub(facts.not_before.get());
    Duration::from_secs(u64::try_from(whole / 20).unwrap_or_default().max(1))
}

/// Tells whether a certificate covers all wanted names.
pub(super) fn covers(names: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|name| names.contains(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn certificate_is_due_in_the_last_third_of_its_time() {
        let facts = Facts { names: vec![], not_before: UnixSeconds::new(100), not_after: UnixSeconds::new(400) };
        for (now, expected) in [(0, false), (100, false), (300, false), (301, true), (400, true), (9999, true)] {
            assert_eq!(is_due(&facts, UnixSeconds::new(now)), expected, "{now}");
        }
    }

    #[test]
    fn kept_files_are_for_their_owner_only_and_an_account_for_its_authority() {
        let folder = tempfile::tempdir().unwrap();
        let kept = AcmeFiles::new(folder.path().join("acme"));
        assert!(kept.account("https://a.example/dir").unwrap().is_none());
        assert!(kept.facts().is_none());
        kept.keep("chain", "key").unwrap();
        kept.keep("chain", "key").unwrap();
        for name in ["key.pem", "cert.pem"] {
            let mode = fs::metadata(folder.path().join("acme").join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert!(!folder.path().join("acme/key.pem.new").exists());
        let broken = folder.path().join("acme/account.json");
        fs::write(&broken, "{}").unwrap();
        assert!(kept.account("https://a.example/dir").err().unwrap().to_string().contains("account.json"));
    }
}
