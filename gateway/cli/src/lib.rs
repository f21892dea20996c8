//! The command line: its flags and commands, and the commands that need no running gateway.
//!
//! * `args`, `console`, `table`, `completions`: flags, and output: data to one stream, messages to the other.
//! * `place`: where a command works: at a gateway over its API (`client`, `credentials`, `login`), or on the database of
//!   the gateway on this machine, with an entry in the audit log (`local`).
//! * `backup`, `key`: copies of the database, and the keys of its secrets.
//! * `workspace`, `token`, `git_credential`, `user`, `replicas`, `environment`: commands about these.
//! * `config`, `preflight`: what is configured, and whether it would start.
//! * `forward`, `ssh`, `tunnel`: ports of workspaces on this machine.
//! * `ci_run`: watches over a CI job that runs on this machine; the gateway starts it.
//! * `files`: limit of open files.
//!
//! `gateway run` and `gateway demo` are in the crate `gateway`, above this one.

mod args;
mod audit;
mod backup;
mod ci_run;
mod client;
mod cluster;
mod completions;
mod config;
mod console;
pub mod credentials;
mod environment;
mod explain;
pub mod files;
mod forward;
mod git_credential;
mod key;
mod local;
mod login;
mod place;
pub mod preflight;
mod replicas;
mod ssh;
mod table;
mod token;
mod tunnel;
mod user;
mod workspace;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use self::credentials::Remote;
use gateway_config::{BadConfig, Config, DEFAULT_FILE, Flag};
use gateway_types::UserName;

pub use args::{
    AuditArgs, AuditCommand, AuditTime, BackupArgs, ChangeArgs, ClusterArgs, ClusterCommand, CreateArgs,
    CreateTokenArgs, DoctorArgs, EnsureArgs, EnvironmentArgs, EnvironmentCommand, GivenParameter, HandOverArgs,
    IdleArgs, KeepArgs, KeyArgs, KeyCommand, KeyOutput, ListArgs, OpenArgs, OrphansArgs, RenameArgs, RestoreArgs,
    RevokeTokenArgs, RotateTokenArgs, RunsOn, SearchAuditArgs, ShareArgs, ShowArgs, ShowClusterArgs,
    ShowEnvironmentArgs, StopArgs, TemplatesArgs, TerminateArgs, TokenArgs, TokenCommand, WhichArgs, WorkspaceArgs,
    WorkspaceCommand,
};
pub use audit::run_audit;
pub use backup::{run_backup, run_restore};
pub use ci_run::{CiRunArgs, run_ci_run};
pub use cluster::run_cluster;
pub use completions::{CompletionsArgs, ManArgs, run_completions, run_man};
pub use config::{check_agents_dir, run_config};
pub use console::Console;
pub use environment::run_environment;
pub use explain::{ExplainArgs, run_explain};
pub use forward::{BadForwarding, ForwardArgs, Forwarding, run_forward};
pub use git_credential::{
    GitCredentialArgs, GitCredentialCommand, RemoveGitCredentialArgs, SetGitCredentialArgs, run_git_credential,
};
pub use key::run_key;
pub use login::{LoginArgs, LogoutArgs, WhoAmIArgs, run_login, run_logout, run_whoami};
pub use replicas::run_replicas;
pub use ssh::{SshArgs, SshConfigArgs, run_ssh, run_ssh_config};
pub use token::{OutArgs, run_token};
pub use user::run_user;
pub use workspace::run_workspace;

/// Exit codes of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Success,
    /// 1: it could not be done.
    Failed,
    /// 2: the command line makes no sense.
    Usage,
    /// 64: the configuration makes no sense.
    BadConfig,
}

impl Exit {
    /// Returns the process's exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::BadConfig => 64,
        }
    }

    /// Returns the code of a failure that has no other one, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "done",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::BadConfig => "bad_configuration",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The version, and of a release the commit that it was built from and its day.
pub const VERSION: &str = env!("BUILT_VERSION");

const EXAMPLES: &str = "\
Examples:
  gateway demo                                  everything in one process, to look around
  gateway serve --config gateway.toml           run a gateway
  gateway config check                          all problems of the configuration at once
  gateway doctor                                what is wrong here, and how to mend it
  gateway login --gateway https://gw.example.com  sign in with a browser, here or elsewhere
  gateway token create --workspace my-app --out agent.token
  gateway workspace create my-app --agent cluster-1
  gateway workspace share my-app 3000 --with signed-in
  gateway git-credential set git.example.com < token
  gateway user disable ann                      lets a user in no more
  gateway audit search --workspace my-app       who did what, on all replicas
  gateway cluster show prod                     what workspaces take there, and how much they may
  gateway replicas list                         the gateways that share one database
  gateway backup --to gateway.backup            the database and its keys in one file
  gateway environment ensure --agent prod       in a CI job: its Kubernetes resources are ready
  gateway forward my-app 5432                   its port 5432 on this machine
  gateway ssh my-app                            a shell in it

