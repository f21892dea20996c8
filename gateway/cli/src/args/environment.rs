//! Flags of `gateway environment`.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::Output;
use crate::credentials::Remote;
use gateway_config::parse_duration;
use gateway_types::ClusterName;
use workspace_spec::environment::template::TemplateName;

/// Help on the identity of these commands, and on their exit codes.
macro_rules! speaks {
    ($examples:literal) => {
        concat!(
            $examples,
            "\n\nIn a CI job it speaks as the job, which means its own environment: with the job's id_token, from the file of \
             --token-file or from the variable GATEWAY_JOB_TOKEN, at the gateway of --gateway or GATEWAY_URL. Elsewhere it speaks \
             as the signed-in user (gateway login), one of the gateway's environments.operators, and --project and --environment \
             name the environment.\n\nExit codes: 0 it is what was asked for, 1 it failed, was refused or \
             not in time, with the reason, 2 wrong usage."
        )
    };
}

const ENVIRONMENT_EXAMPLES: &str = speaks!(
    "\
Examples:
  gateway environment ensure --agent prod                     in a CI job: its environment is ready, or why not
  gateway environment stop --agent prod                       in its stop job, last: deletes what was made for it
  gateway environment show --agent prod -o json"
);

const ENSURE_EXAMPLES: &str = speaks!(
    "\
Examples:
  gateway environment ensure --agent prod                     in a CI job: its environment is ready, or why not
  gateway environment ensure --agent prod --project 42 --project-path team/app --environment review/login --tier development"
);

const STOP_EXAMPLES: &str = speaks!(
    "\
Examples:
  gateway environment stop --agent prod --begin               in its stop job, first: it is going to be stopped
  gateway environment stop --agent prod                       in its stop job, last: deletes what was made for it
  gateway environment stop --agent prod --project 42 --environment review/login      as an operator
  gateway environment stop --agent gone --project 42 --environment review/login --forget     its cluster never comes back"
);

const SHOW_EXAMPLES: &str = speaks!(
    "\
Examples:
  gateway environment show --agent prod -o json
  gateway environment show --agent prod --project 42 --environment review/login      as an operator"
);

/// Flags of `gateway environment`.
#[derive(Clone, Debug, Args)]
#[command(after_help = ENVIRONMENT_EXAMPLES)]
pub struct EnvironmentArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: EnvironmentCommand,
}

/// Subcommands of `gateway environment`.
#[derive(Clone, Debug, Subcommand)]
pub enum EnvironmentCommand {
    /// Create everything that the environment's template lists, and wait for it.
    Ensure(EnsureArgs),
    /// Stop the environment, and follow the deletion of its objects.
    Stop(StopArgs),
    /// Show what is known of the environment.
    Show(ShowEnvironmentArgs),
}

/// Flags that name an environment.
#[derive(Clone, Debug, Args)]
pub struct WhichArgs {
    /// The cluster that it is in, by the name of its agent.
    #[arg(long, value_name = "NAME")]
    pub agent: ClusterName,
    /// The id of its project; in a job the job's own.
    #[arg(long, value_name = "ID", requires = "environment")]
    pub project: Option<u64>,
    /// Its name; in a job the job's own, and any other is refused.
    #[arg(long, value_name = "NAME")]
    pub environment: Option<String>,
}

/// Flags of `gateway environment ensure`.
#[derive(Clone, Debug, Args)]
#[command(after_help = ENSURE_EXAMPLES)]
pub struct EnsureArgs {
    /// The environment.
    #[command(flatten)]
    pub which: WhichArgs,
    /// The template, of those that the agent has [default: its template `default`, else the built-in one].
    #[arg(long, value_name = "NAME")]
    pub template: Option<TemplateName>,
    /// Address of what the environment serves.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// The path of the project; in a job, its token has it.
    #[arg(long, value_name = "PATH", requires = "project")]
    pub project_path: Option<String>,
    /// The tier of the environment; in a job, its token has it.
    #[arg(long, value_name = "TIER", requires = "project")]
    pub tier: Option<String>,
    /// Longest time to wait.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "15m")]
    pub timeout: Duration,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of `gateway environment stop`.
#[derive(Clone, Debug, Args)]
#[command(after_help = STOP_EXAMPLES)]
pub struct StopArgs {
    /// The environment.
    #[command(flatten)]
    pub which: WhichArgs,
    /// Only mark it as stopping; nothing is deleted before it is stopped.
    #[arg(long)]
    pub begin: bool,
    /// Only forget it, for a cluster that never comes back: nothing is deleted there, and what may be left is listed; for
    /// operators.
    #[arg(long, conflicts_with = "begin")]
    pub forget: bool,
    /// Do not wait until its objects are gone.
    #[arg(long)]
    pub no_wait: bool,
    /// Longest time to wait.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "15m")]
    pub timeout: Duration,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of `gateway environment show`.
#[derive(Clone, Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub struct ShowEnvironmentArgs {
    /// The environment.
    #[command(flatten)]
    pub which: WhichArgs,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}
