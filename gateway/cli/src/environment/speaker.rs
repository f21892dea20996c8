//! Identity of `gateway environment`: the CI job that it runs in, or the signed-in user.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::args::WhichArgs;
use crate::client::{ClientError, GatewayClient};
use crate::credentials::{CA_FILE_VARIABLE, CredentialsError, Remote, TOKEN_FILE_VARIABLE, named_gateway, signed_in};
use crate::place::complain;
use crate::{Console, Exit};
use gateway_auth::jwt::TOKEN_BYTES_MAX;
use gateway_types::Secret;
use gateway_types::token::TokenKind;

/// Holds the `id_token` of a CI job, which GitLab gives to jobs in a variable (GitLab documentation, `id_tokens`).
const JOB_TOKEN_VARIABLE: &str = "GATEWAY_JOB_TOKEN";

/// Identity of the command, with a client for its gateway.
#[derive(Debug)]
pub(super) enum Speaker {
    /// A CI job, of its own environment.
    Job(GatewayClient),
    /// The signed-in user, of any environment.
    Operator(GatewayClient),
}

impl Speaker {
    /// Returns the client.
    pub(super) fn client(&self) -> &GatewayClient {
        match self {
            Self::Job(client) | Self::Operator(client) => client,
        }
    }
}

#[derive(Debug, Error)]
enum NoSpeaker {
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("no gateway is known: name it with --gateway or GATEWAY_URL")]
    NoGateway,
}

/// Finds the identity; otherwise reports the reason and returns how the command ends.
pub(super) fn speaker(
    which: &WhichArgs,
    remote: &Remote,
    env: &BTreeMap<String, String>,
    console: &mut Console,
) -> Result<Speaker, Exit> {
    let speaker = find(remote, env).map_err(|error| complain(&error, console))?;
    let wrong = match (&speaker, which.project, &which.environment) {
        (Speaker::Job(_), Some(_), _) => Some("a job speaks of its own project: leave --project out"),
        (Speaker::Operator(_), None, _) | (Speaker::Operator(_), _, None) => {
            Some("give --project and --environment: only a job's token says which one is meant")
        }
        (Speaker::Job(_), None, _) | (Speaker::Operator(_), Some(_), Some(_)) => None,
    };
    match wrong {
        None => Ok(speaker),
        Some(words) => {
            console.complain(words);
            Err(Exit::Usage)
        }
    }
}

fn find(remote: &Remote, env: &BTreeMap<String, String>) -> Result<Speaker, NoSpeaker> {
    let file = remote.token_file.clone().or_else(|| env.get(TOKEN_FILE_VARIABLE).map(PathBuf::from));
    let token = match (&remote.token_file, env.get(JOB_TOKEN_VARIABLE)) {
        // A flag is a plainer statement than a variable.
        (None, Some(token)) if !token.trim().is_empty() => Some(token.trim().to_owned()),
        (None, _) | (Some(_), _) => file.as_deref().map(job_token).transpose()?.flatten(),
    };
    let Some(token) = token else {
        let signed_in = signed_in(remote, env)?;
        let client = GatewayClient::new(&signed_in.gateway, Some(&signed_in.token), signed_in.ca_file.as_deref())?;
        return Ok(Speaker::Operator(client));
    };
    let gateway = named_gateway(remote, env)?.ok_or(NoSpeaker::NoGateway)?;
    let ca_file = remote.ca_file.clone().or_else(|| env.get(CA_FILE_VARIABLE).map(PathBuf::from));
    Ok(Speaker::Job(GatewayClient::with_bearer(&gateway, Some(Secret::new(token)), ca_file.as_deref())?))
}

/// Reads a file with a job's token; `None` for one that has a token of the gateway's own.
fn job_token(path: &Path) -> Result<Option<String>, NoSpeaker> {
    let mut text = String::new();
    let bytes_max = u64::try_from(TOKEN_BYTES_MAX).unwrap_or(u64::MAX);
    let read = File::open(path).and_then(|file| file.take(bytes_max).read_to_string(&mut text));
    read.map_err(|source| NoSpeaker::File { path: path.to_owned(), source })?;
    let text = text.trim();
    // A JWS in its compact form has three parts (RFC 7515, section 3.1).
    let is_signed = text.split('.').count() == 3 && !TokenKind::ALL.iter().any(|kind| text.starts_with(kind.prefix()));
    Ok(is_signed.then(|| text.to_owned()))
}
