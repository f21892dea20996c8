//! A credential answers for one workspace or one cluster, and for nothing else.

use e2e::cluster::{ClusterAgent, cluster_hello, connect};
use e2e::raw::Raw;
use e2e::scripted::{ScriptedAgent, hello};
use e2e::stopwatch::Stopwatch;
use e2e::until;
use gateway_store::wall_clock;
use tokio::task::JoinSet;
use tunnel_link::grpc::{Code, ConnectError};
use tunnel_proto::hello::{Hello, Role};
use tunnel_proto::mux::SessionError;
use tunnel_proto::reason::Reason;

use crate::support::Stage;

#[tokio::test]
async fn role_that_does_not_fit_the_credential_is_refused_by_its_name() {
    let stage = Stage::new().await;
    let (cluster, workspace) = (stage.gateway.cluster_token("prod").await, stage.gateway.agent_token("one").await);
    let old = Hello { features: Vec::new(), ..cluster_hello(1) };
    for (token, hello, told) in [
        (&cluster, hello(), "is for a cluster agent"),
        (&workspace, cluster_hello(1), "is for the agent in a workspace"),
        (&workspace, Hello { role: Role::Cluster, ..hello() }, "is for the agent in a workspace"),
        (&cluster, old, "reconcile"),
    ] {
        let mut tasks = JoinSet::new();
        match connect(stage.gateway.addresses.agents, token, hello, &mut tasks).await {
            Err(ConnectError::Refused(refused)) => {
                assert_eq!(refused.code, Code::FailedPrecondition);
                assert!(refused.message.contains(told), "{}", refused.message);
            }
            other => panic!("{told}: {other:?}"),
        }
    }
    assert!(stage.gateway.registry.is_empty());
    stage.finish().await;
}

#[tokio::test]
async fn cluster_named_like_a_workspace_gets_nothing_that_users_ask_of_the_workspace() {
    let stage = Stage::new().await;
    let gateway = &stage.gateway;
    drop(gateway.agent_token("same").await);
    let agent = ClusterAgent::attach(gateway, "same").await;
    let channels = || gateway.cluster_session("same").map(|session| session.tunnel.stats().channels_opened);
    let before = channels();
    for port in ["", "80-", "1-", "65535-"] {
        let mut raw = Raw::connect(gateway.addresses.public).await;
        let host = format!("{port}same.localhost:{}", gateway.addresses.public.port());
        let token = &gateway.user_token;
        raw.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {token}\r\n\r\n")).await;
        let answer = raw.message().await.expect("an answer");
        assert_eq!((answer.status(), answer.header("gateway-error")), (503, Some("agent_absent")), "{port}");
    }
    // With both there, each has its own.
    let workspace = ScriptedAgent::attach(gateway, "same").await;
    assert!(!workspace.session.is_ended() && !agent.session.is_ended());
    assert_eq!(gateway.registry.len(), 2);
    assert_eq!(channels(), before, "no request reached the cluster's session");
    stage.finish().await;
}

#[tokio::test]
async fn revoked_token_of_a_cluster_ends_its_session_within_five_seconds() {
    let stage = Stage::new().await;
    let agent = ClusterAgent::attach(&stage.gateway, "prod").await;
    let bystander = ClusterAgent::attach(&stage.gateway, "other").await;
    let tokens = stage.store().list_tokens().await.unwrap();
    let session = stage.gateway.cluster_session("prod").expect("a session");
    let token = session.token().expect("a token");
    assert!(tokens.iter().any(|record| record.id == token));
    let revoked = Stopwatch::start();
    assert!(stage.store().revoke_token(token, wall_clock()).await.unwrap());
    until("the agent hears of it", || agent.session.is_ended()).await;
    assert!(revoked.elapsed().as_secs() < 5, "{:?}", revoked.elapsed());
    assert!(matches!(agent.session.end(), Some(SessionError::Closed { reason: Reason::Revoked, .. })));
    stage.gateway.until_cluster_is_gone("prod").await;
    assert!(!bystander.session.is_ended());
    stage.finish().await;
}

#[tokio::test]
async fn operator_sees_sessions_of_clusters_beside_those_of_workspaces() {
    let stage = Stage::new().await;
    let _cluster = ClusterAgent::attach(&stage.gateway, "prod").await;
    let _workspace = ScriptedAgent::attach(&stage.gateway, "one").await;
    let mut raw = Raw::connect(stage.gateway.addresses.admin.expect("bound")).await;
    raw.send("GET /debug/sessions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").await;
    let rows: serde_json::Value = serde_json::from_str(&raw.message().await.expect("an answer").text()).unwrap();
    assert_eq!((&rows[0]["workspace"], rows[0].get("cluster")), (&"one".into(), None));
    assert_eq!((&rows[1]["cluster"], rows[1].get("workspace")), (&"prod".into(), None));
    assert_eq!(stage.metric("gateway_cluster_sessions").await, 1.0);
    stage.finish().await;
}
