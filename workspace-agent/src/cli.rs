//! The command line.

mod ci;
#[cfg(feature = "cluster")]
mod cluster;
mod doctor;
mod git_credential;
mod size;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use tunnel_proto::inspector::INSPECTOR_PORT;
use tunnel_proto::ssh::SSH_PORT;
use tunnel_proto::terminal::TERMINAL_PORT;

pub use self::ci::CiArguments;
#[cfg(feature = "cluster")]
pub use self::cluster::ClusterArguments;
pub use self::doctor::{DoctorArguments, DoctorOutput};
pub use self::git_credential::GitCredentialArguments;
pub use self::size::Size;
pub use crate::busy::BusyArguments;

use crate::dial::{ClientFiles, Gateway, Transport};
use crate::ports::{HostArgument, PortArgument, Ports};
use crate::{Inspector, MEMORY_BUDGET_BYTES, Options, SshOptions, SshServer, TerminalOptions, Terminals, TokenSource};

/// The agent inside a workspace: makes its ports reachable through a gateway.
#[derive(Debug, Parser)]
#[command(name = "workspace-agent", version = env!("BUILT_VERSION"), propagate_version = true)]
pub struct AgentCli<C: Subcommand> {
    /// The command.
    #[command(subcommand)]
    pub command: C,
}

/// Range of the memory budget. The least is 64 channels with the smallest window.
const MEMORY_BUDGET: RangeInclusive<Size> = Size(1 << 20)..=Size(1 << 40);

/// Commands of an agent in a workspace: all of `workspace-agent-slim`.
#[derive(Debug, Subcommand)]
pub enum WorkspaceCommand {
    /// Keeps a session open to a gateway and serves this machine's loopback ports through it.
    Run(RunArguments),
    /// Runs a command of a CI job, and when it fails, keeps the job open for its owner: a terminal, and the job's ports.
    Ci(CiArguments),
    /// Gives git the credentials that the workspace's owner has stored at the gateway; a credential helper of git.
    GitCredential(GitCredentialArguments),
    /// Finds what keeps an agent from its gateway, why it matters, and how to mend it.
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(Box<DoctorArguments>),
    /// Runs a command, and keeps the workspace from being stopped for idleness meanwhile.
    Busy(BusyArguments),
    /// Says on standard output which signals hit it; a part of `ci`.
    #[command(name = crate::ci::signal_probe::COMMAND, hide = true)]
    CiWitness,
}

/// Commands of `workspace-agent`.
#[cfg(feature = "cluster")]
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// In a workspace.
    #[command(flatten)]
    Workspace(WorkspaceCommand),
    /// Makes a Kubernetes cluster be what a gateway wants of its workspaces, and reports what it sees.
    Cluster(ClusterArguments),
}

