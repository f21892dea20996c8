//! What cluster agents are told, and when.

use std::time::{Duration, Instant};

use e2e::cluster::{ClusterAgent, done};
use gateway_types::{ActualState, DesiredState};
use tunnel_proto::reconcile::{FromCluster, NamespaceMode, ToCluster};

use crate::support::{Stage, file, objects, replicas};

#[tokio::test]
async fn agent_is_told_terms_first_and_then_everything_that_is_not_over() {
    let stage = Stage::new().await;
    for name in ["one", "two", "three"] {
        stage.make_with("prod", name, &[file("key", 10)]).await;
    }
    stage.make("elsewhere", "four").await;
    let mut agent = ClusterAgent::attach(&stage.gateway, "prod").await;
    let terms = agent.begin().await;
    assert_eq!((terms.cluster.as_str(), terms.namespaces), ("prod", NamespaceMode::Unique));
    let round = agent.round().await;
    let names: Vec<&str> = round.iter().map(|intent| intent.workspace.as_str()).collect();
    assert_eq!(names, ["one", "two", "three"]);
    let sent = objects(&round[0]);
    for object in
        ["ConfigMap one-workspace-inventory", "Deployment one", "ConfigMap one-secrets-inventory", "Secret one-file"]
    {
        assert!(sent.iter().any(|sent| sent == object), "{object}: {sent:?}");
    }
    assert_eq!((replicas(&round[0]), round[0].generation, round[0].desired), (Some(1), 1, DesiredState::Running));
    assert!(agent.is_quiet(Duration::from_millis(300)).await);
    stage.finish().await;
}

#[tokio::test]
async fn nothing_is_said_to_an_agent_that_has_not_begun() {
    let stage = Stage::new().await;
    let made = stage.make("prod", "one").await;
    let mut agent = ClusterAgent::attach(&stage.gateway, "prod").await;
    assert!(matches!(agent.next().await, ToCluster::Terms(_)));
    stage.request(made.workspace.id, DesiredState::Stopped).await;
    assert!(agent.is_quiet(Duration::from_millis(300)).await);
    stage.finish().await;
}

#[tokio::test]
async fn change_is_told_at_once_and_a_new_workspace_with_its_secrets() {
    let stage = Stage::new().await;
    let (mut agent, round) = ClusterAgent::begun(&stage.gateway, "prod").await;
    assert!(round.is_empty());
    let made = stage.make_with("prod", "one", &[file("key", 10)]).await;
    let asked = Instant::now();
    let first = agent.intent().await;
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    assert_eq!((first.round, first.generation, replicas(&first)), (0, 1, Some(1)));
    assert!(objects(&first).contains(&"Secret one-file".to_owned()), "its pods wait for them");
    agent.report(done(&first)).await;
    let id = made.workspace.id;
    assert_eq!(stage.read(id).await.lifecycle.actual, ActualState::Running);

    stage.request(id, DesiredState::Stopped).await;
    let stop = agent.intent().await;
    assert_eq!((stop.generation, stop.desired, replicas(&stop)), (2, DesiredState::Stopped, Some(0)));
    let sent = objects(&stop);
    assert!(sent.contains(&"ConfigMap one-workspace-inventory".to_owned()), "{sent:?}");
    assert!(
        !sent.iter().any(|object| object.contains("secrets-inventory") || object.starts_with("Secret")),
        "{sent:?}"
    );
    agent.report(done(&stop)).await;
    assert_eq!(stage.read(id).await.lifecycle.actual, ActualState::Stopped);
    assert!(agent.is_quiet(Duration::from_millis(300)).await, "what it reported itself is no news to it");
    stage.finish().await;
}

#[tokio::test]
async fn restart_is_a_stop_and_then_a_start_without_anybodys_help() {
    let stage = Stage::new().await;
    let made = stage.make("prod", "one").await;
    let (mut agent, round) = ClusterAgent::begun(&stage.gateway, "prod").await;
    agent.report(done(&round[0])).await;
    stage.request(made.workspace.id, DesiredState::RestartRequested).await;
    let stop = agent.intent().await;
    assert_eq!((stop.desired, replicas(&stop)), (DesiredState::RestartRequested, Some(0)));
    agent.report(done(&stop)).await;
    let start = agent.intent().await;
    assert_eq!((start.desired, start.generation, replicas(&start)), (DesiredState::Running, 3, Some(1)));
    agent.report(done(&start)).await;
    let life = stage.read(made.workspace.id).await.lifecycle;
    assert_eq!((life.desired, life.actual), (DesiredState::Running, ActualState::Running));
    stage.finish().await;
}

