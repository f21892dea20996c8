mod search;
pub(crate) mod server;

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use self::server::{PROJECT, Seen, Server, TOKEN, Trouble};
use super::*;
use crate::provider::{CacheKey, JobStatus, RunKey};
use gateway_net::fetch::FetchError;
use gateway_store::{SecretText, Variable, VariableKind, wall_clock};
use gateway_types::{UnixSeconds, WorkspaceName};

struct Lab {
    server: Server,
    gitlab: Gitlab,
    token: tempfile::NamedTempFile,
    key: RunKey,
    cache: CacheKey,
    workspace: WorkspaceName,
}

impl Lab {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut GitlabSettings)) -> Self {
        let server = Server::start().await;
        let mut token = tempfile::NamedTempFile::new().unwrap();
        writeln!(token, "{TOKEN}").unwrap();
        let mut settings = GitlabSettings {
            url: server.at.clone(),
            project: "group/project".to_owned(),
            reference: "main".to_owned(),
            token_file: token.path().to_owned(),
            token_kind: GitlabToken::Access,
            ca_file: None,
        };
        change(&mut settings);
        let gitlab = Gitlab::new(settings).unwrap();
        let (key, cache) = (RunKey::generate().unwrap(), CacheKey::generate().unwrap());
        Self { server, gitlab, token, key, cache, workspace: "my-app".parse().unwrap() }
    }

    /// Makes the run as if nobody had been asked for it before.
    async fn create(&self, variables: &[Variable]) -> Result<RunRef, ProviderError> {
        self.make(true, variables).await
    }

    /// Makes it after an answer that never came.
    async fn create_again(&self) -> Result<RunRef, ProviderError> {
        self.make(false, &[]).await
    }

    async fn make(&self, is_new: bool, variables: &[Variable]) -> Result<RunRef, ProviderError> {
        let run = NewRun {
            key: &self.key,
            is_new,
            since: wall_clock(),
            workspace: &self.workspace,
            cache_key: &self.cache,
            yaml: "workspace: {script: [true]}",
            token: None,
            variables,
        };
        self.gitlab.create(&run).await
    }

    async fn status(&self, run: &RunRef) -> RunStatus {
        self.gitlab.status(run).await.unwrap()
    }
}

fn variable(name: &str, value: &str) -> Variable {
    Variable { kind: VariableKind::Env, name: name.to_owned(), value: SecretText::new(value.to_owned()) }
}

fn job(id: u64, status: &str, failure: Option<&str>) -> Value {
    json!({
        "id": id, "name": "workspace", "status": status, "started_at": "2026-11-21T12:00:00.123Z",
        "failure_reason": failure, "web_url": format!("https://gitlab.test/group/project/-/jobs/{id}"),
    })
}

#[tokio::test]
async fn pipeline_is_made_with_its_key_and_with_secrets_as_files_only() {
    let lab = Lab::new().await;
    let run = lab.create(&[variable("TOKEN", "pa$$word\n"), variable("B", "")]).await.unwrap();
    assert_eq!(run, RunRef { id: "100".to_owned(), child: None });
    let seen: Vec<Seen> = lab.server.state.lock().seen.clone();
    let [last] = seen.as_slice() else { panic!("what is new is not looked for: {seen:?}") };
    assert_eq!((last.method.as_str(), last.path.as_str()), ("POST", format!("{PROJECT}/pipeline").as_str()));
    assert_eq!(last.headers["private-token"], TOKEN);
    assert_eq!(last.headers["content-type"], "application/json");
    assert!(!last.headers.contains_key("authorization") && !last.headers.contains_key("job-token"));
    let expected = json!({"ref": "main", "variables": [
        {"key": "WORKSPACE_GATEWAY_RUN", "value": lab.key.as_str(), "variable_type": "env_var"},
        {"key": "WORKSPACE_GATEWAY_WORKSPACE", "value": "my-app", "variable_type": "env_var"},
        {"key": "GW_VAR_1", "value": "cGEkJHdvcmQK", "variable_type": "file"},
        {"key": "GW_VAR_2", "value": "", "variable_type": "file"},
    ]});
    assert_eq!(last.body, expected);
}

