//! Joins the parts of the API for environments: the jobs that may ask, and the secret of the CI system's hook.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::sign_in::DEV_USER;
use gateway_api::EnvironmentParts;
use gateway_auth::issuer::programs::Programs;
use gateway_config::Config;
use gateway_environments::service::Environments;
use gateway_net::fetch::{Fetch, FetchSetupError, Trust};
use gateway_types::Secret;

/// Bounds of the hook's secret, in bytes: a shorter one can be guessed.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=1024;

/// Failure to set up requests for environments.
#[derive(Debug, Error)]
pub enum EnvironmentSetupError {
    /// The issuer of the jobs' tokens cannot be asked for its keys.
    #[error("environments: {0}")]
    Issuer(#[from] FetchSetupError),
    /// The file with the hook's secret cannot be read.
    #[error("environments.hook_token_file: {} cannot be read: {source}", path.display())]
    HookToken {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file holds no usable secret.
    #[error("environments.hook_token_file: {} has to hold 16 to 1024 printable ASCII characters, in one line", path.display())]
    NoHookToken {
        /// The file.
        path: PathBuf,
    },
}

/// Creates the parts.
pub(super) fn parts(config: &Config, service: &Environments) -> Result<EnvironmentParts, EnvironmentSetupError> {
    let settings = &config.environments;
    let jobs = match &settings.jobs {
        Some(jobs) => {
            let trust = jobs.ca_file.clone().map_or(Trust::System, Trust::SystemAnd);
            Some(Programs::new(Fetch::new(&trust)?, jobs.issuer.clone(), jobs.jwks_url.clone(), &jobs.audience))
        }
        None => None,
    };
    let hook = settings.hook_token_file.as_deref().map(hook_token).transpose()?;
    // A user with the link of dev mode has the machine.
    let dev = if config.auth.oidc.is_none() { DEV_USER.parse().ok() } else { None };
    Ok(EnvironmentParts { service: service.clone(), jobs, dev, hook })
}

fn hook_token(path: &Path) -> Result<Secret, EnvironmentSetupError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| EnvironmentSetupError::HookToken { path: path.to_owned(), source })?;
    let line = text.trim_end_matches(['\r', '\n']);
    let is_good = SECRET_BYTES.contains(&line.len()) && line.bytes().all(|byte| byte.is_ascii_graphic());
    if is_good {
        return Ok(Secret::new(line.to_owned()));
    }
    Err(EnvironmentSetupError::NoHookToken { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_token_is_a_line_that_cannot_be_guessed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hook-token");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let read = hook_token(&path);
            std::fs::remove_file(&path).unwrap();
            read
        };
        assert_eq!(read("0123456789abcdef\n").unwrap().reveal(), "0123456789abcdef");
        for text in ["", "short\n", "0123456789 abcdef", "0123456789abcdef\nmore"] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("hook_token_file") && !error.contains("abcdef"), "{error}");
        }
        assert!(hook_token(&path).unwrap_err().to_string().contains("cannot be read"));
    }
}
