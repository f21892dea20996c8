//! What an agent watches, and what it does where it may not.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tunnel_proto::reconcile::{Intent, SecretRef, ToCluster, WorkspaceReport};

use crate::log::Log;
use crate::trouble::Fault;
use crate::world::{MODES, Mode, World};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns how often each of these kinds was asked for all together, and forgets what was sent.
fn asked_for(world: &World, plurals: &[&str]) -> Vec<usize> {
    let sent = world.trouble.sent();
    let count = |plural: &&str| {
        let is_it = |path: &str| path.rsplit('/').next() == Some(*plural);
        sent.iter().filter(|(method, path, _)| *method == Method::GET && is_it(path)).count()
    };
    plurals.iter().map(count).collect()
}

#[tokio::test(start_paused = true)]
async fn watch_that_is_refused_is_told_once_and_tried_ever_more_seldom() {
    const WATCHED: [(&str, &str); 3] = [("Deployments", "deployments"), ("pods", "pods"), ("events", "events")];
    for mode in MODES {
        let (log, _guard) = Log::begin();
        let world = World::fake(mode).await;
        let subject = world.workspace("w");
        let is_list = |path: &str| WATCHED.iter().any(|(_, plural)| path.rsplit('/').next() == Some(*plural));
        world
            .trouble
            .fail(usize::MAX, Fault::Refused(403), move |method, path| *method == Method::GET && is_list(path));
        let mut peer = world.agent().await;
        // A start would ask which pods there are.
        peer.intend(Intent { round: 1, ..subject.stopped(1) }).await;
        peer.send(&ToCluster::RoundEnd { round: 1, workspaces: 1 }).await;
        peer.listen(MINUTE).await;
        // Deployments are listed once more, for what nobody knows.
        for ((what, plural), lists) in WATCHED.iter().zip(asked_for(&world, &WATCHED.map(|(_, plural)| plural))) {
            assert!((4..10).contains(&lists), "{plural}: {lists}");
            let told = log.lines(&["WARN", what, "cannot be watched", "trouble was asked for"]);
            assert_eq!(told.len(), 1, "{told:?}");
            assert_eq!(log.lines(&[what, "is watched again"]), [""; 0]);
        }
        assert_eq!(peer.reports.len(), 0, "nobody has seen the cluster");
        // The right is given.
        world.trouble.clear();
        let report = peer.until_within(MINUTE, "what is watched", |report| report.deployment.is_some()).await;
        assert_eq!(report.applied, 1);
        peer.listen(MINUTE).await;
        for (what, _) in WATCHED {
            assert_eq!(log.lines(&["INFO", what, "is watched again"]).len(), 1);
            assert_eq!(log.lines(&["WARN", what, "cannot be watched"]).len(), 1);
        }
        world.delete(&subject.path("deployments", "w")).await;
        peer.until_within(Duration::from_millis(200), "that it is gone", |report| report.deployment.is_none()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pull_secret_that_may_not_be_watched_is_told_once_and_copied_when_it_may() {
    let (log, _guard) = Log::begin();
    let world = World::fake(Mode::Unique).await;
    let subject = world.workspace("w");
    world.make_namespace("sources", &json!({})).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry"},
        "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e30="}});
    world.make("/api/v1/namespaces/sources/secrets", &secret).await;
    world.trouble.fail(usize::MAX, Fault::Refused(403), |_, path| path == "/api/v1/namespaces/sources/secrets");
    let mut peer = world.agent().await;
    let source = SecretRef { name: "registry".to_owned(), namespace: "sources".to_owned() };
    peer.intend(Intent { pull_secrets: vec![source], ..subject.running(1) }).await;
    peer.listen(MINUTE).await;
    let lists = asked_for(&world, &["secrets"]);
    assert!((4..10).contains(&lists[0]), "{lists:?}");
    let told = log.lines(&["WARN", "pull secret sources/registry", "cannot be watched"]);
    assert_eq!(told.len(), 1, "{told:?}");
    world.trouble.clear();
    peer.listen(MINUTE).await;
    assert!(world.get(&subject.path("secrets", "registry")).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn agent_of_a_cluster_without_workspaces_watches_nothing() {
    for mode in MODES {
        let (log, _guard) = Log::begin();
        let world = World::fake(mode).await;
        world.trouble.fail(usize::MAX, Fault::Refused(403), |_, path| path != "/version");
        let mut peer = world.agent().await;
        for round in 1..=3 {
            peer.send(&ToCluster::RoundEnd { round, workspaces: 0 }).await;
            peer.listen(MINUTE * 60).await;
        }
        // Once in each round, for workspaces that the gateway does not know.
        assert_eq!(asked_for(&world, &["configmaps", "deployments", "pods", "events"]), [3, 3, 0, 0]);
        assert_eq!(log.lines(&["WARN"]), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn first_workspace_after_an_empty_round_is_watched_at_once() {
    let world = World::fake(Mode::Unique).await;
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.send(&ToCluster::RoundEnd { round: 1, workspaces: 0 }).await;
    peer.listen(MINUTE).await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    peer.deployed("w").await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "w.x"}, "type": "Warning",
        "reason": "FailedCreate", "message": "exceeded quota", "involvedObject": {"kind": "Deployment", "name": "w",
        "namespace": subject.namespace}});
    let events = subject.path("events", "");
    world.make(events.trim_end_matches('/'), &event).await;
    let is_told = |report: &WorkspaceReport| report.details.iter().any(|detail| detail.message == "exceeded quota");
    peer.until_within(Duration::from_secs(1), "the event", is_told).await;
}

#[tokio::test(start_paused = true)]
async fn workspaces_that_an_empty_round_does_not_name_are_told() {
    for mode in MODES {
        let (log, _guard) = Log::begin();
        let world = World::fake(mode).await;
        let (whole, bare) = (world.workspace("whole"), world.workspace("bare"));
        let mut peer = world.agent().await;
        for subject in [&whole, &bare] {
            peer.intend(subject.running(1)).await;
            peer.applied(&subject.name, 1).await;
        }
        peer.kill().await;
        // Of one its Deployment alone is left, of the other everything else.
        for inventory in [bare.core(), bare.secrets()] {
            world.delete(&bare.path("configmaps", &inventory)).await;
        }
        world.delete(&whole.path("deployments", "whole")).await;
        let mut peer = world.agent().await;
        peer.send(&ToCluster::RoundEnd { round: 1, workspaces: 0 }).await;
        peer.listen(MINUTE).await;
        let told = log.lines(&["WARN", "count=2", "/whole", "/bare", "does not know"]);
        assert_eq!(told.len(), 1, "{told:?}");
    }
}
