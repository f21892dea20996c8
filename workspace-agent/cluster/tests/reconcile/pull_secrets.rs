//! Image pull secrets are copied, and follow their source.

use serde_json::{Value, json};
use tunnel_proto::reconcile::{Intent, NamespaceMode, SecretRef};

use crate::world::{Subject, World};

crate::scenarios! {
    pull_secret_is_copied_and_follows_its_source
    secret_that_is_for_something_else_is_not_copied
}

fn secret(name: &str, kind: &str, data: &str) -> Value {
    let key = if kind == "Opaque" { "key" } else { ".dockerconfigjson" };
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "data": {key: data}})
}

async fn sources(world: &World) -> String {
    let namespace = format!("sources-{}", world.cluster);
    if world.get(&format!("/api/v1/namespaces/{namespace}")).await.is_none() {
        world.make_namespace(&namespace, &json!({})).await;
    }
    namespace
}

fn with(subject: &Subject, generation: u64, namespace: &str, names: &[&str]) -> Intent {
    let reference = |name: &&str| SecretRef { name: (*name).to_owned(), namespace: namespace.to_owned() };
    Intent { pull_secrets: names.iter().map(reference).collect(), ..subject.running(generation) }
}

const CONFIG: &str = "kubernetes.io/dockerconfigjson";

async fn pull_secret_is_copied_and_follows_its_source(world: &World) {
    let namespace = sources(world).await;
    let subject = world.workspace("w");
    let collection = format!("/api/v1/namespaces/{namespace}/secrets");
    // `{"auths":{}}` and the same with a space.
    world.make(&collection, &secret("registry", CONFIG, "eyJhdXRocyI6e319")).await;
    let mut peer = world.agent().await;
    peer.intend(with(&subject, 1, &namespace, &["registry", "missing"])).await;
    peer.applied("w", 1).await;
    let copy = subject.path("secrets", "registry");
    let has = |data: &'static str| {
        move |found: Option<&Value>| {
            found.is_some_and(|found| found["data"][".dockerconfigjson"] == data && found["type"] == CONFIG)
        }
    };
    world.until(&copy, "copied", has("eyJhdXRocyI6e319")).await;
    let missing = |report: &tunnel_proto::reconcile::WorkspaceReport| {
        report.details.iter().any(|detail| detail.object.ends_with("/missing") && detail.reason == "PullSecret")
    };
    if !peer.reports.values().any(missing) {
        peer.until("what is missing", missing).await;
    }
    world
        .change(&format!("{collection}/registry"), |found| {
            found["data"][".dockerconfigjson"] = json!("eyJhdXRocyI6IHt9fQ==")
        })
        .await;
    world.until(&copy, "changed", has("eyJhdXRocyI6IHt9fQ==")).await;
    world.delete(&format!("{collection}/registry")).await;
    world.until(&copy, "gone", |found| found.is_none()).await;
    world.make(&collection, &secret("registry", CONFIG, "eyJhdXRocyI6e319")).await;
    world.until(&copy, "copied again", has("eyJhdXRocyI6e319")).await;
    peer.intend(subject.end(2)).await;
    peer.terminated("w").await;
    if world.mode == NamespaceMode::Unique {
        world.check_gone(&subject).await;
    }
    assert!(world.get(&format!("{collection}/registry")).await.is_some(), "the source stays");
    world.delete(&format!("{collection}/registry")).await;
}

async fn secret_that_is_for_something_else_is_not_copied(world: &World) {
    let namespace = sources(world).await;
    let subject = world.workspace("w");
    let collection = format!("/api/v1/namespaces/{namespace}/secrets");
    world.make(&collection, &secret("database", "Opaque", "c2VjcmV0")).await;
    world.make(&collection, &secret("w-env", CONFIG, "eyJhdXRocyI6e319")).await;
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    peer.intend(with(&subject, 2, &namespace, &["database", "w-env"])).await;
    let told = |report: &tunnel_proto::reconcile::WorkspaceReport| {
        report.details.iter().filter(|detail| detail.reason == "PullSecret").count() == 2
    };
    let report = peer.until("why they are not copied", told).await;
    assert!(report.details[0].message.contains("no image pull secret"), "{:?}", report.details);
    assert!(report.details[1].message.contains("another secret of its name"), "{:?}", report.details);
    assert_eq!(world.get(&subject.path("secrets", "database")).await, None);
    let own = world.get(&subject.path("secrets", "w-env")).await.expect("the workspace's own");
    assert_eq!(own["type"], "Opaque");
    for name in ["database", "w-env"] {
        world.delete(&format!("{collection}/{name}")).await;
    }
}
