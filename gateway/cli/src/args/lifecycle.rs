//! Flags of the commands that make workspaces, and start, stop and end them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::GivenParameter;
use crate::Output;
use crate::credentials::Remote;
use gateway_config::parse_duration;
use gateway_types::{ClusterName, IdleLimit, NamedPort, UserName, WorkspaceName};
use workspace_spec::project::Project;
use workspace_spec::workspace_template::TemplateName;

const CREATE_EXAMPLES: &str = which!(
    "\
Examples:
  gateway workspace create my-app --agent cluster-1                     from the built-in devfile
  gateway workspace create my-app --agent cluster-1 --devfile .devfile.yaml --wait
  git show main:.devfile.yaml | gateway workspace create my-app --agent cluster-1 --devfile -
  gateway workspace create my-app --agent cluster-1 --env-file app.env --secret-file id_rsa=deploy.key
  gateway workspace create my-app --project https://git.example.com/team/app.git@main --wait
  gateway workspace create my-app --agent cluster-1 --template node --parameter version=22 --parameter debug=true
  gateway workspace create my-app --executor ci --project https://git.example.com/team/app.git --ref main --wait

Values never come from the command line, which others on the machine can read: --env-file names a file with a line NAME=VALUE \
for each environment variable, as it is behind the first = (lines that begin with # are left out), and --secret-file a file that \
the workspace finds under that name. --devfile - reads standard input."
);

/// Help on the exit codes of the commands that wait.
macro_rules! change {
    ($examples:literal) => {
        which!(
            $examples,
            "\n\nExit codes: 0 it is what was asked for, 1 it failed or was not in time, with the reason."
        )
    };
}

pub(super) const START_EXAMPLES: &str = change!(
    "\
Examples:
  gateway workspace start my-app                      waits until it runs, and shows how far it is
  gateway workspace start my-app -o json              one JSON object for each change, on a line of its own"
);

pub(super) const STOP_EXAMPLES: &str = change!(
    "\
Examples:
  gateway workspace stop my-app
  gateway workspace stop my-app --no-wait"
);

pub(super) const RESTART_EXAMPLES: &str = change!(
    "\
Examples:
  gateway workspace restart my-app --timeout 20m"
);

const TERMINATE_EXAMPLES: &str = change!(
    "\
Examples:
  gateway workspace terminate my-app                  asks first; its storage is gone for good
  gateway workspace terminate my-app --yes"
);

/// Executor of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunsOn {
    /// A Kubernetes cluster.
    Kubernetes,
    /// Jobs of a CI system.
    Ci,
    /// Nothing here: you start its agent where your code is.
    External,
}

/// Flags of `gateway workspace create`.
#[derive(Clone, Debug, Args)]
#[command(after_help = CREATE_EXAMPLES)]
pub struct CreateArgs {
    /// Name of the workspace, and of its hosts.
    #[arg(value_name = "NAME")]
    pub workspace: WorkspaceName,
    /// Executor that runs it.
    #[arg(long, value_enum, default_value_t = RunsOn::Kubernetes)]
    pub executor: RunsOn,
    /// The cluster that is to run it, by the name of its agent; with --executor ci the CI system [default: the only one].
    #[arg(long, value_name = "NAME")]
    pub agent: Option<ClusterName>,
    /// Repository to clone, and its branch or tag; in a cluster repeatable, with --executor ci one [default there: the project that
    /// the pipeline runs in].
    #[allow(rustdoc::broken_intra_doc_links, reason = "a text of `--help`: the brackets stand for options")]
    #[arg(long = "project", value_name = "URL[@REF]")]
    pub projects: Vec<Project>,
    /// The branch or tag of the only --project.
    #[arg(long = "ref", value_name = "REF", requires = "projects")]
    pub reference: Option<String>,
    /// Editor of a workspace in a cluster, one of those that its operator offers, or none [default: the first of them].
    #[allow(rustdoc::broken_intra_doc_links, reason = "a text of `--help`: the brackets stand for options")]
    #[arg(long, value_name = "NAME")]
    pub editor: Option<String>,
    /// Tag of the runners that take its jobs, with --executor ci; repeatable.
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Devfile to make it from, or `-` for standard input [default: in a cluster, `.devfile.yaml` or `devfile.yaml` of the first
    /// project, looked for with git on this machine; else one container to look around in].
    #[arg(long, value_name = "FILE")]
    pub devfile: Option<PathBuf>,
    /// Do not look for a devfile in the project.
    #[arg(long, conflicts_with = "devfile")]
    pub built_in_devfile: bool,
    /// Template of the cluster to make it from, instead of a devfile: gateway workspace templates lists them.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["devfile", "built_in_devfile"])]
    pub template: Option<TemplateName>,
    /// Value of one of the template's parameters; repeatable. It is shown with the workspace: secrets belong into --env-file.
    #[arg(long = "parameter", value_name = "KEY=VALUE", requires = "template")]
    pub parameters: Vec<GivenParameter>,
    /// File with environment variables, one NAME=VALUE in each line; repeatable.
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Name of a file in the workspace, and the local file with its contents; repeatable.
    #[arg(long, value_name = "NAME=FILE")]
    pub secret_file: Vec<String>,
    /// Port to name beside the devfile's endpoints, or to say more of: PORT[:name=NAME][:protocol=h2|https|h2s|tcp][:host=localhost];
    /// repeatable. None is open to others by it.
    #[allow(rustdoc::broken_intra_doc_links, reason = "a text of `--help`: the brackets stand for options")]
    #[arg(long = "port", value_name = "PORT")]
    pub ports: Vec<NamedPort>,
    /// Owner, on the gateway's machine [default: `dev` in dev mode].
    #[arg(long, value_name = "USER")]
    pub owner: Option<UserName>,
    /// Minutes without use after which it is stopped, or `off` [default: as the operator says].
    #[allow(rustdoc::broken_intra_doc_links, reason = "a text of `--help`: the brackets stand for options")]
    #[arg(long, value_name = "MINUTES")]
    pub idle_minutes: Option<IdleLimit>,
    /// Wait until it runs, and show how far it is.
    #[arg(long)]
    pub wait: bool,
    /// Longest time to wait.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10m")]
    pub timeout: Duration,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of the commands that change what a workspace is to be.
#[derive(Clone, Debug, Args)]
pub struct ChangeArgs {
    /// The workspace.
    #[arg(value_name = "NAME")]
    pub workspace: WorkspaceName,
    /// Only request it, and do not wait for the result.
    #[arg(long)]
    pub no_wait: bool,
    /// Longest time to wait.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10m")]
    pub timeout: Duration,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// Flags of `gateway workspace terminate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = TERMINATE_EXAMPLES)]
pub struct TerminateArgs {
    /// Flags of all changes.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Do not ask for confirmation, which happens only on a terminal.
    #[arg(long)]
    pub yes: bool,
}