/// Arguments of `run`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  Expose every loopback port:
    workspace-agent run --gateway https://gateway.example.com --token-file /run/secrets/agent-token

  Expose every loopback port, and let one app, or all of them, see localhost as their host:
    workspace-agent run --gateway http://localhost:8081 --token-file token --app 8888:host=localhost
    workspace-agent run --gateway http://localhost:8081 --token-file token --host localhost

  Expose two ports and no other, one of a dev server that insists on being localhost, one of a gRPC server:
    workspace-agent run --gateway http://localhost:8081 --token-file token \\
      --port 5173:host=localhost --port 50051:protocol=h2

  Expose every port, of which one has an app with a certificate of its own:
    workspace-agent run --gateway http://localhost:8081 --token-file token --app 8443:protocol=https:name=admin

  In a Kubernetes pod, with a token that the kubelet renews (serviceAccountToken in a projected volume), and with a
  certificate that another program renews:
    workspace-agent run --gateway https://gateway.example.com --token-file /var/run/secrets/gateway/token
    workspace-agent run --gateway https://gateway.example.com --client-cert tls.crt --client-key tls.key

  Expose nothing but one port, and a terminal in the browser (port 60002, for the workspace's owner):
    workspace-agent run --gateway https://gateway.example.com --token-file token --port 3000 --terminal

  Expose nothing but one port, and SSH for the workspace's owner (`gateway ssh`), with no SSH server on the machine:
    workspace-agent run --gateway https://gateway.example.com --token-file token --port 3000 --ssh-server /opt/workspace-ssh

  Get out through a proxy (CONNECT; socks5h:// works too) that requires authentication:
    HTTPS_PROXY=http://user:password@proxy.example.com:3128 \\
      workspace-agent run --gateway https://gateway.example.com --token-file token

Proxies come from HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY (or in lower case), read once. \
The log says which way it got out: via=http2 or via=websocket, and the proxy.

Exit status: 0 stopped by a signal, 1 refused or displaced, 2 wrong usage, 64 bad configuration. \
The log level comes from WORKSPACE_AGENT_LOG (error, warn, info, debug).")]
pub struct RunArguments {
    /// URL of the gateway's listener for agents.
    #[arg(long, value_name = "URL", env = "WORKSPACE_AGENT_GATEWAY")]
    pub gateway: String,

    /// File that holds the agent's token: one of the gateway's, a projected service-account token of Kubernetes, or a CI
    /// job's id_token. Read again for each dial.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_TOKEN_FILE", required_unless_present = "client_cert")]
    pub token_file: Option<PathBuf>,

    /// PEM file of a client certificate that says who this agent is, leaf first; instead of a token, or beside one for the
    /// same workspace. Read again for each dial.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_CLIENT_CERT", requires = "client_key")]
    pub client_cert: Option<PathBuf>,

    /// PEM file of the client certificate's key.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_CLIENT_KEY", requires = "client_cert")]
    pub client_key: Option<PathBuf>,

    /// PEM file of certificates to trust besides the system's.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_CA_FILE")]
    pub ca_file: Option<PathBuf>,

    /// Transport to the gateway: auto takes HTTP/2, and a WebSocket where HTTP/2 cannot pass.
    #[arg(long, value_name = "HOW", value_enum, default_value_t, env = "WORKSPACE_AGENT_TRANSPORT")]
    pub transport: Transport,

    /// Port to expose, with options: PORT[:host=localhost|original][:protocol=h2|https|h2s][:name=NAME]. Repeatable; none exposes
    /// every loopback port, and one closes all others: --app has the same options and closes none. With https and h2s the app
    /// has a certificate of its own, which is not checked.
    #[allow(rustdoc::broken_intra_doc_links, reason = "a text of `--help`: the brackets stand for options")]
    #[arg(long = "port", value_name = "PORT")]
    pub ports: Vec<PortArgument>,

    /// Options of a port, without exposing or closing any: PORT[:host=localhost|original][:protocol=h2|https|h2s][:name=NAME].
    /// Repeatable.
    #[allow(rustdoc::broken_intra_doc_links, reason = "a text of `--help`: the brackets stand for options")]
    #[arg(long = "app", value_name = "PORT")]
    pub apps: Vec<PortArgument>,

    /// Host that apps see, on ports of which nothing else says it: auto is the one that the user asked for, and localhost for
    /// a dev server that refuses that one.
    #[arg(long, value_name = "HOST", value_enum, default_value_t, env = "WORKSPACE_AGENT_HOST")]
    pub host: HostArgument,

    /// Port of the address without a port; the first --port if not given.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub default_port: Option<u16>,

    /// Links to the gateway at once. More than one goes beyond a single TCP connection on long or lossy paths: downloads
    /// and uploads are spread over them. The gateway bounds it by `tunnel.lanes_max`.
    #[arg(long, value_name = "N", default_value_t = 1, env = "WORKSPACE_AGENT_LANES",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(tunnel_proto::limit::LANES_MAX)))]
    pub lanes: u32,

    /// Bound on the bytes that may be on their way through the agent at once: the windows of all channels, and what is kept
    /// for a link that breaks. Less makes downloads slower on long paths, and the agent smaller.
    #[arg(long, value_name = "SIZE", default_value_t = Size(MEMORY_BUDGET_BYTES), env = "WORKSPACE_AGENT_MEMORY_BUDGET",
          value_parser = |text: &str| Size::parse_within(text, &MEMORY_BUDGET))]
    pub memory_budget: Size,

    /// Serve terminals: the owner of the workspace gets shells in it, in a browser at port 60002, as the user that runs this agent.
    /// Users with a share of that port can look on. It is the port of the address without a port if no other is.
    #[arg(long, env = "WORKSPACE_AGENT_TERMINAL")]
    pub terminal: bool,

    /// Record the requests to the apps of the workspace, and show them to its owner, in a browser at port 60003: the last 500, and
    /// 32 MiB at most, in the memory of this agent alone. Credentials in headers and addresses are left out;
    /// bodies are kept as they are. Requests can be edited and sent again there.
    #[arg(long, env = "WORKSPACE_AGENT_INSPECT")]
    pub inspect: bool,

    /// Offer SSH to the owner of the workspace, at port 60022 and with the OpenSSH server of this folder, which
    /// deploy/images/ssh-tools.sh makes. Sessions run as the user that runs this agent, who cannot be root. One server process for
    /// each connection, 64 at most. Without a server there the agent runs all the same, and says so in its log.
    #[arg(long, value_name = "FOLDER", env = "WORKSPACE_AGENT_SSH_SERVER")]
    pub ssh_server: Option<PathBuf>,

    /// Folder of the SSH server's key, which is made once; by default one in the home, ~/.local/share/workspace-gateway.
    #[arg(long, value_name = "FOLDER", env = "WORKSPACE_AGENT_SSH_KEYS")]
    pub ssh_keys: Option<PathBuf>,

    /// Folder of the logs of a pod's containers: from it the gateway learns, when it asks, which commands of the start failed.
    #[arg(long, value_name = "FOLDER", env = "WORKSPACE_AGENT_LOGS_DIR")]
    pub logs_dir: Option<PathBuf>,

    /// File to write once the agent is connected, for the probes of a pod; one that is there is removed first.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_READY_FILE")]
    pub ready_file: Option<PathBuf>,

    /// Port never to expose. Repeatable.
    #[arg(long = "deny-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub denied_ports: Vec<u16>,
}

