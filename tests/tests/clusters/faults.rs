//! Agents that break the rules, rows that cannot be sent, and who is hurt by them: nobody else.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use e2e::cluster::{ClusterAgent, done};
use e2e::until;
use gateway_store::{Needs, NewManaged, Quotas, wall_clock};
use gateway_types::{ActualState, DesiredState};
use tunnel_proto::mux::SessionError;
use tunnel_proto::reason::Reason;
use tunnel_proto::reconcile::{Begin, FromCluster, WorkspaceReport};

use crate::support::{Stage, config, objects};

fn begin() -> Bytes {
    FromCluster::Begin(Begin { agent_version: "0".into(), kubernetes_version: "v1".into() }).encode()
}

fn delimited(body: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(u8::try_from(body.len()).unwrap());
    bytes.put_slice(body);
    bytes.freeze()
}

#[tokio::test]
async fn bytes_that_are_no_message_end_that_session_and_no_other() {
    let stage = Stage::new().await;
    stage.make("prod", "one").await;
    let (bystander, _) = ClusterAgent::begun(&stage.gateway, "other").await;
    let report = |number| {
        FromCluster::Report(Box::new(WorkspaceReport {
            number,
            workspace: "a".into(),
            namespace: "b".into(),
            ..WorkspaceReport::default()
        }))
    };
    for (told, bytes) in [
        ("not protobuf", delimited(&[0xff; 20])),
        ("no body", delimited(&[])),
        ("announced far above the bound", Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x7f])),
        ("a length that never ends", Bytes::from_static(&[0xff; 11])),
        ("begun twice", begin()),
        ("a report without a number", report(0).encode()),
    ] {
        let (mut agent, round) = ClusterAgent::begun(&stage.gateway, "prod").await;
        assert_eq!(round.len(), 1, "{told}");
        agent.say_bytes(bytes).await;
        until("the agent hears of it", || agent.session.is_ended()).await;
        let end = agent.session.end();
        assert!(matches!(end, Some(SessionError::Closed { reason: Reason::Protocol, .. })), "{told}: {end:?}");
        stage.gateway.until_cluster_is_gone("prod").await;
    }
    // Before its Begin, an agent has nothing to say.
    let mut early = ClusterAgent::attach(&stage.gateway, "prod").await;
    early.say(&report(1)).await;
    until("the agent hears of it", || early.session.is_ended()).await;
    assert!(!bystander.session.is_ended());
    stage.finish().await;
}

#[tokio::test]
async fn displaced_agent_is_believed_nothing_any_more() {
    let stage = Stage::new().await;
    let made = stage.make("prod", "one").await;
    let (mut old, round) = ClusterAgent::begun(&stage.gateway, "prod").await;
    let before = stage.gateway.cluster_session("prod").expect("a session");
    let (mut new, again) = {
        let mut agent = ClusterAgent::attach_at(&stage.gateway, stage.gateway.addresses.agents, "prod", 2).await;
        agent.begin().await;
        let round = agent.round().await;
        (agent, round)
    };
    assert_eq!(again, round, "the new one is told everything anew");
    until("the old one hears of it", || old.session.is_ended()).await;
    assert!(matches!(old.session.end(), Some(SessionError::Closed { reason: Reason::Displaced, .. })));
    assert!(before.tunnel.is_ended());
    old.say(&FromCluster::Report(Box::new(WorkspaceReport { number: 1, ..done(&round[0]) }))).await;
    assert!(stage.gateway.cluster_session("prod").expect("the newer one stays").id > before.id);
    assert_eq!(stage.read(made.workspace.id).await.lifecycle.actual, ActualState::CreationRequested);
    new.report(done(&again[0])).await;
    assert_eq!(stage.read(made.workspace.id).await.lifecycle.actual, ActualState::Running);
    stage.finish().await;
}