#[tokio::test]
async fn termination_is_told_with_the_inventories_alone_and_its_end_is_told_back() {
    let stage = Stage::new().await;
    let made = stage.make("prod", "one").await;
    let (mut agent, round) = ClusterAgent::begun(&stage.gateway, "prod").await;
    agent.report(done(&round[0])).await;
    stage.request(made.workspace.id, DesiredState::Terminated).await;
    let end = agent.intent().await;
    assert_eq!(objects(&end), ["ConfigMap one-workspace-inventory", "ConfigMap one-secrets-inventory"]);
    assert_eq!((end.desired, end.actual), (DesiredState::Terminated, ActualState::Running));
    agent.report(done(&end)).await;
    let farewell = agent.intent().await;
    assert_eq!((farewell.actual, farewell.config.len()), (ActualState::Terminated, 0));
    assert!(stage.read(made.workspace.id).await.lifecycle.is_over());
    // An agent that lost that asks again by its report.
    agent.report(done(&end)).await;
    assert_eq!(agent.intent().await.actual, ActualState::Terminated);
    agent.say(&FromCluster::FullRequest).await;
    assert!(agent.round().await.is_empty(), "what is over is nothing to be told about");
    stage.finish().await;
}

#[tokio::test]
async fn intent_that_is_not_acknowledged_is_said_again() {
    let stage = Stage::new().await;
    let made = stage.make("prod", "one").await;
    let (mut agent, round) = ClusterAgent::begun(&stage.gateway, "prod").await;
    let again = agent.intent().await;
    assert_eq!((again.round, again.generation), (0, round[0].generation));
    agent.report(done(&again)).await;
    // Nobody here hears of it: another replica's user asked.
    stage.request_silently(made.workspace.id, DesiredState::Stopped).await;
    assert_eq!(agent.intent().await.desired, DesiredState::Stopped);
    stage.finish().await;
}

#[tokio::test]
async fn full_round_is_said_on_demand() {
    let stage = Stage::new().await;
    stage.make("prod", "one").await;
    let (mut agent, _) = ClusterAgent::begun(&stage.gateway, "prod").await;
    agent.say(&FromCluster::FullRequest).await;
    agent.say(&FromCluster::FullRequest).await;
    assert_eq!(agent.round().await.len(), 1);
    stage.finish().await;
}

#[tokio::test]
async fn report_about_an_older_intent_is_no_failure_of_the_newer_one() {
    let stage = Stage::new().await;
    let made = stage.make("prod", "one").await;
    let id = made.workspace.id;
    let (mut agent, round) = ClusterAgent::begun(&stage.gateway, "prod").await;
    stage.request(id, DesiredState::Stopped).await;
    let failure = |generation| {
        let kind = tunnel_proto::reconcile::FailureKind::Kubernetes;
        Some(tunnel_proto::reconcile::ReconcileFailure { kind, generation, message: "forbidden".into() })
    };
    let late = tunnel_proto::reconcile::WorkspaceReport { failure: failure(1), applied: 0, ..done(&round[0]) };
    agent.report(late.clone()).await;
    assert!(stage.read(id).await.lifecycle.actual != ActualState::Error);
    agent.report(tunnel_proto::reconcile::WorkspaceReport { failure: failure(2), ..late }).await;
    let life = stage.read(id).await.lifecycle;
    assert_eq!((life.actual, life.reason.as_deref()), (ActualState::Error, Some("forbidden")));
    stage.finish().await;
}

#[tokio::test]
async fn steps_of_a_start_are_those_of_the_report_and_gone_once_it_runs() {
    use tunnel_proto::reconcile::{StartProgress, StartStep};

    let stage = Stage::new().await;
    let id = stage.make("prod", "one").await.workspace.id;
    let (mut agent, round) = ClusterAgent::begun(&stage.gateway, "prod").await;
    let steps = async || {
        let steps = gateway_workspaces::starts::steps(&stage.read(id).await);
        steps.iter().map(|row| format!("{}:{}", row.step, row.status)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(steps().await, "objects:now node:next tools:next containers:next agent:next");
    let running = done(&round[0]);
    let mut starting = running.clone();
    starting.deployment.as_mut().unwrap().available = 0;
    starting.start = Some(StartProgress { steps: vec![StartStep::Node, StartStep::Agent], done: 1 });
    agent.report(starting.clone()).await;
    assert_eq!(steps().await, "objects:done node:done agent:now");
    agent.report(running).await;
    assert_eq!(steps().await, "", "it runs");
    agent.report(tunnel_proto::reconcile::WorkspaceReport { start: None, ..starting }).await;
    assert!(steps().await.starts_with("objects:done node:now "), "an agent of before says nothing of steps");
    stage.finish().await;
}

#[tokio::test]
async fn many_workspaces_are_told_and_acknowledged() {
    let stage = Stage::new().await;
    for number in 0..200 {
        stage.make("prod", &format!("w{number}")).await;
    }
    let begun = Instant::now();
    let (mut agent, round) = ClusterAgent::begun(&stage.gateway, "prod").await;
    assert_eq!(round.len(), 200);
    for intent in &round {
        agent.reports += 1;
        let report = tunnel_proto::reconcile::WorkspaceReport { number: agent.reports, ..done(intent) };
        agent.say(&FromCluster::Report(Box::new(report))).await;
    }
    agent.noted(200).await;
    // One that waited for the next look each time would take a quarter of an hour.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let cluster = stage.cluster("prod").await;
    assert_eq!(stage.store().unsettled(cluster.id, 10).await.unwrap(), []);
    stage.finish().await;
}
