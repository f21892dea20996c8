//! In which namespaces of a cluster a project's objects may be.

use super::super::*;
use super::stage::{Stage, entry, request};
use workspace_spec::cluster_config::{AccessAs, AccessEntry, CiAccess, ClusterConfig};
use workspace_spec::environment::slug::environment_slug;

#[tokio::test]
async fn namespace_that_another_project_is_to_share_is_not_made() {
    let mut stage = Stage::new().await;
    // The template makes a namespace that is called as the environment.
    let theirs = AccessEntry {
        id: "team".to_owned(),
        default_namespace: Some(environment_slug("review/1")),
        ..entry(AccessAs::Agent)
    };
    let ci_access = CiAccess { projects: vec![entry(AccessAs::Agent)], groups: vec![theirs] };
    let config = ClusterConfig { ci_access, ..ClusterConfig::default() };
    let prod = stage.store.cluster(&"prod".parse().unwrap()).await.unwrap().unwrap().id;
    stage.store.put_cluster_config(prod, &config.to_json(), UnixSeconds::new(2)).await.unwrap();
    stage.restart().await;
    let refused = stage.environments.complete(request(1, "one")).await.unwrap_err();
    assert_eq!((refused.code, refused.problems[0].code), (RefusalCode::ObjectsRefused, "namespace_not_allowed"));
    assert_eq!(stage.store.environments_due().await.unwrap(), []);
}
