//! Clusters as far as the store knows them: for tests in which no cluster agent runs, and the test says what one would report.

use gateway_store::{ManagedWorkspace, Observation, Store, wall_clock};
use gateway_types::{ActualState, IdleLimit};
use gateway_workspaces::addresses::Addresses;
use gateway_workspaces::changes::{ChangeNotice, Changes};
use gateway_workspaces::service::{NewInCluster, NewOn, NewWorkspace, Workspaces};
use tunnel_proto::reconcile::Blocker;
use workspace_spec::cluster_config;

use crate::TestGateway;

impl TestGateway {
    /// Makes a cluster with a configuration in YAML: what is below `workspaces`.
    pub async fn configured_cluster(&self, name: &str, config: &str) {
        let cluster = self.store.ensure_cluster(&name.parse().unwrap(), wall_clock()).await.expect("a cluster");
        let lines: String = config.lines().map(|line| format!("  {line}\n")).collect();
        let config =
            cluster_config::parse(format!("workspaces:\n  tools_image: registry.example/tools:1\n{lines}").as_bytes());
        let config = config.expect("a good configuration").to_json();
        self.store.put_cluster_config(cluster.id, &config, wall_clock()).await.expect("a configuration");
    }

    /// Makes a workspace of `dev` in a cluster, without variables and from the built-in devfile.
    pub async fn workspace_in(&self, cluster: &str, name: &str) -> ManagedWorkspace {
        let zone = "localhost".parse().unwrap();
        let (public_url, agents_url) = ("http://localhost".to_owned(), "http://localhost:8081".to_owned());
        let addresses = Addresses { zone, public_url, agents_url };
        let workspaces = Workspaces::new(self.store.clone(), self.changes.clone(), addresses);
        let (name, cluster) = (name.parse().unwrap(), cluster.parse().unwrap());
        let on = NewOn::Kubernetes(NewInCluster { cluster, projects: Vec::new(), editor: None, template: None });
        let new = NewWorkspace {
            name,
            on,
            devfile: None,
            variables: Vec::new(),
            idle: IdleLimit::Inherited,
            ports: Vec::new(),
        };
        workspaces.create(&"dev".parse().unwrap(), new, wall_clock()).await.expect("a workspace")
    }

    /// Returns what is known of a workspace that is run for its owner.
    pub async fn managed(&self, workspace: &str) -> ManagedWorkspace {
        let found = self.store.managed(&workspace.parse().unwrap()).await.expect("the store answers");
        found.unwrap_or_else(|| panic!("{workspace} is not managed"))
    }

    /// Stores what a cluster agent would have reported.
    pub async fn observe(&self, workspace: &str, actual: ActualState, reason: Option<&str>, blockers: &[Blocker]) {
        observe(&self.store, &self.changes, workspace, actual, reason, blockers).await;
    }
}

/// Like [`TestGateway::observe`], for a task that only has the parts.
pub async fn observe(
    store: &Store,
    changes: &Changes,
    workspace: &str,
    actual: ActualState,
    reason: Option<&str>,
    blockers: &[Blocker],
) {
    let name = workspace.parse().unwrap();
    loop {
        let found = store.managed(&name).await.expect("the store answers").expect("it is managed");
        let next = found.lifecycle.observe(actual, reason, wall_clock());
        let observed = Observation {
            applied_generation: found.lifecycle.generation,
            deployment_version: None,
            termination: (!blockers.is_empty()).then(|| gateway_types::blockers::to_json(blockers)),
            reported_at: Some(wall_clock()),
            start: None,
        };
        let (id, revision) = (found.workspace.id, found.lifecycle.revision);
        if store.swap_report(id, revision, &next, &observed).await.expect("the store answers") {
            changes.publish(ChangeNotice { workspace: id, cluster: found.cluster() });
            return;
        }
    }
}
