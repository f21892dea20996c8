//! Flags of the commands about names and owners of workspaces.

use clap::Args;

use crate::Output;
use crate::credentials::Remote;
use gateway_types::{DisplayName, UserName, WorkspaceName};

const RENAME_EXAMPLES: &str = which!(
    "\
Examples:
  gateway workspace rename my-app 'Shop, new checkout'    people read that; the address keeps my-app
  gateway workspace rename my-app                         it has no display name any more"
);

const HAND_OVER_EXAMPLES: &str = which!(
    "\
Examples:
  gateway workspace hand-over my-app --to ann --yes

For workspaces that run elsewhere. Shares, tokens of the agent and what is open there end; the new owner uses a new token."
);

/// Flags of `gateway workspace rename`.
#[derive(Clone, Debug, Args)]
#[command(after_help = RENAME_EXAMPLES)]
pub struct RenameArgs {
    /// The workspace.
    #[arg(value_name = "NAME")]
    pub workspace: WorkspaceName,
    /// The name that people read; without one it has none.
    #[arg(value_name = "TEXT")]
    pub display_name: Option<DisplayName>,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of `gateway workspace hand-over`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HAND_OVER_EXAMPLES)]
pub struct HandOverArgs {
    /// The workspace.
    #[arg(value_name = "NAME")]
    pub workspace: WorkspaceName,
    /// The user who gets it.
    #[arg(long, value_name = "USER")]
    pub to: UserName,
    /// Confirms it: the workspace is not yours any more.
    #[arg(long)]
    pub yes: bool,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}