impl RunArguments {
    /// Turns arguments into options.
    ///
    /// # Errors
    /// A text that names the argument and what is wrong with it (exit status 64).
    pub fn options(self) -> anyhow::Result<Options> {
        let gateway = gateway(&self.gateway, self.ca_file.as_deref())?;
        let files = ProofFiles { token: self.token_file, cert: self.client_cert, key: self.client_key };
        let (gateway, token) = files.add_to(gateway)?;
        let names = self.ports.iter().chain(&self.apps);
        let names = names.filter_map(|said| Some((said.port.number, said.name.clone()?))).collect();
        let exposed: Vec<_> = self.ports.into_iter().map(|said| said.port).collect();
        let terminal = self.terminal.then(|| Terminals::new(TerminalOptions::default()));
        let inspector = self.inspect.then(Inspector::new);
        let own = [
            (TERMINAL_PORT, "--terminal", self.terminal),
            (SSH_PORT, "--ssh-server", self.ssh_server.is_some()),
            (INSPECTOR_PORT, "--inspect", self.inspect),
        ];
        for (own, flag, is_asked) in own {
            let is_taken = exposed.iter().any(|port| port.number == own) || self.denied_ports.contains(&own);
            if is_asked && is_taken {
                anyhow::bail!("port {own} is the one of {flag}: it cannot be named by --port or --deny-port as well");
            }
        }
        let default = self.default_port.or_else(|| exposed.first().map(|port| port.number));
        let apps: Vec<_> = self.apps.into_iter().map(|said| said.port).collect();
        if let Some(twice) = apps.iter().find(|app| exposed.iter().any(|port| port.number == app.number)) {
            anyhow::bail!("port {0} is named by --port and by --app: say how to speak to it with --port", twice.number);
        }
        let denied = self.denied_ports.into_iter().collect();
        let ports = Ports { exposed, denied, default, apps, host: self.host.mode(), names };
        Ok(Options {
            gateway,
            transport: self.transport,
            token,
            ports: Arc::new(ports),
            lanes: self.lanes,
            memory_budget: self.memory_budget.0,
            terminal,
            ssh: self.ssh_server.and_then(|tools| ssh_server(tools, self.ssh_keys)),
            inspector,
            logs: self.logs_dir,
        })
    }
}

/// Makes the SSH server. Without one an agent is of use all the same: the tools of a pod may be older than its agent's settings.
fn ssh_server(tools: PathBuf, keys: Option<PathBuf>) -> Option<SshServer> {
    SshServer::new(SshOptions { tools, keys })
        .inspect_err(|error| tracing::info!(%error, "this agent offers no SSH"))
        .ok()
}