#[tokio::test]
async fn creating_again_gives_the_run_that_is_there() {
    let lab = Lab::new().await;
    lab.server.trouble(Trouble::LostAnswer);
    let error = lab.create(&[]).await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    let first = lab.create_again().await.unwrap();
    assert_eq!(lab.create_again().await.unwrap(), first);
    assert_eq!(lab.server.state.lock().pipelines.len(), 1, "the answer was lost, the pipeline was not");
    assert_eq!(lab.gitlab.find(&lab.key, wall_clock()).await.unwrap(), Some(first));
    let another = RunKey::generate().unwrap();
    assert_eq!(lab.gitlab.find(&another, wall_clock()).await.unwrap(), None);
}

#[tokio::test]
async fn status_follows_the_run_from_its_parent_to_its_job() {
    let lab = Lab::new().await;
    let run = lab.create(&[]).await.unwrap();
    let status = lab.status(&run).await;
    assert_eq!((status.state, &status.job), (RunState::Pending, &None));
    assert_eq!(status.web_url.as_deref(), Some("https://gitlab.test/group/project/-/pipelines/100"));

    lab.server.add(200, "running", "2026-11-21T12:00:00.000Z", json!([]));
    lab.server.change(100, |parent| (parent.status, parent.child) = ("running", Some(200)));
    lab.server.change(200, |child| child.jobs = vec![job(9, "pending", None)]);
    let status = lab.status(&run).await;
    assert_eq!(status.run, RunRef { id: "100".to_owned(), child: Some("200".to_owned()) });
    assert_eq!(status.state, RunState::Pending);

    lab.server.change(200, |child| child.jobs = vec![job(9, "running", None)]);
    lab.server.asked();
    let status = lab.status(&status.run).await;
    let started_at = Some("2026-11-21T12:00:00Z".parse().unwrap());
    assert_eq!(status.job, Some(JobStatus { id: "9".to_owned(), started_at, failure: None }));
    assert_eq!(status.state, RunState::Running);
    assert_eq!(status.web_url.as_deref(), Some("https://gitlab.test/group/project/-/jobs/9"));
    assert_eq!(lab.server.asked(), ["GET /pipelines/200", "GET /pipelines/200/jobs?per_page=100"]);

    lab.server.change(100, |parent| parent.status = "canceled");
    assert_eq!(lab.status(&status.run).await.state, RunState::Running, "the parent alone is over");
    lab.server.change(200, |child| {
        child.status = "failed";
        child.jobs = vec![job(9, "failed", Some("job_execution_timeout"))];
    });
    let status = lab.status(&status.run).await;
    assert_eq!(status.state, RunState::Failed);
    assert_eq!(status.job.unwrap().failure.as_deref(), Some("job_execution_timeout"));
}

#[tokio::test]
async fn run_without_a_workspace_is_failed_and_says_which_job_of_its_own() {
    let lab = Lab::new().await;
    let run = lab.create(&[]).await.unwrap();
    lab.server.change(100, |parent| {
        parent.status = "failed";
        parent.jobs = vec![job(3, "success", None), job(4, "failed", Some("script_failure"))];
    });
    let status = lab.status(&run).await;
    assert_eq!((status.state, status.job.unwrap().failure.as_deref()), (RunState::Failed, Some("script_failure")));
}

#[tokio::test]
async fn deleted_pipeline_is_gone_and_an_unseen_project_is_named() {
    let lab = Lab::new().await;
    let run = RunRef { id: "5".to_owned(), child: None };
    assert_eq!(lab.status(&run).await.state, RunState::Gone);
    let with_child = RunRef { id: "5".to_owned(), child: Some("6".to_owned()) };
    assert_eq!(lab.status(&with_child).await, RunStatus { run: with_child.clone(), ..gone(&with_child) });
    lab.gitlab.cancel(&with_child).await.unwrap();
    let elsewhere = Lab::with(|settings| settings.project = "group/other".to_owned()).await;
    let error = elsewhere.gitlab.status(&run).await.unwrap_err();
    assert_eq!(error, ProviderError::NoProject { project: "group/other".to_owned() });
    let not_ours = RunRef { id: "5/../6".to_owned(), child: None };
    assert_eq!(lab.gitlab.status(&not_ours).await, Err(ProviderError::NotOurs));
}

