//! A cluster agent in the hands of a test: a real session and the real messages, and no habits.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;

use gateway_agents::registry::LiveSession;
use gateway_store::{Terms as TokenTerms, wall_clock};
use gateway_types::ClusterName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::bytes::Bytes;
use tunnel_link::channel_io::ChannelIo;
use tunnel_link::grpc::{ConnectError, DialedLink, dial, drive};
use tunnel_link::pace::PacedStream;
use tunnel_link::session::{LinkHold, Session};
use tunnel_proto::environments::ObjectRef;
use tunnel_proto::hello::{Hello, Resume, Role, Welcome};
use tunnel_proto::mux::{Settings, Side};
use tunnel_proto::reconcile::{
    Begin, Decoder, Deployment, FromCluster, Intent, RECONCILE_PORT, Termination, Terms, ToCluster, WorkspaceReport,
};
use tunnel_proto::version;

use crate::scripted::hello;
use crate::{PATIENCE, TestGateway, until};

/// A cluster agent without habits.
#[derive(Debug)]
pub struct ClusterAgent {
    /// Its end of the session.
    pub session: Session,
    /// What the gateway told it.
    pub welcome: Welcome,
    /// The next number of a report.
    pub reports: u64,
    io: ChannelIo,
    decoder: Decoder<ToCluster>,
    /// Read and not asked for yet.
    waiting: VecDeque<ToCluster>,
    token: String,
    instance: u64,
    tasks: JoinSet<()>,
}

/// The Hello of a cluster agent.
#[must_use]
pub fn cluster_hello(instance: u64) -> Hello {
    let features = version::FEATURES_CLUSTER.iter().map(|name| (*name).to_owned()).collect();
    Hello { role: Role::Cluster, features, instance, ..hello() }
}

impl ClusterAgent {
    /// Attaches as the agent of a cluster, through `address`, and waits until the gateway opens the reconcile channel.
    pub async fn attach_at(gateway: &TestGateway, address: SocketAddr, cluster: &str, instance: u64) -> Self {
        let token = gateway.cluster_token(cluster).await;
        let mut tasks = JoinSet::new();
        let dialed = connect(address, &token, cluster_hello(instance), &mut tasks).await.expect("a welcome");
        let welcome = dialed.welcome.clone();
        let resume_grace = Some(welcome.resume_grace).filter(|_| !welcome.resume_secret.is_empty());
        let session = Session::new(Settings { resume_grace, ..Settings::new(Side::Agent) });
        serve(dialed, session.link(), &mut tasks);
        let incoming = loop {
            let incoming = tokio::time::timeout(PATIENCE, session.accept()).await.expect("in time").expect("a channel");
            // A call for an environment that waited for the agent may come before it; refused, it is made again.
            if incoming.port == RECONCILE_PORT {
                break incoming;
            }
        };
        let io = incoming.accept();
        Self {
            session,
            welcome,
            reports: 0,
            io,
            decoder: Decoder::default(),
            waiting: VecDeque::new(),
            token,
            instance,
            tasks,
        }
    }

    /// Attaches as the agent of a cluster.
    pub async fn attach(gateway: &TestGateway, cluster: &str) -> Self {
        Self::attach_at(gateway, gateway.addresses.agents, cluster, 1).await
    }

    /// Attaches and begins. Returns the first full round with it.
    pub async fn begun(gateway: &TestGateway, cluster: &str) -> (Self, Vec<Intent>) {
        let mut agent = Self::attach(gateway, cluster).await;
        agent.begin().await;
        let round = agent.round().await;
        (agent, round)
    }

    /// Goes on over another link, as its owner.
    pub async fn resume(&mut self, address: SocketAddr) {
        let resume = Resume {
            session: self.welcome.session,
            secret: self.welcome.resume_secret.clone(),
            received: self.session.received(),
        };
        let hello = Hello { resume: Some(resume), ..cluster_hello(self.instance) };
        let dialed = connect(address, &self.token, hello, &mut self.tasks).await.expect("a welcome");
        self.welcome = dialed.welcome.clone();
        let resumed = self.welcome.resumed.expect("it goes on");
        let (link, _) = self.session.resume(resumed.received).expect("it goes on");
        serve(dialed, link, &mut self.tasks);
    }

    /// Reads the terms and begins.
    pub async fn begin(&mut self) -> Terms {
        let ToCluster::Terms(terms) = self.next().await else { panic!("something else than terms comes first") };
        self.say(&FromCluster::Begin(Begin { agent_version: "0".into(), kubernetes_version: "v1".into() })).await;
        terms
    }

    /// Waits for the next message. `None` when the channel is over.
    pub async fn try_next(&mut self) -> Option<ToCluster> {
        if let Some(message) = self.waiting.pop_front() {
            return Some(message);
        }
        let read = async {
            loop {
                if let Some(message) = self.decoder.next_message().expect("a message") {
                    return Some(message);
                }
                let bytes = poll_fn(|context| self.io.poll_bytes(context)).await.ok()??;
                self.decoder.push(&bytes);
            }
        };
        tokio::time::timeout(PATIENCE, read).await.expect("a message in time")
    }

    /// Waits for the next message.
    pub async fn next(&mut self) -> ToCluster {
        self.try_next().await.expect("the channel goes on")
    }

    /// Waits for the next intent; what else comes before stays.
    pub async fn intent(&mut self) -> Intent {
        let mut others = VecDeque::new();
        loop {
            match self.next().await {
                ToCluster::Intent(intent) => {
                    others.append(&mut self.waiting);
                    self.waiting = others;
                    return intent;
                }
                other @ (ToCluster::Terms(_) | ToCluster::RoundEnd { .. } | ToCluster::Noted { .. }) => {
                    others.push_back(other);
                }
            }
        }
    }

