//! `git-credential`.

use std::path::PathBuf;

use clap::Args;

use super::{ProofFiles, gateway};
use crate::dial::Transport;
use crate::git_credential::HelperOptions;

/// Arguments of `git-credential`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  Let git in a workspace use the credentials that its owner has stored with gateway git-credential set:
    git config --global credential.helper \\
      '!workspace-agent git-credential --gateway https://gateway.example.com --token-file /run/secrets/agent-token'

  See what git would get:
    printf 'protocol=https\\nhost=git.example.com\\n' | workspace-agent git-credential --gateway … --token-file … get

Workspaces in pods are set up so. Each request is a call of its own to the gateway, with or without a running agent; the \
answer is in no file and no variable.

Exit status: 0 answered or nothing to answer, 1 failed, 2 wrong usage, 64 bad configuration.")]
pub struct GitCredentialArguments {
    /// URL of the gateway's listener for agents.
    #[arg(long, value_name = "URL", env = "WORKSPACE_AGENT_GATEWAY")]
    pub gateway: String,

    /// File that holds the workspace's token.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_TOKEN_FILE", required_unless_present = "client_cert")]
    pub token_file: Option<PathBuf>,

    /// PEM file of a client certificate that says which workspace this is, leaf first.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_CLIENT_CERT", requires = "client_key")]
    pub client_cert: Option<PathBuf>,

    /// PEM file of the client certificate's key.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_CLIENT_KEY", requires = "client_cert")]
    pub client_key: Option<PathBuf>,

    /// PEM file of certificates to trust besides the system's.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_CA_FILE")]
    pub ca_file: Option<PathBuf>,

    /// Transport to the gateway: auto takes HTTP/2, and HTTP/1.1 where HTTP/2 cannot pass.
    #[arg(long, value_name = "HOW", value_enum, default_value_t, env = "WORKSPACE_AGENT_TRANSPORT")]
    pub transport: Transport,

    /// What git asks: get, store or erase; others are ignored. Git adds it.
    #[arg(value_name = "ACTION")]
    pub action: String,
}

impl GitCredentialArguments {
    /// Turns arguments into options.
    ///
    /// # Errors
    /// A text that names the argument and what is wrong with it (exit status 64).
    pub fn options(self) -> anyhow::Result<HelperOptions> {
        let gateway = gateway(&self.gateway, self.ca_file.as_deref())?;
        let files = ProofFiles { token: self.token_file, cert: self.client_cert, key: self.client_key };
        let (gateway, token) = files.add_to(gateway)?;
        Ok(HelperOptions { gateway, transport: self.transport, token })
    }
}
