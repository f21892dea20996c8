//! CI jobs: whose token opens which workspace, and that it does so for one process only.

use std::time::Duration;

use e2e::scripted::hello;
use e2e::{TestGateway, until};
use gateway_agents::registry::Credential;
use gateway_store::wall_clock;
use gateway_types::WorkspaceName;
use serde_json::{Value, json};
use tunnel_proto::frame::Body;
use tunnel_proto::hello::Hello;

use crate::issuer::{Issuer, gateway_with, now};
use crate::raw_agent::RawAgent;

const UNAUTHENTICATED: u16 = 16;
const UNAVAILABLE: u16 = 14;

fn section(issuer: &Issuer) -> String {
    format!(
        "[[auth.agents.ci]]\nissuer = '{}'\n\
         [[auth.agents.ci.rules]]\nworkspace = 'ci-{{project_id}}--{{job_id}}'\nowner = '{{user_login}}'\ncreate = true\n\
         claims = {{ project_path = 'group/project', ref_protected = 'true' }}\n",
        issuer.url
    )
}

fn job(issuer: &Issuer, jti: &str, more: &Value) -> Value {
    let mut claims = issuer.claims(&json!({
        "jti": jti, "project_id": "22", "project_path": "group/project", "job_id": "301", "ref": "main",
        "ref_protected": "true", "user_login": "alice",
    }));
    for (name, value) in more.as_object().expect("an object") {
        claims[name] = value.clone();
    }
    claims
}

fn by(instance: u64) -> Hello {
    Hello { instance, ..hello() }
}

fn workspace() -> WorkspaceName {
    "ci-22--301".parse().unwrap()
}

async fn refusal(gateway: &TestGateway, token: &str, instance: u64) -> (u16, String) {
    RawAgent::dial(gateway, token, by(instance)).await.refusal().await
}

#[track_caller]
fn assert_refused((status, said): (u16, String), code: &str, what: &str) {
    assert_eq!(status, UNAUTHENTICATED, "{what}: {said}");
    assert!(said.starts_with(&format!("{code}: ")), "{what}: {said}");
}

#[tokio::test]
async fn job_gets_the_workspace_that_the_rule_makes_of_its_claims_and_its_user_owns_it() {
    let issuer = Issuer::start().await;
    let gateway = gateway_with(&section(&issuer), |_| {}).await;
    let token = issuer.sign(&job(&issuer, "a", &json!({})));
    let mut agent = RawAgent::dial(&gateway, &token, by(7)).await;
    assert_eq!(agent.welcome().await.workspace, "ci-22--301");
    let made = gateway.store.workspace(&workspace()).await.unwrap().expect("it was made");
    assert_eq!(made.owner.as_str(), "alice");
    let session = gateway.registry.current(&workspace()).expect("a session");
    let credential = session.credential();
    assert!(matches!(&credential, Credential::Job { issuer: by, .. } if **by == *issuer.url), "{credential}");
    assert!(!token.contains(&credential.to_string()), "what is logged is no proof");
}

#[tokio::test]
async fn token_that_is_not_exactly_what_the_operator_named_is_refused_by_name() {
    let (issuer, other) = (Issuer::start().await, Issuer::start().await);
    let elsewhere = section(&other).replace("group/project", "other/project");
    let gateway = gateway_with(&format!("{}{elsewhere}", section(&issuer)), |_| {}).await;
    let signed = |jti: &str, more: Value| issuer.sign(&job(&issuer, jti, &more));
    let good = job(&issuer, "good", &json!({}));
    let stranger = Issuer::start().await;
    let unprotected = json!({"alg": "none"});
    for (what, token, code) in [
        ("of nobody we know", stranger.sign(&job(&stranger, "a", &json!({}))), "credential_issuer"),
        ("of another issuer that we know", other.sign(&good), "credential_signature"),
        ("of a stranger in another's name", stranger.sign(&good), "credential_signature"),
        ("for somebody else", signed("b", json!({"aud": "https://other.test"})), "credential_audience"),
        ("for nobody", signed("c", json!({"aud": []})), "credential_claims"),
        ("too old", signed("d", json!({"exp": now() - 3600})), "credential_expired"),
        ("without an end", signed("e", json!({"exp": null})), "credential_claims"),
        ("of the future", signed("f", json!({"nbf": now() + 3600})), "credential_not_yet"),
        ("of another project", signed("g", json!({"project_path": "group/project2"})), "credential_rule"),
        ("of an unprotected branch", signed("h", json!({"ref_protected": "false"})), "credential_rule"),
        ("with a claim of another type", signed("i", json!({"ref_protected": ["true"]})), "credential_rule"),
        ("without a user", signed("j", json!({"user_login": null})), "credential_name"),
        ("with half a number", signed("k", json!({"job_id": 1.5})), "credential_name"),
        ("unsigned", issuer.sign_as(&unprotected, &good), "credential_signature"),
        ("signed with a shared secret", issuer.sign_as(&json!({"alg": "HS256"}), &good), "credential_signature"),
        ("cut", issuer.sign(&good).split_at(40).0.to_owned() + ".x", "credential_damaged"),
    ] {
        assert_refused(refusal(&gateway, &token, 7).await, code, what);
    }
    assert!(gateway.registry.is_empty() && gateway.store.workspaces().await.unwrap().is_empty(), "nothing came of it");

    let owned = "ci-22--301".parse().unwrap();
    gateway.store.create_agent_token(&owned, &"bob".parse().unwrap(), wall_clock()).await.unwrap();
    let told = refusal(&gateway, &issuer.sign(&good), 7).await;
    assert_refused(told, "workspace_of_another", "of a workspace that is somebody else's");
}

