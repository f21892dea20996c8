//! Pods of a cluster: whose projected token opens which workspace, and that it ends with its pod.

use std::path::PathBuf;
use std::time::Duration;

use e2e::scripted::hello;
use e2e::stopwatch::Stopwatch;
use e2e::{PATIENCE, TestGateway};
use gateway_store::wall_clock;
use serde_json::{Value, json};
use tunnel_proto::frame::Body;
use tunnel_proto::reason::Reason;

use crate::issuer::{AUDIENCE, Issuer, gateway_with, now};
use crate::raw_agent::RawAgent;

const UNAUTHENTICATED: u16 = 16;
const UNAVAILABLE: u16 = 14;

/// A cluster, and what the gateway needs to ask it.
struct Cluster {
    issuer: Issuer,
    folder: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let cluster = Self { issuer: Issuer::start().await, folder: tempfile::tempdir().unwrap() };
        std::fs::write(cluster.token_file(), "reviewer-1\n").unwrap();
        cluster.issuer.answer(|answers| answers.review = Some(review("app", "u-1")));
        cluster
    }

    fn token_file(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    fn section(&self, more: &str) -> String {
        format!(
            "[[auth.agents.kubernetes]]\nissuer = '{}'\n{more}\n\
             [[auth.agents.kubernetes.rules]]\nnamespace = 'ws'\nservice_account = 'agent'\nworkspace = '{{pod}}'\n",
            self.issuer.url
        )
    }

    fn asking(&self) -> String {
        let (url, file) = (&self.issuer.url, self.token_file());
        format!("api_server = '{url}'\ntoken_file = '{}'\nrecheck = '1s'", file.display())
    }

    fn checking(&self) -> String {
        format!("jwks_url = '{}/keys'", self.issuer.url)
    }

    fn token(&self, pod: &str, more: &Value) -> String {
        let mut claims = self.issuer.claims(&json!({
            "aud": [AUDIENCE], "sub": "system:serviceaccount:ws:agent",
            "kubernetes.io": {
                "namespace": "ws", "node": {"name": "node-1", "uid": "n-1"}, "pod": {"name": pod, "uid": "u-1"},
                "serviceaccount": {"name": "agent", "uid": "s-1"},
            },
        }));
        for (name, value) in more.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        self.issuer.sign(&claims)
    }
}

fn review(pod: &str, uid: &str) -> Value {
    json!({"kind": "TokenReview", "status": {
        "authenticated": true, "audiences": [AUDIENCE],
        "user": {"username": "system:serviceaccount:ws:agent", "uid": "s-1", "extra": {
            "authentication.kubernetes.io/pod-name": [pod], "authentication.kubernetes.io/pod-uid": [uid],
        }},
    }})
}

async fn make(gateway: &TestGateway, workspace: &str) {
    let (name, owner) = (workspace.parse().unwrap(), "dev".parse().unwrap());
    gateway.store.create_agent_token(&name, &owner, wall_clock()).await.unwrap();
}

async fn refusal(gateway: &TestGateway, token: &str) -> (u16, String) {
    RawAgent::dial(gateway, token, hello()).await.refusal().await
}

#[track_caller]
fn assert_refused((status, said): (u16, String), code: &str, what: &str) {
    assert_eq!(status, UNAUTHENTICATED, "{what}: {said}");
    assert!(said.starts_with(&format!("{code}: ")), "{what}: {said}");
}

#[tokio::test]
async fn pod_that_its_cluster_vouches_for_is_the_agent_of_its_workspace() {
    let cluster = Cluster::start().await;
    let gateway = gateway_with(&cluster.section(&cluster.asking()), |_| {}).await;
    make(&gateway, "app").await;
    let token = cluster.token("app", &json!({}));
    let mut agent = RawAgent::dial(&gateway, &token, hello()).await;
    assert_eq!(agent.welcome().await.workspace, "app");
    let asked = &cluster.issuer.asked()[0];
    assert_eq!(asked.authorization.as_deref(), Some("Bearer reviewer-1"));
    let spec = json!({"token": token, "audiences": [AUDIENCE]});
    assert_eq!((&asked.body["spec"], &asked.body["kind"]), (&spec, &json!("TokenReview")));
    let credential = gateway.registry.current(&"app".parse().unwrap()).expect("a session").credential();
    assert_eq!(credential.to_string(), "pod ws/app u-1");

    // The gateway's own token is renewed by somebody else.
    std::fs::write(cluster.token_file(), "reviewer-2\n").unwrap();
    let renewed =
        || cluster.issuer.asked().iter().any(|asked| asked.authorization.as_deref() == Some("Bearer reviewer-2"));
    e2e::until("the session is asked about with the new one", renewed).await;
}

