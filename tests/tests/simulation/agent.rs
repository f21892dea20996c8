//! An agent's host: the real agent on the simulated network, and apps beside it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::uri::{Authority, Scheme};
use tokio::task::JoinSet;
use tunnel_proto::hello::Resume;
use tunnel_proto::mux::Side;
use tunnel_proto::reason::Reason;
use tunnel_proto::target::Target;
use turmoil::net::TcpStream;
use workspace_agent::dial::{Agent, AgentEvent, DialFailure, GatewayConnection, Network, Offer};
use workspace_agent::{Ports, TokenSource};

use crate::apps;
use crate::gateway_host::PORT;
use crate::net::Rolls;
use crate::shared::{Shared, Witness};

/// How long connecting may take. Shorter than the product's, as all times here.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Which agents run on a host.
#[derive(Clone, Debug)]
pub(crate) struct AgentPlan {
    pub(crate) host: String,
    pub(crate) via: Balancer,
    /// Names of workspaces, each with its agent's token.
    pub(crate) workspaces: Vec<(String, String)>,
    pub(crate) seed: u64,
}

/// The hosts of which an agent dials one, by chance: the gateway's, one before it, or several replicas.
#[derive(Clone, Debug)]
pub(crate) struct Balancer(Arc<Mutex<Vec<&'static str>>>);

impl Balancer {
    pub(crate) fn new(hosts: &[&'static str]) -> Self {
        Self(Arc::new(Mutex::new(hosts.to_vec())))
    }

    /// Leads to other hosts from now on.
    pub(crate) fn lead(&self, hosts: &[&'static str]) {
        *self.0.lock().unwrap() = hosts.to_vec();
    }

    fn chosen(&self, rolls: &mut Rolls) -> &'static str {
        let hosts = self.0.lock().unwrap();
        hosts[usize::try_from(rolls.next() % hosts.len() as u64).expect("few")]
    }
}

/// The simulated network as an agent sees it.
#[derive(Debug)]
struct Simulated {
    via: Balancer,
    rolls: Mutex<Rolls>,
}

impl Network for Simulated {
    type Socket = TcpStream;

    async fn dial(&self, _offer: Offer) -> Result<GatewayConnection, DialFailure> {
        let host = self.via.chosen(&mut self.rolls.lock().unwrap());
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((host, PORT))).await {
            Err(_elapsed) => Err(DialFailure::ConnectTimedOut),
            Ok(Err(error)) => Err(DialFailure::Connect(error)),
            Ok(Ok(stream)) => Ok(GatewayConnection::new(stream, |_stream, _bytes| None)),
        }
    }

    fn origin(&self) -> (Authority, Scheme) {
        (Authority::from_static("gateway.example:8081"), Scheme::HTTP)
    }

    async fn port(&self, Target { port, .. }: Target) -> Result<TcpStream, Reason> {
        TcpStream::connect(("127.0.0.1", port)).await.map_err(|_| Reason::PortClosed)
    }
}

/// The host's processes.
pub(crate) async fn run(shared: Arc<Shared>, plan: AgentPlan) -> turmoil::Result {
    let mut tasks = JoinSet::new();
    apps::start(&mut tasks, &shared).await?;
    let mut rolls = Rolls::new(plan.seed);
    for (workspace, token) in plan.workspaces {
        let network = Simulated { via: plan.via.clone(), rolls: Mutex::new(rolls.fork()) };
        let agent = agent(&shared, &plan.host, network, (&workspace, &token), rolls.fork());
        let (shared, host) = (shared.clone(), plan.host.clone());
        tasks.spawn(async move {
            match agent.run(shared.stop.clone()).await {
                Ok(()) => shared.note(&host, format_args!("agent of {workspace} was shut down")),
                Err(ended) => shared.agent_stopped(&host, ended),
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        // A failed expectation in a task fails the host, and with it the test.
        done?;
    }
    Ok(())
}

fn agent(
    shared: &Arc<Shared>,
    host: &str,
    network: Simulated,
    (workspace, token): (&str, &str),
    mut rolls: Rolls,
) -> Agent<Simulated> {
    let token = TokenSource::Value(token.into());
    let mut agent = Agent::new(network, token, Arc::new(Ports::default()));
    agent.backoff = shared.world.backoff;
    agent.roll = Box::new(move || rolls.unit());
    // A process that starts again is another one. None has the number 0, which stands for none.
    agent.instance = 1 + shared.instances.fetch_add(1, Ordering::Relaxed);
    agent.observer = observer(shared.clone(), host.to_owned(), workspace.to_owned());
    agent
}

/// Writes down what an agent tells of itself.
fn observer(shared: Arc<Shared>, host: String, workspace: String) -> workspace_agent::dial::Observer {
    let (mut place, mut newest) = (None, 0);
    Box::new(move |event| {
        if let AgentEvent::Connected { welcome, .. } = event {
            let (session, secret) = (welcome.session, welcome.resume_secret.clone());
            shared.resumes.lock().unwrap().push(Resume { session, secret, received: 0 });
        }
        match event {
            AgentEvent::Dialing => shared.dialed(&workspace),
            AgentEvent::Connected { welcome, session: _ } if welcome.resumed.is_some() => {
                assert!(place.is_some(), "{workspace} goes on with a session that it never had");
                shared.note(&host, format_args!("session of {workspace} goes on"));
            }
            AgentEvent::Connected { welcome, session } => {
                assert!(place.is_none(), "{workspace} has two sessions");
                let generation = welcome.generation.get();
                assert!(generation > newest, "{workspace} accepts {generation} after {newest}");
                newest = generation;
                place = Some(shared.session_up(Witness {
                    host: host.clone(),
                    workspace: workspace.clone(),
                    side: Side::Agent,
                    generation: welcome.generation.get(),
                    session: session.clone(),
                    end: None,
                }));
            }
            AgentEvent::SessionEnded { error } => {
                shared.session_ended(place.take().expect("a session that ended was up"), error.clone());
            }
            AgentEvent::Redialing { after, cause } => {
                shared.note(&host, format_args!("{workspace} redials after {after:?}: {cause}"));
            }
        }
    })
}
