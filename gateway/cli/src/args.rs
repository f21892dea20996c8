//! Flags of `gateway token`, `gateway workspace` and others.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::Output;
use super::credentials::Remote;
use super::token::OutArgs;
use gateway_config::parse_duration;
use gateway_store::{Note, TokenId};
use gateway_types::{Audience, ClusterName, Port, UserName, WorkspaceName};

/// Help on the choice of the gateway; the same words for all commands that work on either.
macro_rules! which {
    ($examples:literal) => {
        which!($examples, "")
    };
    ($examples:literal, $more:literal) => {
        concat!(
            $examples,
            $more,
            "\n\nWorks on a gateway over its API, as the user who is signed in there: with --gateway, --token-file or \
             GATEWAY_URL, or once gateway login was run. With --config or GATEWAY_CONFIG, \
             or without a sign-in in a folder that has gateway.toml or gateway.db, it works straight on that gateway's \
             database, as its operator; a running gateway sees the change within seconds. gateway whoami tells which."
        )
    };
}

mod audit;
mod backup;
mod cluster;
mod doctor;
mod environment;
mod idle;
mod lifecycle;
mod naming;
mod template;

pub use audit::{AuditArgs, AuditCommand, AuditTime, SearchAuditArgs};
pub use backup::{BackupArgs, KeyArgs, KeyCommand, KeyOutput, RestoreArgs};
pub use cluster::{ClusterArgs, ClusterCommand, OrphansArgs, ShowClusterArgs};
pub use doctor::DoctorArgs;
pub use environment::{EnsureArgs, EnvironmentArgs, EnvironmentCommand, ShowEnvironmentArgs, StopArgs, WhichArgs};
pub use idle::{IdleArgs, KeepArgs};
pub use lifecycle::{ChangeArgs, CreateArgs, RunsOn, TerminateArgs};
pub use naming::{HandOverArgs, RenameArgs};
pub use template::{GivenParameter, TemplatesArgs};

const TOKEN_EXAMPLES: &str = which!(
    "\
Examples:
  gateway token create --workspace my-app --out agent.token
  gateway token list
  gateway token rotate t-12 --overlap 1h --out agent.token --force
  gateway token revoke t-12"
);

const CREATE_TOKEN_EXAMPLES: &str = which!(
    "\
Examples:
  gateway token create --workspace my-app --out agent.token     for the agent of a workspace
  gateway token create --user alice --expires 90d --note backup
  gateway token create --workspace my-app --owner alice --config gateway.toml
  gateway token create --cluster prod --config gateway.toml --out cluster.token"
);

const LIST_TOKENS_EXAMPLES: &str = which!(
    "\
Examples:
  gateway token list
  gateway token list -o json"
);

const ROTATE_TOKEN_EXAMPLES: &str = which!(
    "\
Examples:
  gateway token rotate t-12 --out new.token                     the old one stays good for 10 minutes
  gateway token rotate t-12 --overlap 1h --expires 90d --out agent.token --force"
);

const REVOKE_TOKEN_EXAMPLES: &str = which!(
    "\
Examples:
  gateway token revoke t-12                                     ends what is open within 5 s"
);

const WORKSPACE_EXAMPLES: &str = which!(
    "\
Examples:
  gateway workspace create my-app --agent cluster-1 --devfile .devfile.yaml --wait
  gateway workspace templates --agent cluster-1
  gateway workspace stop my-app
  gateway workspace list
  gateway workspace open my-app 3000
  gateway workspace rename my-app 'Shop, new checkout'
  gateway workspace share my-app 3000 --with user:ann --for 8h"
);

const LIST_WORKSPACES_EXAMPLES: &str = which!(
    "\
Examples:
  gateway workspace list
  gateway workspace list -o json"
);

const SHOW_WORKSPACE_EXAMPLES: &str = which!(
    "\
Examples:
  gateway workspace show my-app
  gateway workspace show my-app -o json"
);

const OPEN_EXAMPLES: &str = which!(
    "\
Examples:
  gateway workspace open my-app 3000                          prints the address, and opens it on a desktop
  gateway workspace open my-app --print"
);

const SHARE_EXAMPLES: &str = which!(
    "\
Examples:
  gateway workspace share my-app                              who may reach which port
  gateway workspace share my-app 3000 --with user:ann --for 8h
  gateway workspace share my-app 3000 --with group:devs
  gateway workspace share my-app 8080 --with public           prints the link
  gateway workspace share my-app 8080 --with public --revoke  ends what is open within 5 s

The owner reaches every port. An audience is user:NAME, group:NAME, signed-in (every signed-in user) or public (no sign-in)."
);

/// Flags of `gateway token`.
#[derive(Clone, Debug, Args)]
#[command(after_help = TOKEN_EXAMPLES)]
pub struct TokenArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// Subcommands of `gateway token`.
#[derive(Clone, Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it, alone, this once.
    Create(CreateTokenArgs),
    /// List tokens, without their text: one's own over the API, all of them on the gateway's machine.
    #[command(after_help = LIST_TOKENS_EXAMPLES)]
    List(ListArgs),
    /// Make a new token in the place of one, and print it, alone, this once; the old one ends a little later.
    Rotate(RotateTokenArgs),
    /// Revoke a token; revoking it again is no error.
    Revoke(RevokeTokenArgs),
}