#[tokio::test]
async fn deleted_pod_loses_its_session_within_seconds_and_nobody_else_does() {
    let cluster = Cluster::start().await;
    let gateway = gateway_with(&cluster.section(&cluster.asking()), |_| {}).await;
    make(&gateway, "app").await;
    let bystander = gateway.agent("bystander").await;
    let mut agent = RawAgent::dial(&gateway, &cluster.token("app", &json!({})), hello()).await;
    agent.welcome().await;

    // A server that does not answer takes nothing away.
    cluster.issuer.answer(|answers| answers.review = None);
    let before = cluster.issuer.reviews();
    e2e::until("it was asked in vain", || cluster.issuer.reviews() > before + 2).await;
    assert!(gateway.registry.current(&"app".parse().unwrap()).is_some());

    let deleted = Stopwatch::start();
    cluster.issuer.answer(|answers| answers.review = Some(json!({"status": {"authenticated": false}})));
    let end = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(Body::Close { reason, detail }) = agent.heard().await {
                return (reason, detail);
            }
        }
    });
    let (reason, detail) = end.await.expect("it ends");
    assert_eq!(reason, Reason::Revoked, "{detail}");
    assert!(deleted.elapsed() < Duration::from_secs(5), "{:?}", deleted.elapsed());
    assert!(gateway.registry.current(&"bystander".parse().unwrap()).is_some());
    bystander.stop().await;
}

#[tokio::test]
async fn token_that_the_cluster_does_not_plainly_vouch_for_is_refused_by_name() {
    let cluster = Cluster::start().await;
    let gateway = gateway_with(&cluster.section(&cluster.asking()), |_| {}).await;
    make(&gateway, "app").await;
    let no_audience = {
        let mut answer = review("app", "u-1");
        answer["status"].as_object_mut().unwrap().remove("audiences");
        answer
    };
    let unbound = json!({"status": {
        "authenticated": true, "audiences": [AUDIENCE], "user": {"username": "system:serviceaccount:ws:agent"},
    }});
    for (number, (what, answer, code)) in [
        ("a no", json!({"status": {"authenticated": false, "error": "pod is gone"}}), "credential_not_vouched"),
        ("a yes in another type", json!({"status": {"authenticated": "true"}}), "credential_not_vouched"),
        ("nothing", json!({}), "credential_not_vouched"),
        ("a yes for no audience", no_audience, "credential_not_vouched"),
        ("a yes for another pod", review("other", "u-1"), "credential_not_vouched"),
        ("a yes for an earlier pod of that name", review("app", "u-0"), "credential_not_vouched"),
        ("a yes for something that is no pod", unbound, "credential_not_of_pod"),
    ]
    .into_iter()
    .enumerate()
    {
        cluster.issuer.answer(|answers| answers.review = Some(answer));
        // A token of its own, because answers are kept.
        let told = refusal(&gateway, &cluster.token("app", &json!({"jti": number.to_string()}))).await;
        assert_refused(told, code, what);
    }
    cluster.issuer.answer(|answers| answers.review = Some(review("app", "u-1")));
    let before = cluster.issuer.reviews();
    let bound = |value: Value| json!({"kubernetes.io": value});
    for (what, more, code) in [
        ("for somebody else", json!({"aud": ["https://kubernetes.default.svc"]}), "credential_audience"),
        ("too old", json!({"exp": now() - 3600}), "credential_expired"),
        ("of no pod", bound(json!({"namespace": "ws", "serviceaccount": {"name": "agent"}})), "credential_not_of_pod"),
        ("of a person", json!({"sub": "alice"}), "credential_not_of_pod"),
        ("of another account", json!({"sub": "system:serviceaccount:ws:default"}), "credential_not_of_pod"),
    ] {
        assert_refused(refusal(&gateway, &cluster.token("app", &more)).await, code, what);
    }
    assert_eq!(cluster.issuer.reviews(), before, "what is refused for what it says itself is no question");
    cluster.issuer.answer(|answers| answers.review = Some(review("ghost", "u-1")));
    let ghost = cluster.token("ghost", &json!({}));
    assert_refused(refusal(&gateway, &ghost).await, "workspace_unknown", "of a workspace that nobody made");
    for _ in 0..20 {
        refusal(&gateway, &ghost).await;
    }
    assert_eq!(cluster.issuer.reviews(), before + 1, "the same token again is the same answer");
}

