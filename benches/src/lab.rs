//! Lab with its own gateway, agent and app: each a process, on loopback, with everything that they need, gone
//! afterwards.
//!
//! The agent may dial through a [`relay`](crate::relay): then there is a link with delay, rate and faults between the
//! two. Users reach the gateway directly.

pub mod fifo;
pub mod finding;
mod ground;
mod process;
pub mod usage;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use gateway_types::Scheme;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

use self::ground::{Certificate, Tokens, free_address, make_store, workspace_name, write_secret};
use self::process::{Recipe, find};
use crate::client::preflight;
use crate::relay::{self, LinkSpec, Relay};
use crate::target::{LoadTarget, TlsClient};

pub use self::process::LabProcess;

/// Time limit for all programs to be ready.
const START_DEADLINE: Duration = Duration::from_secs(30);

/// Pause between two checks whether a part is ready.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Limits of one user and one address that the lab's gateway does not have: its one user, who has one address, stands
/// for a crowd.
const CROWD: [&str; 5] = [
    "REQUESTS_PER_USER",
    "REQUESTS_PER_SECOND_PER_USER",
    "REQUESTS_PER_PORT",
    "CONNECTIONS_PER_SECOND_PER_ADDRESS",
    "HANDSHAKES_PER_ADDRESS",
];
const CROWD_LIMIT: &str = "10000000";

/// Settings of a lab.
#[derive(Clone, Debug, PartialEq)]
pub struct LabSpec {
    /// TLS between users and gateway.
    pub users_tls: bool,
    /// TLS between agent and gateway.
    pub link_tls: bool,
    /// Parallel links of the agent's session; 1 for one.
    pub lanes: u16,
    /// Link between agent and gateway; `None` is loopback alone.
    pub link: Option<LinkSpec>,
    /// Workspaces with tokens. The first is the lab's agent's; the others are for a fleet.
    pub workspaces: usize,
    /// `GATEWAY_…` variables of the gateway, on top of the lab's own.
    pub config: BTreeMap<String, String>,
}

impl Default for LabSpec {
    fn default() -> Self {
        Self { users_tls: false, link_tls: false, lanes: 1, link: None, workspaces: 1, config: BTreeMap::new() }
    }
}

/// A running lab. Dropping it kills its processes and removes its files.
#[derive(Debug)]
pub struct Lab {
    // Fields are dropped in this order: dialing programs end first, the files last.
    agent: LabProcess,
    link: Option<relay::Handle>,
    gateway: LabProcess,
    app: LabProcess,
    places: LabAddresses,
    tokens: Tokens,
    certificate: Option<Certificate>,
    folder: TempDir,
    spec: LabSpec,
}

/// Addresses of all listeners.
#[derive(Clone, Copy, Debug)]
struct LabAddresses {
    app: SocketAddr,
    public: SocketAddr,
    agents: SocketAddr,
    admin: SocketAddr,
}

