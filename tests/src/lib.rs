//! Builders for tests that need both programs: a gateway and agents in this process, on free ports and an embedded
//! store, and raw clients and apps that speak exact bytes.
//!
//! * [`TestGateway`] and [`TestAgent`]: the two programs. [`until`] waits for a condition, [`stopwatch`] counts no time
//!   in which the machine stood still
//! * clients: [`browser`] keeps cookies and follows redirects, [`raw`] writes exact bytes and reads them, and has apps
//!   that do so
//! * agents: [`scripted`] does what the test does with its channels. [`cluster`] is a cluster agent in the hands of a
//!   test, and [`reports`] stands for one by what it would report
//! * others: [`provider`] is an OpenID Connect provider, [`jobs`] are jobs of a CI system, [`relay`] breaks connections,
//!   and [`buffer`] keeps what a command writes

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_errors_doc,
    clippy::disallowed_methods,
    reason = "a failed expectation is how a test fails"
)]

pub mod browser;
pub mod buffer;
pub mod cluster;
pub mod fleet;
pub mod jobs;
pub mod provider;
pub mod raw;
pub mod relay;
pub mod reports;
pub mod scripted;
pub mod stopwatch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gateway::app::{Addresses, App, Inheritance, ReplaceError};
use gateway_agents::registry::{LiveSession, Registry};
use gateway_config::{Config, StoreUrl};
use gateway_environments::service::Environments;
use gateway_store::{Store, wall_clock};
use gateway_types::{Audience, Share, UnixSeconds, WorkspaceName};
use gateway_workspaces::changes::Changes;
use gateway_workspaces::cluster_configs::ClusterConfigs;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tunnel_link::backoff::Backoff;
use tunnel_link::drain::DrainResult;
use tunnel_proto::hello::Port;
use workspace_agent::{
    Agent, DialEnded, Gateway, Inspector, LocalMachine, MEMORY_BUDGET_BYTES, Options, Ports, TerminalOptions,
    Terminals, TokenSource, Transport,
};

/// The longest that anything in a test may take before it counts as hanging.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway in this process.
pub struct TestGateway {
    /// Where it listens.
    pub addresses: Addresses,
    /// Its store.
    pub store: Store,
    /// Its live sessions.
    pub registry: Arc<Registry>,
    /// Where changes of workspaces are told.
    pub changes: Changes,
    /// How clusters are configured.
    pub configs: Arc<ClusterConfigs>,
    /// The environments of CI jobs.
    pub environments: Environments,
    /// An API token of the user `dev`.
    pub user_token: String,
    /// Its one-time sign-in link; empty where an identity provider signs users in.
    pub sign_in_link: String,
    stop: CancellationToken,
    task: JoinSet<DrainResult>,
}

impl TestGateway {
    /// Starts with defaults on free ports.
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts with a changed configuration, and keeps idle connections to apps so shortly that a test can wait for it.
    pub async fn start_tidy(change: impl FnOnce(&mut Config)) -> Self {
        Self::start_with(|config| {
            config.timeouts.upstream_idle = Duration::from_millis(200);
            change(config);
        })
        .await
    }

