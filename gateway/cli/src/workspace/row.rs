//! Workspaces as they are listed, from the database or from a gateway.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::address;
use super::wish::WorkspaceLook;
use crate::client::shown;
use crate::{Output, table};
use gateway_config::Config;
use gateway_store::{ManagedWorkspace, Workspace};

/// A workspace in a list: as a gateway's API has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct WorkspaceItem {
    #[serde(default)]
    id: String,
    pub(super) name: String,
    pub(super) owner: String,
    pub(super) access: String,
    #[serde(default)]
    executor: String,
    #[serde(default)]
    pub(super) cluster: Option<String>,
    #[serde(default)]
    pub(super) template: Option<String>,
    #[serde(default)]
    pub(super) template_parameters: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) provider: Option<String>,
    #[serde(default)]
    pub(super) run_url: Option<String>,
    #[serde(default)]
    pub(super) state: Option<WorkspaceLook>,
    #[serde(default)]
    pub(super) created_at: String,
    /// Known only to a running gateway.
    #[serde(default)]
    connected: Option<bool>,
    pub(super) url: String,
}

impl WorkspaceItem {
    /// Takes the fields from the database, which has all but whether the agent is connected.
    pub(super) fn here(config: &Config, workspace: &Workspace, managed: Option<&ManagedWorkspace>) -> Self {
        let template = managed.and_then(ManagedWorkspace::kubernetes).and_then(|state| state.template.as_ref());
        Self {
            id: workspace.id.to_string(),
            name: workspace.name.to_string(),
            owner: workspace.owner.to_string(),
            access: "operator".to_owned(),
            executor: workspace.executor.as_str().to_owned(),
            cluster: managed.and_then(ManagedWorkspace::kubernetes).map(|state| state.cluster_name.to_string()),
            template: template.map(|template| template.name.clone()),
            template_parameters: template.map(|template| template.parameters.clone()),
            provider: managed.and_then(ManagedWorkspace::ci).map(|state| state.provider.to_string()),
            run_url: managed.and_then(ManagedWorkspace::run_url).map(str::to_owned),
            state: managed.map(WorkspaceLook::of),
            created_at: workspace.created_at.to_string(),
            connected: None,
            url: address(config, &workspace.name, None),
        }
    }
}

/// Lays workspaces out.
pub(super) fn show(rows: &[WorkspaceItem], output: Output) -> String {
    match output {
        Output::Json => format!("{:#}", json!(rows)),
        Output::Text => {
            let header = ["NAME", "OWNER", "ACCESS", "AGENT", "STATE", "EXECUTOR", "ADDRESS"];
            let rows = rows.iter().map(|row| {
                let agent = match row.connected {
                    Some(true) => "connected",
                    Some(false) => "absent",
                    None => "-",
                };
                let state = row.state.as_ref().map_or_else(|| "-".to_owned(), |look| shown(&look.actual));
                let [name, owner, access] = [&row.name, &row.owner, &row.access].map(|text| shown(text));
                [name, owner, access, agent.to_owned(), state, shown(&row.executor), shown(&row.url)]
            });
            table::text(header, rows)
        }
    }
}
