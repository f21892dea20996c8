//! `workspace-agent ci`: failed jobs that are held open, and what people behind the gateway can do about them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use e2e::raw::{Message, Raw};
use e2e::{TestGateway, until};
use gateway_store::wall_clock;
use serde_json::{Value, json};
use tunnel_proto::terminal::TERMINAL_PORT;
use workspace_agent::ci::{self, CiOptions, CommandEnd, CommandLine, HoldCondition, Length};
use workspace_agent::{Gateway, MEMORY_BUDGET_BYTES, Options, Ports, TokenSource, Transport};

use crate::issuer::{Issuer, gateway_with, now};

const WORKSPACE: &str = "ci-22--301";

fn section(issuer: &Issuer) -> String {
    format!(
        "[[auth.agents.ci]]\nissuer = '{}'\n\
         [[auth.agents.ci.rules]]\nworkspace = 'ci-{{project_id}}--{{job_id}}'\nowner = '{{user_login}}'\ncreate = true\n\
         claims = {{ project_path = 'group/project' }}\n",
        issuer.url
    )
}

/// The id_token of a job of the user `dev`.
fn token(issuer: &Issuer, more: &Value) -> String {
    let mut claims = issuer.claims(&json!({
        "jti": "a", "project_id": "22", "project_path": "group/project", "job_id": "301", "user_login": "dev",
    }));
    for (name, value) in more.as_object().expect("an object") {
        claims[name] = value.clone();
    }
    issuer.sign(&claims)
}

/// A job of which the command is this script.
struct Job {
    options: CiOptions,
    said: Arc<Mutex<Vec<String>>>,
}

impl Job {
    fn new(gateway: &TestGateway, token: &str, script: &str, hold: Length) -> Self {
        let agent = Options {
            gateway: Gateway::parse(&format!("http://{}", gateway.addresses.agents), None).expect("an address"),
            transport: Transport::default(),
            token: TokenSource::Value(token.into()),
            ports: Arc::new(Ports::default()),
            lanes: 1,
            memory_budget: MEMORY_BUDGET_BYTES,
            terminal: None,
            ssh: None,
            inspector: None,
            logs: None,
        };
        let command =
            CommandLine { program: "sh".into(), arguments: vec!["-c".into(), script.into()], hidden_variable: None };
        let patience = Length::seconds(15);
        let options = CiOptions {
            command,
            on: HoldCondition::Failure,
            hold,
            ends_at: None,
            patience,
            agent,
            spent_file: None,
            witness: None,
        };
        Self { options, said: Arc::default() }
    }

