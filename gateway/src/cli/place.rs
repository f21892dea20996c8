//! Where a command does its work: at a gateway, over its API, or on the database of the one on this machine.

use std::collections::BTreeMap;
use std::path::Path;

use super::client::Client;
use super::credentials::{
    Credentials, CredentialsError, GATEWAY_VARIABLE, Remote, SignedIn, credentials_path, signed_in,
};
use super::{Cli, Console, Exit};

/// The variable that names a configuration.
const CONFIG_VARIABLE: &str = "GATEWAY_CONFIG";

/// Where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At a gateway, as a user.
    Gateway,
    /// On this machine's database, as the operator.
    Here,
}

/// Chooses, by what was said most plainly: flags, then variables, then whether anybody has signed in.
///
/// # Errors
/// The file with credentials cannot be used, and nothing was said that makes it needless.
pub(super) fn choose(cli: &Cli, remote: &Remote, env: &BTreeMap<String, String>) -> Result<Place, CredentialsError> {
    let by_variable = env.get(CONFIG_VARIABLE).map(Path::new);
    let config_flag = cli.config.is_some() && cli.config.as_deref() != by_variable;
    if remote.gateway.is_some() || remote.token_file.is_some() {
        return Ok(Place::Gateway);
    }
    if config_flag {
        return Ok(Place::Here);
    }
    if env.contains_key(GATEWAY_VARIABLE) {
        return Ok(Place::Gateway);
    }
    if cli.config.is_some() {
        return Ok(Place::Here);
    }
    let path = match credentials_path(env) {
        Ok(path) => path,
        Err(CredentialsError::NoHome) => return Ok(Place::Here),
        Err(error) => return Err(error),
    };
    let has_signed_in = Credentials::load(&path)?.last_used().is_some();
    Ok(if has_signed_in { Place::Gateway } else { Place::Here })
}

/// Returns a client for the gateway, or `None` for this machine; says why not and how the command ends.
pub(super) fn client(
    cli: &Cli,
    remote: &Remote,
    env: &BTreeMap<String, String>,
    console: &mut Console,
) -> Result<Option<Client>, Exit> {
    let place = choose(cli, remote, env).map_err(|error| complain(&error, console))?;
    match place {
        Place::Here => Ok(None),
        Place::Gateway => connect(remote, env, console).map(|(client, _)| Some(client)),
    }
}

/// Returns a client for the gateway that is named or remembered, and who is signed in there.
pub(super) fn connect(
    remote: &Remote,
    env: &BTreeMap<String, String>,
    console: &mut Console,
) -> Result<(Client, SignedIn), Exit> {
    let signed_in = signed_in(remote, env).map_err(|error| complain(&error, console))?;
    let SignedIn { gateway, token, ca_file } = &signed_in;
    let client = Client::new(gateway, Some(token), ca_file.as_deref()).map_err(|error| complain(&error, console))?;
    Ok((client, signed_in))
}

pub(super) fn complain(error: &(dyn std::error::Error + 'static), console: &mut Console) -> Exit {
    console.complain_of(error);
    Exit::Failed
}
