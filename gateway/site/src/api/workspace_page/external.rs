//! The page of a workspace that runs elsewhere: whether it is connected, its ports, how its agent is started, and its end.

use axum::response::Response;
use http::StatusCode;

use crate::api::page::plain;
use crate::api::ports::label;
use crate::api::{ApiShared, presence};
use gateway_agents::registry::AgentReport;
use gateway_store::Workspace;
use gateway_types::Port;
use gateway_types::markup::escape;

/// Shows the page.
pub(super) async fn page(api: &ApiShared, workspace: &Workspace) -> Response {
    // Names are plain by their type.
    let name = &workspace.name;
    let session = presence::session(api, name).await.filter(|session| !session.tunnel.is_detached());
    let state = match &session {
        None => format!(
            "<p class=\"state\">Not connected</p><p>It runs where you start its agent: make a token with <code>gateway token \
             create --workspace {name}</code>, and start <code>workspace-agent run</code> with it where your code is.</p>"
        ),
        Some(session) => {
            let report = session.report().await;
            let known: Vec<Port> = match &report {
                Some(report) => report.listening.to_vec(),
                None => session.ports().iter().filter_map(|port| Port::new(port.number)).collect(),
            };
            let rows: String = known
                .iter()
                .filter(|port| !port.is_ssh())
                .map(|port| row(api, workspace, *port, report.as_ref()))
                .collect();
            let rows = if rows.is_empty() { "<li>Nothing listens on a port yet.</li>".to_owned() } else { rows };
            format!("<p class=\"state\">Connected</p><ul>{rows}</ul>")
        }
    };
    let text = format!(
        "{state}<form method=\"post\"><details><summary>Delete this workspace</summary><p>Its agent is cut off, its tokens and \
         shares end, and the name stays yours for a while. What runs on the machine goes on.</p>\
         <button name=\"action\" value=\"delete\">Delete {name}</button></details></form>\
         <p><a href=\"/\">All workspaces</a></p>"
    );
    plain(StatusCode::OK, None, name.as_str(), &text)
}

fn row(api: &ApiShared, workspace: &Workspace, port: Port, report: Option<&AgentReport>) -> String {
    let address = escape(&api.site.workspace(&api.rules.format(&workspace.name, Some(port)), "/"));
    let label = label(workspace, port, report).map(|label| format!(" ({})", escape(&label))).unwrap_or_default();
    format!("<li><a href=\"{address}\">port {port}</a>{label}</li>")
}