#[tokio::test]
async fn agent_is_believed_nothing_of_another_clusters_workspaces() {
    let stage = Stage::new().await;
    let theirs = stage.make("other", "theirs").await;
    let ours = stage.make("prod", "ours").await;
    let (mut agent, round) = ClusterAgent::begun(&stage.gateway, "prod").await;
    let lie = WorkspaceReport { workspace: "theirs".into(), namespace: "ws-theirs".into(), ..done(&round[0]) };
    agent.report(lie).await;
    agent.report(WorkspaceReport { namespace: "kube-system".into(), ..done(&round[0]) }).await;
    agent.report(WorkspaceReport { workspace: "nobody".into(), ..done(&round[0]) }).await;
    for made in [&theirs, &ours] {
        let life = stage.read(made.workspace.id).await;
        assert_eq!(
            (life.lifecycle.actual, life.kubernetes().unwrap().reported_at),
            (ActualState::CreationRequested, None)
        );
    }
    assert_eq!(stage.metric("gateway_cluster_reports_total{end=\"ignored\"}").await, 3.0);
    agent.report(done(&round[0])).await;
    assert_eq!(stage.read(ours.workspace.id).await.lifecycle.actual, ActualState::Running);
    stage.finish().await;
}

#[tokio::test]
async fn agent_that_claims_more_than_was_asked_for_is_told_what_is() {
    let stage = Stage::new().await;
    let made = stage.make("prod", "one").await;
    let (mut agent, round) = ClusterAgent::begun(&stage.gateway, "prod").await;
    agent.report(WorkspaceReport { applied: u64::MAX, ..done(&round[0]) }).await;
    assert_eq!(stage.read(made.workspace.id).await.kubernetes().unwrap().applied_generation, 1);
    stage.request(made.workspace.id, DesiredState::Stopped).await;
    assert_eq!(agent.intent().await.generation, 2);
    stage.finish().await;
}

#[tokio::test]
async fn workspace_that_cannot_be_sent_is_left_out_with_the_reason_and_the_others_go_on() {
    let stage = Stage::new().await;
    stage.make("prod", "first").await;
    let cluster = stage.cluster("prod").await;
    let version = stage.store().put_cluster_config(cluster.id, &config().to_json(), wall_clock()).await.unwrap();
    let token = gateway_types::token::Token::generate(gateway_types::token::TokenKind::Agent).unwrap();
    let new = NewManaged {
        name: &"broken".parse().unwrap(),
        owner: &"dev".parse().unwrap(),
        cluster: cluster.id,
        config_version: version,
        namespace: "ws-broken",
        template: None,
        devfile: "",
        frozen: r#"[{"kind":"Pod"}]"#,
        variables: &[],
        ports: &[],
        agent_token: &token,
        needs: Needs::default(),
        quotas: Quotas::default(),
    };
    let broken = stage.store().create_managed(&new, wall_clock()).await.unwrap();
    stage.make("prod", "last").await;
    let (mut agent, round) = ClusterAgent::begun(&stage.gateway, "prod").await;
    let named: Vec<&str> = round.iter().map(|intent| intent.workspace.as_str()).collect();
    assert_eq!(named, ["first", "last"]);
    let life = stage.read(broken.workspace.id).await.lifecycle;
    assert_eq!(life.actual, ActualState::Error);
    assert!(life.reason.as_deref().is_some_and(|reason| reason.contains("frozen config")), "{:?}", life.reason);
    for intent in &round {
        agent.report(done(intent)).await;
    }
    assert!(agent.is_quiet(Duration::from_millis(500)).await);
    assert!(!agent.session.is_ended());
    stage.finish().await;
}

#[tokio::test]
async fn partial_intents_never_carry_an_inventory_without_what_it_owns() {
    let stage = Stage::new().await;
    let made = stage.make_with("prod", "one", &[crate::support::file("key", 10)]).await;
    let (mut agent, round) = ClusterAgent::begun(&stage.gateway, "prod").await;
    agent.report(done(&round[0])).await;
    for desired in [DesiredState::Stopped, DesiredState::Running, DesiredState::RestartRequested] {
        stage.request(made.workspace.id, desired).await;
        let intent = agent.intent().await;
        let sent = objects(&intent);
        let has = |name: &str| sent.iter().any(|object| object.contains(name));
        assert!(has("workspace-inventory") && !has("secrets-inventory") && !has("Secret "), "{sent:?}");
        agent.report(WorkspaceReport { number: 0, ..done(&intent) }).await;
    }
    assert_eq!(stage.metric("gateway_configs_held_back_total").await, 0.0);
    stage.finish().await;
}
