//! Workspaces in clusters, for tests.

use gateway_store::{ManagedWorkspace, Needs, NewManaged, Quotas, Store};
use gateway_types::UnixSeconds;
use gateway_types::token::{Token, TokenKind};
use workspace_spec::cluster_config::ClusterConfig;
use workspace_spec::devfile::{self, DEFAULT_DEVFILE};
use workspace_spec::editor::Chosen;
use workspace_spec::frozen::{Facts, freeze};

/// A configuration with which workspaces can be made.
pub(super) fn config() -> ClusterConfig {
    ClusterConfig { enabled: true, tools_image: "registry.test/tools:1".to_owned(), ..ClusterConfig::default() }
}

/// Makes a workspace in a cluster.
pub(super) async fn workspace(store: &Store, cluster: &str, name: &str, now: UnixSeconds) -> ManagedWorkspace {
    let cluster = store.ensure_cluster(&cluster.parse().unwrap(), now).await.unwrap();
    let config = config();
    let version = store.put_cluster_config(cluster.id, &config.to_json(), now).await.unwrap();
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
    let frozen = freeze(&devfile::parse(DEFAULT_DEVFILE.as_bytes()).unwrap(), &config, &facts).unwrap().to_json();
    let new = NewManaged {
        name: &name,
        owner: &owner,
        cluster: cluster.id,
        config_version: version,
        namespace: &namespace,
        template: None,
        devfile: DEFAULT_DEVFILE,
        frozen: &frozen,
        variables: &[],
        ports: &[],
        agent_token: &Token::generate(TokenKind::Agent).unwrap(),
        needs: Needs::default(),
        quotas: Quotas::default(),
    };
    store.create_managed(&new, now).await.unwrap()
}
