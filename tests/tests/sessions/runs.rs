//! Jobs that the gateway itself asked a GitLab for: each opens the workspace whose current run it is of, and nothing else does.

use e2e::TestGateway;
use e2e::raw::Raw;
use e2e::scripted::hello;
use gateway::config::Config;
use gateway::model::{DesiredState, WorkspaceName};
use gateway::store::{CiState, Managed, NewCi, NewCiRun, Quotas, Runs, Store, wall_clock};
use serde_json::{Value, json};
use tunnel_proto::hello::Hello;

use crate::issuer::{AUDIENCE, Issuer, now};
use crate::raw_agent::RawAgent;

const NOT_FOUND: u16 = 5;
const UNAUTHENTICATED: u16 = 16;

/// Starts a gateway whose workspaces are pipelines of `group/project`. Its GitLab makes tokens and answers nothing else.
async fn gateway_for(issuer: &Issuer) -> TestGateway {
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("gateway.toml"), std::env::current_exe().unwrap());
    let text = format!(
        "public_url = '{AUDIENCE}'\n[ci]\nenabled = true\nagent_files = '{}'\n\
         [ci.providers.gitlab]\nkind = 'gitlab'\nurl = '{1}'\nproject = 'group/project'\ntoken_file = '/none'\n\
         [ci.providers.another]\nkind = 'gitlab'\nurl = '{1}'\nproject = 'group/project'\ntoken_file = '/none'\n",
        program.display(),
        issuer.url
    );
    std::fs::write(&file, text).unwrap();
    let loaded = Config::load(Some(&file), &std::collections::BTreeMap::new()).expect("a configuration");
    TestGateway::start_with(|config| config.ci = loaded.ci).await
}

async fn read(store: &Store) -> (Managed, CiState) {
    let managed = store.managed(&workspace()).await.unwrap().expect("it is there");
    let Runs::Ci(state) = managed.runs.clone() else { panic!("{managed:?}") };
    (managed, *state)
}

/// Makes the workspace `app` of alice with a run whose pipelines are 77 and, started by that, 78.
async fn make(gateway: &TestGateway) {
    let (name, owner, provider) = (workspace(), "alice".parse().unwrap(), "gitlab".parse().unwrap());
    let new = NewCi {
        name: &name,
        owner: &owner,
        provider: &provider,
        cache_key: "0123456789abcdef0123456789abcdef",
        project: None,
        tags: &[],
        devfile: gateway::workspaces::devfile::DEFAULT_DEVFILE,
        variables: &[],
        quotas: Quotas::default(),
    };
    let made = gateway.store.create_ci(&new, wall_clock()).await.unwrap();
    let run = NewCiRun { key: "fedcba9876543210fedcba9876543210", token: None };
    let life = made.lifecycle.clone();
    let begun = gateway.store.begin_run(made.workspace.id, (life.revision, &life), &run, wall_clock()).await.unwrap();
    assert_eq!(begun, Some(1));
    change_run(&gateway.store, |state| {
        let run = state.run.as_mut().unwrap();
        (run.asked_at, run.pipeline, run.child) = (Some(wall_clock()), Some("77".into()), Some("78".into()));
    })
    .await;
}

async fn change_run(store: &Store, change: impl FnOnce(&mut CiState)) {
    let (managed, mut state) = read(store).await;
    change(&mut state);
    assert!(store.put_run(managed.workspace.id, &state, wall_clock()).await.unwrap());
}

fn workspace() -> WorkspaceName {
    "app".parse().unwrap()
}

fn job(issuer: &Issuer, jti: &str, more: &Value) -> String {
    let mut claims = issuer.claims(&json!({
        "jti": jti, "project_id": "22", "project_path": "group/project", "pipeline_id": "78", "job_id": "301",
        "ref": "main", "ref_type": "branch", "ref_path": "refs/heads/main", "user_login": "alice",
    }));
    for (name, value) in more.as_object().expect("an object") {
        claims[name] = value.clone();
    }
    issuer.sign(&claims)
}

fn by(instance: u64) -> Hello {
    Hello { instance, ..hello() }
}

async fn refusal(gateway: &TestGateway, token: &str, instance: u64) -> (u16, String) {
    let (status, said) = RawAgent::dial(gateway, token, by(instance)).await.refusal().await;
    (status, said.split(':').next().unwrap_or_default().to_owned())
}