impl Lab {
    /// Starts a lab and waits until a request passes from its user to its app.
    ///
    /// # Errors
    /// A program is missing, does not start or does not become ready; the message has the end of its log.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it kills what it started.
    pub async fn start(spec: LabSpec) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("loadlab-").tempdir().context("making the lab's folder")?;
        let places = LabAddresses {
            app: free_address()?,
            public: free_address()?,
            agents: free_address()?,
            admin: free_address()?,
        };
        let store = format!("sqlite://{}", folder.path().join("gateway.db").display());
        let tokens = make_store(&store, spec.workspaces.max(1)).await?;
        let is_encrypted = spec.users_tls || spec.link_tls;
        let certificate = is_encrypted.then(|| Certificate::make(folder.path(), names(&places))).transpose()?;
        let app = LabProcess::start(app_recipe(folder.path(), &places)?)?;
        let gateway = LabProcess::start(gateway_recipe(folder.path(), &places, store, certificate.as_ref(), &spec)?)?;
        ready_within(&gateway, places.admin, Instant::now() + START_DEADLINE).await?;
        let link = spec.link.map(|link| Relay::start(places.agents, link)).transpose().context("starting the link")?;
        let dialed = link.as_ref().map_or(places.agents, relay::Handle::address);
        let own_token = tokens.agents.first().map(String::as_str).unwrap_or_default();
        write_secret(&folder.path().join("agent-token"), own_token)?;
        let agent =
            LabProcess::start(agent_recipe(folder.path(), dialed, places.app.port(), certificate.as_ref(), &spec)?)?;
        let lab = Self { agent, link, gateway, app, places, tokens, certificate, folder, spec };
        lab.working_within(START_DEADLINE).await?;
        Ok(lab)
    }

    /// Returns the target of users' requests for the app.
    #[must_use]
    pub fn target(&self) -> LoadTarget {
        let host = self.host();
        let tls = self.certificate.as_ref().filter(|_| self.spec.users_tls).and_then(|certificate| {
            TlsClient::new(certificate.trusting.clone(), host.split(':').next().unwrap_or_default()).ok()
        });
        LoadTarget {
            address: self.places.public.to_string(),
            scheme: if tls.is_some() { Scheme::Https } else { Scheme::Http },
            tls,
            host,
            token: Some(self.tokens.user.clone()),
        }
    }

    /// Returns the app's own address, for comparison without a tunnel.
    #[must_use]
    pub fn app_address(&self) -> SocketAddr {
        self.places.app
    }

    /// Returns the gateway's URL for agents, without the link.
    #[must_use]
    pub fn agents_url(&self) -> String {
        url(self.spec.link_tls, self.places.agents)
    }

    /// Returns the gateway's URL for agents, through the link if there is one.
    #[must_use]
    pub fn agents_url_over_link(&self) -> String {
        url(self.spec.link_tls, self.link.as_ref().map_or(self.places.agents, relay::Handle::address))
    }

    /// Returns the tokens of the workspaces that have no agent yet.
    #[must_use]
    pub fn spare_tokens(&self) -> &[String] {
        self.tokens.agents.get(1..).unwrap_or_default()
    }

    /// Returns the file of the certificate that agents have to trust, with TLS on the link.
    #[must_use]
    pub fn ca_file(&self) -> Option<&Path> {
        self.certificate.as_ref().filter(|_| self.spec.link_tls).map(|certificate| certificate.cert.as_path())
    }

    /// Returns the name of a workspace by the position of its token.
    #[must_use]
    pub fn workspace_name(number: usize) -> String {
        workspace_name(number)
    }

    /// Returns the folder of its files and logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the settings of the lab.
    #[must_use]
    pub fn spec(&self) -> &LabSpec {
        &self.spec
    }

    /// Returns the gateway's process.
    #[must_use]
    pub fn gateway(&self) -> &LabProcess {
        &self.gateway
    }

    /// Returns the agent's process.
    #[must_use]
    pub fn agent(&self) -> &LabProcess {
        &self.agent
    }

    /// Returns the app's process.
    #[must_use]
    pub fn app(&self) -> &LabProcess {
        &self.app
    }

    /// Returns the link between agent and gateway, if there is one.
    #[must_use]
    pub fn link(&self) -> Option<&relay::Handle> {
        self.link.as_ref()
    }

    /// Waits until the gateway says that it is ready.
    ///
    /// # Errors
    /// It does not within `patience`; the message has the end of its log.
    pub async fn gateway_ready_within(&self, patience: Duration) -> anyhow::Result<()> {
        ready_within(&self.gateway, self.places.admin, Instant::now() + patience).await
    }

    /// Waits until a request passes from the user to the app.
    ///
    /// # Errors
    /// None does within `patience`; the message has the ends of the logs of gateway and agent.
    pub async fn working_within(&self, patience: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        let target = self.target();
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let Err(error) = preflight(&target, remaining).await else { return Ok(()) };
            for process in [&self.gateway, &self.agent, &self.app] {
                if !process.is_running() {
                    bail!("the lab did not come up: a program ended: {}", process.last_words());
                }
            }
            if remaining.is_zero() {
                let (gateway, agent) = (self.gateway.last_words(), self.agent.last_words());
                return Err(error.context(format!("the lab did not come up\ngateway:\n{gateway}\nagent:\n{agent}")));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Returns the gateway's metrics by name, labels included.
    ///
    /// # Errors
    /// The admin listener does not answer.
    pub async fn metrics(&self) -> anyhow::Result<BTreeMap<String, f64>> {
        let text = get(self.places.admin, "/metrics", Instant::now() + Duration::from_secs(5)).await?;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Ok(lines
            .filter_map(|line| line.rsplit_once(' ').map(|(name, value)| (name, value.parse())))
            .filter_map(|(name, value)| Some((name.to_owned(), value.ok()?)))
            .collect())
    }

    fn host(&self) -> String {
        format!("{}-{}.localhost:{}", self.places.app.port(), workspace_name(0), self.places.public.port())
    }
}

fn url(tls: bool, address: SocketAddr) -> String {
    format!("{}://{address}", if tls { "https" } else { "http" })
}

/// Returns the names of the certificate: the app's host, any other workspace's, and the agents' listener by address.
fn names(places: &LabAddresses) -> Vec<String> {
    let host = format!("{}-{}.localhost", places.app.port(), workspace_name(0));
    vec![host, "*.localhost".to_owned(), "localhost".to_owned(), "127.0.0.1".to_owned()]
}

fn app_recipe(folder: &Path, places: &LabAddresses) -> anyhow::Result<Recipe> {
    let arguments = ["app", "--listen", &places.app.to_string()].map(OsString::from).to_vec();
    let (program, folder) = (find("loadlab", "LOADLAB_PROGRAM")?, folder.to_owned());
    Ok(Recipe { name: "app", program, arguments, environment: BTreeMap::new(), folder })
}

fn gateway_recipe(
    folder: &Path,
    places: &LabAddresses,
    store: String,
    certificate: Option<&Certificate>,
    spec: &LabSpec,
) -> anyhow::Result<Recipe> {
    let mut environment = BTreeMap::from([
        ("GATEWAY_LISTEN__PUBLIC".to_owned(), places.public.to_string()),
        ("GATEWAY_LISTEN__AGENTS".to_owned(), places.agents.to_string()),
        ("GATEWAY_LISTEN__ADMIN".to_owned(), places.admin.to_string()),
        ("GATEWAY_STORE__URL".to_owned(), store),
        ("GATEWAY_LOG__LEVEL".to_owned(), "warn".to_owned()),
    ]);
    environment.extend(CROWD.map(|key| (format!("GATEWAY_LIMITS__{key}"), CROWD_LIMIT.to_owned())));
    if let Some(Certificate { cert, key, .. }) = certificate {
        environment.extend(tls_variables(spec, cert, key));
    }
    environment.extend(spec.config.clone());
    let program = find("gateway", "LOADLAB_GATEWAY")?;
    Ok(Recipe { name: "gateway", program, arguments: vec!["serve".into()], environment, folder: folder.to_owned() })
}

/// Returns the gateway's variables for the listeners that are to speak TLS.
fn tls_variables(spec: &LabSpec, cert: &Path, key: &Path) -> BTreeMap<String, String> {
    let listeners = [("PUBLIC", spec.users_tls), ("AGENTS", spec.link_tls)];
    let encrypted = listeners.into_iter().filter_map(|(listener, is_encrypted)| is_encrypted.then_some(listener));
    let files = [("CERT", cert.display().to_string()), ("KEY", key.display().to_string())];
    let variables = |listener| files.clone().map(|(file, path)| (format!("GATEWAY_TLS__{listener}__{file}"), path));
    encrypted.flat_map(variables).collect()
}

fn agent_recipe(
    folder: &Path,
    dialed: SocketAddr,
    app_port: u16,
    certificate: Option<&Certificate>,
    spec: &LabSpec,
) -> anyhow::Result<Recipe> {
    let mut arguments: Vec<OsString> = vec!["run".into(), "--gateway".into(), url(spec.link_tls, dialed).into()];
    arguments.extend(["--token-file".into(), folder.join("agent-token").into()]);
    arguments.extend(["--default-port".into(), app_port.to_string().into()]);
    if let Some(certificate) = certificate.filter(|_| spec.link_tls) {
        arguments.extend(["--ca-file".into(), certificate.cert.clone().into()]);
    }
    if spec.lanes > 1 {
        arguments.extend(["--lanes".into(), spec.lanes.to_string().into()]);
    }
    let environment = BTreeMap::from([("WORKSPACE_AGENT_LOG".to_owned(), "warn".to_owned())]);
    let program = find("workspace-agent", "LOADLAB_AGENT")?;
    Ok(Recipe { name: "agent", program, arguments, environment, folder: folder.to_owned() })
}

async fn ready_within(gateway: &LabProcess, admin: SocketAddr, deadline: Instant) -> anyhow::Result<()> {
    loop {
        let Err(error) = get(admin, "/readyz", deadline).await else { return Ok(()) };
        if !gateway.is_running() || Instant::now() >= deadline {
            return Err(error.context(format!("the gateway is not ready; its last words:\n{}", gateway.last_words())));
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Gets a page of the admin listener; an answer other than 200 is an error.
async fn get(address: SocketAddr, path: &str, deadline: Instant) -> anyhow::Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = timeout_at(deadline, exchange).await.context("no answer in time")??;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    anyhow::ensure!(head.starts_with("HTTP/1.1 200"), "{path} answers {}", head.lines().next().unwrap_or_default());
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_gets_a_certificate_only_if_its_side_is_encrypted() {
        for (users_tls, link_tls, listeners) in [
            (false, false, &[][..]),
            (false, true, &["AGENTS"]),
            (true, false, &["PUBLIC"]),
            (true, true, &["AGENTS", "PUBLIC"]),
        ] {
            let spec = LabSpec { users_tls, link_tls, ..LabSpec::default() };
            let variables = tls_variables(&spec, Path::new("/cert"), Path::new("/key"));
            let expected = listeners.iter().flat_map(|listener| {
                [("CERT", "/cert"), ("KEY", "/key")]
                    .map(|(file, path)| (format!("GATEWAY_TLS__{listener}__{file}"), path.to_owned()))
            });
            assert_eq!(variables, expected.collect());
        }
    }
}