#[tokio::test]
async fn cancel_reaches_the_child_also_when_it_was_not_known() {
    let lab = Lab::new().await;
    let run = lab.create(&[]).await.unwrap();
    lab.server.add(200, "running", "2026-11-21T12:00:00.000Z", json!([]));
    lab.server.change(100, |parent| parent.child = Some(200));
    lab.server.asked();
    lab.gitlab.cancel(&run).await.unwrap();
    assert_eq!(
        lab.server.asked(),
        ["POST /pipelines/100/cancel", "GET /pipelines/100/bridges?per_page=100", "POST /pipelines/200/cancel"]
    );
    lab.gitlab.cancel(&RunRef { child: Some("200".to_owned()), ..run }).await.unwrap();
    assert_eq!(lab.server.state.lock().pipelines.iter().map(|pipeline| pipeline.cancels).collect::<Vec<_>>(), [2, 2]);
}

#[tokio::test]
async fn trace_is_the_end_of_the_log_whether_or_not_ranges_are_known() {
    let lab = Lab::new().await;
    lab.server.add(200, "running", "2026-11-21T12:00:00.000Z", json!([]));
    let run = RunRef { id: "100".to_owned(), child: Some("200".to_owned()) };
    assert_eq!(lab.gitlab.trace(&run, 100).await.unwrap(), "", "no job yet");
    lab.server.change(200, |child| child.jobs = vec![job(9, "running", None)]);
    assert_eq!(lab.gitlab.trace(&run, 100).await.unwrap(), "", "no log yet");
    let log = format!("{}\x1b[31mthe last\x1b[0m line\r\n", "an early line\n".repeat(400_000));
    lab.server.state.lock().traces.insert(9, log.into_bytes());
    for knows_ranges in [false, true] {
        lab.server.state.lock().knows_ranges = knows_ranges;
        assert_eq!(lab.gitlab.trace(&run, 40).await.unwrap(), "an early line\nthe last line");
    }
    let seen = lab.server.state.lock().seen.last().unwrap().clone();
    assert_eq!((seen.path, seen.headers["range"].as_str()), (format!("{PROJECT}/jobs/9/trace"), "bytes=-4176"));
}

#[tokio::test]
async fn too_many_requests_are_followed_by_none_until_the_server_wants_more() {
    let lab = Lab::new().await;
    let run = RunRef { id: "5".to_owned(), child: None };
    lab.server.trouble(Trouble::Answer(429, &[("Retry-After", "60")], "Retry later".to_owned()));
    let error = lab.gitlab.status(&run).await.unwrap_err();
    assert_eq!((error.retry_after(), error.is_temporary()), (Some(Duration::from_mins(1)), true));
    assert_eq!(lab.server.asked().len(), 1);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(50)).await;
    let error = lab.gitlab.clone().cancel(&run).await.unwrap_err();
    let left = error.retry_after().unwrap();
    assert!(left <= Duration::from_secs(10), "{left:?}");
    assert!(lab.server.asked().is_empty(), "it was left alone");
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
    assert_eq!(lab.status(&run).await.state, RunState::Gone);
}

#[tokio::test]
async fn the_last_request_that_the_limit_allows_is_followed_by_none() {
    let lab = Lab::new().await;
    lab.server.add(5, "running", "2026-11-21T12:00:00.000Z", json!([]));
    let body = json!({"id": 5, "status": "running"}).to_string();
    // As far ahead as a time that this year will not see: it is cut to the longest pause.
    let headers = &[("RateLimit-Remaining", "0"), ("RateLimit-Reset", "99999999999")];
    lab.server.trouble(Trouble::Answer(200, headers, body));
    let error = lab.gitlab.status(&RunRef { id: "5".to_owned(), child: None }).await.unwrap_err();
    let left = error.retry_after().unwrap();
    assert!(left > Duration::from_mins(14) && left <= Duration::from_mins(15), "{left:?}");
    assert_eq!(lab.server.asked(), ["GET /pipelines/5"]);
}

