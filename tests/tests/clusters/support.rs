//! A gateway, and workspaces that are to run in clusters.

use e2e::TestGateway;
use gateway_config::Config;
use gateway_store::{
    Cluster, ManagedWorkspace, Needs, NewManaged, Quotas, SecretText, Store, Variable, VariableKind, WorkspaceId,
    wall_clock,
};
use gateway_types::token::{Token, TokenKind};
use gateway_types::{DesiredState, Lifecycle};
use gateway_workspaces::changes::ChangeNotice;
use serde_json::Value;
use tunnel_proto::reconcile::Intent;
use workspace_spec::cluster_config::ClusterConfig;
use workspace_spec::devfile::{self, DEFAULT_DEVFILE};
use workspace_spec::editor::Chosen;
use workspace_spec::frozen::{Facts, freeze};

pub(crate) struct Stage {
    pub(crate) gateway: TestGateway,
}

pub(crate) fn config() -> ClusterConfig {
    ClusterConfig { enabled: true, tools_image: "registry.test/tools:1".to_owned(), ..ClusterConfig::default() }
}

pub(crate) fn file(name: &str, bytes: usize) -> Variable {
    Variable { kind: VariableKind::File, name: name.to_owned(), value: SecretText::new("x".repeat(bytes)) }
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self { gateway: TestGateway::start_with(change).await }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.gateway.store
    }

    pub(crate) async fn cluster(&self, name: &str) -> Cluster {
        self.store().ensure_cluster(&name.parse().unwrap(), wall_clock()).await.unwrap()
    }

    /// Makes a workspace, as the gateway's API does.
    pub(crate) async fn make(&self, cluster: &str, name: &str) -> ManagedWorkspace {
        self.make_with(cluster, name, &[]).await
    }

    pub(crate) async fn make_with(&self, cluster: &str, name: &str, variables: &[Variable]) -> ManagedWorkspace {
        let cluster = self.cluster(cluster).await;
        let config = config();
        let version = self.store().put_cluster_config(cluster.id, &config.to_json(), wall_clock()).await.unwrap();
        let (name, owner, namespace) = (name.parse().unwrap(), "dev".parse().unwrap(), format!("ws-{name}"));
        let facts = Facts {
            workspace: &name,
            cluster: &cluster.name,
            namespace: &namespace,
            owner: &owner,
            zone: &"localhost".parse().unwrap(),
            public_url: "http://localhost:8080",
            agents_url: "http://localhost:8081",
            projects: &[],
            editor: Chosen::CodeServer,
        };
        let devfile = devfile::parse(DEFAULT_DEVFILE.as_bytes()).unwrap();
        let frozen = freeze(&devfile, &config, &facts).unwrap().to_json();
        let new = NewManaged {
            name: &name,
            owner: &owner,
            cluster: cluster.id,
            config_version: version,
            namespace: &namespace,
            template: None,
            devfile: DEFAULT_DEVFILE,
            frozen: &frozen,
            variables,
            ports: &[],
            agent_token: &Token::generate(TokenKind::Agent).unwrap(),
            needs: Needs::default(),
            quotas: Quotas::default(),
        };
        let made = self.store().create_managed(&new, wall_clock()).await.unwrap();
        self.say(&made);
        made
    }

    fn say(&self, managed: &ManagedWorkspace) {
        let change = ChangeNotice { workspace: managed.workspace.id, cluster: managed.cluster() };
        self.gateway.changes.publish(change);
    }

    pub(crate) async fn read(&self, id: WorkspaceId) -> ManagedWorkspace {
        self.store().managed_by_id(id).await.unwrap().unwrap()
    }

    /// Asks for a state, as the gateway's API does.
    pub(crate) async fn request(&self, id: WorkspaceId, desired: DesiredState) -> ManagedWorkspace {
        let managed = self.request_silently(id, desired).await;
        self.say(&managed);
        managed
    }

    /// The same, by another replica: nobody here hears of it.
    pub(crate) async fn request_silently(&self, id: WorkspaceId, desired: DesiredState) -> ManagedWorkspace {
        loop {
            let managed = self.read(id).await;
            let next: Lifecycle = managed.lifecycle.request(desired, wall_clock()).unwrap();
            if self.store().swap_lifecycle(id, managed.lifecycle.revision, &next).await.unwrap() {
                return ManagedWorkspace { lifecycle: next, ..managed };
            }
        }
    }

    /// Waits until no session is left, and stops.
    pub(crate) async fn finish(self) {
        self.gateway.stop().await;
    }

    pub(crate) async fn metric(&self, name: &str) -> f64 {
        self.gateway.metrics().await.get(name).copied().unwrap_or_default()
    }
}

/// Kinds and names of what an intent carries.
pub(crate) fn objects(intent: &Intent) -> Vec<String> {
    let values: Vec<Value> = match intent.config.is_empty() {
        true => Vec::new(),
        false => serde_json::from_slice(&intent.config).expect("JSON"),
    };
    let name = |value: &Value| {
        format!("{} {}", value["kind"].as_str().unwrap_or("?"), value["metadata"]["name"].as_str().unwrap_or("?"))
    };
    values.iter().map(name).collect()
}

/// How many pods an intent wants.
pub(crate) fn replicas(intent: &Intent) -> Option<u64> {
    let values: Vec<Value> = serde_json::from_slice(&intent.config).ok()?;
    values.iter().find(|value| value["kind"] == "Deployment")?["spec"]["replicas"].as_u64()
}
