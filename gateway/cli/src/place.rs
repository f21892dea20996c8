//! Place of a command's work: a gateway, over its API, or the database of the gateway on this machine.

use std::collections::BTreeMap;
use std::path::Path;

use thiserror::Error;

use super::client::GatewayClient;
use super::credentials::{
    Credentials, CredentialsError, GATEWAY_VARIABLE, Remote, SignedIn, credentials_path, signed_in,
};
use super::{Cli, Console, Exit};
use gateway_config::{DEFAULT_DATABASE, DEFAULT_FILE};

/// The variable that names a configuration.
const CONFIG_VARIABLE: &str = "GATEWAY_CONFIG";

/// The variable that names a database.
const STORE_VARIABLE: &str = "GATEWAY_STORE__URL";

/// Place of a command's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Venue {
    /// At a gateway, as a user.
    Gateway,
    /// On this machine's database, as the operator.
    Here,
}

/// Reason why there is no place.
#[derive(Debug, Error)]
pub(super) enum NoPlace {
    /// The file with credentials cannot be used, and no flag or variable makes it needless.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// No user is signed in, and nothing here is a gateway's.
    #[error(
        "you are not signed in: gateway login --gateway URL. On the gateway's own machine, name its configuration with \
         --config FILE, or go to the folder that has its {DEFAULT_FILE} or {DEFAULT_DATABASE}"
    )]
    NotSignedIn,
    /// The command is for the gateway's own machine, and this is not it.
    #[error(
        "this works on the gateway's own machine only: name its configuration with --config FILE, or go to the folder that \
         has its {DEFAULT_FILE} or {DEFAULT_DATABASE}"
    )]
    NotOperator,
}

/// Files of a gateway in a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Folder {
    has_file: bool,
    has_database: bool,
}

impl Folder {
    /// Looks into the working directory.
    pub(super) fn working() -> Self {
        Self { has_file: Path::new(DEFAULT_FILE).exists(), has_database: Path::new(DEFAULT_DATABASE).exists() }
    }
}

/// Tells whether a configuration was given: only then may a command make the database that it names.
pub(super) fn is_configured(cli: &Cli, env: &BTreeMap<String, String>) -> bool {
    cli.config.is_some() || env.contains_key(STORE_VARIABLE) || Folder::working().has_file
}

/// Checks that a command which works on the database only has one.
///
/// # Errors
/// [`NoPlace::NotOperator`].
pub(super) fn for_operator(cli: &Cli, env: &BTreeMap<String, String>) -> Result<(), NoPlace> {
    if is_configured(cli, env) || Folder::working().has_database { Ok(()) } else { Err(NoPlace::NotOperator) }
}

/// Chooses by the plainest statement: flags, then variables, then whether a user has signed in, then the content of the
/// working directory.
///
/// # Errors
/// [`NoPlace`] says how to get one.
pub(super) fn choose(
    cli: &Cli,
    remote: &Remote,
    env: &BTreeMap<String, String>,
    folder: Folder,
) -> Result<Venue, NoPlace> {
    let by_variable = env.get(CONFIG_VARIABLE).map(Path::new);
    let config_flag = cli.config.is_some() && cli.config.as_deref() != by_variable;
    if remote.gateway.is_some() || remote.token_file.is_some() {
        return Ok(Venue::Gateway);
    }
    if config_flag {
        return Ok(Venue::Here);
    }
    if env.contains_key(GATEWAY_VARIABLE) {
        return Ok(Venue::Gateway);
    }
    if cli.config.is_some() {
        return Ok(Venue::Here);
    }
    let is_here = folder.has_file || folder.has_database || env.contains_key(STORE_VARIABLE);
    let here = || if is_here { Ok(Venue::Here) } else { Err(NoPlace::NotSignedIn) };
    let path = match credentials_path(env) {
        Ok(path) => path,
        Err(CredentialsError::NoHome) => return here(),
        Err(error) => return Err(error.into()),
    };
    if Credentials::load(&path)?.last_used().is_some() { Ok(Venue::Gateway) } else { here() }
}

/// Returns a client for the gateway, or `None` for this machine; otherwise reports the reason and returns how the
/// command ends.
pub(super) fn client(
    cli: &Cli,
    remote: &Remote,
    env: &BTreeMap<String, String>,
    console: &mut Console,
) -> Result<Option<GatewayClient>, Exit> {
    let place = choose(cli, remote, env, Folder::working()).map_err(|error| complain(&error, console))?;
    match place {
        Venue::Here => Ok(None),
        Venue::Gateway => connect(remote, env, console).map(|(client, _)| Some(client)),
    }
}