#[tokio::test]
async fn each_failure_has_its_name_and_says_whether_time_helps() {
    let lab = Lab::new().await;
    let run = RunRef { id: "5".to_owned(), child: None };
    let refusal = json!({"message": "403 Forbidden\r\n - your role\u{1b}[31m"}).to_string();
    for (trouble, expected, is_temporary) in [
        (Trouble::Answer(500, &[], "<h1>oops</h1>".to_owned()), "status 500", true),
        (Trouble::Answer(502, &[], String::new()), "status 502", true),
        (Trouble::Answer(503, &[("Retry-After", "7")], String::new()), "status 503", true),
        (Trouble::Answer(401, &[], "{}".to_owned()), "does not accept the token of", false),
        (Trouble::Answer(403, &[], refusal), "may not read a pipeline: 403 Forbidden - your role [31m", false),
        (Trouble::Answer(302, &[("Location", "https://elsewhere.test/")], String::new()), "with status 302", false),
        (Trouble::Answer(200, &[], "<html>".to_owned()), "something else than the JSON", true),
        (Trouble::Answer(200, &[], "{\"id\": -1}".to_owned()), "something else than the JSON", true),
        (Trouble::Truncated, "cannot be reached", true),
        (Trouble::Huge, "more bytes than are read", true),
        (Trouble::LostAnswer, "cannot be reached", true),
    ] {
        lab.server.trouble(trouble.clone());
        let error = lab.gitlab.status(&run).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{trouble:?}: {error}");
        assert_eq!(error.is_temporary(), is_temporary, "{trouble:?}");
        assert!(!format!("{error} {error:?}").contains(TOKEN));
        let after = matches!(error, ProviderError::Unavailable { status: 503, .. }).then_some(Duration::from_secs(7));
        assert_eq!(error.retry_after(), after, "{trouble:?}");
    }
    let elsewhere = Lab::with(|settings| settings.reference = "gone".to_owned()).await;
    let error = elsewhere.create(&[]).await.unwrap_err();
    assert_eq!(error.to_string(), "the CI system refused to make a pipeline with status 400: Reference not found");
}

#[tokio::test]
async fn server_that_hangs_is_given_up_in_time() {
    let lab = Lab::new().await;
    lab.server.trouble(Trouble::Hang);
    let run = RunRef { id: "5".to_owned(), child: None };
    let watch = async {
        lab.server.hangs.notified().await;
        // From here on nothing but the deadline is left to wait for.
        tokio::time::pause();
    };
    let (status, ()) = tokio::join!(lab.gitlab.status(&run), watch);
    let server = lab.server.at.origin();
    assert_eq!(status, Err(ProviderError::Fetch(FetchError::TimedOut { server })));
}

#[tokio::test]
async fn token_is_read_anew_each_time_and_a_bad_file_is_named() {
    let lab = Lab::new().await;
    let run = RunRef { id: "5".to_owned(), child: None };
    std::fs::write(lab.token.path(), "another").unwrap();
    let path = lab.token.path().to_owned();
    assert_eq!(lab.gitlab.status(&run).await, Err(ProviderError::TokenRefused { path: path.clone() }));
    std::fs::write(lab.token.path(), format!("  {TOKEN}\n\n")).unwrap();
    assert_eq!(lab.status(&run).await.state, RunState::Gone);
    for (content, why) in [
        (Vec::new(), "empty"),
        (b" \n".to_vec(), "empty"),
        (b"two tokens".to_vec(), "something else"),
        (vec![b'x'; 9000], "something else"),
        ("t\u{e4}".into(), "something else"),
        (vec![0xff], "utf-8"),
    ] {
        std::fs::write(lab.token.path(), content).unwrap();
        let error = lab.gitlab.status(&run).await.unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(path.to_str().unwrap()), "{error}");
    }
    let absent = Lab::with(|settings| settings.token_file = "/nonexistent/token".into()).await;
    let error = absent.gitlab.status(&run).await.unwrap_err().to_string();
    assert!(error.starts_with("the token cannot be read from /nonexistent/token: "), "{error}");
    assert!(absent.server.asked().is_empty());
}

#[tokio::test]
async fn job_token_goes_in_its_own_field() {
    let lab = Lab::with(|settings| settings.token_kind = GitlabToken::Job).await;
    lab.server.state.lock().token_header = "job-token";
    assert_eq!(lab.status(&RunRef { id: "5".to_owned(), child: None }).await.state, RunState::Gone);
    assert!(!lab.server.state.lock().seen[0].headers.contains_key("private-token"));
}

#[tokio::test]
async fn variable_that_no_job_could_hold_is_refused_before_anything_is_asked() {
    let lab = Lab::new().await;
    let error = lab.create(&[variable("A", "x"), variable("BIG", &"x".repeat(98_257))]).await.unwrap_err();
    assert_eq!(error, ProviderError::VariableTooLong { name: "BIG".to_owned(), bytes_max: 98_256 });
    assert!(lab.server.asked().is_empty());
    lab.create(&[variable("BIG", &"x".repeat(98_256))]).await.unwrap();
}
