//! An agent whose session is in the hands of a test: it does with channels what the test does, and nothing by itself.

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tunnel_link::grpc::{ConnectError, DialedLink, dial, drive};
use tunnel_link::pace::PacedStream;
use tunnel_link::session::Session;
use tunnel_proto::hello::{Hello, HostMode, Role};
use tunnel_proto::limit::OPEN_CREDIT_BYTES;
use tunnel_proto::mux::{Settings, Side};
use tunnel_proto::version;

use crate::{PATIENCE, TestGateway};

/// An agent without habits.
#[derive(Debug)]
pub struct ScriptedAgent {
    /// Its end of the session. Channels wait here until the test accepts them.
    pub session: Session,
    _tasks: JoinSet<()>,
}

/// The Hello of an ordinary agent that exposes every port.
#[must_use]
pub fn hello() -> Hello {
    Hello {
        versions: version::OURS,
        features: Vec::new(),
        agent_version: "0.0.0-test".into(),
        role: Role::Workspace,
        instance: 1,
        resume: None,
        open_credit_bytes: OPEN_CREDIT_BYTES,
        ports: Vec::new(),
        default_port: None,
        join: None,
        lanes: 1,
        apps: Vec::new(),
        host: HostMode::Auto,
        relay: None,
        seal: bytes::Bytes::new(),
    }
}

impl ScriptedAgent {
    /// Attaches as the agent of a workspace of `dev`.
    pub async fn attach(gateway: &TestGateway, workspace: &str) -> Self {
        let token = gateway.agent_token(workspace).await;
        let scripted = Self::dial(gateway, &token, hello()).await.expect("a welcome");
        gateway.until_connected(workspace).await;
        scripted
    }

    /// Dials with a token and a Hello.
    pub async fn dial(gateway: &TestGateway, token: &str, hello: Hello) -> Result<Self, ConnectError> {
        let stream = TcpStream::connect(gateway.addresses.agents).await.expect("it listens");
        let authority = gateway.addresses.agents.to_string().parse().expect("an authority");
        let scheme = "http".parse().expect("a scheme");
        let (stream, pace) = PacedStream::new(stream, tunnel_link::socket::limit_queue);
        let (connection, answer) = dial(stream, pace, authority, scheme, Some(token), hello).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // How it ends is seen at the session.
            connection.await.ok();
        });
        let dialed = tokio::time::timeout(PATIENCE, answer).await.expect("an answer")?;
        let session = Session::new(Settings::new(Side::Agent));
        dialed.attach(session.link());
        let driven = session.clone();
        tasks.spawn(async move {
            let DialedLink { reader, .. } = dialed;
            drive(&driven.link(), reader).await;
        });
        Ok(Self { session, _tasks: tasks })
    }
}
