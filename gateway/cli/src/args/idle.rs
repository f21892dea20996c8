//! Flags of the commands about idle workspaces.

use std::time::Duration;

use clap::Args;

use crate::Output;
use crate::credentials::Remote;
use gateway_config::parse_duration;
use gateway_types::{IdleLimit, WorkspaceName};

const KEEP_EXAMPLES: &str = which!(
    "\
Examples:
  gateway workspace keep my-app                       it is not stopped for idleness within the next hour
  gateway workspace keep my-app --for 8h"
);

const IDLE_EXAMPLES: &str = which!(
    "\
Examples:
  gateway workspace idle my-app 90                    stop it after 90 minutes without use
  gateway workspace idle my-app off
  gateway workspace idle my-app default               as the operator has configured it

What counts as use, and what does not: docs/guide/idle.md. The operator may have set a largest number of minutes."
);

/// Flags of `gateway workspace keep`.
#[derive(Clone, Debug, Args)]
#[command(after_help = KEEP_EXAMPLES)]
pub struct KeepArgs {
    /// The workspace.
    #[arg(value_name = "NAME")]
    pub workspace: WorkspaceName,
    /// Time for which it is kept, at most 24h.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, default_value = "1h")]
    pub time: Duration,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of `gateway workspace idle`.
#[derive(Clone, Debug, Args)]
#[command(after_help = IDLE_EXAMPLES)]
pub struct IdleArgs {
    /// The workspace.
    #[arg(value_name = "NAME")]
    pub workspace: WorkspaceName,
    /// Minutes, `off`, or `default` for what the operator says.
    #[arg(value_name = "MINUTES")]
    pub limit: IdleLimit,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}
