//! Cluster agent. Of several, the one that holds the lease dials the gateway. Its channel to port 0 is the conversation
//! about the cluster's workspaces, channels to port 1 are calls for environments of CI jobs, and channels to port 2 calls about
//! orphans. It reaches no port of its machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_cluster::call::{CallEnd, CallPermit};
use agent_cluster::environments::{CALLS_MAX, Environments};
use agent_cluster::kube::config::{KubeConfigOptions, Kubeconfig};
use agent_cluster::kube::{self, Client, Config};
use agent_cluster::lease::{Lease, lead};
use agent_cluster::orphan_calls::{ORPHAN_CALLS_MAX, OrphanCalls};
use agent_cluster::{FIELD_MANAGER, Options, reconcile};
use http::uri::{Authority, Scheme};
use thiserror::Error;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};
use tunnel_proto::environments::ENVIRONMENTS_PORT;
use tunnel_proto::hello::Role;
use tunnel_proto::orphans::ORPHANS_PORT;
use tunnel_proto::reason::Reason;
use tunnel_proto::reconcile::RECONCILE_PORT;
use tunnel_proto::target::Target;

use crate::dial::{DialFailure, Gateway, GatewayConnection, Network, Offer, Transport};
use crate::{Agent, DialEnded, Ports, TokenSource};

/// Default name of the lease.
pub const LEASE_NAME: &str = "workspace-gateway-cluster-agent";

/// Bytes between the session and the conversation: a few messages of usual size.
const PIPE_BYTES: usize = 256 * 1024;

/// Longest silence of the API server in a watch: it sends a bookmark once in a minute (Kubernetes, "Watch bookmarks").
const SILENCE_MAX: Duration = Duration::from_secs(150);

/// Longest time for a connection to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of a cluster agent.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Gateway to dial.
    pub gateway: Gateway,
    /// Transports that the links may use.
    pub transport: Transport,
    /// Credential that proves which cluster agent this is.
    pub token: TokenSource,
    /// Kubeconfig of the cluster; `None` for the cluster that this program runs in.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the lease; `None` for the default one of the cluster's configuration.
    pub namespace: Option<String>,
    /// The lease's name.
    pub lease_name: String,
    /// Identity of this process among those that want the lease.
    pub identity: String,
}

