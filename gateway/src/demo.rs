//! `gateway demo`: gateway, agent and a sample app in one process, on embedded parts.

pub mod app;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use workspace_agent::{Gateway, MEMORY_BUDGET_BYTES, Options, Ports, TokenSource, Transport};

use crate::app::{App, DEV_USER};
use gateway_auth::sign_in::path::ReturnPath;
use gateway_cli::DemoArgs;
use gateway_config::{AuthMode, Config, StoreUrl};
use gateway_store::wall_clock;
use gateway_types::{Port, UserName, WorkspaceName};

/// The demo's workspace.
const WORKSPACE: &str = "demo";

/// Time for the agent to connect before the link is shown all the same.
const READY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Runs the demo until `stop`. `announce` shows the link to a person.
///
/// # Errors
/// The reason that it did not start; the text names the address and the flag if a port is taken.
pub async fn run(
    mut config: Config,
    args: &DemoArgs,
    stop: CancellationToken,
    announce: impl FnOnce(&str),
) -> anyhow::Result<()> {
    config.store.url = StoreUrl::SqliteMemory;
    // Its one workspace belongs to dev mode's user.
    config.auth.mode = AuthMode::Dev;
    config.auth.oidc = None;
    // The operator's page is of no use here, and its port would be one more that can be taken.
    config.listen.admin = None;
    // A demo ends at once: no user's work depends on it.
    config.timeouts.drain = std::time::Duration::from_millis(500);
    let listener = TcpListener::bind(args.app_listen).await.with_context(|| {
        format!("cannot listen on {} (sample app); choose another address with --app-listen", args.app_listen)
    })?;
    let app_address = listener.local_addr()?;
    let gateway = App::bind(config).await?;
    let addresses = gateway.addresses()?;
    let name: WorkspaceName = WORKSPACE.parse()?;
    let options = agent(&gateway, &name, addresses.agents, app_address, &addresses_of(&addresses)).await?;
    let registry = gateway.registry().clone();
    let port = Port::new(app_address.port()).context("the sample app has no port")?;
    let host = format!("{port}-{name}.{}", gateway.config().zone);
    let link = gateway.sign_in_link()?.context("the demo signs in with its own link")?;
    let link = link.to_workspace(&host, &ReturnPath::parse_or_root("/"));

    let mut parts = JoinSet::new();
    parts.spawn({
        let stop = stop.clone();
        async move {
            Box::pin(gateway.run(stop)).await;
            Ok(())
        }
    });
    parts.spawn({
        let stop = stop.clone();
        async move { app::serve(listener, stop).await.context("the sample app failed") }
    });
    parts.spawn({
        let stop = stop.clone();
        async move { workspace_agent::run(options, stop).await.context("the agent stopped") }
    });
    let connected = async {
        while registry.current(&name).is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(READY_TIMEOUT, connected).await.context("the demo's agent did not connect")?;
    announce(&link.to_string());
    // The first part to end ends the demo: an error is told, and the others are waited for.
    let mut result = Ok(());
    while let Some(ended) = parts.join_next().await {
        stop.cancel();
        result = result.and(ended?);
    }
    result
}

fn addresses_of(addresses: &crate::app::Addresses) -> BTreeSet<u16> {
    [Some(addresses.public), Some(addresses.agents), addresses.admin]
        .into_iter()
        .flatten()
        .map(|address| address.port())
        .collect()
}

async fn agent(
    gateway: &App,
    name: &WorkspaceName,
    agents: SocketAddr,
    app: SocketAddr,
    denied: &BTreeSet<u16>,
) -> anyhow::Result<Options> {
    let owner: UserName = DEV_USER.parse()?;
    let token = gateway.store().create_agent_token(name, &owner, wall_clock()).await?;
    let scheme = if gateway.config().tls.agents.is_some() { "https" } else { "http" };
    Ok(Options {
        lanes: 1,
        memory_budget: MEMORY_BUDGET_BYTES,
        terminal: None,
        ssh: None,
        inspector: None,
        logs: None,
        gateway: Gateway::parse(&format!("{scheme}://{agents}"), None)?,
        transport: Transport::default(),
        token: TokenSource::Value(token.token.reveal().into()),
        ports: Arc::new(Ports {
            exposed: Vec::new(),
            denied: denied.clone(),
            default: Some(app.port()),
            ..Ports::default()
        }),
    })
}