/// Reads a gateway's URL, and finds the way to it.
fn gateway(url: &str, ca_file: Option<&Path>) -> anyhow::Result<Gateway> {
    let gateway = Gateway::parse(url, ca_file).map_err(|error| anyhow::Error::new(error).context("--gateway"))?;
    let environment = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    Ok(gateway.behind(environment, ca_file)?)
}

/// Files that prove who the agent is: a token's, and a client certificate with its key.
struct ProofFiles {
    token: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl ProofFiles {
    /// Has them shown to a gateway. They have to be there, and are read later.
    fn add_to(self, gateway: Gateway) -> anyhow::Result<(Gateway, TokenSource)> {
        for (name, file) in [("--token-file", &self.token), ("--client-cert", &self.cert), ("--client-key", &self.key)]
        {
            check_file(name, file.as_deref())?;
        }
        let gateway = match (self.cert, self.key) {
            (Some(cert), Some(key)) => gateway.showing(ClientFiles { cert, key })?,
            (Some(_) | None, _) => gateway,
        };
        Ok((gateway, self.token.map_or(TokenSource::None, TokenSource::File)))
    }
}

/// Checks that a named file is there: it is read later.
fn check_file(name: &str, file: Option<&Path>) -> anyhow::Result<()> {
    match file.map(|file| (file, std::fs::metadata(file))) {
        Some((file, Err(error))) => Err(anyhow::Error::new(error).context(format!("{name} {}", file.display()))),
        Some((_, Ok(_))) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "cluster")]
    use clap::CommandFactory;
    use tunnel_proto::hello::HostMode;

    use super::*;

    fn arguments(cli: AgentCli<WorkspaceCommand>) -> RunArguments {
        match cli.command {
            WorkspaceCommand::Run(arguments) => arguments,
            WorkspaceCommand::Ci(_)
            | WorkspaceCommand::GitCredential(_)
            | WorkspaceCommand::Busy(_)
            | WorkspaceCommand::Doctor(_)
            | WorkspaceCommand::CiWitness => {
                panic!("another command")
            }
        }
    }

    fn run(more: &[&str]) -> Result<RunArguments, clap::Error> {
        // Any file will do: it is read when the agent dials.
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let fixed = ["workspace-agent", "run", "--gateway", "http://localhost:8081", "--token-file", file];
        Ok(arguments(AgentCli::try_parse_from(fixed.iter().chain(more))?))
    }

    #[test]
    fn memory_budget_is_what_the_agents_sessions_share() {
        for (more, bytes) in [(&[][..], MEMORY_BUDGET_BYTES), (&["--memory-budget", "4MiB"], 4 << 20)] {
            let options = run(more).expect("arguments").options().expect("options");
            assert_eq!(options.agent().budget.limit(), bytes);
        }
    }

