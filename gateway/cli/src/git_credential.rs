//! `gateway git-credential`: the user's own credentials for git servers, at a gateway, over its API.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::client::{ClientError, GatewayClient, shown};
use super::credentials::Remote;
use super::place::{complain, connect};
use super::{Console, Exit, Output, table};
use gateway_types::GitHost;

const EXAMPLES: &str = "\
Examples:
  gateway git-credential set git.example.com < token               a token or password of that server
  gateway git-credential set git.example.com --user ann --from token.txt
  gateway git-credential set gitlab.example.com --oauth < refresh-token
  gateway git-credential list
  gateway git-credential rm git.example.com

Programs in your workspaces get a credential when git asks for it: the clone of the projects, git pull and git push work. It is \
kept sealed at the gateway, and is in no file and no variable of a workspace.";

const SET_EXAMPLES: &str = "\
Examples:
  gateway git-credential set git.example.com < token
  pass show work/git | gateway git-credential set git.example.com --user ann
  gateway git-credential set gitlab.example.com --oauth < refresh-token

The secret is the first line of standard input or of a file, and never an argument: those are visible to every process. With --oauth \
it is a refresh token, which the gateway exchanges for short-lived access tokens; the operator has to have configured that for the host.";

const LIST_EXAMPLES: &str = "\
Examples:
  gateway git-credential list
  gateway git-credential list -o json";

const REMOVE_EXAMPLES: &str = "\
Examples:
  gateway git-credential rm git.example.com                        revoke it at that server too";

/// Longest input that is read, in bytes: a little more than a gateway takes, so that the gateway reports it.
const SECRET_BYTES_MAX: u64 = 32 * 1024;

/// Flags of `gateway git-credential`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct GitCredentialArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: GitCredentialCommand,
}

/// Subcommands of `gateway git-credential`.
#[derive(Clone, Debug, Subcommand)]
pub enum GitCredentialCommand {
    /// Store a credential for a git server, in the place of the one before.
    #[command(after_help = SET_EXAMPLES)]
    Set(SetGitCredentialArgs),
    /// List the credentials, without their secrets.
    #[command(after_help = LIST_EXAMPLES)]
    List(super::ListArgs),
    /// Forget a credential.
    #[command(after_help = REMOVE_EXAMPLES)]
    Rm(RemoveGitCredentialArgs),
}

/// Flags of `gateway git-credential set`.
#[derive(Clone, Debug, Args)]
pub struct SetGitCredentialArgs {
    /// The git server, with its port if that is not 443.
    #[arg(value_name = "HOST")]
    pub host: GitHost,
    /// Your name at that server [default: `git`, which servers that take tokens do not look at].
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// The secret is a refresh token of OAuth.
    #[arg(long)]
    pub oauth: bool,
    /// File with the secret, instead of standard input.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of `gateway git-credential rm`.
#[derive(Clone, Debug, Args)]
pub struct RemoveGitCredentialArgs {
    /// The git server.
    #[arg(value_name = "HOST")]
    pub host: GitHost,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// A credential as a gateway's API has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Item {
    host: String,
    kind: String,
    user: String,
    refused_at: Option<String>,
    created_at: String,
}

#[derive(Deserialize)]
struct Items {
    credentials: Vec<Item>,
}

/// Runs `gateway git-credential`.
pub async fn run_git_credential(
    args: &GitCredentialArgs,
    env: &BTreeMap<String, String>,
    console: &mut Console,
) -> Exit {
    let remote = match &args.command {
        GitCredentialCommand::Set(set) => &set.remote,
        GitCredentialCommand::List(list) => &list.remote,
        GitCredentialCommand::Rm(remove) => &remove.remote,
    };
    let (client, _) = match connect(remote, env, console) {
        Ok(connected) => connected,
        Err(exit) => return exit,
    };
    let done = match &args.command {
        GitCredentialCommand::Set(set) => store(&client, set, console).await,
        GitCredentialCommand::List(list) => show(&client, list.output, console).await,
        GitCredentialCommand::Rm(remove) => {
            let host = &remove.host;
            client.delete(&path(host)).await.map(|()| {
                console.hint(format_args!("the credential for {host} is forgotten; revoke it there too"));
                Exit::Success
            })
        }
    };
    done.unwrap_or_else(|error| complain(&error, console))
}

async fn store(
    client: &GatewayClient,
    args: &SetGitCredentialArgs,
    console: &mut Console,
) -> Result<Exit, ClientError> {
    let read = match &args.from {
        Some(path) => read_file(path),
        None => secret(std::io::stdin().lock()),
    };
    let secret = match read {
        Ok(secret) => secret,
        Err(wrong) => {
            let from =
                args.from.as_ref().map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
            console.complain(format_args!("{from}: {wrong}"));
            return Ok(Exit::Failed);
        }
    };
    let member = if args.oauth { "refresh_token" } else { "password" };
    let mut body = json!({member: secret});
    if let (Some(user), Some(members)) = (&args.user, body.as_object_mut()) {
        members.insert("user".to_owned(), user.as_str().into());
    }
    client.put(&path(&args.host), None, &body).await?;
    console.hint(format_args!("stored: your workspaces get it when git asks for {}", args.host));
    Ok(Exit::Success)
}

async fn show(client: &GatewayClient, output: Output, console: &mut Console) -> Result<Exit, ClientError> {
    let Items { credentials } = client.get("/git-credentials").await?;
    Ok(match output {
        Output::Json => console.finish_with(format_args!("{:#}", json!(credentials))),
        Output::Text if credentials.is_empty() => {
            console.hint("none is stored: gateway git-credential set HOST < token");
            Exit::Success
        }
        Output::Text => {
            let rows = credentials.iter().map(|item| {
                let state =
                    item.refused_at.as_ref().map_or_else(|| "stored".to_owned(), |_| "sign in again".to_owned());
                [shown(&item.host), shown(&item.kind), shown(&item.user), state, shown(&item.created_at)]
            });
            console.finish_with(table::text(["HOST", "KIND", "USER", "STATE", "CREATED"], rows))
        }
    })
}

/// Returns the path of a host's credential. A host has no character that would have to be encoded but brackets.
fn path(host: &GitHost) -> String {
    format!("/git-credentials/{}", host.as_str().replace('[', "%5B").replace(']', "%5D"))
}

fn read_file(path: &Path) -> Result<String, String> {
    secret(std::fs::File::open(path).map_err(|error| error.to_string())?)
}

/// Reads the first line. Repeats nothing of it.
fn secret(input: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    input.take(SECRET_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "is not text in UTF-8".to_owned())?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err("has no secret in its first line".to_owned());
    }
    if text.lines().skip(1).any(|more| !more.trim().is_empty()) {
        return Err("has more than one line".to_owned());
    }
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_one_line_and_never_repeated() {
        assert_eq!(secret(&b"hunter2\n"[..]).as_deref(), Ok("hunter2"));
        assert_eq!(secret(&b"p w\r\n\n"[..]).as_deref(), Ok("p w"));
        for bad in [&b""[..], b"\nhunter2", b"hunter2\nmore", b"hunter2\xff"] {
            let wrong = secret(bad).unwrap_err();
            assert!(!wrong.contains("hunter2"), "{wrong}");
        }
    }

    #[test]
    fn host_is_one_part_of_a_path() {
        assert_eq!(path(&"[::1]:3000".parse().unwrap()), "/git-credentials/%5B::1%5D:3000");
    }
}
