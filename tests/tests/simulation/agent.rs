//! An agent's host: the real agent on the simulated network, and apps beside it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::uri::{Authority, Scheme};
use tokio::task::JoinSet;
use tunnel_proto::hello::Resume;
use tunnel_proto::mux::Side;
use tunnel_proto::reason::Reason;
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
    /// The host that they dial: the gateway's, or one before it.
    pub(crate) via: &'static str,
    pub(crate) workspaces: Vec<String>,
    pub(crate) seed: u64,
}

/// The simulated network as an agent sees it.
#[derive(Debug)]
struct Simulated {
    via: &'static str,
}

impl Network for Simulated {
    type Socket = TcpStream;

    async fn dial(&self, _offer: Offer) -> Result<GatewayConnection, DialFailure> {
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((self.via, PORT))).await {
            Err(_elapsed) => Err(DialFailure::ConnectTimedOut),
            Ok(Err(error)) => Err(DialFailure::Connect(error)),
            Ok(Ok(stream)) => Ok(GatewayConnection::new(stream, |_stream, _bytes| None)),
        }
    }

    fn origin(&self) -> (Authority, Scheme) {
        (Authority::from_static("gateway.example:8081"), Scheme::HTTP)
    }

    async fn port(&self, port: u16) -> Result<TcpStream, Reason> {
        TcpStream::connect(("127.0.0.1", port)).await.map_err(|_| Reason::PortClosed)
    }
}

/// The host's processes.
pub(crate) async fn run(shared: Arc<Shared>, plan: AgentPlan) -> turmoil::Result {
    let mut tasks = JoinSet::new();
    apps::start(&mut tasks, &shared).await?;
    let mut rolls = Rolls::new(plan.seed);
    for workspace in plan.workspaces {
        let agent = agent(&shared, &plan.host, plan.via, &workspace, Rolls::new(rolls.next()));
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

fn agent(shared: &Arc<Shared>, host: &str, via: &'static str, workspace: &str, mut rolls: Rolls) -> Agent<Simulated> {
    let token = TokenSource::Value(workspace.into());
    let mut agent = Agent::new(Simulated { via }, token, Arc::new(Ports::default()));
    agent.backoff = shared.world.backoff;
    agent.roll = Box::new(move || rolls.unit());
    // A process that starts again is another one.
    agent.instance = shared.instances.fetch_add(1, Ordering::Relaxed);
    agent.observer = observer(shared.clone(), host.to_owned(), workspace.to_owned());
    agent
}

/// Writes down what an agent tells of itself.
fn observer(shared: Arc<Shared>, host: String, workspace: String) -> workspace_agent::dial::Observer {
    let mut place = None;
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
