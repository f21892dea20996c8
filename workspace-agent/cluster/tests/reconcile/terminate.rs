//! The end of workspaces, in both namespace modes.

use serde_json::json;
use tunnel_proto::reconcile::Intent;
use tunnel_proto::state::ActualState;

use crate::world::World;

crate::scenarios! {
    terminated_workspace_leaves_nothing_and_takes_nothing_else
    what_holds_a_workspace_up_is_named_until_it_is_gone
    workspace_that_was_never_made_ends_at_once
    end_without_inventories_is_refused
    ; in unique namespaces alone:
    namespace_that_was_deleted_by_hand_is_the_end
}

async fn terminated_workspace_leaves_nothing_and_takes_nothing_else(world: &World) {
    let (subject, other) = (world.workspace("w"), world.workspace("other"));
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.intend(other.running(1)).await;
    peer.applied("w", 1).await;
    peer.applied("other", 1).await;
    let before = world.versions(&other).await.keys().filter(|name| name.contains("other")).count();
    peer.intend(subject.end(2)).await;
    let report = peer.terminated("w").await;
    assert_eq!((report.failure, report.applied), (None, 2));
    world.check_gone(&subject).await;
    assert_eq!(world.versions(&other).await.keys().filter(|name| name.contains("other")).count(), before);
    // It is said until the gateway knows, and then not spoken of any more.
    peer.intend(subject.end(2)).await;
    peer.intend(Intent { actual: ActualState::Terminated, ..subject.end(2) }).await;
    let received = peer.received;
    peer.intend(other.stopped(2)).await;
    peer.applied("other", 2).await;
    assert!(peer.reports.keys().all(|name| name == "w" || name == "other") && peer.received > received);
}

async fn what_holds_a_workspace_up_is_named_until_it_is_gone(world: &World) {
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    let path = subject.path("configmaps", "w-scripts");
    world.change(&path, |object| object["metadata"]["finalizers"] = json!(["example.net/hold"])).await;
    peer.intend(subject.end(2)).await;
    let held = |report: &tunnel_proto::reconcile::WorkspaceReport| {
        let blockers =
            report.termination.as_ref().map(|termination| termination.blockers.as_slice()).unwrap_or_default();
        blockers.len() == 1 && blockers[0].object == "ConfigMap w-scripts"
    };
    let report = peer.until("what holds it up", held).await;
    let blocker = report.termination.expect("it is being terminated").blockers.remove(0);
    assert_eq!(blocker.finalizers, ["example.net/hold"]);
    assert!(blocker.since > 0);
    assert!(world.get(&subject.path("configmaps", &subject.core())).await.is_some(), "it is still tracked");
    world.change(&path, |object| object["metadata"]["finalizers"] = json!([])).await;
    if let Some(fake) = &world.fake {
        fake.drop_finalized(&subject.namespace);
    }
    peer.terminated("w").await;
    world.check_gone(&subject).await;
}

async fn namespace_that_was_deleted_by_hand_is_the_end(world: &World) {
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    if let Some(fake) = &world.fake {
        fake.let_namespaces_linger();
    }
    world.delete(&subject.namespace_path()).await;
    peer.intend(subject.end(2)).await;
    if let Some(fake) = &world.fake {
        let is_waiting = |report: &tunnel_proto::reconcile::WorkspaceReport| {
            let termination = report.termination.as_ref();
            termination.is_some_and(|termination| !termination.is_done && termination.blockers.len() == 1)
        };
        let report = peer.until("the namespace as what is left", is_waiting).await;
        let blocker = report.termination.expect("it is being terminated").blockers.remove(0);
        assert_eq!(blocker.object, format!("Namespace {}", subject.namespace));
        fake.finish_namespace(&subject.namespace);
    }
    peer.terminated("w").await;
    world.check_gone(&subject).await;
}

async fn workspace_that_was_never_made_ends_at_once(world: &World) {
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.end(1)).await;
    peer.terminated("w").await;
    world.check_gone(&subject).await;
}

async fn end_without_inventories_is_refused(world: &World) {
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    peer.intend(Intent { config: bytes::Bytes::new(), ..subject.end(2) }).await;
    let failure = peer.failed("w").await.failure.expect("a failure");
    assert!(failure.message.contains("inventories were not sent"), "{}", failure.message);
    assert!(!world.objects(&subject).await.is_empty());
}
