//! Arguments of `cluster`.

use std::path::PathBuf;

use clap::Args;

use super::{ProofFiles, check_file, gateway};
use crate::cluster::{ClusterOptions, LEASE_NAME};
use crate::dial::Transport;

/// Arguments of `cluster`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  In a pod of the cluster, with the rights of the pod's service account; of several replicas, one works:
    workspace-agent cluster --gateway https://gateway.example.com --token-file /run/secrets/cluster-token

  From outside of the cluster, with a kubeconfig:
    workspace-agent cluster --gateway https://gateway.example.com --token-file token \\
      --kubeconfig ~/.kube/config --namespace workspace-gateway

The token is one of the gateway's, for this cluster: gateway token create --cluster NAME. \
Proxies to the gateway come from HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY (or in lower case), read once.

Exit status: 0 stopped by a signal, 1 refused or displaced, 2 wrong usage, 64 bad configuration. \
The log level comes from WORKSPACE_AGENT_LOG (error, warn, info, debug).")]
pub struct ClusterArguments {
    /// URL of the gateway's listener for agents.
    #[arg(long, value_name = "URL", env = "WORKSPACE_AGENT_GATEWAY")]
    pub gateway: String,

    /// File that holds the cluster's token. Read again for each dial.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_TOKEN_FILE", required_unless_present = "client_cert")]
    pub token_file: Option<PathBuf>,

    /// PEM file of a client certificate that says which cluster agent this is, leaf first. Read again for each dial.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_CLIENT_CERT", requires = "client_key")]
    pub client_cert: Option<PathBuf>,

    /// PEM file of the client certificate's key.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_CLIENT_KEY", requires = "client_cert")]
    pub client_key: Option<PathBuf>,

    /// PEM file of certificates to trust besides the system's, for the gateway.
    #[arg(long, value_name = "FILE", env = "WORKSPACE_AGENT_CA_FILE")]
    pub ca_file: Option<PathBuf>,

    /// Transport to the gateway: auto takes HTTP/2, and a WebSocket where HTTP/2 cannot pass.
    #[arg(long, value_name = "HOW", value_enum, default_value_t, env = "WORKSPACE_AGENT_TRANSPORT")]
    pub transport: Transport,

    /// Kubeconfig whose current context is the cluster. Without it, the cluster is the one that this program runs in.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace of the lease. Without it, the context's or the pod's own.
    #[arg(long, value_name = "NAME", env = "WORKSPACE_AGENT_NAMESPACE")]
    pub namespace: Option<String>,

    /// Name of the lease: of the cluster agents that share one, one works.
    #[arg(long, value_name = "NAME", default_value = LEASE_NAME, env = "WORKSPACE_AGENT_LEASE_NAME")]
    pub lease_name: String,

    /// Name of the pod, for the lease and the log.
    #[arg(long, value_name = "NAME", env = "POD_NAME", hide = true)]
    pub pod_name: Option<String>,
}

impl ClusterArguments {
    /// Turns arguments into options.
    ///
    /// # Errors
    /// A text that names the argument and what is wrong with it (exit status 64).
    pub fn options(self) -> anyhow::Result<ClusterOptions> {
        let gateway = gateway(&self.gateway, self.ca_file.as_deref())?;
        let files = ProofFiles { token: self.token_file, cert: self.client_cert, key: self.client_key };
        let (gateway, token) = files.add_to(gateway)?;
        check_file("--kubeconfig", self.kubeconfig.as_deref())?;
        let host = std::env::var_os("HOSTNAME").map(|name| name.to_string_lossy().into_owned());
        let host = self.pod_name.or(host).unwrap_or_else(|| "cluster-agent".to_owned());
        Ok(ClusterOptions {
            gateway,
            transport: self.transport,
            token,
            kubeconfig: self.kubeconfig,
            namespace: self.namespace,
            lease_name: self.lease_name,
            // A new identity for each process: a pod that is started again is not the one that held the lease.
            identity: format!("{host}-{:08x}", rand::random::<u32>()),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{AgentCli, AgentCommand};
    use super::*;

    fn options(more: &[&str]) -> Result<ClusterOptions, String> {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let fixed = ["workspace-agent", "cluster", "--gateway", "http://localhost:8081", "--token-file", file];
        let cli =
            AgentCli::<AgentCommand>::try_parse_from(fixed.iter().chain(more)).map_err(|error| error.to_string())?;
        match cli.command {
            AgentCommand::Cluster(arguments) => arguments.options().map_err(|error| format!("{error:#}")),
            AgentCommand::Workspace(_) => panic!("another command"),
        }
    }

    #[test]
    fn each_process_is_another_candidate_for_the_lease() {
        let one = options(&["--pod-name", "agent-0"]).expect("options");
        let other = options(&["--pod-name", "agent-0"]).expect("options");
        assert!(one.identity.starts_with("agent-0-") && one.identity != other.identity);
        assert_eq!((one.lease_name.as_str(), one.namespace), (LEASE_NAME, None));
    }

    #[test]
    fn file_that_is_not_there_is_named() {
        let told = options(&["--kubeconfig", "/no/such/file"]).expect_err("no file");
        assert!(told.contains("--kubeconfig /no/such/file"), "{told}");
    }
}
