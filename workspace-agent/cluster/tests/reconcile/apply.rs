//! Intents carried out.

use serde_json::json;
use tunnel_proto::reconcile::{FailureKind, NamespaceMode};
use tunnel_proto::state::DesiredState;

use crate::world::{MODES, Subject, World};

crate::scenarios! {
    workspace_is_made_stopped_and_started_and_an_intent_again_changes_nothing
    objects_that_are_not_wanted_any_more_are_deleted_and_nobody_elses
    object_of_somebody_else_with_a_workspaces_name_is_left_alone
    workload_is_held_back_while_an_object_that_it_uses_is_somebody_elses
    secrets_inventory_without_secrets_deletes_none
    intent_for_another_place_is_refused_and_its_neighbours_are_not
    ; in unique namespaces alone:
    namespace_of_somebody_else_is_not_made_into_a_workspaces
}

async fn workspace_is_made_stopped_and_started_and_an_intent_again_changes_nothing(world: &World) {
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    let mut expected =
        ["ConfigMap w-scripts", "Secret w-env", "Service w", "PersistentVolumeClaim w-data", "Deployment w"]
            .map(str::to_owned)
            .to_vec();
    expected.extend([subject.core(), subject.secrets()].map(|name| format!("ConfigMap {name}")));
    expected.sort();
    let mut objects = world.objects(&subject).await;
    objects.sort();
    assert_eq!(objects, expected);
    let inventory = world.get(&subject.path("configmaps", &subject.core())).await.expect("the inventory");
    assert_eq!(inventory["data"].as_object().map(serde_json::Map::len), Some(4), "{inventory}");
    if world.mode == NamespaceMode::Unique {
        let namespace = world.get(&subject.namespace_path()).await.expect("the namespace");
        assert_eq!(namespace["metadata"]["labels"]["workspace-gateway.dev/workspace"], "w");
    }
    let versions = world.versions(&subject).await;
    peer.intend(subject.running(2)).await;
    peer.applied("w", 2).await;
    assert_eq!(world.versions(&subject).await, versions, "the same again changes nothing");
    for (generation, intent, replicas) in [(3, subject.stopped(3), 0), (4, subject.running(4), 1)] {
        peer.intend(intent).await;
        peer.applied("w", generation).await;
        let deployment = world.get(&subject.path("deployments", "w")).await.expect("the Deployment");
        assert_eq!(deployment["spec"]["replicas"], replicas);
        assert!(world.get(&subject.path("secrets", "w-env")).await.is_some(), "a partial intent takes no secret away");
    }
    let report = peer.deployed("w").await;
    assert_eq!(report.namespace, subject.namespace);
}

/// Changes an object that is there by the hand of an administrator.
async fn mark(world: &World, subject: &Subject, name: &str, annotation: &str, value: &str) {
    let path = subject.path("configmaps", name);
    world.change(&path, |object| object["metadata"]["annotations"][annotation] = json!(value)).await;
}

async fn objects_that_are_not_wanted_any_more_are_deleted_and_nobody_elses(world: &World) {
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    let mut objects = subject.full(1);
    for name in ["plain", "kept", "taken"] {
        objects.push(subject.object("v1", "ConfigMap", name, &subject.core(), &json!({"data": {"a": "b"}})));
    }
    peer.intend(subject.intent(1, DesiredState::Running, &objects)).await;
    peer.applied("w", 1).await;
    mark(world, &subject, "kept", "cli-utils.sigs.k8s.io/on-remove", "keep").await;
    mark(world, &subject, "taken", "config.k8s.io/owning-inventory", "another").await;
    peer.intend(subject.running(2)).await;
    peer.applied("w", 2).await;
    assert_eq!(world.get(&subject.path("configmaps", "plain")).await, None);
    assert!(world.get(&subject.path("configmaps", "kept")).await.is_some());
    assert!(world.get(&subject.path("configmaps", "taken")).await.is_some());
    let inventory = world.get(&subject.path("configmaps", &subject.core())).await.expect("the inventory");
    assert_eq!(inventory["data"].as_object().map(serde_json::Map::len), Some(4), "{inventory}");
}

async fn object_of_somebody_else_with_a_workspaces_name_is_left_alone(world: &World) {
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    if world.mode == NamespaceMode::Unique {
        world.make_namespace(&subject.namespace, &subject.labels()).await;
    }
    let theirs =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "w-scripts"}, "data": {"theirs": "x"}});
    world.make(&subject.path("configmaps", "").replace("configmaps/", "configmaps"), &theirs).await;
    peer.intend(subject.running(1)).await;
    let failure = peer.failed("w").await.failure.expect("a failure");
    assert_eq!((failure.kind, failure.generation), (FailureKind::Config, 1));
    assert!(failure.message.contains("ConfigMap w-scripts is there already"), "{}", failure.message);
    let after = world.get(&subject.path("configmaps", "w-scripts")).await.expect("it is there");
    assert_eq!(after["data"], json!({"theirs": "x"}));
    peer.intend(subject.end(2)).await;
    if world.mode == NamespaceMode::Unique {
        return;
    }
    peer.terminated("w").await;
    assert!(world.get(&subject.path("configmaps", "w-scripts")).await.is_some(), "it was never ours to delete");
}

/// What a workload uses under names of its workspace.
const USED: [(&str, &str, &str); 4] = [
    ("secrets", "Secret", "w-env"),
    ("configmaps", "ConfigMap", "w-scripts"),
    ("persistentvolumeclaims", "PersistentVolumeClaim", "w-data"),
    ("services", "Service", "w"),
];