/// Asks for the definition of a job's pipeline, and returns status and body.
async fn definition(gateway: &TestGateway, token: &str) -> (u16, String) {
    let mut raw = Raw::connect(gateway.addresses.public).await;
    let authority = format!("localhost:{}", gateway.addresses.public.port());
    raw.send(format!(
        "GET /api/v1/ci/pipeline HTTP/1.1\r\nhost: {authority}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    ))
    .await;
    let answer = raw.message().await.expect("an answer");
    (answer.status(), answer.text())
}

#[tokio::test]
async fn job_of_the_current_run_gets_its_workspace_and_its_definition_and_every_other_job_is_refused_by_name() {
    let issuer = Issuer::start().await;
    let gateway = gateway_for(&issuer).await;
    make(&gateway).await;
    let good = job(&issuer, "good", &json!({}));
    for (what, more, code) in [
        ("of a fork", json!({"project_path": "mallory/project", "project_id": "23"}), "job_of_another_project"),
        ("of another branch", json!({"ref": "feature", "ref_path": "refs/heads/feature"}), "job_of_another_ref"),
        ("of a merge request", json!({"ref_path": "refs/merge-requests/1/head"}), "job_of_another_ref"),
        ("of another pipeline of the project", json!({"pipeline_id": "79"}), "run_unknown"),
        ("of the pipeline that asks for the definition, beside it", json!({"pipeline_id": "77"}), "run_unknown"),
        ("that is too old", json!({"exp": now() - 3600}), "credential_expired"),
        ("for somebody else", json!({"aud": "https://other.test"}), "credential_audience"),
    ] {
        let token = job(&issuer, what, &more);
        assert_eq!(refusal(&gateway, &token, 7).await, (UNAUTHENTICATED, code.to_owned()), "a job {what}");
        if more["pipeline_id"] != "77" {
            let (status, told) = definition(&gateway, &token).await;
            assert!(status == 401 && told.contains(code), "a job {what}: {status} {told}");
        }
    }
    assert!(gateway.registry.is_empty());
    let (status, text) = definition(&gateway, &job(&issuer, "parent", &json!({"pipeline_id": "77"}))).await;
    assert!(status == 200 && text.contains("0123456789abcdef0123456789abcdef"), "{status} {text}");
    let mut agent = RawAgent::dial(&gateway, &good, by(7)).await;
    assert_eq!(agent.welcome().await.workspace, "app");
    assert_eq!(refusal(&gateway, &good, 8).await, (UNAUTHENTICATED, "credential_spent".to_owned()), "replayed");
}

#[tokio::test]
async fn agent_of_a_run_that_is_to_end_or_is_over_is_told_that_its_workspace_is_done_with_it() {
    let issuer = Issuer::start().await;
    let gateway = gateway_for(&issuer).await;
    make(&gateway).await;
    let token = job(&issuer, "a", &json!({}));
    RawAgent::dial(&gateway, &token, by(7)).await.welcome().await;
    // The driver writes down what it sees of the agent at the same time.
    loop {
        let (managed, _) = read(&gateway.store).await;
        let stopped = managed.lifecycle.request(DesiredState::Stopped, wall_clock()).unwrap();
        let (id, revision) = (managed.workspace.id, managed.lifecycle.revision);
        if gateway.store.swap_lifecycle(id, revision, &stopped).await.unwrap() {
            break;
        }
    }
    let fresh = job(&issuer, "b", &json!({}));
    assert_eq!(refusal(&gateway, &fresh, 9).await, (NOT_FOUND, "workspace_stopped".to_owned()));
    let (status, told) = definition(&gateway, &fresh).await;
    assert!(status == 409 && told.contains("workspace_stopped"), "{status} {told}");
    change_run(&gateway.store, |state| state.run.as_mut().unwrap().ended_at = Some(wall_clock())).await;
    assert_eq!(refusal(&gateway, &fresh, 9).await, (NOT_FOUND, "run_over".to_owned()));
    // The one that was in comes back with what it used, and is told the same.
    assert_eq!(refusal(&gateway, &token, 7).await, (NOT_FOUND, "run_over".to_owned()));
}
