//! A gateway whose operator is `olga`, a CI system that signs tokens of jobs, and a cluster's agent.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use e2e::TestGateway;
use e2e::cluster::{ClusterAgent, as_made};
pub(crate) use e2e::jobs::PROJECT;
use e2e::jobs::{access, wish};
use e2e::raw::{Message, Raw};
use gateway_config::{Config, JobIssuer};
use gateway_store::wall_clock;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::bytes::Bytes;
use tunnel_link::channel_io::ChannelIo;
use tunnel_proto::environments::{
    Call, CallAnswer, CallProgress, Decoder, Done, ENVIRONMENTS_PORT, ObjectError, ObjectErrorCode, ObjectStep,
};
use workspace_spec::cluster_config::AccessEntry;

use super::issuer::{AUDIENCE, Issuer};

pub(crate) const CLUSTER: &str = "prod";
pub(crate) const HOOK_SECRET: &str = "a-secret-of-the-hook";

pub(crate) struct World {
    pub(crate) gateway: TestGateway,
    pub(crate) issuer: Issuer,
    /// An API token of an operator.
    pub(crate) operator: String,
    /// One of somebody else.
    pub(crate) user: String,
    pub(crate) folder: TempDir,
}

impl World {
    /// Starts with a cluster where `team/app` may have environments below `review/`, and `production` from protected branches:
    /// the latter of `team/safe` alone.
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts it with a changed configuration.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let (issuer, folder) = (Issuer::start().await, tempfile::tempdir().unwrap());
        let secret = folder.path().join("hook");
        std::fs::write(&secret, format!("{HOOK_SECRET}\n")).unwrap();
        let audit = folder.path().join("audit.log");
        let url = issuer.url.parse().unwrap();
        let gateway = TestGateway::start_with(|config| {
            let jobs = JobIssuer { issuer: url, audience: AUDIENCE.into(), jwks_url: None, ca_file: None };
            config.environments.jobs = Some(jobs);
            config.environments.operators = vec!["olga".parse().unwrap()];
            config.environments.hook_token_file = Some(secret);
            config.environments.complete_max = Duration::from_secs(60);
            config.audit.path = Some(audit);
            change(config);
        })
        .await;
        let token = async |user: &str| {
            let made = gateway.store.create_user_token(&user.parse().unwrap(), wall_clock()).await.unwrap();
            made.token.reveal().to_owned()
        };
        let (operator, user) = (token("olga").await, token("ann").await);
        let world = Self { gateway, issuer, operator, user, folder };
        world.configure().await;
        world
    }

    async fn configure(&self) {
        let of_app = access("team/app", "review/*");
        let of_safe = AccessEntry { protected_branches_only: true, ..access("team/safe", "*") };
        self.gateway.let_jobs(vec![of_app, of_safe], &wish(CLUSTER, "team/app", "review/1", 1)).await;
    }

    /// Makes the token of a job in `review/1` of `team/app`, but for what is said otherwise.
    pub(crate) fn job(&self, job_id: u64, otherwise: &Value) -> String {
        let mut claims = self.issuer.claims(&json!({
            "sub": "project_path:team/app:ref_type:branch:ref:topic", "project_id": PROJECT.to_string(),
            "project_path": "team/app", "namespace_path": "team", "user_id": "7", "user_login": "ann",
            "pipeline_id": "900", "job_id": job_id.to_string(), "ref_protected": "false", "environment": "review/1",
            "deployment_tier": "development", "environment_action": "start",
        }));
        for (name, value) in otherwise.as_object().unwrap() {
            claims[name] = value.clone();
        }
        self.issuer.sign(&claims)
    }

    pub(crate) fn public(&self) -> String {
        format!("localhost:{}", self.gateway.addresses.public.port())
    }

    /// Calls the API with a bearer token, if there is one.
    pub(crate) async fn call(&self, method: &str, path: &str, token: &str, more: &str, body: &str) -> Message {
        self.begin(method, path, token, more, body).await.message().await.expect("an answer")
    }

    /// Calls the API, and leaves the answer to be read.
    pub(crate) async fn begin(&self, method: &str, path: &str, token: &str, more: &str, body: &str) -> Raw {
        let mut client = Raw::connect(self.gateway.addresses.public).await;
        let host = self.public();
        let bearer = if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
        let content = if body.is_empty() {
            String::new()
        } else {
            format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len())
        };
        client
            .send(format!("{method} /api/v1{path} HTTP/1.1\r\nhost: {host}\r\n{bearer}{content}{more}\r\n{body}"))
            .await;
        client
    }

    /// Calls the API and returns what it says; fails on any other status.
    pub(crate) async fn json(&self, method: &str, path: &str, token: &str, body: &str, status: u16) -> Value {
        let answer = self.call(method, path, token, "", body).await;
        assert_eq!(answer.status(), status, "{method} {path}: {answer:?} {}", answer.text());
        if answer.body.is_empty() { Value::Null } else { serde_json::from_slice(&answer.body).expect("JSON") }
    }

    /// Calls the API, is refused, and returns the status, the code, and the reason, if there is one.
    pub(crate) async fn refused(&self, method: &str, path: &str, token: &str, body: &str) -> (u16, String, String) {
        let answer = self.call(method, path, token, "", body).await;
        let problem: Value = serde_json::from_slice(&answer.body).expect("a problem");
        assert_eq!(answer.header("gateway-error"), problem["code"].as_str(), "{problem}");
        let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        (answer.status(), text("code"), text("reason"))
    }

    /// Asks for events and returns them, until their end.
    pub(crate) async fn events(&self, method: &str, path: &str, token: &str, body: &str) -> Vec<(String, Value)> {
        let answer = self.call(method, path, token, "accept: text/event-stream\r\n", body).await;
        assert_eq!(answer.status(), 200, "{answer:?} {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        let text = answer.text();
        let mut events = Vec::new();
        for block in text.split("\n\n") {
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
            if let (Some(kind), Some(data)) = (field("event: "), field("data: ")) {
                events.push((kind.to_owned(), serde_json::from_str(data).expect("JSON")));
            }
        }
        events
    }

    /// Starts the cluster's agent.
    pub(crate) async fn agent(&self) -> Played {
        self.agent_that_fails(None).await
    }

    /// Starts it at another replica of the gateway.
    pub(crate) async fn agent_at(&self, replica: &TestGateway) -> Played {
        let (agent, _) = ClusterAgent::begun(replica, CLUSTER).await;
        Played::new(agent, None)
    }

    /// Starts it, and from its first call on the first object of what is to be made fails.
    pub(crate) async fn agent_that_fails(&self, code: Option<ObjectErrorCode>) -> Played {
        let (agent, _) = ClusterAgent::begun(&self.gateway, CLUSTER).await;
        Played::new(agent, code)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Stops the gateway, and returns its audit log: it is whole then.
    pub(crate) async fn stopped(self) -> String {
        let Self { gateway, folder, .. } = self;
        gateway.stop().await;
        std::fs::read_to_string(folder.path().join("audit.log")).unwrap()
    }
}

/// The body of a request for a job.
pub(crate) fn asked(more: &Value) -> String {
    let mut body = json!({"agent": CLUSTER});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string()
}

/// An agent that does what it is told, and remembers that it was.
pub(crate) struct Played {
    calls: Arc<Mutex<Vec<Call>>>,
    fails: Arc<Mutex<Option<ObjectErrorCode>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Drop for Played {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.raise();
        }
    }
}