fn somebody_elses(kind: &str, name: &str) -> serde_json::Value {
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    match kind {
        "PersistentVolumeClaim" => {
            object["spec"] = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        }
        "Service" => object["spec"] = json!({"ports": [{"port": 80}]}),
        _ => object["data"] = json!({"theirs": "eA=="}),
    }
    object
}

async fn workload_is_held_back_while_an_object_that_it_uses_is_somebody_elses(world: &World) {
    for (number, (plural, kind, name)) in USED.into_iter().enumerate() {
        // Each in a namespace of its own, or without what the one before left.
        let subject = world.workspace("w");
        let mut peer = world.agent().await;
        if world.mode == NamespaceMode::Unique && number == 0 {
            world.make_namespace(&subject.namespace, &subject.labels()).await;
        }
        let theirs = somebody_elses(kind, name);
        world.make(subject.path(plural, "").trim_end_matches('/'), &theirs).await;
        peer.intend(subject.running(1)).await;
        let failure = peer.failed("w").await.failure.expect("a failure");
        assert!(failure.message.contains(&format!("{kind} {name} is there already")), "{}", failure.message);
        assert_eq!(failure.kind, FailureKind::Config);
        assert_eq!(world.get(&subject.path("deployments", "w")).await, None, "{kind}: nothing runs that uses it");
        if world.fake.is_some() {
            peer.listen(std::time::Duration::from_secs(60)).await;
            assert_eq!(world.get(&subject.path("deployments", "w")).await, None, "{kind}: however often it is tried");
        }
        world.delete(&subject.path(plural, name)).await;
        world.until(&subject.path(plural, name), "gone", |live| live.is_none()).await;
        peer.intend(subject.running(2)).await;
        peer.applied("w", 2).await;
        assert!(world.get(&subject.path("deployments", "w")).await.is_some());
        peer.intend(subject.end(3)).await;
        peer.terminated("w").await;
        world.check_gone(&subject).await;
        peer.kill().await;
        if world.mode == NamespaceMode::Unique {
            world.make_namespace(&subject.namespace, &subject.labels()).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn workload_that_lost_an_object_to_somebody_else_can_be_stopped_and_is_not_started() {
    for mode in MODES {
        lose_an_object(&World::fake(mode).await).await;
    }
}

async fn lose_an_object(world: &World) {
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    mark(world, &subject, "w-scripts", "config.k8s.io/owning-inventory", "another").await;
    let replicas = async || {
        let deployment = world.get(&subject.path("deployments", "w")).await.expect("the Deployment");
        deployment["spec"]["replicas"].clone()
    };
    peer.intend(subject.stopped(2)).await;
    peer.until("failure of the stop", |report| report.failure.as_ref().is_some_and(|failure| failure.generation == 2))
        .await;
    assert_eq!(replicas().await, 0, "what is not the workspace's keeps nothing running");
    peer.intend(subject.running(3)).await;
    peer.until("failure of the start", |report| report.failure.as_ref().is_some_and(|failure| failure.generation == 3))
        .await;
    assert_eq!(replicas().await, 0);
    mark(world, &subject, "w-scripts", "config.k8s.io/owning-inventory", &subject.core()).await;
    peer.intend(subject.running(4)).await;
    peer.applied("w", 4).await;
    assert_eq!(replicas().await, 1);
}

async fn secrets_inventory_without_secrets_deletes_none(world: &World) {
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    let mut bare = subject.partial(1);
    bare.push(subject.inventory(&subject.secrets()));
    peer.intend(subject.intent(2, DesiredState::Running, &bare)).await;
    let failure = peer.failed("w").await.failure.expect("a failure");
    assert!(failure.message.contains("w-secrets-inventory came without"), "{}", failure.message);
    assert!(world.get(&subject.path("secrets", "w-env")).await.is_some());
    peer.intend(subject.stopped(3)).await;
    peer.applied("w", 3).await;
    assert!(world.get(&subject.path("secrets", "w-env")).await.is_some());
}

async fn intent_for_another_place_is_refused_and_its_neighbours_are_not(world: &World) {
    let (bad, good) = (world.workspace("bad"), world.workspace("good"));
    let mut peer = world.agent().await;
    for namespace in ["kube-system", "default"] {
        let intent = tunnel_proto::reconcile::Intent { namespace: namespace.into(), ..bad.running(1) };
        peer.intend(tunnel_proto::reconcile::Intent { workspace: format!("bad-{namespace}"), ..intent }).await;
    }
    let broken = tunnel_proto::reconcile::Intent { config: bytes::Bytes::from_static(b"{"), ..bad.running(1) };
    peer.intend(broken).await;
    peer.intend(good.running(1)).await;
    peer.applied("good", 1).await;
    for name in ["bad", "bad-default", "bad-kube-system"] {
        if !peer.reports.contains_key(name) {
            peer.failed(name).await;
        }
        let failure = peer.reports[name].failure.clone().expect("a failure");
        assert_eq!(failure.kind, FailureKind::Config, "{failure:?}");
    }
    assert_eq!(world.objects(&bad).await, [""; 0]);
}

async fn namespace_of_somebody_else_is_not_made_into_a_workspaces(world: &World) {
    let subject = world.workspace("w");
    world.make_namespace(&subject.namespace, &json!({"theirs": "x"})).await;
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    let failure = peer.failed("w").await.failure.expect("a failure");
    assert!(failure.message.contains("was not made for this workspace"), "{}", failure.message);
    assert_eq!(world.objects(&subject).await, [""; 0]);
    peer.intend(subject.end(2)).await;
    peer.terminated("w").await;
    let namespace = world.get(&subject.namespace_path()).await.expect("it is still there");
    assert_eq!(namespace["metadata"]["deletionTimestamp"], json!(null));
}