Configuration: defaults, then gateway.toml, then GATEWAY_… variables, then flags; the later wins. The variable of \
`listen.public` is GATEWAY_LISTEN__PUBLIC.

Exit codes: 0 done, 1 failed, 2 wrong usage, 64 bad configuration.";

const DEMO_EXAMPLES: &str = "\
Examples:
  gateway demo
  gateway demo --listen 127.0.0.1:9000 --agents-listen 127.0.0.1:0";

const SERVE_EXAMPLES: &str = "\
Examples:
  gateway serve
  gateway serve --config /etc/gateway/gateway.toml
  gateway serve --config /etc/gateway/gateway.toml --replace     take the place of the gateway that runs here
  GATEWAY_LISTEN__PUBLIC=0.0.0.0:8080 gateway serve --admin-listen off";

const CONFIG_EXAMPLES: &str = "\
Examples:
  gateway config check --config gateway.toml
  gateway config show                           effective values and where they come from
  gateway config show > gateway.toml            a file to start from
  gateway config show --output json";

const USER_EXAMPLES: &str = "\
Examples:
  gateway user list                             who signed in, their groups, who is disabled
  gateway user disable ann                      ends their sessions, tokens and open streams within 5 s
  gateway user disable ann --stop               and stops the workspaces that run for them
  gateway user enable ann

These commands work over the API for operators who signed in (gateway login; auth.admins, auth.admin_group), and on the database on the gateway's own machine. A user is listed from their first sign-in with the identity provider on; over the API also with a workspace or a token.";

const REPLICAS_EXAMPLES: &str = "\
Examples:
  gateway replicas list                         who is there, with how many agents
  gateway replicas drain 12 --wait              before its machine goes away; no stream of others breaks

Replicas are gateways with `directory = \"store\"` on one PostgreSQL. These commands work on that database, as the operator.";

/// Signs users in and routes their traffic through reverse tunnels into workspaces.
#[derive(Clone, Debug, Parser)]
#[command(name = "gateway", version = VERSION, after_help = EXAMPLES)]
pub struct Cli {
    /// Configuration file [default: gateway.toml, if there is one].
    #[arg(long, global = true, value_name = "FILE", env = "GATEWAY_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// The command.
    #[command(subcommand)]
    pub command: GatewayCommand,
}

/// Commands of `gateway`.
#[derive(Clone, Debug, Subcommand)]
pub enum GatewayCommand {
    /// Run gateway, agent and a sample app in one process, with nothing to install.
    Demo(DemoArgs),
    /// Run a gateway.
    Serve(ServeArgs),
    /// Check or show the configuration.
    Config(ConfigArgs),
    /// Find what is wrong with an installation, why it matters, and how to mend it.
    Doctor(DoctorArgs),
    /// Sign in to a gateway, for the commands that speak with it.
    Login(LoginArgs),
    /// Tell who is signed in, and where.
    Whoami(WhoAmIArgs),
    /// Revoke what the sign-in gave, and forget it.
    Logout(LogoutArgs),
    /// Explain a request that failed, by the trace id of its answer.
    Explain(ExplainArgs),
    /// Make, list, rotate or revoke tokens of agents and users.
    Token(TokenArgs),
    /// Make, start, stop and end workspaces, open them, and share their ports.
    Workspace(WorkspaceArgs),
    /// Store credentials for git servers, which your workspaces get when git asks.
    GitCredential(GitCredentialArgs),
    /// List users, and decide who may not come in.
    User(UserArgs),
    /// Search the audit log of all replicas.
    Audit(AuditArgs),
    /// Show what workspaces take in a cluster, and find what lost records left there.
    Cluster(ClusterArgs),
    /// List the replicas of a gateway, and drain one.
    Replicas(ReplicasArgs),
    /// Back up the database and the keys of its secrets, while the gateway runs.
    Backup(BackupArgs),
    /// Bring a backup back.
    Restore(RestoreArgs),
    /// Exchange the key that seals secrets in the database, while gateways run.
    Key(KeyArgs),
    /// Have a CI job's Kubernetes resources be there, and end them.
    Environment(EnvironmentArgs),
    /// Bring ports of a workspace to this machine.
    Forward(ForwardArgs),
    /// Log in to a workspace with SSH.
    Ssh(SshArgs),
    /// Let plain ssh, scp, rsync and editors find workspaces.
    SshConfig(SshConfigArgs),
    /// Write what completes these commands in a shell.
    Completions(CompletionsArgs),
    /// Write a manual page for each command into a folder.
    Man(ManArgs),
    /// Watch over a CI job. The gateway starts this itself.
    #[command(hide = true)]
    CiRun(CiRunArgs),
}