    /// Reads to the end of the next full round, and returns what it named; partial intents and acknowledgements that come
    /// meanwhile are dropped.
    pub async fn round(&mut self) -> Vec<Intent> {
        let mut named = Vec::new();
        loop {
            match self.next().await {
                ToCluster::Intent(intent) if intent.round > 0 => named.push(intent),
                ToCluster::Intent(_) | ToCluster::Noted { .. } | ToCluster::Terms(_) => {}
                ToCluster::RoundEnd { workspaces, .. } => {
                    assert_eq!(workspaces as usize, named.len());
                    return named;
                }
            }
        }
    }

    /// Waits until reports up to this number are stored; what else comes before is dropped.
    pub async fn noted(&mut self, until: u64) {
        loop {
            if matches!(self.next().await, ToCluster::Noted { number } if number >= until) {
                return;
            }
        }
    }

    /// Returns whether nothing comes for a while.
    pub async fn is_quiet(&mut self, during: std::time::Duration) -> bool {
        match tokio::time::timeout(during, self.try_next()).await {
            Err(_elapsed) => true,
            Ok(message) => {
                self.waiting.extend(message);
                false
            }
        }
    }

    /// Says something.
    pub async fn say(&mut self, message: &FromCluster) {
        self.say_bytes(message.encode()).await;
    }

    /// Says bytes; the gateway may have had enough.
    pub async fn say_bytes(&mut self, mut bytes: Bytes) {
        let said = async {
            while !bytes.is_empty() {
                if poll_fn(|context| self.io.poll_write_bytes(context, &mut bytes)).await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, said).await.expect("the gateway reads");
    }

    /// Reports with the next number, and waits until that is stored.
    pub async fn report(&mut self, report: WorkspaceReport) {
        self.reports += 1;
        let number = self.reports;
        self.say(&FromCluster::Report(Box::new(WorkspaceReport { number, ..report }))).await;
        self.noted(number).await;
    }
}

/// What an agent says that did what an intent wants.
#[must_use]
pub fn done(intent: &Intent) -> WorkspaceReport {
    let replicas = intent.desired.replicas();
    let condition = |kind: &str, reason: &str| tunnel_proto::reconcile::Condition {
        kind: kind.into(),
        status: "True".into(),
        reason: reason.into(),
        message: String::new(),
    };
    let deployment = Deployment {
        resource_version: intent.generation.to_string(),
        generation: 1,
        observed_generation: 1,
        replicas_wanted: replicas,
        replicas,
        updated: replicas,
        available: replicas,
        unavailable: 0,
        conditions: vec![
            condition("Progressing", "NewReplicaSetAvailable"),
            condition("Available", "MinimumReplicasAvailable"),
        ],
    };
    let is_ending = intent.desired == gateway_types::DesiredState::Terminated;
    WorkspaceReport {
        number: 0,
        workspace: intent.workspace.clone(),
        namespace: intent.namespace.clone(),
        applied: intent.generation,
        deployment: (!is_ending).then_some(deployment),
        termination: is_ending.then(|| Termination { is_done: true, blockers: Vec::new() }),
        ..WorkspaceReport::default()
    }
}

impl TestGateway {
    /// Makes a token for a cluster's agent.
    pub async fn cluster_token(&self, cluster: &str) -> String {
        let made = self.store.create_cluster_token_with(&name(cluster), &TokenTerms::default(), wall_clock()).await;
        made.expect("a token").token.reveal().to_owned()
    }

    /// Returns the session of a cluster.
    #[must_use]
    pub fn cluster_session(&self, cluster: &str) -> Option<Arc<LiveSession>> {
        self.registry.cluster(&name(cluster))
    }

    /// Waits until a cluster has no session.
    pub async fn until_cluster_is_gone(&self, cluster: &str) {
        until("the cluster's session is gone", || self.cluster_session(cluster).is_none()).await;
    }
}

fn name(cluster: &str) -> ClusterName {
    cluster.parse().expect("a cluster's name")
}

/// Dials with a token and a Hello.
///
/// # Errors
/// [`ConnectError`] when the gateway refuses.
pub async fn connect(
    address: SocketAddr,
    token: &str,
    hello: Hello,
    tasks: &mut JoinSet<()>,
) -> Result<DialedLink, ConnectError> {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let authority = address.to_string().parse().expect("an authority");
    let scheme = "http".parse().expect("a scheme");
    let (stream, pace) = PacedStream::new(stream, tunnel_link::socket::limit_queue);
    let (connection, answer) = dial(stream, pace, authority, scheme, Some(token), hello).await?;
    tasks.spawn(async move {
        connection.await.ok();
    });
    tokio::time::timeout(PATIENCE, answer).await.expect("an answer")
}

fn serve(dialed: DialedLink, link: LinkHold, tasks: &mut JoinSet<()>) {
    dialed.attach(link.clone());
    tasks.spawn(async move {
        let DialedLink { reader, .. } = dialed;
        drive(&link, reader).await;
    });
}

/// The objects of an apply call as an agent that made all of them would name them; each has the same `uid`.
///
/// # Panics
///
/// If they are not JSON.
#[must_use]
pub fn as_made(objects: &Bytes) -> Vec<ObjectRef> {
    let objects: Vec<Value> = serde_json::from_slice(objects).expect("objects");
    let text =
        |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let reference = |object: &Value| {
        let api = text(object, "/apiVersion");
        let (group, version) = api.split_once('/').unwrap_or(("", &api));
        ObjectRef {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text(object, "/kind"),
            namespace: text(object, "/metadata/namespace"),
            name: text(object, "/metadata/name"),
            uid: "u".to_owned(),
        }
    };
    objects.iter().map(reference).collect()
}