/// Flags of `gateway token create`: the identity that the token has.
#[derive(Clone, Debug, Args)]
#[command(after_help = CREATE_TOKEN_EXAMPLES)]
pub struct CreateTokenArgs {
    /// For the agent of this workspace. On the gateway's machine it is made if there is none.
    #[arg(long, value_name = "NAME", required_unless_present_any = ["user", "cluster"], conflicts_with_all = ["user", "cluster"])]
    pub workspace: Option<WorkspaceName>,
    /// For the cluster agent of this cluster, on the gateway's machine. The cluster is made known if it is not yet.
    #[arg(long, value_name = "NAME", conflicts_with = "user")]
    pub cluster: Option<ClusterName>,
    /// Owner of the workspace, on the gateway's machine [default: its present owner; for a new one, `dev` in dev mode].
    #[arg(long, value_name = "USER", requires = "workspace", conflicts_with = "user")]
    pub owner: Option<UserName>,
    /// For programs of this user; over the API, oneself.
    #[arg(long, value_name = "USER")]
    pub user: Option<UserName>,
    /// Time until it expires, such as `30d` [default: until it is revoked].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub expires: Option<Duration>,
    /// Note on its purpose; shown in lists.
    #[arg(long, value_name = "TEXT")]
    pub note: Option<Note>,
    /// Destination of its text.
    #[command(flatten)]
    pub out: OutArgs,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of `gateway token rotate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = ROTATE_TOKEN_EXAMPLES)]
pub struct RotateTokenArgs {
    /// The id from the list, such as `t-12`.
    #[arg(value_name = "ID")]
    pub id: TokenId,
    /// Time for which the old one stays valid, such as `10m`.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10m")]
    pub overlap: Duration,
    /// Time until the new one expires [default: the lifetime of the old one].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub expires: Option<Duration>,
    /// Destination of its text.
    #[command(flatten)]
    pub out: OutArgs,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of `gateway token revoke`.
#[derive(Clone, Debug, Args)]
#[command(after_help = REVOKE_TOKEN_EXAMPLES)]
pub struct RevokeTokenArgs {
    /// The id from the list, such as `t-12`.
    #[arg(value_name = "ID")]
    pub id: TokenId,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of commands that list.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of `gateway workspace`.
#[derive(Clone, Debug, Args)]
#[command(after_help = WORKSPACE_EXAMPLES)]
pub struct WorkspaceArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: WorkspaceCommand,
}

/// Subcommands of `gateway workspace`.
#[derive(Clone, Debug, Subcommand)]
pub enum WorkspaceCommand {
    /// Make a workspace in a cluster, which is to run from then on.
    Create(Box<CreateArgs>),
    /// Have a workspace run.
    #[command(after_help = lifecycle::START_EXAMPLES)]
    Start(ChangeArgs),
    /// Have a workspace stop; its storage is kept.
    #[command(after_help = lifecycle::STOP_EXAMPLES)]
    Stop(ChangeArgs),
    /// Stop a workspace, and start it again once it has.
    #[command(after_help = lifecycle::RESTART_EXAMPLES)]
    Restart(ChangeArgs),
    /// End a workspace for good, with its storage.
    Terminate(TerminateArgs),
    /// List workspaces: one's own and those shared by name over the API, all of them on the gateway's machine.
    #[command(after_help = LIST_WORKSPACES_EXAMPLES)]
    List(ListArgs),
    /// Keep a workspace from being stopped for idleness for a while.
    Keep(KeepArgs),
    /// Set after how many minutes without use a workspace is stopped.
    Idle(IdleArgs),
    /// Give a workspace the name that people read, or take it away.
    Rename(RenameArgs),
    /// Give a workspace that runs elsewhere to another user.
    HandOver(HandOverArgs),
    /// List the templates that workspaces of a cluster can be made from, and their parameters.
    Templates(TemplatesArgs),
    /// Show what is known of a workspace.
    Show(ShowArgs),
    /// Print the address of a workspace or a port of it, and open it where there is a desktop.
    Open(OpenArgs),
    /// Show who may reach which port, or change it.
    Share(ShareArgs),
}

/// Flags of `gateway workspace show`.
#[derive(Clone, Debug, Args)]
#[command(after_help = SHOW_WORKSPACE_EXAMPLES)]
pub struct ShowArgs {
    /// The workspace.
    #[arg(value_name = "NAME")]
    pub workspace: WorkspaceName,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of `gateway workspace open`.
#[derive(Clone, Debug, Args)]
#[command(after_help = OPEN_EXAMPLES)]
pub struct OpenArgs {
    /// The workspace.
    #[arg(value_name = "NAME")]
    pub workspace: WorkspaceName,
    /// The port [default: the workspace's default port].
    #[arg(value_name = "PORT")]
    pub port: Option<Port>,
    /// Only print the address.
    #[arg(long)]
    pub print: bool,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of `gateway workspace share`.
#[derive(Clone, Debug, Args)]
#[command(after_help = SHARE_EXAMPLES)]
pub struct ShareArgs {
    /// The workspace.
    #[arg(value_name = "NAME")]
    pub workspace: WorkspaceName,
    /// The port to open or close; without it, what is shared now is shown.
    #[arg(value_name = "PORT", requires = "with")]
    pub port: Option<Port>,
    /// Audience: `user:NAME`, `group:NAME`, `signed-in` or `public`.
    #[arg(long, value_name = "AUDIENCE", requires = "port")]
    pub with: Option<Audience>,
    /// Time until it ends, such as `8h` or `7d` [default: until it is revoked].
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, requires = "with", conflicts_with = "revoke")]
    pub lasting: Option<Duration>,
    /// Take it back; what is open through it ends within 5 s.
    #[arg(long, requires = "with")]
    pub revoke: bool,
    /// Share with a user who has never signed in: the first person to come under that name has the port.
    #[arg(long, requires = "with", conflicts_with = "revoke")]
    pub unknown_user: bool,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}
