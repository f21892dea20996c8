//! Flags of `gateway cluster`.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::Output;
use crate::credentials::Remote;
use gateway_config::parse_duration;
use gateway_types::ClusterName;

const CLUSTER_EXAMPLES: &str = "\
Examples:
  gateway cluster show prod                                   what workspaces take there, and how much they may
  gateway cluster orphans prod                                workspaces there of which the gateway has no record

Works on a gateway over its API, as the user who is signed in there (gateway login).";

const SHOW_CLUSTER_EXAMPLES: &str = "\
Examples:
  gateway cluster show prod
  gateway cluster show prod -o json";

const ORPHANS_EXAMPLES: &str = "\
Examples:
  gateway cluster orphans prod                                lists them, and changes nothing
  gateway cluster orphans prod --delete my-app
  gateway cluster orphans prod --delete my-app.ws-my-app --yes
  gateway cluster orphans prod --delete-all

An orphan is a workspace in the cluster that this gateway made and has no record of, as after a restore of an older backup. It runs \
on, and nothing removes it by itself. To delete one deletes its storage. For operators: users in environments.operators.

Exit codes: 0 done, 1 it failed, was refused or something is still there after --timeout, 2 wrong usage.";

/// Flags of `gateway cluster`.
#[derive(Clone, Debug, Args)]
#[command(after_help = CLUSTER_EXAMPLES)]
pub struct ClusterArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// Subcommands of `gateway cluster`.
#[derive(Clone, Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show what workspaces take in a cluster: all together and one's own, and how much they may.
    Show(ShowClusterArgs),
    /// List workspaces in a cluster of which the gateway has no record, and delete them on request.
    Orphans(OrphansArgs),
}

/// Flags of `gateway cluster show`.
#[derive(Clone, Debug, Args)]
#[command(after_help = SHOW_CLUSTER_EXAMPLES)]
pub struct ShowClusterArgs {
    /// The cluster, by the name of its agent.
    #[arg(value_name = "CLUSTER")]
    pub cluster: ClusterName,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of `gateway cluster orphans`.
#[derive(Clone, Debug, Args)]
#[command(after_help = ORPHANS_EXAMPLES)]
pub struct OrphansArgs {
    /// The cluster, by the name of its agent.
    #[arg(value_name = "CLUSTER")]
    pub cluster: ClusterName,
    /// Delete these with their storage: names or, if there are two of a name, ids from the list.
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with = "delete_all")]
    pub delete: Vec<String>,
    /// Delete all that are listed now with their storage.
    #[arg(long)]
    pub delete_all: bool,
    /// Delete without asking; programs need it.
    #[arg(long)]
    pub yes: bool,
    /// Longest wait for what is deleted to be gone, such as `2m`.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5m")]
    pub timeout: Duration,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}