/// Reason why a cluster agent stopped for good. Each text says what a person can do.
#[derive(Debug, Error)]
pub enum ClusterEnded {
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig {path} cannot be used")]
    Kubeconfig {
        /// The file.
        path: String,
        /// Cause.
        #[source]
        error: kube::config::KubeconfigError,
    },
    /// This program does not run in a cluster.
    #[error("this is no pod of a cluster; give --kubeconfig")]
    NotInCluster(#[source] kube::config::InClusterError),
    /// The client cannot be made.
    #[error("the cluster's configuration cannot be used")]
    Client(#[source] kube::Error),
    /// The agent stopped for good, for a reason between it and the gateway.
    #[error(transparent)]
    Ended(#[from] DialEnded),
}

/// Runs a cluster agent until `stop` or until nothing but a person can help.
///
/// # Errors
/// [`ClusterEnded`] says what a person has to do. Everything that time can heal is retried here and is no error.
pub async fn run(options: ClusterOptions, stop: CancellationToken) -> Result<(), ClusterEnded> {
    // The Kubernetes client uses the process's default crypto provider; one that is there already is as good.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let config = cluster_config(options.kubeconfig.as_deref()).await?;
    let namespace = options.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let client = Client::try_from(config).map_err(ClusterEnded::Client)?;
    let identity = options.identity.clone();
    let environments = Environments::new(access(&client), namespace.clone());
    let lease = Lease { client: client.clone(), namespace, name: options.lease_name.clone(), identity };
    match lead(&lease, &stop, |end| session(&options, client.clone(), environments.clone(), end)).await {
        Some(ended) => Ok(ended?),
        None => Ok(()),
    }
}

/// Reads how the API server is reached: by a kubeconfig, or as a pod of the cluster.
pub(crate) async fn cluster_config(kubeconfig: Option<&Path>) -> Result<Config, ClusterEnded> {
    let mut config = match kubeconfig {
        Some(path) => {
            let unusable = |error| ClusterEnded::Kubeconfig { path: path.display().to_string(), error };
            let kubeconfig = Kubeconfig::read_from(path).map_err(unusable)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(unusable)?
        }
        None => Config::incluster().map_err(ClusterEnded::NotInCluster)?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(SILENCE_MAX);
    config.write_timeout = Some(SILENCE_MAX);
    Ok(config)
}

fn access(client: &Client) -> Options {
    Options { client: client.clone(), field_manager: FIELD_MANAGER.to_owned() }
}

/// Dials, reconciles and answers calls for as long as this process leads.
async fn session(
    options: &ClusterOptions,
    client: Client,
    environments: Environments,
    end: CancellationToken,
) -> Result<(), DialEnded> {
    let (conversations, mut opened) = mpsc::channel(1);
    let (calls, called) = mpsc::channel(CALLS_MAX + ORPHAN_CALLS_MAX);
    let orphans = OrphanCalls::new(access(&client));
    let answering = answer(environments.clone(), orphans.clone(), called, &end);
    let network = ClusterNetwork { gateway: options.gateway.clone(), conversations, environments, orphans, calls };
    let agent = Agent {
        transport: options.transport,
        role: Role::Cluster,
        ..Agent::new(network, options.token.clone(), Arc::new(Ports::default()))
    };
    let reconciling = async {
        let mut next = opened.recv().await;
        while let Some(channel) = next.take() {
            let told = end.child_token();
            let mut talking = std::pin::pin!(reconcile(access(&client), channel, told.clone()));
            let ended = tokio::select! {
                ended = talking.as_mut() => ended,
                newer = opened.recv() => {
                    // The gateway began anew: the conversation before does not count any more.
                    told.cancel();
                    next = newer;
                    talking.await
                }
            };
            info!(%ended, "the conversation is over");
            if next.is_none() {
                next = opened.recv().await;
            }
        }
    };
    let mut dialing = std::pin::pin!(agent.run(end.clone()));
    tokio::select! {
        ended = dialing.as_mut() => ended,
        // Their channels are held by the agent's network: they end after the agent.
        ((), ()) = async { tokio::join!(reconciling, answering) } => dialing.await,
    }
}

/// A call that came, with its permit.
enum Called {
    Environment(CallPermit, DuplexStream),
    Orphans(CallPermit, DuplexStream),
}

/// Answers calls, each in a task of its own, until no more can come.
async fn answer(
    environments: Environments,
    orphans: OrphanCalls,
    mut called: mpsc::Receiver<Called>,
    end: &CancellationToken,
) {
    let mut answering = JoinSet::new();
    let log = |ended: Result<CallEnd, JoinError>| match ended {
        Ok(CallEnd::Protocol(error)) => warn!(%error, "the gateway sent an invalid call"),
        Ok(end @ (CallEnd::Answered | CallEnd::CalledOff | CallEnd::Silent)) => debug!(?end, "a call is over"),
        Err(error) => error!(%error, "a call broke off"),
    };
    loop {
        tokio::select! {
            call = called.recv() => {
                let end = end.child_token();
                match call {
                    None => break,
                    Some(Called::Environment(permit, channel)) => {
                        let environments = environments.clone();
                        answering.spawn(async move { environments.answer(permit, channel, end).await });
                    }
                    Some(Called::Orphans(permit, channel)) => {
                        let orphans = orphans.clone();
                        answering.spawn(async move { orphans.answer(permit, channel, end).await });
                    }
                }
            }
            Some(ended) = answering.join_next() => log(ended),
        }
    }
    while let Some(ended) = answering.join_next().await {
        log(ended);
    }
}

/// The network of a cluster agent: a gateway, and no port but the conversation and calls.
struct ClusterNetwork {
    gateway: Gateway,
    /// Holds one conversation that was not taken up yet; a further one is refused meanwhile, and not missed.
    conversations: mpsc::Sender<DuplexStream>,
    environments: Environments,
    orphans: OrphanCalls,
    /// Never full for long: there are as many permits as places.
    calls: mpsc::Sender<Called>,
}

impl Network for ClusterNetwork {
    type Socket = DuplexStream;

    async fn dial(&self, offer: Offer) -> Result<GatewayConnection, DialFailure> {
        self.gateway.connect(offer).await
    }

    fn proxy(&self) -> Option<String> {
        self.gateway.proxy().map(ToString::to_string)
    }

    fn origin(&self) -> (Authority, Scheme) {
        self.gateway.origin()
    }

    async fn port(&self, Target { port, .. }: Target) -> Result<DuplexStream, Reason> {
        let (near, far) = duplex(PIPE_BYTES);
        match port {
            RECONCILE_PORT => self.conversations.try_send(far).map_err(|_full| Reason::Overloaded)?,
            ENVIRONMENTS_PORT => {
                let permit = self.environments.permit().ok_or(Reason::Overloaded)?;
                self.calls.try_send(Called::Environment(permit, far)).map_err(|_full| Reason::Overloaded)?;
            }
            ORPHANS_PORT => {
                let permit = self.orphans.permit().ok_or(Reason::Overloaded)?;
                self.calls.try_send(Called::Orphans(permit, far)).map_err(|_full| Reason::Overloaded)?;
            }
            _ => {
                warn!(port, "a channel to a port was refused: a cluster agent has none");
                return Err(Reason::PortNotAllowed);
            }
        }
        Ok(near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> (ClusterNetwork, mpsc::Receiver<DuplexStream>, mpsc::Receiver<Called>) {
        let gateway = Gateway::parse("http://localhost:1", None).expect("a gateway");
        let config = Config::new("http://localhost:1".parse().expect("an address"));
        let client = Client::try_from(config).expect("a client");
        let environments = Environments::new(access(&client), "agents".to_owned());
        let (conversations, opened) = mpsc::channel(1);
        let orphans = OrphanCalls::new(access(&client));
        let (calls, called) = mpsc::channel(CALLS_MAX + ORPHAN_CALLS_MAX);
        (ClusterNetwork { gateway, conversations, environments, orphans, calls }, opened, called)
    }

    #[tokio::test]
    async fn nothing_but_the_conversation_and_calls_is_reached() {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let (network, mut opened, mut called) = network();
        for port in [3_u16, 22, 80, 443, 6443, 10_250] {
            assert_eq!(network.port(port.into()).await.err(), Some(Reason::PortNotAllowed), "{port}");
        }
        assert!(network.port(RECONCILE_PORT.into()).await.is_ok());
        assert!(opened.try_recv().is_ok());
        assert!(network.port(ENVIRONMENTS_PORT.into()).await.is_ok());
        assert!(called.try_recv().is_ok());
        assert!(network.port(ORPHANS_PORT.into()).await.is_ok());
        assert!(called.try_recv().is_ok());
    }

    #[tokio::test]
    async fn calls_beyond_the_bound_are_refused_until_one_has_ended() {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let (network, _opened, mut called) = network();
        let mut running = Vec::new();
        for _ in 0..CALLS_MAX {
            assert!(network.port(ENVIRONMENTS_PORT.into()).await.is_ok());
            running.push(called.try_recv().expect("a call"));
        }
        assert_eq!(network.port(ENVIRONMENTS_PORT.into()).await.err(), Some(Reason::Overloaded));
        running.pop();
        assert!(network.port(ENVIRONMENTS_PORT.into()).await.is_ok());
    }
}