    /// Starts with a changed configuration.
    pub async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        Self::start_from(Inheritance::default(), change).await
    }

    /// Takes the place of the gateway of a configuration that [`TestGateway::start_with`] made by this change.
    ///
    /// # Errors
    /// [`ReplaceError`] if that one does not hand over.
    pub async fn replacing(change: impl Fn(&mut Config)) -> Result<Self, ReplaceError> {
        let mut config = Config::default();
        change(&mut config);
        let inheritance = Inheritance::of_running(&config).await?.expect("one runs");
        Ok(Self::start_from(inheritance, change).await)
    }

    async fn start_from(inheritance: Inheritance, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        config.listen.public = any;
        config.listen.agents = any;
        config.listen.admin = Some(any);
        config.public_url = config.public_url.with_port(0);
        config.store.url = StoreUrl::SqliteMemory;
        config.timeouts.drain = Duration::from_secs(5);
        change(&mut config);
        let app = App::bind_with(config, inheritance).await.expect("the gateway starts");
        let store = app.store().clone();
        let user = "dev".parse().unwrap();
        let user_token = store.create_user_token(&user, wall_clock()).await.expect("a token").token.reveal().to_owned();
        let addresses = app.addresses().expect("bound");
        let registry = app.registry().clone();
        let (changes, configs) = (app.changes().clone(), app.cluster_configs().clone());
        let environments = app.environments().clone();
        let sign_in_link = app.sign_in_link().expect("random").map(|link| link.to_string()).unwrap_or_default();
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(app.run(stop.clone()));
        Self { addresses, store, registry, changes, configs, environments, user_token, sign_in_link, stop, task }
    }

    /// Makes an agent token for a workspace of `dev`.
    pub async fn agent_token(&self, workspace: &str) -> String {
        let (name, owner) = (workspace.parse().unwrap(), "dev".parse().unwrap());
        self.store.create_agent_token(&name, &owner, wall_clock()).await.expect("a token").token.reveal().to_owned()
    }

    /// Starts an agent that exposes every port, and waits until it is connected.
    pub async fn agent(&self, workspace: &str) -> TestAgent {
        self.agent_with(workspace, Vec::new()).await
    }

    /// Starts an agent that exposes these ports only, and waits until it is connected.
    pub async fn agent_with(&self, workspace: &str, exposed: Vec<Port>) -> TestAgent {
        let token = self.agent_token(workspace).await;
        let agent = self.start_agent(&token, exposed);
        self.until_connected(workspace).await;
        agent
    }

    /// Starts an agent that serves terminals and exposes these ports beside them, and waits until it is connected.
    pub async fn agent_with_terminals(&self, workspace: &str, exposed: Vec<Port>) -> TestAgent {
        let token = TokenSource::Value(self.agent_token(workspace).await.into());
        let mut options = options(self.dialed_at(self.addresses.agents), Transport::default(), token, exposed);
        let environment = [("PS1", "$ "), ("ENV", "")].map(|(name, value)| (name.into(), value.into())).into();
        let shell = Some("/bin/sh".into());
        options.terminal = Some(Terminals::new(TerminalOptions { shell, environment, ..TerminalOptions::default() }));
        let agent = TestAgent::run(options.agent());
        self.until_connected(workspace).await;
        agent
    }

    /// Starts an agent that records the requests to its apps and exposes these ports beside its own, and waits until it is connected.
    pub async fn agent_with_inspector(&self, workspace: &str, exposed: Vec<Port>) -> TestAgent {
        let token = TokenSource::Value(self.agent_token(workspace).await.into());
        let mut options = options(self.dialed_at(self.addresses.agents), Transport::default(), token, exposed);
        options.inspector = Some(Inspector::new());
        let agent = TestAgent::run(options.agent());
        self.until_connected(workspace).await;
        agent
    }

    /// Starts an agent with a token, without waiting.
    pub fn start_agent(&self, token: &str, exposed: Vec<Port>) -> TestAgent {
        let token = TokenSource::Value(token.into());
        let options = options(self.dialed_at(self.addresses.agents), Transport::default(), token, exposed);
        TestAgent::run(options.agent())
    }

    /// Starts an agent that dials another address than the gateway's own, soon and again and again, without waiting.
    pub fn start_eager_agent(
        &self,
        address: SocketAddr,
        transport: Transport,
        token: &str,
        exposed: Vec<Port>,
    ) -> TestAgent {
        self.start_older_agent(address, transport, token, exposed, &[])
    }

    /// Starts such an agent that does not offer some features, as an older one would not.
    pub fn start_older_agent(
        &self,
        address: SocketAddr,
        transport: Transport,
        token: &str,
        exposed: Vec<Port>,
        without: &'static [&'static str],
    ) -> TestAgent {
        let soon = Duration::from_millis(50);
        let backoff = Backoff { first: soon, max: soon, absence_max: soon, ..Backoff::default() };
        let token = TokenSource::Value(token.into());
        let options = options(self.dialed_at(address), transport, token, exposed);
        TestAgent::run(Agent { backoff, without, ..options.agent() })
    }

    fn dialed_at(&self, address: SocketAddr) -> Gateway {
        Gateway::parse(&format!("http://{address}"), None).expect("an address")
    }

    /// Waits until a workspace has a session with a link.
    pub async fn until_connected(&self, workspace: &str) {
        let name = workspace.parse().unwrap();
        let is_up = |session: Arc<LiveSession>| !session.tunnel.is_detached() && !session.tunnel.is_ended();
        until("the agent is connected", || self.registry.current(&name).is_some_and(is_up)).await;
    }

    /// Waits until a workspace has no session. Without it, what waits for the agent that comes after one that was stopped may
    /// find the session that is just going.
    pub async fn until_gone(&self, workspace: &str) {
        let name = workspace.parse().unwrap();
        until("the session is gone", || self.registry.current(&name).is_none()).await;
    }

    /// Opens a port of a workspace to everybody, and waits until that holds. Nobody else asks for anything there meanwhile.
    pub async fn publish(&self, workspace: &str, port: u16) {
        let share =
            Share { port: gateway_types::Port::new(port).unwrap(), audience: Audience::Public, expires_at: None };
        let (name, by): (WorkspaceName, _) = (workspace.parse().unwrap(), "dev".parse().unwrap());
        assert!(self.store.share(&name, &share, &by, wall_clock()).await.unwrap(), "no such workspace");
        let authority = self.authority(workspace, port);
        let is_asked = || self.registry.current(&name).is_some_and(|session| session.in_flight() > 0);
        let is_closed = async || {
            until("nothing is asked of the workspace", || !is_asked()).await;
            let mut raw = raw::Raw::connect(self.addresses.public).await;
            raw.send(format!("HEAD /opening HTTP/1.1\r\nhost: {authority}\r\n\r\n")).await;
            // Refused, the gateway answers by itself. Let through, it is under way in the session: the app may never answer.
            tokio::select! {
                answer = raw.head() => answer.expect("an answer").header("gateway-error").is_some(),
                () = until("it is let through or refused", is_asked) => false,
            }
        };
        let opened = tokio::time::timeout(PATIENCE, async { while is_closed().await {} });
        opened.await.expect("the port opens");
    }

    /// Returns what the operator's listener counts, by name and labels.
    pub async fn metrics(&self) -> BTreeMap<String, f64> {
        let mut raw = raw::Raw::connect(self.addresses.admin.expect("bound")).await;
        raw.send("GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").await;
        let text = raw.message().await.expect("an answer").text();
        let rows = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        rows.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
    }

    /// Returns how often a limit was reached.
    pub async fn reached(&self, limit: &str) -> f64 {
        let name = format!("gateway_limits_reached_total{{limit=\"{limit}\"}}");
        self.metrics().await.get(&name).copied().unwrap_or_default()
    }

    /// Returns the authority of a port of a workspace, as a browser would write it.
    pub fn authority(&self, workspace: &str, port: u16) -> String {
        format!("{port}-{workspace}.localhost:{}", self.addresses.public.port())
    }

    /// Asserts that no channel, request or promised byte is left over in any session.
    pub async fn assert_quiet(&self) {
        until("no request is left over", || self.registry.all().iter().all(|session| session.in_flight() == 0)).await;
        for session in self.registry.all() {
            assert_eq!(session.tunnel.broken_invariant(), None);
        }
    }

    /// Asserts that after the pool's idle time, and the last acknowledgements, nothing is left over at all. Needs a short `timeouts.upstream_idle`.
    pub async fn assert_empty(&self) {
        self.assert_quiet().await;
        until("no channel is left over", || {
            self.registry.all().iter().all(|session| {
                let stats = session.tunnel.stats();
                (stats.channels_live, stats.window_bytes, stats.queued_bytes, stats.replay_bytes) == (0, 0, 0, 0)
            })
        })
        .await;
    }

    /// Stops it and returns how the drain went.
    pub async fn stop(mut self) -> DrainResult {
        self.stop.cancel();
        let stopped = tokio::time::timeout(PATIENCE, self.task.join_next()).await;
        stopped.expect("the gateway stops").expect("it ran").expect("it did not panic")
    }

    /// Asks it to stop without waiting.
    pub fn begin_stop(&self) {
        self.stop.cancel();
    }

    /// Returns whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.task.try_join_next().is_some() || self.task.is_empty()
    }

    /// Asks it to stop, and waits until it takes nothing new. Something has to be under way that it waits for.
    pub async fn begin_drain(&self) {
        self.begin_stop();
        let draining = async {
            loop {
                let mut raw = raw::Raw::connect(self.addresses.admin.expect("bound")).await;
                raw.send("GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").await;
                if raw.message().await.expect("an answer").status() == 503 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, draining).await.expect("the drain begins");
    }
}

