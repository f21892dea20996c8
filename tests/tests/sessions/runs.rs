//! Jobs that the gateway itself asked a GitLab for: each opens the workspace whose current run it is of, and nothing else does.

use e2e::TestGateway;
use e2e::raw::{Message, Raw};
use e2e::scripted::hello;
use gateway_config::Config;
use gateway_store::{CiState, ManagedWorkspace, NewCi, NewCiRun, Quotas, Runs, Store, wall_clock};
use gateway_types::{DesiredState, WorkspaceName};
use serde_json::{Value, json};
use tunnel_proto::hello::Hello;

use crate::issuer::{AUDIENCE, Issuer, now};
use crate::raw_agent::RawAgent;

const NOT_FOUND: u16 = 5;
const UNAVAILABLE: u16 = 14;
const UNAUTHENTICATED: u16 = 16;

/// Starts a gateway whose workspaces are pipelines of `group/project`. Its GitLab makes tokens and answers nothing else.
async fn gateway_for(issuer: &Issuer) -> TestGateway {
    gateway_with(issuer, "").await
}

/// Likewise, with more of the configuration about agents.
async fn gateway_with(issuer: &Issuer, agents: &str) -> TestGateway {
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("gateway.toml"), std::env::current_exe().unwrap());
    let text = format!(
        "public_url = '{AUDIENCE}'\n[ci]\nenabled = true\nagent_files = '{}'\n\
         [ci.providers.gitlab]\nkind = 'gitlab'\nurl = '{1}'\nproject = 'group/project'\ntoken_file = '/none'\n\
         [ci.providers.another]\nkind = 'gitlab'\nurl = '{1}'\nproject = 'group/project'\ntoken_file = '/none'\n{agents}",
        program.display(),
        issuer.url
    );
    std::fs::write(&file, text).unwrap();
    let loaded = Config::load(Some(&file), &std::collections::BTreeMap::new()).expect("a configuration");
    TestGateway::start_with(|config| (config.ci, config.auth.agents.ci) = (loaded.ci, loaded.auth.agents.ci)).await
}

async fn read(store: &Store) -> (ManagedWorkspace, CiState) {
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
        devfile: workspace_spec::devfile::DEFAULT_DEVFILE,
        variables: &[],
        ports: &[],
        quotas: Quotas::default(),
    };
    let made = gateway.store.create_ci(&new, wall_clock()).await.unwrap();
    let run = NewCiRun { key: "fedcba9876543210fedcba9876543210", token: None };
    let life = made.lifecycle.clone();
    let begun = gateway.store.begin_run(made.workspace.id, life.revision, &life, &run, wall_clock()).await.unwrap();
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
    let answer = ask_definition(gateway, token).await;
    (answer.status(), answer.text())
}

async fn ask_definition(gateway: &TestGateway, token: &str) -> Message {
    let mut raw = Raw::connect(gateway.addresses.public).await;
    let authority = format!("localhost:{}", gateway.addresses.public.port());
    raw.send(format!(
        "GET /api/v1/ci/pipeline HTTP/1.1\r\nhost: {authority}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    ))
    .await;
    raw.message().await.expect("an answer")
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
    // The controller writes down what it sees of the agent at the same time.
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

#[tokio::test]
async fn agent_of_a_pipeline_that_is_not_known_yet_comes_back_soon_and_no_rule_takes_its_token() {
    let issuer = Issuer::start().await;
    let rule = format!(
        "[[auth.agents.ci]]\nissuer = '{}'\n[[auth.agents.ci.rules]]\nworkspace = 'ci-{{project_id}}--{{job_id}}'\n\
         owner = '{{user_login}}'\ncreate = true\nclaims = {{ project_path = 'group/project' }}\n",
        issuer.url
    );
    let gateway = gateway_with(&issuer, &rule).await;
    let welcome = async |token: &str, instance| {
        let mut agent = RawAgent::dial(&gateway, token, by(instance)).await;
        agent.welcome().await.workspace.to_string()
    };
    make(&gateway).await;
    change_run(&gateway.store, |state| state.run.as_mut().unwrap().child = None).await;
    let child = job(&issuer, "child", &json!({"pipeline_source": "parent_pipeline"}));
    for _ in 0..2 {
        assert_eq!(refusal(&gateway, &child, 7).await, (UNAVAILABLE, "run_not_known_yet".to_owned()));
    }
    // A job of a pipeline that nobody else started is none that is waited for.
    let own = json!({"pipeline_source": "push", "pipeline_id": "90", "job_id": "400"});
    assert_eq!(welcome(&job(&issuer, "own", &own), 8).await, "ci-22--400");
    change_run(&gateway.store, |state| state.run.as_mut().unwrap().child = Some("78".into())).await;
    assert_eq!(welcome(&child, 7).await, "app", "its token was not used up");
    let other = json!({"pipeline_source": "parent_pipeline", "pipeline_id": "91", "job_id": "500"});
    assert_eq!(welcome(&job(&issuer, "other", &other), 9).await, "ci-22--500", "no run is without its pipelines");
}

#[tokio::test]
async fn definition_is_asked_for_again_while_the_run_may_be_unknown_and_refused_for_good_when_it_cannot() {
    let issuer = Issuer::start().await;
    let gateway = gateway_for(&issuer).await;
    make(&gateway).await;
    change_run(&gateway.store, |state| {
        let run = state.run.as_mut().unwrap();
        (run.pipeline, run.child) = (None, None);
    })
    .await;
    let parent = job(&issuer, "parent", &json!({"pipeline_id": "77", "pipeline_source": "api"}));
    let answer = ask_definition(&gateway, &parent).await;
    assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("5")), "{}", answer.text());
    assert!(answer.text().contains("run_not_known_yet"), "{}", answer.text());
    change_run(&gateway.store, |state| state.run.as_mut().unwrap().pipeline = Some("77".into())).await;
    assert_eq!(definition(&gateway, &parent).await.0, 200);
    let another = job(&issuer, "another", &json!({"pipeline_id": "79", "pipeline_source": "api"}));
    let (status, told) = definition(&gateway, &another).await;
    assert!(status == 401 && told.contains("run_unknown"), "{status} {told}");
}