    #[test]
    fn agent_proves_itself_with_a_token_or_a_certificate_and_never_with_half_of_one() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let parse = |url: &str, more: &[&str]| {
            let fixed = ["workspace-agent", "run", "--gateway", url];
            let cli = AgentCli::try_parse_from(fixed.iter().chain(more)).map_err(|error| error.to_string())?;
            arguments(cli).options().map(drop).map_err(|error| format!("{error:#}"))
        };
        let tls = "https://localhost:8081";
        let certificate = ["--client-cert", file, "--client-key", file];
        assert_eq!(parse(tls, &certificate), Ok(()));
        assert_eq!(parse(tls, &[&certificate[..], &["--token-file", file]].concat()), Ok(()));
        for (url, more, wrong) in [
            (tls, &[][..], "--token-file"),
            (tls, &["--client-cert", file][..], "--client-key"),
            (tls, &["--token-file", file, "--client-key", file][..], "--client-cert"),
            (tls, &["--client-cert", file, "--client-key", "/no/such/file"][..], "--client-key /no/such/file"),
            ("http://localhost:8081", &certificate[..], "https://"),
        ] {
            let told = parse(url, more).expect_err("half a credential");
            assert!(told.contains(wrong), "{more:?}: {told}");
        }
    }

    #[test]
    #[cfg(feature = "cluster")]
    fn slim_program_takes_what_the_whole_one_does_in_a_workspace_and_no_cluster() {
        let names = |command: clap::Command| {
            command.get_subcommands().map(|command| command.get_name().to_owned()).collect::<Vec<_>>()
        };
        let slim = names(AgentCli::<WorkspaceCommand>::command());
        let mut whole = names(AgentCli::<AgentCommand>::command());
        assert!(!slim.is_empty() && !slim.contains(&"cluster".to_owned()), "{slim:?}");
        whole.retain(|name| name != "cluster");
        assert_eq!(slim, whole);
    }

    #[test]
    fn terminal_is_off_unless_it_is_asked_for_and_its_port_is_its_own() {
        assert!(run(&[]).expect("arguments").options().expect("options").terminal.is_none());
        let told = |more: &[&str]| {
            let agent = run(&[&["--terminal"], more].concat()).expect("arguments").options().expect("options").agent();
            let numbers: Vec<_> = agent.ports.exposed.iter().map(|port| port.number).collect();
            (numbers, agent.ports.default)
        };
        assert_eq!(told(&[]), (vec![], Some(TERMINAL_PORT)), "every port stays reachable");
        assert_eq!(told(&["--port", "80"]), (vec![80, TERMINAL_PORT], Some(80)));
        assert_eq!(told(&["--default-port", "80"]), (vec![], Some(80)));
        for more in [["--port", "60002:protocol=h2"], ["--deny-port", "60002"]] {
            let error = run(&[&["--terminal"][..], &more].concat()).expect("arguments").options().expect_err("taken");
            assert!(error.to_string().contains("60002"), "{error}");
        }
    }

    #[test]
    fn ssh_is_off_unless_there_is_a_server_and_its_port_is_its_own() {
        let server = |more: &[&str]| run(more).expect("arguments").options().expect("options").ssh;
        assert!(server(&[]).is_none());
        assert!(server(&["--ssh-server", "/no/such/folder"]).is_none(), "the agent runs all the same");
        for more in [["--port", "60022"], ["--deny-port", "60022"]] {
            let error = run(&[&["--ssh-server", "/x"][..], &more].concat()).expect("arguments").options();
            let error = error.expect_err("taken").to_string();
            assert!(error.contains("60022") && error.contains("--ssh-server"), "{error}");
        }
    }

    #[test]
    fn inspector_is_off_unless_it_is_asked_for_and_its_port_is_its_own() {
        assert!(run(&[]).expect("arguments").options().expect("options").inspector.is_none());
        let told = |more: &[&str]| {
            let agent = run(&[&["--inspect"], more].concat()).expect("arguments").options().expect("options").agent();
            let numbers: Vec<_> = agent.ports.exposed.iter().map(|port| port.number).collect();
            (numbers, agent.ports.default)
        };
        assert_eq!(told(&[]), (vec![], None), "it is no place to begin at");
        assert_eq!(told(&["--port", "80"]), (vec![80, INSPECTOR_PORT], Some(80)));
        for more in [["--port", "60003"], ["--deny-port", "60003"]] {
            let error = run(&[&["--inspect"][..], &more].concat()).expect("arguments").options().expect_err("taken");
            assert!(error.to_string().contains("60003") && error.to_string().contains("--inspect"), "{error}");
        }
    }

    #[test]
    fn how_to_speak_to_one_port_closes_no_other() {
        let told = |more: &[&str]| run(more).expect("arguments").options().map(|options| options.agent().ports);
        let ports = told(&["--app", "8888:host=localhost"]).expect("options");
        assert!(ports.allow(8888) && ports.allow(3000));
        assert_eq!(ports.apps.first().map(|app| (app.number, app.host)), Some((8888, HostMode::Localhost)));
        assert_eq!((ports.host, ports.default), (HostMode::Auto, None));
        assert_eq!(told(&["--host", "localhost"]).expect("options").host, HostMode::Localhost);
        let error = told(&["--port", "8888", "--app", "8888:host=localhost"]).expect_err("twice").to_string();
        assert!(error.contains("8888") && error.contains("--app"), "{error}");
    }

    #[test]
    fn memory_budget_that_is_none_is_refused_with_what_would_be_accepted() {
        for (value, wrong) in [("4 MB", "64 KiB, 8MiB, 1 GiB"), ("1KiB", "must be from 1MiB to 1024GiB")] {
            let error = run(&["--memory-budget", value]).expect_err(value).to_string();
            assert!(error.contains("--memory-budget") && error.contains(wrong), "{error}");
        }
    }
}