/// Returns a client for the gateway, or `None` for the database on this machine, for commands of operators: these work on
/// the database wherever there is one, unless a gateway is named.
pub(super) fn operators_client(
    cli: &Cli,
    remote: &Remote,
    env: &BTreeMap<String, String>,
    console: &mut Console,
) -> Result<Option<GatewayClient>, Exit> {
    let is_named = remote.gateway.is_some() || remote.token_file.is_some() || env.contains_key(GATEWAY_VARIABLE);
    if !is_named && for_operator(cli, env).is_ok() {
        return Ok(None);
    }
    client(cli, remote, env, console)
}

/// Returns a client for the gateway that is named or remembered, and the sign-in there.
pub(super) fn connect(
    remote: &Remote,
    env: &BTreeMap<String, String>,
    console: &mut Console,
) -> Result<(GatewayClient, SignedIn), Exit> {
    let signed_in = signed_in(remote, env).map_err(|error| complain(&error, console))?;
    let SignedIn { gateway, token, ca_file } = &signed_in;
    let client =
        GatewayClient::new(gateway, Some(token), ca_file.as_deref()).map_err(|error| complain(&error, console))?;
    Ok((client, signed_in))
}

pub(super) fn complain(error: &(dyn std::error::Error + 'static), console: &mut Console) -> Exit {
    console.complain_of(error);
    Exit::Failed
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::credentials::{CREDENTIALS_VARIABLE, StoredCredentials};
    use crate::{GatewayCommand, WorkspaceArgs, WorkspaceCommand};

    /// Chooses for a command line and variables, with or without a user who has signed in.
    fn chosen(words: &str, variables: &[(&str, &str)], has_signed_in: bool) -> Venue {
        let here = Folder { has_file: true, has_database: false };
        chosen_in(here, words, variables, has_signed_in).unwrap()
    }

    fn chosen_in(here: Folder, words: &str, variables: &[(&str, &str)], has_signed_in: bool) -> Result<Venue, NoPlace> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credentials.json");
        let mut env: BTreeMap<String, String> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        env.insert(CREDENTIALS_VARIABLE.to_owned(), file.display().to_string());
        if has_signed_in {
            let token = gateway_types::token::Token::generate(gateway_types::token::TokenKind::User).unwrap();
            let (token_id, user) = ("t-1".to_owned(), "ann".to_owned());
            let kept = StoredCredentials { token, token_id, user, expires_at: None, ca_file: None };
            let gateway = "https://gw.example".parse().unwrap();
            Credentials::update(&file, |credentials| credentials.keep(&gateway, kept)).unwrap();
        }
        // The variable that clap would take from the process's own.
        let config = env.get(CONFIG_VARIABLE).map(|path| ["--config".to_owned(), path.clone()]);
        let own = words.split_whitespace().map(str::to_owned);
        let config = config.filter(|_| !words.contains("--config")).into_iter().flatten();
        let all =
            ["gateway".to_owned(), "workspace".to_owned(), "list".to_owned()].into_iter().chain(own).chain(config);
        let cli = Cli::try_parse_from(all).unwrap();
        let GatewayCommand::Workspace(WorkspaceArgs { command: WorkspaceCommand::List(list) }) = &cli.command else {
            panic!("{cli:?}")
        };
        choose(&cli, &list.remote, &env, here)
    }

    #[test]
    fn without_a_sign_in_or_a_configuration_it_is_said_how_to_get_one() {
        let error = chosen_in(Folder::default(), "", &[], false).unwrap_err().to_string();
        assert!(error.contains("gateway login --gateway URL") && error.contains("--config FILE"), "{error}");
        let database = Folder { has_file: false, has_database: true };
        assert_eq!(chosen_in(database, "", &[], false).unwrap(), Venue::Here);
        let by_variable = chosen_in(Folder::default(), "", &[("GATEWAY_STORE__URL", "sqlite://g.db")], false);
        assert_eq!(by_variable.unwrap(), Venue::Here);
        assert_eq!(chosen_in(database, "", &[], true).unwrap(), Venue::Gateway);
    }

    #[test]
    fn what_is_said_most_plainly_decides_where_the_work_is_done() {
        let url = ("GATEWAY_URL", "https://gw.example");
        let config = ("GATEWAY_CONFIG", "elsewhere.toml");
        for (words, variables, has_signed_in, expected) in [
            ("", &[][..], false, Venue::Here),
            ("", &[], true, Venue::Gateway),
            ("--config here.toml", &[], true, Venue::Here),
            ("--config here.toml", &[url], true, Venue::Here),
            ("--config here.toml", &[url, config], true, Venue::Here),
            ("--gateway https://gw.example", &[config], false, Venue::Gateway),
            ("--token-file t --config here.toml", &[], false, Venue::Gateway),
            ("", &[url], false, Venue::Gateway),
            ("", &[url, config], false, Venue::Gateway),
            ("", &[config], true, Venue::Here),
        ] {
            assert_eq!(chosen(words, variables, has_signed_in), expected, "{words} {variables:?} {has_signed_in}");
        }
    }
}
