//! An API server that refuses, is silent, or is away.

use std::time::Duration;

use http::Method;
use tunnel_proto::reconcile::{FailureKind, ToCluster};

use crate::trouble::Fault;
use crate::world::{MODES, Mode, World};

#[tokio::test(start_paused = true)]
async fn refusals_that_time_heals_are_outlived_without_a_word() {
    for code in [401, 429, 500, 502, 503, 504] {
        let world = World::fake(Mode::Unique).await;
        let subject = world.workspace("w");
        // Each kind of request, in the middle of the work.
        for (times, method) in [(2, Method::PATCH), (2, Method::GET), (1, Method::POST), (1, Method::PUT)] {
            world
                .trouble
                .fail(times, Fault::Refused(code), move |asked, path| *asked == method && path.contains("/ws-"));
        }
        let mut peer = world.agent().await;
        peer.intend(subject.running(1)).await;
        peer.applied("w", 1).await;
        assert!(peer.reports["w"].failure.is_none(), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_that_time_does_not_heal_name_the_object() {
    for (code, kind) in [(403, FailureKind::Kubernetes), (422, FailureKind::Config), (400, FailureKind::Config)] {
        let world = World::fake(Mode::Unique).await;
        let subject = world.workspace("w");
        world
            .trouble
            .fail(1, Fault::Refused(code), |method, path| *method == Method::PATCH && path.ends_with("/services/w"));
        let mut peer = world.agent().await;
        peer.intend(subject.running(1)).await;
        let failure = peer.failed("w").await.failure.expect("a failure");
        assert_eq!((failure.kind, failure.generation), (kind, 1), "{code}");
        assert!(failure.message.contains("Service w"), "{}", failure.message);
        // The others were applied, the refusal is tried again by itself, and the report says when it went well.
        assert!(world.get(&subject.path("deployments", "w")).await.is_some());
        peer.applied("w", 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn inventory_that_somebody_else_writes_too_is_read_again() {
    let world = World::fake(Mode::Shared).await;
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    world.trouble.fail(3, Fault::Refused(409), |method, path| *method == Method::PUT && path.ends_with("inventory"));
    peer.intend(subject.end(2)).await;
    assert_eq!(peer.terminated("w").await.failure, None);
    world.check_gone(&subject).await;
}

#[tokio::test(start_paused = true)]
async fn silence_and_lost_answers_are_outlived() {
    for fault in [Fault::Silence, Fault::AnswerLost] {
        for mode in MODES {
            let world = World::fake(mode).await;
            let subject = world.workspace("w");
            let mut peer = world.agent().await;
            world.trouble.fail(1, fault, |method, path| *method == Method::PATCH && path.ends_with("/deployments/w"));
            world.trouble.fail(1, fault, |method, _| *method == Method::POST);
            peer.intend(subject.running(1)).await;
            peer.applied("w", 1).await;
            world.trouble.fail(2, fault, |method, _| *method == Method::DELETE);
            peer.intend(subject.end(2)).await;
            peer.terminated("w").await;
            world.check_gone(&subject).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn object_whose_first_answer_is_lost_is_known_again_as_ones_own() {
    for path in ["/deployments/w", "/services/w", "/persistentvolumeclaims/w-data", "/configmaps/w-scripts"] {
        let world = World::fake(Mode::Unique).await;
        let subject = world.workspace("w");
        let mut peer = world.agent().await;
        world
            .trouble
            .fail(1, Fault::AnswerLost, move |method, asked| *method == Method::PATCH && asked.ends_with(path));
        peer.intend(subject.running(1)).await;
        let report = peer.until("end of the pass", |report| report.failure.is_some() || report.applied == 1).await;
        assert_eq!((report.failure, report.applied), (None, 1), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn api_server_that_restarts_in_the_middle_of_a_prune_is_waited_for() {
    for mode in MODES {
        let world = World::fake(mode).await;
        let subject = world.workspace("w");
        let mut peer = world.agent().await;
        peer.intend(subject.running(1)).await;
        peer.applied("w", 1).await;
        // Away for a minute, from the third deletion on.
        let deletions = std::sync::atomic::AtomicUsize::new(0);
        let started = tokio::time::Instant::now();
        world.trouble.fail(usize::MAX, Fault::Refused(503), move |method, _| {
            if *method == Method::DELETE {
                deletions.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            let is_down = deletions.load(std::sync::atomic::Ordering::Relaxed) > 2;
            is_down && started.elapsed() < Duration::from_secs(60)
        });
        peer.intend(subject.end(2)).await;
        let failure = peer.failed("w").await.failure.expect("a failure");
        assert_eq!((failure.kind, failure.generation), (FailureKind::Kubernetes, 2));
        let report = peer.terminated("w").await;
        assert_eq!(report.failure, None, "it is over");
        world.check_gone(&subject).await;
    }
}

#[tokio::test(start_paused = true)]
async fn error_of_an_intent_that_nobody_wants_any_more_is_dropped() {
    let world = World::fake(Mode::Unique).await;
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    world.trouble.fail(1, Fault::Silence, |method, path| *method == Method::PATCH && path.ends_with("/services/w"));
    peer.intend(subject.running(2)).await;
    // It is in the middle of that.
    peer.listen(Duration::from_millis(100)).await;
    peer.intend(subject.stopped(3)).await;
    peer.applied("w", 3).await;
    let deployment = world.get(&subject.path("deployments", "w")).await.expect("the Deployment");
    assert_eq!(deployment["spec"]["replicas"], 0);
    peer.listen(Duration::from_secs(60)).await;
    assert_eq!(peer.reports["w"].failure, None);
}

#[tokio::test(start_paused = true)]
async fn older_intent_is_ignored() {
    let world = World::fake(Mode::Unique).await;
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.running(5)).await;
    peer.applied("w", 5).await;
    drop(world.trouble.writes());
    peer.intend(subject.end(4)).await;
    peer.listen(Duration::from_secs(30)).await;
    assert_eq!(world.trouble.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn conversation_ends_with_the_channel_or_with_what_cannot_be_understood() {
    let world = World::fake(Mode::Unique).await;
    let peer = world.agent().await;
    assert!(matches!(peer.hang_up().await, agent_cluster::ClusterConversationEnd::Closed));
    let mut peer = world.agent().await;
    peer.raw(&[0xff; 16]).await;
    assert!(matches!(peer.end().await, agent_cluster::ClusterConversationEnd::Protocol(_)));
    let peer = world.agent().await;
    assert!(matches!(peer.stop().await, agent_cluster::ClusterConversationEnd::Stopped));
}

#[tokio::test(start_paused = true)]
async fn other_terms_begin_anew_and_ask_for_everything() {
    let world = World::fake(Mode::Unique).await;
    let subject = world.workspace("w");
    let mut peer = world.agent().await;
    peer.intend(subject.running(1)).await;
    peer.applied("w", 1).await;
    let terms =
        |namespaces| ToCluster::Terms(tunnel_proto::reconcile::Terms { cluster: world.cluster.clone(), namespaces });
    peer.send(&terms(world.mode.clone())).await;
    peer.listen(Duration::from_secs(1)).await;
    assert_eq!(peer.full_requests, 0, "the same terms change nothing");
    peer.send(&terms(tunnel_proto::reconcile::NamespaceMode::Shared("other".into()))).await;
    peer.listen(Duration::from_secs(1)).await;
    assert_eq!(peer.full_requests, 1);
    peer.intend(subject.running(2)).await;
    let failure = peer.failed("w").await.failure.expect("a failure");
    assert!(failure.message.contains("is not other"), "{}", failure.message);
}

#[tokio::test(start_paused = true)]
async fn workspace_of_another_namespace_mode_is_reported_in_the_same_conversation() {
    for (from, to) in [(Mode::Unique, Mode::Shared), (Mode::Shared, Mode::Unique)] {
        let world = World::fake(from).await;
        let (before, other) = (world.workspace("before"), World { mode: World::fake(to).await.mode, ..world.again() });
        if to == Mode::Shared {
            world.make_namespace(&other.workspace("after").namespace, &serde_json::json!({})).await;
        }
        let after = other.workspace("after");
        let mut peer = world.agent().await;
        peer.intend(before.running(1)).await;
        peer.applied("before", 1).await;
        peer.intend(before.end(2)).await;
        peer.terminated("before").await;
        let terms = tunnel_proto::reconcile::Terms { cluster: world.cluster.clone(), namespaces: other.mode.clone() };
        peer.send(&ToCluster::Terms(terms)).await;
        // Each report is checked to have a higher number than all before it.
        peer.intend(after.running(1)).await;
        peer.applied("after", 1).await;
        peer.intend(after.end(2)).await;
        peer.terminated("after").await;
        other.check_gone(&after).await;
    }
}
