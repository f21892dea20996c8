//! The agent inside a workspace. It dials a gateway, keeps one session open, and joins the channels that the gateway
//! opens with loopback ports. It speaks no HTTP beyond the tunnel's own and its own pages', and takes no addresses: ports only.
//!
//! * `dial` keeps it connected: dials, serves channels, redials with jitter, and stops only when a person has to act.
//! * `ports` decides which local ports are reached, and how; `app_tls` speaks TLS to those whose apps do; `listening` reads which of
//!   them something listens on.
//! * `labels` names the ports that listen: as a person did, else by the program there.
//! * `terminal`: shells of this machine, and their page. They outlive their connections.
//! * `inspector` records the exchanges between users and apps, and shows them to the workspace's owner.
//! * `own_pages`: files of these two's pages, and what keeps other pages out.
//! * `ssh`: an SSH server for each channel of its port.
//! * `start_commands` reads what became of the commands with which a workspace in a pod began.
//! * `busy` keeps the workspace awake while a command runs.
//! * `announce` writes to the person who started the agent where the workspace is.
//! * `git_credential`: a credential helper for git, which asks the gateway.
//! * `ci` runs the command of a CI job, and holds a failed job open for its owner.
//! * `doctor` looks at all that an agent needs, and reports what is wrong.
//! * `cli`, `program`: the command line and the two programs, one with the feature `cluster` and one without.
//!
//! With the feature `cluster` it is also the cluster agent (`cluster`, crate `agent-cluster`), whose session carries one
//! conversation and reaches no port.

pub mod announce;
mod app_tls;
pub mod busy;
pub mod ci;
pub mod cli;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod dial;
pub mod doctor;
pub mod git_credential;
pub mod inspector;
mod labels;
pub mod listening;
mod own_pages;
pub mod ports;
pub mod program;
pub mod ssh;
mod start_commands;
pub mod terminal;

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tunnel_proto::hello::{AppProtocol, HostMode, Port};
use tunnel_proto::inspector::INSPECTOR_PORT;
use tunnel_proto::limit::{LANES_MAX, SESSION_BUDGET_BYTES};
use tunnel_proto::mux::ReplicaBudget;
use tunnel_proto::ssh::SSH_PORT;
use tunnel_proto::terminal::TERMINAL_PORT;

pub use self::dial::{Agent, AgentEvent, DialEnded, Gateway, LocalMachine, Transport};
pub use self::inspector::Inspector;
pub use self::ports::Ports;
pub use self::ssh::{SshOptions, SshServer};
pub use self::terminal::{TerminalOptions, Terminals};

/// Default memory budget of an agent's sessions, in bytes.
pub const MEMORY_BUDGET_BYTES: u64 = SESSION_BUDGET_BYTES;

/// Options of an agent.
#[derive(Clone, Debug)]
pub struct Options {
    /// Gateway to dial.
    pub gateway: Gateway,
    /// Transports that its links may use.
    pub transport: Transport,
    /// Token that proves which agent this is, unless a client certificate of `gateway` does; read anew for each dial,
    /// so that it can be rotated.
    pub token: TokenSource,
    /// Ports that it exposes.
    pub ports: Arc<Ports>,
    /// Links that its session should have, 1 to [`LANES_MAX`].
    pub lanes: u32,
    /// Memory budget of its sessions, together, in bytes.
    pub memory_budget: u64,
    /// Terminals that it serves, if it does.
    pub terminal: Option<Terminals>,
    /// SSH server that it offers, if it does.
    pub ssh: Option<SshServer>,
    /// Request inspector that it has, if it does.
    pub inspector: Option<Inspector>,
    /// Folder of the logs of the workspace's containers, if it is in a pod.
    pub logs: Option<PathBuf>,
}

impl Options {
    /// Makes an agent of this machine, whose parts can then be replaced.
    #[must_use]
    pub fn agent(self) -> Agent<LocalMachine> {
        let Self { gateway, transport, token, ports, lanes, memory_budget, terminal, ssh, inspector, logs } = self;
        let told = if terminal.is_some() { with_terminal(&ports) } else { ports.clone() };
        let told = if ssh.is_some() { with_port(Ports::clone(&told), SSH_PORT).into() } else { told };
        let told = if inspector.is_some() { with_port(Ports::clone(&told), INSPECTOR_PORT).into() } else { told };
        let network = LocalMachine { gateway, ports, terminals: terminal, ssh, inspector, logs: logs.map(Into::into) };
        let lanes = lanes.clamp(1, LANES_MAX);
        Agent { transport, lanes, budget: ReplicaBudget::new(memory_budget), ..Agent::new(network, token, told) }
    }
}

/// Returns the ports that an agent with terminals announces: the terminals' is one more, and the default if no other
/// is.
fn with_terminal(ports: &Arc<Ports>) -> Arc<Ports> {
    let mut told = Ports::clone(ports);
    told.default = told.default.or(Some(TERMINAL_PORT));
    Arc::new(with_port(told, TERMINAL_PORT))
}

/// Adds a port that an agent serves by itself to those that it names, if it names any: an empty list means all of them.
fn with_port(mut told: Ports, number: u16) -> Ports {
    if !told.exposed.is_empty() && told.exposed.iter().all(|port| port.number != number) {
        let (protocol, host) = (AppProtocol::Http1, HostMode::Original);
        told.exposed.push(Port { number, protocol, host, tls: false });
    }
    told
}

/// Source of the token. Never the command line's arguments: those are visible to every process.
#[derive(Clone)]
pub enum TokenSource {
    /// A file, read for each dial.
    File(PathBuf),
    /// A value, for agents inside another program.
    Value(Arc<str>),
    /// No token: the client certificate identifies the agent.
    None,
}

impl std::fmt::Debug for TokenSource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => formatter.debug_tuple("File").field(path).finish(),
            Self::Value(_) => formatter.write_str("Value(***)"),
            Self::None => formatter.write_str("None"),
        }
    }
}

/// Runs an agent until `stop` or until nothing but a person can help.
///
/// # Errors
/// [`DialEnded`] says what a person has to do. Everything that time can heal is retried here and is no error.
pub async fn run(options: Options, stop: CancellationToken) -> Result<(), DialEnded> {
    run_observed(options, Box::new(|_event| {}), stop).await
}

/// Runs an agent that tells `observer` of its life, until `stop` or until nothing but a person can help.
///
/// # Errors
/// As [`run`].
pub async fn run_observed(
    options: Options,
    observer: dial::Observer,
    stop: CancellationToken,
) -> Result<(), DialEnded> {
    let (terminals, ssh, inspector) = (options.terminal.clone(), options.ssh.clone(), options.inspector.clone());
    let agent = Agent { observer, ..options.agent() };
    let ended = agent.run(stop).await;
    if let Some(ssh) = ssh {
        ssh.close().await;
    }
    if let Some(inspector) = inspector {
        inspector.close().await;
    }
    if let Some(terminals) = terminals {
        terminals.close().await;
    }
    ended
}