#[tokio::test]
async fn used_token_is_refused_to_every_other_process_and_lets_its_own_come_back() {
    let issuer = Issuer::start().await;
    let gateway = gateway_with(&section(&issuer), |_| {}).await;
    // It expires while its job runs, as such tokens do; this much earlier it is still taken.
    let token = issuer.sign(&job(&issuer, "a", &json!({"exp": now() - 52})));
    let expired = issuer.sign(&job(&issuer, "b", &json!({"exp": now() - 52})));
    let mut first = RawAgent::dial(&gateway, &token, by(7)).await;
    let session = first.welcome().await.session;
    assert_refused(refusal(&gateway, &token, 8).await, "credential_spent", "a second process");
    let is_first = || gateway.registry.current(&workspace()).is_some_and(|current| current.id == session);
    assert!(is_first(), "the one that is in stays in");
    until("the tokens have expired", || now() >= session_end(&token)).await;
    let mut again = RawAgent::dial(&gateway, &token, by(7)).await;
    assert_eq!(again.welcome().await.workspace, "ci-22--301", "the same process");
    assert_refused(refusal(&gateway, &token, 8).await, "credential_spent", "a second process, later");
    assert_refused(refusal(&gateway, &expired, 7).await, "credential_expired", "one that was not used in time");
}

/// From when on a token is not taken any more.
fn session_end(token: &str) -> i64 {
    use base64::Engine;
    let claims = token.split('.').nth(1).unwrap();
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).unwrap();
    serde_json::from_slice::<Value>(&claims).unwrap()["exp"].as_i64().unwrap() + 60
}

#[tokio::test]
async fn processes_that_draw_no_number_cannot_come_back() {
    let issuer = Issuer::start().await;
    let gateway = gateway_with(&section(&issuer), |_| {}).await;
    let token = issuer.sign(&job(&issuer, "a", &json!({})));
    RawAgent::dial(&gateway, &token, by(0)).await.welcome().await;
    assert_refused(refusal(&gateway, &token, 0).await, "credential_spent", "two that look alike");
}

#[tokio::test]
async fn use_of_a_token_is_remembered_over_a_restart() {
    let issuer = Issuer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let url = || format!("sqlite://{}", folder.path().join("gateway.db").display()).parse().unwrap();
    let token = issuer.sign(&job(&issuer, "a", &json!({})));
    let gateway = gateway_with(&section(&issuer), |config| config.store.url = url()).await;
    RawAgent::dial(&gateway, &token, by(7)).await.welcome().await;
    gateway.stop().await;
    // Nor does it help that the issuer cannot be reached any more.
    issuer.answer(|answers| answers.keys = Some(json!({"keys": []})));
    let gateway = gateway_with(&section(&issuer), |config| config.store.url = url()).await;
    assert_refused(refusal(&gateway, &token, 8).await, "credential_spent", "another process");
    RawAgent::dial(&gateway, &token, by(7)).await.welcome().await;
}

#[tokio::test]
async fn session_of_a_job_ends_when_its_time_is_up() {
    let issuer = Issuer::start().await;
    let short = section(&issuer).replacen("\n[[", "\nsession_max = '2s'\n[[", 1);
    let gateway = gateway_with(&short, |_| {}).await;
    let token = issuer.sign(&job(&issuer, "a", &json!({})));
    let mut agent = RawAgent::dial(&gateway, &token, by(7)).await;
    agent.welcome().await;
    loop {
        if let Body::Close { reason, detail } = agent.heard().await.expect("it is told why") {
            assert_eq!(reason, tunnel_proto::reason::Reason::Revoked, "{detail}");
            break;
        }
    }
    assert_refused(refusal(&gateway, &token, 7).await, "credential_over", "back after the end");
}

#[tokio::test]
async fn issuer_that_hangs_keeps_nobody_else_waiting() {
    let (issuer, other) = (Issuer::start().await, Issuer::start().await);
    let elsewhere = section(&other);
    let gateway = gateway_with(&format!("{}{elsewhere}", section(&issuer)), |_| {}).await;
    issuer.answer(|answers| answers.hangs = true);
    let stuck = issuer.sign(&job(&issuer, "a", &json!({})));
    let mut waiting = tokio::task::JoinSet::new();
    let address = gateway.addresses.agents;
    for instance in 1..=50 {
        let stuck = stuck.clone();
        waiting.spawn(async move { RawAgent::dial_at(address, &stuck, by(instance)).await.refusal().await });
    }
    until("its keys were asked for", || !issuer.asked().is_empty()).await;
    let began = tokio::time::Instant::now();
    let token = gateway.agent_token("plain").await;
    RawAgent::dial(&gateway, &token, hello()).await.welcome().await;
    let theirs = other.sign(&job(&other, "a", &json!({"job_id": "1"})));
    RawAgent::dial(&gateway, &theirs, by(7)).await.welcome().await;
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    while let Some(told) = waiting.join_next().await {
        let (status, said) = told.unwrap();
        assert_eq!((status, said.starts_with("credential_unchecked: ")), (UNAVAILABLE, true), "{said}");
    }
    let asked = issuer.asked().len();
    assert!(asked <= 3, "fifty agents are no reason to ask an issuer {asked} times");
}

#[tokio::test]
async fn call_with_two_credentials_in_one_place_is_refused() {
    let gateway = TestGateway::start().await;
    let token = gateway.agent_token("one").await;
    let other = gateway.agent_token("two").await;
    for second in [&token, &other] {
        let stream = tokio::net::TcpStream::connect(gateway.addresses.agents).await.unwrap();
        let (first, second) = (format!("Bearer {token}"), format!("Bearer {second}"));
        let agent = RawAgent::open_over(stream, &[&first, &second], crate::raw_agent::WINDOW).await.expect("HTTP/2");
        assert_refused(agent.refusal().await, "credential_ambiguous", "two of them");
    }
}
