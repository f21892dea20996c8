//! What the suite shares: a gateway with an audit log, users with tokens, a browser's cookie, JSON in and out.

use e2e::raw::{Message, Raw};
use e2e::{TestGateway, until};
use gateway_config::Config;
use gateway_store::wall_clock;
use serde_json::Value;
use tempfile::TempDir;

/// A gateway that writes an audit log.
pub(crate) struct World {
    pub(crate) gateway: TestGateway,
    folder: TempDir,
}

/// With what a request proves who sends it.
#[derive(Clone, Debug)]
pub(crate) enum As {
    Nobody,
    Token(String),
    /// A cookie, and what the browser says of where the request comes from.
    Cookie(String, &'static str),
}

/// What the browser says of a request that the page itself makes.
pub(crate) const SAME_ORIGIN: &str = "sec-fetch-site: same-origin\r\n";

impl World {
    pub(crate) async fn start() -> Self {
        Self::configured(|_| {}).await
    }

    pub(crate) async fn configured(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let gateway = TestGateway::start_with(|config| {
            config.audit.path = Some(path);
            change(config);
        })
        .await;
        Self { gateway, folder }
    }

    pub(crate) fn dev(&self) -> As {
        As::Token(self.gateway.user_token.clone())
    }

    /// Makes a token of a user.
    pub(crate) async fn user(&self, name: &str) -> As {
        let made = self.gateway.store.create_user_token(&name.parse().unwrap(), wall_clock()).await.unwrap();
        As::Token(made.token.reveal().to_owned())
    }

    /// Makes a workspace of a user.
    pub(crate) async fn workspace(&self, name: &str, owner: &str) {
        let (name, owner) = (name.parse().unwrap(), owner.parse().unwrap());
        self.gateway.store.create_agent_token(&name, &owner, wall_clock()).await.unwrap();
    }

    pub(crate) fn public(&self) -> String {
        format!("localhost:{}", self.gateway.addresses.public.port())
    }

    /// Signs a browser in as `dev`, and returns its cookie. Works once for each gateway.
    pub(crate) async fn browser(&self) -> String {
        let target = self.gateway.sign_in_link.split_once(&self.public()).unwrap().1;
        let visit =
            "accept: text/html\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-site: none\r\n";
        let answer = self.send("GET", target, visit, "").await;
        assert_eq!(answer.status(), 303, "{answer:?}");
        let cookie = answer.header("set-cookie").unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    /// Sends a request to the public host on a connection of its own.
    pub(crate) async fn send(&self, method: &str, target: &str, fields: &str, body: &str) -> Message {
        let mut client = Raw::connect(self.gateway.addresses.public).await;
        let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let host = self.public();
        client.send(format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\n{fields}{length}\r\n{body}")).await;
        client.message().await.expect("an answer")
    }

    /// Calls the API.
    pub(crate) async fn call(&self, method: &str, path: &str, who: &As, body: &str) -> Message {
        self.call_with(method, path, who, "", body).await
    }

    /// Calls the API with more fields.
    pub(crate) async fn call_with(&self, method: &str, path: &str, who: &As, more: &str, body: &str) -> Message {
        let who = match who {
            As::Nobody => String::new(),
            As::Token(token) => format!("authorization: Bearer {token}\r\n"),
            As::Cookie(cookie, site) => format!("cookie: {cookie}\r\n{site}"),
        };
        let content = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
        self.send(method, &format!("/api/v1{path}"), &format!("{who}{content}{more}"), body).await
    }

    /// Calls the API and returns what it says; fails on any other status.
    pub(crate) async fn json(&self, method: &str, path: &str, who: &As, body: &str, status: u16) -> Value {
        let answer = self.call(method, path, who, body).await;
        assert_eq!(answer.status(), status, "{method} {path}: {answer:?} {}", answer.text());
        if answer.body.is_empty() { Value::Null } else { serde_json::from_slice(&answer.body).expect("JSON") }
    }

    pub(crate) fn audit_path(&self) -> std::path::PathBuf {
        self.folder.path().join("audit.log")
    }

    /// Reads what the audit log has so far. Only [`World::stopped`] knows what it has not.
    pub(crate) fn audit(&self) -> Vec<Value> {
        records(&std::fs::read_to_string(self.audit_path()).unwrap())
    }

    /// Stops the gateway, and returns its audit log: it is whole then.
    pub(crate) async fn stopped(self) -> String {
        let path = self.audit_path();
        self.gateway.stop().await;
        std::fs::read_to_string(path).unwrap()
    }

    /// Waits for so many records of an event and returns them.
    pub(crate) async fn audited(&self, event: &str, count: usize) -> Vec<Value> {
        let found = || self.audit().into_iter().filter(|record| record["event"] == event).collect::<Vec<_>>();
        until(&format!("{count} records of {event}"), || found().len() >= count).await;
        let found = found();
        assert_eq!(found.len(), count, "{found:?}");
        found
    }
}

/// Returns the records of an audit log, but for one that is being written.
pub(crate) fn records(log: &str) -> Vec<Value> {
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the code with which the API refused.
pub(crate) fn code(answer: &Message) -> &str {
    answer.header("gateway-error").unwrap_or("")
}

/// Returns status, fields and body of an answer without what differs each time: the date and the trace id.
pub(crate) fn without_trace(answer: &Message) -> String {
    let trace = answer.header("gateway-trace").expect("a trace id").to_owned();
    let headers: Vec<_> = answer.headers.iter().filter(|(name, _)| name != "date").collect();
    format!("{} {headers:?} {}", answer.start, answer.text()).replace(&trace, "TRACE")
}