/// Flags of `gateway demo`.
#[derive(Clone, Debug, Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub struct DemoArgs {
    /// Address for browsers [default: `listen.public` of the configuration].
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Address for agents [default: `listen.agents` of the configuration].
    #[arg(long, value_name = "ADDRESS")]
    pub agents_listen: Option<SocketAddr>,
    /// Address of the sample app; port 0 means any.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub app_listen: SocketAddr,
}

/// Addresses to listen on; they stand above every other layer of the configuration.
#[derive(Clone, Debug, Args)]
pub struct ListenArgs {
    /// Address for users [default: `listen.public` of the configuration].
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Address for agents [default: `listen.agents` of the configuration].
    #[arg(long, value_name = "ADDRESS")]
    pub agents_listen: Option<SocketAddr>,
    /// Address for health and metrics, or `off` [default: `listen.admin` of the configuration].
    #[arg(long, value_name = "ADDRESS", value_parser = address_or_off)]
    pub admin_listen: Option<String>,
}

/// Flags of `gateway serve`.
#[derive(Clone, Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    /// Addresses.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// Take the place of the gateway that runs with this database on this host, if one does: what users have open there goes on
    /// [needs `directory = "host"`].
    #[arg(long)]
    pub replace: bool,
}

const CHECK_EXAMPLES: &str = "\
Examples:
  gateway config check --config gateway.toml
  gateway config check -o json";

const SHOW_EXAMPLES: &str = "\
Examples:
  gateway config show                           effective values and where they come from
  gateway config show > gateway.toml            a file to start from
  gateway config show -o json";

const LIST_USERS_EXAMPLES: &str = "\
Examples:
  gateway user list                             who signed in, their groups, who is disabled
  gateway user list -o json";

const DISABLE_EXAMPLES: &str = "\
Examples:
  gateway user disable ann                      ends their sessions, tokens and open streams within 5 s
  gateway user disable ann --stop               and stops the workspaces that run for them
  gateway user disable ann --stop -o json       which ones, for programs";

const ENABLE_EXAMPLES: &str = "\
Examples:
  gateway user enable ann";

/// Flags of `gateway config`.
#[derive(Clone, Debug, Args)]
#[command(after_help = CONFIG_EXAMPLES)]
pub struct ConfigArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// Subcommands of `gateway config`.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Read the configuration, open what it names, and tell all problems at once; exit 64 if there are any.
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// Shape of what is printed.
        #[arg(long, short, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Print every key with its effective value and where that comes from; secrets are masked.
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Shape of what is printed.
        #[arg(long, short, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

/// Flags of `gateway user`.
#[derive(Clone, Debug, Args)]
#[command(after_help = USER_EXAMPLES)]
pub struct UserArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: UserCommand,
}

/// Subcommands of `gateway user`.
#[derive(Clone, Debug, Subcommand)]
pub enum UserCommand {
    /// List all users.
    #[command(after_help = LIST_USERS_EXAMPLES)]
    List(ListUsersArgs),
    /// Let a user in no more: sessions, tokens and what is open end within 5 s. Doing it again is no error.
    #[command(after_help = DISABLE_EXAMPLES)]
    Disable(DisableArgs),
    /// Let a user in again; what was cut stays cut.
    #[command(after_help = ENABLE_EXAMPLES)]
    Enable(NamedUser),
}

