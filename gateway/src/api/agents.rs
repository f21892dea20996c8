//! The clusters that can run workspaces: what somebody has to know who wants to make one. Everybody who is signed in may see
//! their names and whether they take workspaces; nothing of a cluster's configuration is told.

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
    created_at: String,
}

pub(super) async fn list(State(api): State<Arc<Shared>>, caller: Caller) -> Result<Response, Problem> {
    caller.user()?;
    let mut agents = Vec::new();
    for cluster in api.store.clusters().await? {
        let config = api.store.cluster_config(cluster.id, None).await?;
        let enabled =
            config.is_some_and(|(_, json)| ClusterConfig::from_json(&json).is_ok_and(|config| config.enabled));
        agents.push(Row {
            name: cluster.name.to_string(),
            kind: "cluster",
            enabled,
            created_at: cluster.created_at.to_string(),
        });
    }
    Ok(answer::json(StatusCode::OK, &List { agents }))
}
