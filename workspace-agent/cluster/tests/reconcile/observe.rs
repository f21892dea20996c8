//! What the agent tells without being asked.

use std::time::Duration;

use serde_json::{Value, json};
use tunnel_proto::reconcile::{NamespaceMode, ToCluster};

use crate::world::{Mode, Subject, World};

fn pod(subject: &Subject, status: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "w-1", "labels": subject.labels()}, "status": status})
}

#[tokio::test(start_paused = true)]
async fn change_in_the_cluster_is_told_as_it_happens_and_once() {
    let world = World::fake(Mode::Unique).await;
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    peer.send(&ToCluster::RoundEnd { round: 0, workspaces: 1 }).await;
    peer.listen(Duration::from_secs(1)).await;
    let received = peer.received;
    world
        .change(&subject.path("deployments", "w"), |deployment| {
            deployment["status"] =
                json!({"observedGeneration": 1, "replicas": 1, "availableReplicas": 1, "updatedReplicas": 1});
        })
        .await;
    let is_available = |report: &tunnel_proto::reconcile::WorkspaceReport| {
        report.deployment.as_ref().is_some_and(|deployment| deployment.available == 1)
    };
    peer.until_within(Duration::from_millis(200), "change", is_available).await;
    peer.listen(Duration::from_secs(120)).await;
    assert_eq!(peer.received, received + 1, "once");
    let waiting = json!({"containerStatuses": [{"name": "main", "image": "i", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}]});
    let pods = subject.path("pods", "");
    world.make(pods.trim_end_matches('/'), &pod(&subject, &waiting)).await;
    let report = peer.until("the reason", |report| !report.details.is_empty()).await;
    assert_eq!(report.details[0].reason, "ImagePullBackOff");
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "w-1.x"}, "type": "Warning",
        "reason": "FailedMount", "message": "no such volume", "involvedObject": {"kind": "PersistentVolumeClaim",
        "name": "w-data", "namespace": subject.namespace}});
    let events = subject.path("events", "");
    world.make(events.trim_end_matches('/'), &event).await;
    let report = peer.until("the event", |report| report.details.len() == 2).await;
    assert_eq!(report.details[1].message, "no such volume");
    world.delete(&subject.path("deployments", "w")).await;
    peer.until("that it is gone", |report| report.deployment.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn report_that_is_not_noted_is_said_again_until_it_is() {
    let world = World::fake(Mode::Unique).await;
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.notes = false;
    peer.intend(subject.running(1)).await;
    let report = peer.applied("w", 1).await;
    peer.listen(Duration::from_secs(100)).await;
    let repeated = peer.reports["w"].clone();
    assert!(repeated.number > report.number + 4, "{} and {}", report.number, repeated.number);
    peer.send(&ToCluster::Noted { number: repeated.number }).await;
    let received = peer.received;
    peer.listen(Duration::from_secs(300)).await;
    assert_eq!(peer.received, received);
}

#[tokio::test(start_paused = true)]
async fn workspace_that_runs_is_told_by_a_new_agent_before_anything_is_applied() {
    let world = World::fake(Mode::Unique).await;
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    peer.kill().await;
    let mut peer = world.agent().await;
    let nothing = tunnel_proto::reconcile::Intent { config: bytes::Bytes::new(), ..subject.running(1) };
    peer.intend(nothing).await;
    let report = peer.until("the workspace", |_| true).await;
    assert!(report.deployment.is_some(), "nothing is told of what was not looked at");
}

#[tokio::test(start_paused = true)]
async fn workspaces_that_no_round_names_are_left_alone() {
    for mode in [Mode::Unique, Mode::Shared] {
        let world = World::fake(mode).await;
        let (known, orphan) = (world.workspace("known"), world.workspace("orphan"));
        let mut peer = world.agent().await;
        peer.intend(orphan.running(1)).await;
        peer.applied("orphan", 1).await;
        peer.kill().await;
        let mut peer = world.agent().await;
        peer.intend(tunnel_proto::reconcile::Intent { round: 1, ..known.running(1) }).await;
        peer.send(&ToCluster::RoundEnd { round: 1, workspaces: 1 }).await;
        peer.applied("known", 1).await;
        let before = world.versions(&orphan).await;
        peer.listen(Duration::from_secs(60)).await;
        assert_eq!(world.versions(&orphan).await, before);
        assert_eq!(peer.reports.keys().collect::<Vec<_>>(), ["known"], "nobody asked about the other one");
    }
}

crate::scenarios! {
    deployment_is_reported_with_what_tells_its_state
}

async fn deployment_is_reported_with_what_tells_its_state(world: &World) {
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    let report = peer.deployed("w").await;
    let deployment = report.deployment.as_ref().expect("a Deployment");
    assert_eq!((deployment.generation, deployment.replicas_wanted), (1, 1));
    if world.fake.is_none() {
        // Nodes and pods are played: they are ready at once.
        let is_running = |report: &tunnel_proto::reconcile::WorkspaceReport| {
            report.deployment.as_ref().is_some_and(|deployment| deployment.available == 1)
        };
        // That may be what was told already.
        let report = if is_running(&report) { report } else { peer.until("a pod that runs", is_running).await };
        let conditions = report.deployment.expect("a Deployment").conditions;
        assert!(conditions.iter().any(|condition| condition.kind == "Available" && condition.status == "True"));
        assert!(matches!(world.mode, NamespaceMode::Unique | NamespaceMode::Shared(_)));
    }
    peer.intend(subject.end(2)).await;
    peer.terminated("w").await;
    world.check_gone(&subject).await;
}
