//! The clusters that can run workspaces: what somebody has to know who wants to make one, or who wonders why nothing happens.
//! Everybody who is signed in may see their names, whether they take workspaces, whether their agent is connected, and that their
//! newest configuration was refused; what is in it is told by `gateway config check` and the log.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;

use super::problem::Problem;
use super::{Caller, Shared, answer};
use crate::workspaces::cluster_config::ClusterConfig;

#[derive(Serialize)]
struct List {
    agents: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    /// What it is an agent of.
    kind: &'static str,
    /// New workspaces can be made there.
    enabled: bool,
    /// Its agent has a session.
    connected: bool,
    version: Option<String>,
    connected_seconds: Option<u64>,
    /// The file that configures it is wrong, and an older one is in force.
    configuration_refused: bool,
    /// By which kind of reason.
    configuration_refusal: Option<&'static str>,
    created_at: String,
}

pub(super) async fn list(State(api): State<Arc<Shared>>, caller: Caller) -> Result<Response, Problem> {
    caller.user()?;
    let mut agents = Vec::new();
    for cluster in api.store.clusters().await? {
        let config = api.store.cluster_config(cluster.id, None).await?;
        let enabled =
            config.is_some_and(|(_, json)| ClusterConfig::from_json(&json).is_ok_and(|config| config.enabled));
        let session = api.registry.cluster(&cluster.name);
        let refusal = api.cluster_configs.refusal(&cluster.name);
        agents.push(Row {
            name: cluster.name.to_string(),
            kind: "cluster",
            enabled,
            connected: session.is_some(),
            version: session.as_ref().map(|session| session.agent_version.clone()),
            connected_seconds: session.as_ref().map(|session| session.since.elapsed().as_secs()),
            configuration_refused: refusal.is_some(),
            configuration_refusal: refusal.map(|refusal| refusal.code.as_str()),
            created_at: cluster.created_at.to_string(),
        });
    }
    Ok(answer::json(StatusCode::OK, &List { agents }))
}