impl Played {
    fn new(agent: ClusterAgent, code: Option<ObjectErrorCode>) -> Self {
        let (calls, fails) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(code)));
        let mut tasks = JoinSet::new();
        let (noted, failing) = (calls.clone(), fails.clone());
        tasks.spawn(async move {
            // As a whole: its other parts keep the session alive.
            let agent: ClusterAgent = agent;
            while let Some(incoming) = agent.session.accept().await {
                assert_eq!(incoming.port, ENVIRONMENTS_PORT);
                let mut io = incoming.accept();
                // One that was called off before it was said is none.
                let Some(call) = heard(&mut io).await else { continue };
                noted.lock().unwrap().push(call.clone());
                let failing = *failing.lock().unwrap();
                let failing = failing.filter(|_| matches!(call, Call::Apply(_)));
                for answer in answers(&call, failing) {
                    say(&mut io, answer.encode()).await;
                }
                std::future::poll_fn(|context| io.poll_bytes(context)).await.ok();
            }
        });
        Self { calls, fails, tasks: Mutex::new(tasks) }
    }

    /// Returns what it was told so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.raise();
        self.calls.lock().unwrap().clone()
    }

    /// Panics as its task did, if it did.
    fn raise(&self) {
        let ended = self.tasks.lock().unwrap().try_join_next();
        if let Some(Err(error)) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }

    /// Has the first object of what is to be made fail from now on, or none.
    pub(crate) fn fail(&self, code: Option<ObjectErrorCode>) {
        *self.fails.lock().unwrap() = code;
    }
}

/// Waits for a call. `None` when the gateway calls it off first.
async fn heard(io: &mut ChannelIo) -> Option<Call> {
    let mut decoder = Decoder::<Call>::default();
    loop {
        if let Some(call) = decoder.next_message().expect("a call") {
            return Some(call);
        }
        let bytes = std::future::poll_fn(|context| io.poll_bytes(context)).await;
        decoder.push(&bytes.ok()??);
    }
}

/// Says something, as long as the gateway wants to hear it.
async fn say(io: &mut ChannelIo, mut bytes: Bytes) {
    while !bytes.is_empty() {
        if std::future::poll_fn(|context| io.poll_write_bytes(context, &mut bytes)).await.is_err() {
            return;
        }
    }
}

fn answers(call: &Call, failing: Option<ObjectErrorCode>) -> Vec<CallAnswer> {
    let (objects, step) = match call {
        Call::Apply(apply) => (as_made(&apply.objects), ObjectStep::Applied),
        Call::Remove(remove) => (remove.tracked.clone(), ObjectStep::Gone),
    };
    let mut answers = Vec::new();
    let mut errors = Vec::new();
    let mut there = Vec::new();
    for (number, object) in objects.into_iter().enumerate() {
        let failed = failing.filter(|_| number == 0);
        let step = if failed.is_some() { ObjectStep::Failed } else { step };
        answers.push(CallAnswer::Progress(CallProgress { object: object.clone(), step, message: String::new() }));
        match failed {
            Some(code) => {
                let message = "the cluster said no".to_owned();
                errors.push(ObjectError { object: Some(object), code, message });
            }
            None if step == ObjectStep::Applied => there.push(object),
            None => {}
        }
    }
    answers.push(CallAnswer::Done(Done { objects: there, errors, ..Done::default() }));
    answers
}
