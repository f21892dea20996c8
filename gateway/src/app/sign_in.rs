//! Sets up the sign-in of users.

use std::path::{Path, PathBuf};

use http::Uri;
use thiserror::Error;
use tracing::info;

use gateway_auth::oidc;
use gateway_auth::oidc::ClientRegistration;
use gateway_auth::oidc::identity::Rules;
use gateway_auth::oidc::provider::{Provider, ProviderSettings};
use gateway_auth::policy::Operators;
use gateway_auth::sign_in::link::SignInLink;
use gateway_auth::sign_in::{IsWorkspaceHost, SignIn};
use gateway_auth::site::{BadPublicUrl, Site};
use gateway_config::{ClientSecret, Config, Oidc};
use gateway_net::fetch::{Fetch, FetchSetupError, Trust};
use gateway_net::telemetry::{Dependency, Latency};
use gateway_types::Secret;
use gateway_types::UserName;

use super::StartError;
use super::sign_ins::SignIns;

/// User that dev mode signs in.
pub const DEV_USER: &str = "dev";

/// Longest file with a client's secret, in bytes.
const SECRET_BYTES_MAX: usize = 4096;

/// Failure to set up sign-in with an identity provider. Each text says what to change.
#[derive(Debug, Error)]
pub enum SignInSetupError {
    /// The file with the client's secret cannot be read.
    #[error("auth.oidc.client_secret_file: {path} cannot be read: {error}")]
    Secret {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file with the client's secret holds no usable text.
    #[error("auth.oidc.client_secret_file: {path} holds no secret: one line of printable text is needed")]
    NoSecret {
        /// The file.
        path: PathBuf,
    },
    /// The client for asking the provider cannot be made.
    #[error("auth.oidc: {0}")]
    Fetch(#[from] FetchSetupError),
}

/// Parts that the edge needs to sign users in.
pub(super) struct SignInParts {
    pub(super) sign_in: SignIn,
    pub(super) provider: Option<Provider>,
}

/// Returns the users who are operators.
pub(super) fn operators(config: &Config) -> Operators {
    let auth = &config.auth;
    // A user with the link of dev mode has the machine.
    let dev = if auth.oidc.is_none() { DEV_USER.parse().ok() } else { None };
    Operators { names: auth.admins.clone(), group: auth.admin_group.clone(), dev }
}

/// Creates the parts.
pub(super) fn parts(
    config: &Config,
    site: &Site,
    sign_ins: &SignIns,
    is_workspace_host: IsWorkspaceHost,
    latency: Latency,
) -> Result<SignInParts, StartError> {
    let SignIns { sessions, shared, .. } = sign_ins;
    let Some(oidc) = &config.auth.oidc else {
        let user: UserName = DEV_USER.parse().map_err(|_| BadPublicUrl)?;
        let announce = Box::new(|link: &SignInLink| info!(%link, "sign in with this link, once"));
        let sign_in = SignIn::new(site.clone(), sessions.clone(), user, is_workspace_host, announce);
        return Ok(SignInParts { sign_in: sign_in.sharing(shared.clone()), provider: None });
    };
    let client = registration(oidc, site);
    let required_group = oidc.required_group.as_ref().map(|group| group.as_str());
    info!(issuer = %oidc.issuer, redirect_uri = client.redirect_uri, required_group, "users sign in with an identity provider");
    let sign_in = SignIn::with_provider(site.clone(), sessions.clone(), client.clone(), is_workspace_host);
    let sign_in = sign_in.sharing(shared.clone());
    Ok(SignInParts { sign_in, provider: Some(provider(oidc, client, latency)?) })
}

/// Creates the provider that a configuration names, if it names one; sends no request.
///
/// # Errors
/// [`StartError`] says what to change.
pub fn configured_provider(config: &Config) -> Result<Option<Provider>, StartError> {
    let Some(oidc) = &config.auth.oidc else { return Ok(None) };
    let url: Uri = config.public_url.to_string().parse().map_err(|_| BadPublicUrl)?;
    let site = Site::new(&url)?;
    Ok(Some(provider(oidc, registration(oidc, &site), Latency::default())?))
}

/// Makes this gateway's registration with the provider.
fn registration(oidc: &Oidc, site: &Site) -> ClientRegistration {
    ClientRegistration {
        id: oidc.client_id.clone(),
        scopes: oidc.scopes.clone(),
        redirect_uri: site.public(oidc::CALLBACK_PATH),
        signed_out_uri: site.public(oidc::SIGNED_OUT_PATH),
    }
}

fn provider(oidc: &Oidc, client: ClientRegistration, latency: Latency) -> Result<Provider, SignInSetupError> {
    let fetch = Fetch::new(&oidc.ca_file.clone().map_or(Trust::System, Trust::SystemAnd))?;
    let fetch = fetch.timed(latency, Dependency::Provider);
    Ok(Provider::new(fetch, oidc.issuer.clone(), client, provider_settings(oidc)?))
}

/// Reads what can be changed while users sign in.
pub(super) fn provider_settings(oidc: &Oidc) -> Result<ProviderSettings, SignInSetupError> {
    let secret = match &oidc.client_secret {
        None => None,
        Some(ClientSecret::Value(secret)) => Some(secret.clone()),
        Some(ClientSecret::File(path)) => Some(read_secret(path)?),
    };
    let rules = Rules {
        username_claim: oidc.username_claim.clone(),
        groups_claim: oidc.groups_claim.clone(),
        required_group: oidc.required_group.clone(),
    };
    Ok(ProviderSettings { secret, rules })
}

fn read_secret(path: &Path) -> Result<Secret, SignInSetupError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| SignInSetupError::Secret { path: path.to_owned(), error })?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let is_good = (1..=SECRET_BYTES_MAX).contains(&line.len()) && line.bytes().all(|byte| byte.is_ascii_graphic());
    if is_good { Ok(Secret::new(line.to_owned())) } else { Err(SignInSetupError::NoSecret { path: path.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_one_line_of_a_file_and_never_part_of_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        for (text, expected) in [
            ("hunter2", Some("hunter2")),
            ("hunter2\n", Some("hunter2")),
            ("hunter2\r\n", Some("hunter2")),
            ("", None),
            ("\n", None),
            ("hunter2\nmore", None),
            ("hun ter2", None),
        ] {
            std::fs::write(&path, text).unwrap();
            let read = read_secret(&path);
            match &read {
                Ok(secret) => assert_eq!(Some(secret.reveal()), expected, "{text:?}"),
                Err(error) => assert!(expected.is_none() && !error.to_string().contains("hunter2"), "{text:?}"),
            }
        }
        folder.close().unwrap();
        assert!(read_secret(&path).unwrap_err().to_string().contains("cannot be read"));
    }
}