/// An agent in this process.
pub struct TestAgent {
    stop: CancellationToken,
    task: JoinSet<Result<(), DialEnded>>,
}

fn options(gateway: Gateway, transport: Transport, token: TokenSource, exposed: Vec<Port>) -> Options {
    let default = exposed.first().map(|port| port.number);
    Options {
        lanes: 1,
        memory_budget: MEMORY_BUDGET_BYTES,
        terminal: None,
        ssh: None,
        inspector: None,
        logs: None,
        gateway,
        transport,
        token,
        ports: Arc::new(Ports { exposed, default, ..Ports::default() }),
    }
}

impl TestAgent {
    /// Starts one with a token that gets to its gateway in a way of its own, without waiting.
    pub fn start(gateway: Gateway, transport: Transport, token: &str, exposed: Vec<Port>) -> Self {
        Self::run(options(gateway, transport, TokenSource::Value(token.into()), exposed).agent())
    }

    /// Starts one that proves itself in a way of its own, and exposes every port, without waiting.
    pub fn start_proving(gateway: Gateway, token: TokenSource) -> Self {
        Self::run(options(gateway, Transport::default(), token, Vec::new()).agent())
    }

    fn run(agent: Agent<LocalMachine>) -> Self {
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(agent.run(stop.clone()));
        Self { stop, task }
    }

    /// Stops it.
    pub async fn stop(mut self) {
        self.stop.cancel();
        self.ended().await.expect("a stopped agent is no failure");
    }

    /// Waits until it ends by itself.
    pub async fn ended(&mut self) -> Result<(), DialEnded> {
        let ended = tokio::time::timeout(PATIENCE, self.task.join_next()).await;
        ended.expect("the agent ends").expect("it ran").expect("it did not panic")
    }

    /// Cuts it off at once, as a killed process would be.
    pub fn kill(self) {
        drop(self);
    }
}

/// Sleeps until a second of the wall clock begins: what ends then has not ended before.
pub async fn until_second(second: UnixSeconds) {
    let since_1970 = Duration::from_secs(u64::try_from(second.get()).expect("after 1970"));
    let left = (std::time::UNIX_EPOCH + since_1970).duration_since(std::time::SystemTime::now());
    tokio::time::sleep(left.unwrap_or_default()).await;
}

/// Waits until a condition holds; fails with `what` after [`PATIENCE`].
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited in vain: {what}");
}
