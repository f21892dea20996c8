//! A workspace is stopped when its pods are gone, and starts no sooner: pods take their time to end, and until then they write to the
//! volumes that the next one would have.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tunnel_proto::reconcile::WorkspaceReport;

use crate::trouble::Fault;
use crate::world::{MODES, Mode, Subject, World};

const MINUTE: Duration = Duration::from_secs(60);

/// Makes a pod that stays, once it is deleted, until [`end_pod`].
async fn run_pod(world: &World, subject: &Subject, name: &str) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"},
        "metadata": {"name": name, "labels": subject.labels(), "finalizers": ["test/runs"]}});
    world.make(subject.path("pods", "").trim_end_matches('/'), &pod).await;
}

async fn end_pod(world: &World, subject: &Subject, name: &str) {
    world.change(&subject.path("pods", name), |pod| pod["metadata"]["finalizers"] = json!([])).await;
    world.fake.as_ref().expect("a server in memory").drop_finalized(&subject.namespace);
}

async fn replicas(world: &World, subject: &Subject) -> Value {
    let deployment = world.get(&subject.path("deployments", "w")).await.expect("the Deployment");
    deployment["spec"]["replicas"].clone()
}

fn pods(report: &WorkspaceReport) -> Option<u32> {
    report.deployment.as_ref().map(|deployment| deployment.replicas)
}

#[tokio::test(start_paused = true)]
async fn pod_that_is_on_its_way_out_is_reported_until_it_is_gone() {
    for mode in MODES {
        let world = World::fake(mode).await;
        let subject = world.workspace("w");
        let mut peer = world.agent().await;
        peer.intend(subject.running(1)).await;
        peer.applied("w", 1).await;
        run_pod(&world, &subject, "w-1").await;
        peer.intend(subject.stopped(2)).await;
        peer.applied("w", 2).await;
        world.delete(&subject.path("pods", "w-1")).await;
        peer.listen(MINUTE).await;
        let report = &peer.reports["w"];
        assert_eq!((report.applied, pods(report)), (2, Some(1)), "the status of the Deployment leaves it out");
        assert_eq!(report.details[0].object, "Pod w-1", "{:?}", report.details);
        end_pod(&world, &subject, "w-1").await;
        let report = peer.until_within(Duration::from_millis(200), "its end", |report| pods(report) == Some(0)).await;
        assert_eq!(report.details, []);
    }
}

#[tokio::test(start_paused = true)]
async fn start_waits_for_the_pod_of_before_whichever_agent_is_there_and_a_stop_does_not() {
    for mode in MODES {
        let world = World::fake(mode).await;
        let subject = world.workspace("w");
        let mut peer = world.agent().await;
        peer.intend(subject.running(1)).await;
        peer.applied("w", 1).await;
        run_pod(&world, &subject, "w-1").await;
        peer.intend(subject.stopped(2)).await;
        peer.applied("w", 2).await;
        // It runs on for a moment before anybody tells it to end.
        peer.intend(subject.running(3)).await;
        peer.listen(MINUTE).await;
        world.delete(&subject.path("pods", "w-1")).await;
        peer.listen(MINUTE).await;
        assert_eq!(replicas(&world, &subject).await, 0);
        let report = &peer.reports["w"];
        assert_eq!((report.applied, &report.failure, pods(report)), (2, &None, Some(1)));
        assert!(report.details[0].message.contains("w-1"), "{:?}", report.details);
        // Nobody but the cluster remembers what is waited for.
        peer.kill().await;
        let mut peer = world.agent().await;
        peer.intend(subject.running(3)).await;
        peer.listen(MINUTE).await;
        assert_eq!((replicas(&world, &subject).await, peer.reports["w"].applied), (json!(0), 0));
        // A change of mind waits for nothing.
        peer.intend(subject.stopped(4)).await;
        peer.applied("w", 4).await;
        peer.intend(subject.running(5)).await;
        peer.listen(MINUTE).await;
        assert_eq!(replicas(&world, &subject).await, 0);
        end_pod(&world, &subject, "w-1").await;
        let is_applied = |report: &WorkspaceReport| report.applied == 5;
        let report = peer.until_within(Duration::from_millis(200), "the start", is_applied).await;
        assert_eq!((replicas(&world, &subject).await, report.failure), (json!(1), None));
        peer.listen(MINUTE).await;
        assert_eq!(peer.reports["w"].details, [], "nothing is waited for any more");
    }
}

#[tokio::test(start_paused = true)]
async fn workspace_without_a_deployment_waits_for_a_pod_that_is_left_too() {
    let world = World::fake(Mode::Shared).await;
    let subject = world.workspace("w");
    run_pod(&world, &subject, "w-1").await;
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.listen(MINUTE).await;
    assert_eq!(world.get(&subject.path("deployments", "w")).await, None);
    assert!(world.get(&subject.path("services", "w")).await.is_some(), "nothing else waits");
    world.delete(&subject.path("pods", "w-1")).await;
    end_pod(&world, &subject, "w-1").await;
    peer.applied("w", 1).await;
    assert_eq!(replicas(&world, &subject).await, 1);
}

#[tokio::test(start_paused = true)]
async fn pod_that_has_ended_and_stays_in_the_list_keeps_nothing_waiting() {
    let world = World::fake(Mode::Unique).await;
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    run_pod(&world, &subject, "w-1").await;
    world
        .change(&subject.path("pods", "w-1"), |pod| pod["status"] = json!({"phase": "Failed", "reason": "Evicted"}))
        .await;
    peer.intend(subject.stopped(2)).await;
    peer.applied("w", 2).await;
    assert_eq!(pods(&peer.deployed("w").await), Some(0));
    peer.intend(subject.running(3)).await;
    peer.applied("w", 3).await;
}

#[tokio::test(start_paused = true)]
async fn workspace_whose_pods_cannot_be_listed_is_not_started_and_says_why() {
    let world = World::fake(Mode::Unique).await;
    let subject = world.workspace("w");
    let is_list = |method: &Method, path: &str| *method == Method::GET && path.ends_with("/pods");
    world.trouble.fail(usize::MAX, Fault::Refused(403), is_list);
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    let failure = peer.failed("w").await.failure.expect("a failure");
    assert!(failure.message.contains("Deployment w") && failure.message.contains("trouble"), "{}", failure.message);
    assert_eq!(world.get(&subject.path("deployments", "w")).await, None);
    world.trouble.clear();
    peer.applied("w", 1).await;
}
