//! `agents_dir`: how clusters are configured, and what of it agents are told.

use std::fs;
use std::path::Path;

use e2e::cluster::ClusterAgent;
use e2e::until;
use tunnel_proto::reconcile::{NamespaceMode, ToCluster};

use crate::support::Stage;

fn write(dir: &Path, cluster: &str, text: &str) {
    let folder = dir.join(cluster);
    fs::create_dir_all(&folder).unwrap();
    // At once, as whoever replaces a file in earnest does.
    let new = folder.join("config.yaml.new");
    fs::write(&new, text).unwrap();
    fs::rename(new, folder.join("config.yaml")).unwrap();
}

fn config(shared: &str, hours: u32) -> String {
    format!(
        "workspaces:\n  enabled: true\n  tools_image: registry.test/tools:1\n  max_active_hours_before_stop: {hours}\n  \
         shared_namespace: {shared}\n"
    )
}

async fn terms(agent: &mut ClusterAgent) -> NamespaceMode {
    loop {
        if let ToCluster::Terms(terms) = agent.next().await {
            return terms.namespaces;
        }
    }
}

#[tokio::test]
async fn namespace_mode_comes_from_the_file_and_changes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "prod", &config("dev", 36));
    let dir = folder.path().to_owned();
    let stage = Stage::with(move |config| config.agents_dir = Some(dir)).await;
    let store = stage.store().clone();
    // Before anybody is answered: what the file allows would seem to be forbidden until then.
    let cluster = store.cluster(&"prod".parse().unwrap()).await.unwrap().expect("the file was read");
    assert!(store.cluster_config(cluster.id, None).await.unwrap().is_some());
    let mut agent = ClusterAgent::attach(&stage.gateway, "prod").await;
    assert_eq!(agent.begin().await.namespaces, NamespaceMode::Shared("dev".into()));
    agent.round().await;
    // Of a file with a mistake nothing is taken over: the next good one is what is told.
    write(folder.path(), "prod", "workspaces:\n  enabled: true\n  shared_namespace: NOT A NAME\n");
    until("the file is refused", || !stage.gateway.configs.refusals().is_empty()).await;
    write(folder.path(), "prod", &config("other", 36));
    assert_eq!(terms(&mut agent).await, NamespaceMode::Shared("other".into()));
    agent.round().await;
    assert!(stage.gateway.configs.refusals().is_empty());
    // A change that is none of the agent's business is followed by a full round all the same.
    write(folder.path(), "prod", &config("other", 12));
    agent.round().await;
    let (version, text) = store.cluster_config(cluster.id, None).await.unwrap().unwrap();
    assert_eq!(version.get(), 3);
    assert!(text.contains("\"max_active_hours\":12"), "{text}");
    stage.finish().await;
}

#[tokio::test]
async fn cluster_without_a_file_is_reconciled_by_the_defaults() {
    let stage = Stage::new().await;
    let mut agent = ClusterAgent::attach(&stage.gateway, "bare").await;
    assert_eq!(agent.begin().await.namespaces, NamespaceMode::Unique);
    assert!(agent.round().await.is_empty());
    stage.finish().await;
}
