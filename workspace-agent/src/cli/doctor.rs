//! Arguments of `doctor`.

#[cfg(feature = "cluster")]
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};

use super::{ProofFiles, RunArguments, check_file, gateway};
use crate::TokenSource;
#[cfg(feature = "cluster")]
use crate::doctor::ClusterPlace;
use crate::doctor::DoctorOptions;
use crate::ports::OwnPorts;

pub(super) const EXAMPLES: &str = "\
Examples:
  In a workspace, with the environment of its agent:
    workspace-agent doctor

  On a machine, with the flags of its agent:
    workspace-agent doctor --gateway https://gateway.example.com --token-file /run/secrets/agent-token --port 3000

  Of a cluster agent, in its pod or with a kubeconfig:
    workspace-agent doctor --gateway https://gateway.example.com --token-file token --cluster
    workspace-agent doctor --gateway https://gateway.example.com --token-file token --cluster --kubeconfig ~/.kube/config \\
      --namespace workspace-gateway --shared-namespace workspaces

It takes the flags and variables of run, and looks at the credential, the way to the gateway with its proxies, TLS and \
transports, the clock, ports and limits. It begins no session: an agent that runs keeps its own. Each finding says what is \
wrong, why it matters and how to mend it. A check that was left out says why, and never counts as passed.

Exit status: 0 nothing is wrong, or only warnings without --strict; 1 something is wrong; 2 wrong usage.";

/// Shape of printed data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DoctorOutput {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Arguments of `doctor`.
#[derive(Args, Debug)]
pub struct DoctorArguments {
    /// Arguments of the agent.
    #[command(flatten)]
    pub run: RunArguments,

    /// Look at a cluster agent's rights in its cluster too.
    #[cfg(feature = "cluster")]
    #[arg(long)]
    pub cluster: bool,

    /// Kubeconfig whose current context is the cluster. Without it, the cluster is the one that this program runs in.
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace of the lease. Without it, the context's or the pod's own.
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "NAME", env = "WORKSPACE_AGENT_NAMESPACE")]
    pub namespace: Option<String>,

    /// Namespace of all workspaces, where the cluster's configuration at the gateway has shared_namespace.
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "NAME", requires = "cluster")]
    pub shared_namespace: Option<String>,

    /// Fail for warnings too.
    #[arg(long)]
    pub strict: bool,

    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: DoctorOutput,
}

impl DoctorArguments {
    /// Turns arguments into options; what is wrong with them is in these.
    #[must_use]
    pub fn options(self) -> DoctorOptions {
        let Self { run, .. } = self;
        let named =
            [("--token-file", &run.token_file), ("--client-cert", &run.client_cert), ("--client-key", &run.client_key)];
        let missing: Vec<_> = named
            .into_iter()
            .filter_map(|(flag, file)| {
                let why = check_file(flag, file.as_deref()).err()?.root_cause().to_string();
                Some((flag, file.clone()?, why))
            })
            .collect();
        let (gateway, token) = way(&run, missing.is_empty());
        let own = OwnPorts { terminal: run.terminal, ssh: run.ssh_server.is_some(), inspector: run.inspect };
        let transport = run.transport;
        // The terminal's port needs no terminal that runs, and an SSH server would start one.
        let plain = RunArguments { terminal: false, ssh_server: None, ready_file: None, ..run };
        // What is wrong with gateway or files was found above, each by itself.
        let ports = match (&gateway, missing.is_empty()) {
            (Ok(_), true) => plain.options().map(|options| (options.ports, own)).map_err(|error| format!("{error:#}")),
            (Ok(_) | Err(_), _) => Ok((Arc::default(), own)),
        };
        DoctorOptions {
            gateway,
            transport,
            token,
            ports,
            missing,
            #[cfg(feature = "cluster")]
            cluster: self.cluster.then_some(ClusterPlace {
                kubeconfig: self.kubeconfig,
                namespace: self.namespace,
                shared: self.shared_namespace,
            }),
        }
    }
}

/// Finds the gateway and the credential; without the files, the gateway alone.
fn way(run: &RunArguments, has_files: bool) -> (Result<crate::Gateway, String>, TokenSource) {
    let found = match gateway(&run.gateway, run.ca_file.as_deref()) {
        Ok(found) => found,
        Err(error) => return (Err(format!("{error:#}")), TokenSource::None),
    };
    if !has_files {
        return (Ok(found), TokenSource::None);
    }
    let files =
        ProofFiles { token: run.token_file.clone(), cert: run.client_cert.clone(), key: run.client_key.clone() };
    match files.add_to(found) {
        Ok((gateway, token)) => (Ok(gateway), token),
        Err(error) => (Err(format!("{error:#}")), TokenSource::None),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{AgentCli, WorkspaceCommand};
    use super::*;

    fn arguments(more: &[&str]) -> Result<DoctorArguments, clap::Error> {
        let cli = AgentCli::try_parse_from(["workspace-agent", "doctor"].iter().chain(more))?;
        match cli.command {
            WorkspaceCommand::Doctor(arguments) => Ok(*arguments),
            WorkspaceCommand::Run(_)
            | WorkspaceCommand::Ci(_)
            | WorkspaceCommand::GitCredential(_)
            | WorkspaceCommand::Busy(_)
            | WorkspaceCommand::CiWitness => panic!("another command"),
        }
    }

    #[test]
    fn it_takes_what_run_takes_and_says_what_is_wrong_with_it_later() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let good = ["--gateway", "http://localhost:8081", "--token-file", file, "--port", "3000", "--terminal"];
        let parsed = arguments(&good).expect("arguments");
        assert_eq!((parsed.output, parsed.strict), (DoctorOutput::Text, false));
        let options = parsed.options();
        let (ports, own) = options.ports.expect("ports");
        assert_eq!((ports.exposed.len(), own.terminal), (1, true));
        assert!(options.gateway.is_ok() && options.missing.is_empty());
        let gone = ["--gateway", "http://localhost:8081", "--token-file", "/no/such/file"];
        let options = arguments(&gone).expect("arguments").options();
        assert_eq!(options.missing.len(), 1);
        assert!(options.gateway.is_ok() && options.ports.is_ok(), "each fault is said once");
        let wrong = ["--gateway", "ftp://localhost", "--token-file", file];
        assert!(arguments(&wrong).expect("arguments").options().gateway.is_err());
        assert!(arguments(&["--gateway", "http://localhost:8081"]).is_err(), "wrong usage, as for run");
    }
}