#[tokio::test]
async fn cluster_whose_server_fails_or_hangs_refuses_its_own_pods_for_now_and_nobody_else() {
    let cluster = Cluster::start().await;
    let gateway = gateway_with(&cluster.section(&cluster.asking()), |_| {}).await;
    make(&gateway, "app").await;
    cluster.issuer.answer(|answers| answers.review = None);
    let (status, said) = refusal(&gateway, &cluster.token("app", &json!({}))).await;
    assert_eq!((status, said.starts_with("credential_unchecked: ")), (UNAVAILABLE, true), "{said}");

    cluster.issuer.answer(|answers| answers.hangs = true);
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..100 {
        let (address, token) = (gateway.addresses.agents, cluster.token("app", &json!({"jti": number.to_string()})));
        waiting.spawn(async move { RawAgent::dial_at(address, &token, hello()).await.refusal().await });
    }
    e2e::until("it was asked", || cluster.issuer.reviews() > 1).await;
    let began = tokio::time::Instant::now();
    let plain = gateway.agent_token("plain").await;
    RawAgent::dial(&gateway, &plain, hello()).await.welcome().await;
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    while let Some(told) = waiting.join_next().await {
        let (status, said) = told.unwrap();
        assert!(status == UNAVAILABLE || said.starts_with("credential_checks_busy: "), "{status} {said}");
    }
    assert!(cluster.issuer.reviews() <= 1 + 32, "a crowd is no reason to fill a cluster with questions");
}

#[tokio::test]
async fn keys_of_the_cluster_check_a_token_without_a_question() {
    let (cluster, stranger) = (Cluster::start().await, Cluster::start().await);
    let gateway = gateway_with(&cluster.section(&cluster.checking()), |_| {}).await;
    make(&gateway, "app").await;
    RawAgent::dial(&gateway, &cluster.token("app", &json!({})), hello()).await.welcome().await;
    let forged = {
        let genuine = cluster.issuer.claims(&json!({"sub": "system:serviceaccount:ws:agent"}));
        stranger.token("app", &json!({"iss": genuine["iss"]}))
    };
    assert_refused(refusal(&gateway, &forged).await, "credential_signature", "forged");
    let elsewhere = cluster.token("app", &json!({"aud": "https://other.test"}));
    assert_refused(refusal(&gateway, &elsewhere).await, "credential_audience", "for somebody else");
    assert_eq!(cluster.issuer.reviews(), 0);
}

#[tokio::test]
async fn with_keys_and_a_server_forged_tokens_never_reach_the_server() {
    let (cluster, stranger) = (Cluster::start().await, Cluster::start().await);
    let both = format!("{}\n{}", cluster.checking(), cluster.asking());
    let gateway = gateway_with(&cluster.section(&both), |_| {}).await;
    make(&gateway, "app").await;
    for number in 0..20 {
        let forged = stranger.token("app", &json!({"iss": cluster.issuer.url, "jti": number.to_string()}));
        assert_refused(refusal(&gateway, &forged).await, "credential_signature", "forged");
    }
    assert_eq!(cluster.issuer.reviews(), 0);
    RawAgent::dial(&gateway, &cluster.token("app", &json!({})), hello()).await.welcome().await;
    assert_eq!(cluster.issuer.reviews(), 1);
}