    /// Runs it, while somebody does something about it.
    async fn while_somebody<T>(&self, acts: impl Future<Output = T>) -> (CommandEnd, T) {
        let said = self.said.clone();
        let running = ci::run(self.options.clone(), move |line| said.lock().unwrap().push(line.to_owned()));
        let (end, did) = tokio::join!(running, acts);
        (end.expect("it is run"), did)
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// Waits for the link.
    async fn link(&self) -> String {
        until("the link is printed", || self.said().iter().any(|line| line.contains("://"))).await;
        self.said().into_iter().find(|line| line.contains("://")).expect("a link")
    }
}

/// Asks the terminal's port of a job as the owner of an API token.
async fn ask(gateway: &TestGateway, token: &str, request: &str, body: &str) -> Message {
    let mut raw = Raw::connect(gateway.addresses.public).await;
    let authority = gateway.authority(WORKSPACE, TERMINAL_PORT);
    let length = body.len();
    raw.send(format!(
        "{request} HTTP/1.1\r\nhost: {authority}\r\ngateway-authorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    ))
    .await;
    raw.message().await.expect("an answer")
}

/// Presses a button of the page as it is now.
async fn press(gateway: &TestGateway, token: &str, choice: &str) -> Message {
    press_of(gateway, token, &shown(gateway, token).await, choice).await
}

/// Presses a button of a page that showed this.
async fn press_of(gateway: &TestGateway, token: &str, shown: &Value, choice: &str) -> Message {
    let body = json!({"choice": choice, "instance": shown["instance"]});
    ask(gateway, token, "POST /job", &body.to_string()).await
}

/// Returns what the page shows.
async fn shown(gateway: &TestGateway, token: &str) -> Value {
    serde_json::from_slice(&ask(gateway, token, "GET /state", "").await.body).unwrap()
}

#[tokio::test]
async fn failed_job_is_held_at_one_link_and_passes_when_its_owner_continues_it() {
    let issuer = Issuer::start().await;
    let gateway = gateway_with(&section(&issuer), |_| {}).await;
    let token = token(&issuer, &json!({}));
    let job = Job::new(&gateway, &token, "exit 3", Length::seconds(60));
    let stranger = gateway.store.create_user_token(&"eve".parse().unwrap(), wall_clock()).await.expect("a token");
    let somebody = async {
        let link = job.link().await;
        assert_eq!(link, format!("http://{}/", gateway.authority(WORKSPACE, TERMINAL_PORT)));
        let page = ask(&gateway, &gateway.user_token, "GET /", "").await;
        assert_eq!((page.status(), page.text().contains("Continue")), (200, true), "{page:?}");
        let state = shown(&gateway, &gateway.user_token).await;
        assert_eq!((&state["job"]["phase"], &state["job"]["exit_status"]), (&json!("held"), &json!(3)), "{state}");
        assert_eq!(state["job"]["command"], "sh -c 'exit 3'");
        for request in ["GET /", "GET /state", "POST /job"] {
            let refused = ask(&gateway, stranger.token.reveal(), request, "{\"choice\":\"continue\"}").await;
            assert_eq!(
                refused.header("gateway-error"),
                Some("no_such_host"),
                "{request} by somebody else: {refused:?}"
            );
        }
        press(&gateway, &gateway.user_token, "continue").await.status()
    };
    let (end, pressed) = job.while_somebody(somebody).await;
    assert_eq!((end, pressed), (CommandEnd::PASSED, 204));
    let said = job.said();
    assert_eq!(said.iter().filter(|line| line.contains("://")).count(), 1, "one link: {said:?}");
    assert_eq!(said.last().map(String::as_str), Some("continued by dev: the step counts as passed"));
    assert!(!said.concat().contains(&token), "nothing secret is printed");
    until("the session is over", || gateway.registry.is_empty()).await;
}

#[tokio::test]
async fn failed_job_ends_as_its_command_did_when_its_owner_fails_it_or_nobody_comes() {
    let issuer = Issuer::start().await;
    let gateway = gateway_with(&section(&issuer), |_| {}).await;
    let failed = Job::new(&gateway, &token(&issuer, &json!({})), "kill -TERM $$", Length::seconds(60));
    let somebody = async {
        failed.link().await;
        let unknown = press(&gateway, &gateway.user_token, "pass").await.status();
        (unknown, press(&gateway, &gateway.user_token, "fail").await.status())
    };
    assert_eq!(failed.while_somebody(somebody).await, (CommandEnd::Signal(15), (400, 204)));
    assert_eq!(failed.said().last().map(String::as_str), Some("failed by dev"));

    let left = Job::new(&gateway, &token(&issuer, &json!({"jti": "b"})), "exit 3", Length::seconds(1));
    assert_eq!(left.while_somebody(left.link()).await.0, CommandEnd::Status(3));
    assert_eq!(left.said().last().map(String::as_str), Some("no choice was made within 1s"));
}

#[tokio::test]
async fn late_press_for_one_command_of_a_job_does_not_count_for_the_next_one() {
    let issuer = Issuer::start().await;
    let gateway = gateway_with(&section(&issuer), |_| {}).await;
    let first = Job::new(&gateway, &token(&issuer, &json!({})), "exit 3", Length::seconds(60));
    let somebody = async {
        first.link().await;
        let page = shown(&gateway, &gateway.user_token).await;
        (press_of(&gateway, &gateway.user_token, &page, "fail").await.status(), page)
    };
    let (end, (pressed, page)) = first.while_somebody(somebody).await;
    assert_eq!((end, pressed), (CommandEnd::Status(3), 204));
    until("the first session is over", || gateway.registry.is_empty()).await;

    let second = Job::new(&gateway, &token(&issuer, &json!({"jti": "b"})), "exit 4", Length::seconds(60));
    let somebody = async {
        second.link().await;
        let late = press_of(&gateway, &gateway.user_token, &page, "continue").await;
        (late.status(), late.text(), press(&gateway, &gateway.user_token, "fail").await.status())
    };
    let (end, pressed) = second.while_somebody(somebody).await;
    assert_eq!((end, pressed), (CommandEnd::Status(4), (409, "{\"error\":\"another_job\"}".into(), 204)));
}

#[tokio::test]
async fn passing_job_is_no_session_and_a_refused_one_is_told_why() {
    let issuer = Issuer::start().await;
    let gateway = gateway_with(&section(&issuer), |_| {}).await;
    let good = Job::new(&gateway, &token(&issuer, &json!({})), "exit 0", Length::seconds(60));
    assert_eq!(good.while_somebody(async {}).await.0, CommandEnd::PASSED);
    assert!(good.said().is_empty() && gateway.store.workspaces().await.unwrap().is_empty(), "{:?}", good.said());
    for (what, more, code) in [
        ("of another project", json!({"project_path": "group/fork"}), "credential_rule"),
        ("too old", json!({"exp": now() - 3600}), "credential_expired"),
    ] {
        let job = Job::new(&gateway, &token(&issuer, &more), "exit 3", Length::seconds(60));
        let began = Instant::now();
        assert_eq!(job.while_somebody(async {}).await.0, CommandEnd::Status(3), "{what}");
        let said = job.said();
        assert_eq!(said.len(), 1, "{what}: {said:?}");
        assert!(said[0].starts_with(&format!("this job is not held open: {code}: ")), "{said:?}");
        // It asks to come back later than the job would wait.
        assert!(began.elapsed() < Duration::from_secs(30), "{what}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn token_that_ends_while_the_command_runs_is_shown_before() {
    let issuer = Issuer::start().await;
    let gateway = gateway_with(&section(&issuer), |_| {}).await;
    let folder = tempfile::tempdir().unwrap();
    let done: PathBuf = folder.path().join("done");
    let script = format!("until [ -e '{}' ]; do sleep 0.02; done; exit 3", done.display());
    let short = token(&issuer, &json!({"exp": now() + 45}));
    let job = Job::new(&gateway, &short, &script, Length::seconds(60));
    let somebody = async {
        gateway.until_connected(WORKSPACE).await;
        let state = shown(&gateway, &gateway.user_token).await;
        let early = press(&gateway, &gateway.user_token, "continue").await.status();
        assert!(job.said().is_empty(), "nothing is said while the command runs: {:?}", job.said());
        std::fs::write(&done, "").unwrap();
        job.link().await;
        (state["job"]["phase"].clone(), early, press(&gateway, &gateway.user_token, "fail").await.status())
    };
    let (end, seen) = job.while_somebody(somebody).await;
    assert_eq!((end, seen), (CommandEnd::Status(3), (json!("running"), 409, 204)));
}

#[tokio::test]
async fn job_that_nobody_can_reach_any_more_ends() {
    let issuer = Issuer::start().await;
    let short = section(&issuer).replacen("\n[[", "\nsession_max = '10s'\n[[", 1);
    let gateway = gateway_with(&short, |_| {}).await;
    let job = Job::new(&gateway, &token(&issuer, &json!({})), "exit 3", Length::seconds(60));
    assert_eq!(job.while_somebody(job.link()).await.0, CommandEnd::Status(3));
    let last = job.said().pop().unwrap_or_default();
    assert!(last.starts_with("the job cannot be reached any more: access was revoked: "), "{last}");
}