/// Flags of `gateway user list`.
#[derive(Clone, Debug, Args)]
pub struct ListUsersArgs {
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of `gateway user disable`.
#[derive(Clone, Debug, Args)]
pub struct DisableArgs {
    /// The user.
    #[command(flatten)]
    pub user: NamedUser,
    /// Also stop the workspaces that run for the user in clusters and CI systems.
    #[arg(long)]
    pub stop: bool,
}

/// One user, and how to say what was done.
#[derive(Clone, Debug, Args)]
pub struct NamedUser {
    /// The user's name.
    #[arg(value_name = "NAME")]
    pub name: UserName,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

const LIST_REPLICAS_EXAMPLES: &str = "\
Examples:
  gateway replicas list
  gateway replicas list -o json";

const CERTIFICATE_EXAMPLES: &str = "\
Examples:
  gateway replicas certificate --ca ca.pem --ca-key ca.key --out /run/secrets/peers

Makes tls.crt, tls.key and ca.crt in the folder, for tls.peers. The authority is one for replicas alone; the certificate \
is valid for as long as it is.";

const DRAIN_EXAMPLES: &str = "\
Examples:
  gateway replicas drain 12                     its agents go elsewhere; it ends when users' streams there have ended
  gateway replicas drain 12 --wait
  gateway replicas drain 12 --now               ends at once what is still open there";

/// Flags of `gateway replicas`.
#[derive(Clone, Debug, Args)]
#[command(after_help = REPLICAS_EXAMPLES)]
pub struct ReplicasArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: ReplicasCommand,
}

/// Subcommands of `gateway replicas`.
#[derive(Clone, Debug, Subcommand)]
pub enum ReplicasCommand {
    /// List the replicas that live.
    #[command(after_help = LIST_REPLICAS_EXAMPLES)]
    List {
        /// Shape of what is printed.
        #[arg(long, short, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Have a replica take nothing new and end, up to `timeouts.drain` later.
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain(DrainArgs),
    /// Make a certificate for a replica of this zone, of an authority whose key is here.
    #[command(after_help = CERTIFICATE_EXAMPLES)]
    Certificate(CertificateArgs),
}

/// Flags of `gateway replicas certificate`.
#[derive(Clone, Debug, Args)]
pub struct CertificateArgs {
    /// The authority's certificate, in PEM.
    #[arg(long, value_name = "FILE")]
    pub ca: PathBuf,
    /// Its private key, in PEM.
    #[arg(long, value_name = "FILE")]
    pub ca_key: PathBuf,
    /// Folder for the files; those of an earlier certificate are replaced.
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
}

/// Flags of `gateway replicas drain`.
#[derive(Clone, Debug, Args)]
pub struct DrainArgs {
    /// The id from the list.
    #[arg(value_name = "ID")]
    pub id: u64,
    /// Wait for nothing: what is open there ends at once.
    #[arg(long)]
    pub now: bool,
    /// Show what is left there, until it has ended.
    #[arg(long)]
    pub wait: bool,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Shape of printed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl Cli {
    /// Reads the configuration with this command line's file and flags.
    ///
    /// Without `--config` and `GATEWAY_CONFIG`, [`DEFAULT_FILE`] in the working directory counts if it is there.
    ///
    /// # Errors
    /// All problems of all layers.
    pub fn load_config(&self, env: &BTreeMap<String, String>) -> Result<Config, BadConfig> {
        let default = Path::new(DEFAULT_FILE);
        let file = self.config.as_deref().or_else(|| default.exists().then_some(default));
        Config::load_with_flags(file, env, &self.command.flags())
    }
}

impl GatewayCommand {
    /// Returns the flags that set keys of the configuration.
    fn flags(&self) -> Vec<Flag> {
        let text = |address: &SocketAddr| address.to_string();
        let (public, agents, admin) = match self {
            Self::Demo(args) => (args.listen.as_ref().map(text), args.agents_listen.as_ref().map(text), None),
            Self::Serve(ServeArgs { listen, .. }) | Self::Doctor(DoctorArgs { listen, .. }) => {
                (listen.listen.as_ref().map(text), listen.agents_listen.as_ref().map(text), listen.admin_listen.clone())
            }
            Self::Config(_)
            | Self::Login(_)
            | Self::Whoami(_)
            | Self::Logout(_)
            | Self::Explain(_)
            | Self::Token(_)
            | Self::Workspace(_)
            | Self::User(_)
            | Self::Audit(_)
            | Self::Cluster(_)
            | Self::Replicas(_)
            | Self::Backup(_)
            | Self::Restore(_)
            | Self::Key(_)
            | Self::Environment(_)
            | Self::Forward(_)
            | Self::Ssh(_)
            | Self::SshConfig(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::GitCredential(_)
            | Self::CiRun(_) => (None, None, None),
        };
        let all = [
            ("--listen", "listen.public", public),
            ("--agents-listen", "listen.agents", agents),
            ("--admin-listen", "listen.admin", admin),
        ];
        all.into_iter().filter_map(|(name, key, value)| Some(Flag { name, key, value: value? })).collect()
    }
}

/// Tells whether a command line asks for JSON, before it is read: its own mistakes are then JSON too.
#[must_use]
pub fn asks_for_json(words: impl Iterator<Item = OsString>) -> bool {
    let mut is_output = false;
    for word in words.take_while(|word| word != "--") {
        let word = word.to_string_lossy();
        if matches!(&*word, "--output=json" | "-ojson" | "-o=json") || (is_output && word == "json") {
            return true;
        }
        is_output = matches!(&*word, "--output" | "-o");
    }
    false
}

/// Checks the text here, so that a slip in a flag is wrong usage (2) and not bad configuration (64).
fn address_or_off(text: &str) -> Result<String, String> {
    if text == "off" {
        return Ok(text.to_owned());
    }
    let address: Result<SocketAddr, _> = text.parse();
    address.map(|address| address.to_string()).map_err(|_| "neither an IP address and a port, nor `off`".to_owned())
}

#[cfg(test)]
mod tests;
