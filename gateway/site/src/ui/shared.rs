//! Workspaces that others share with a user: a list of its own on the home page, with links to the ports that are open
//! to them.

use super::{Pages, unavailable};
use crate::api::presence::ListPresence;
use gateway_http::respond::Failure;
use gateway_store::{SharedPort, wall_clock};
use gateway_types::principal::Principal;

/// Writes the list; empty if nothing is shared with the user by name or group.
///
/// # Errors
/// [`Failure::Overloaded`], when the store does not answer.
pub(super) async fn list(pages: Pages<'_>, principal: &Principal) -> Result<String, Failure> {
    let ports = pages.store.shared_with(&principal.user, &principal.groups, wall_clock()).await;
    let ports = ports.map_err(|error| unavailable(&error))?;
    if ports.is_empty() {
        return Ok(String::new());
    }
    let names = ports.iter().map(|port| &port.workspace);
    let presence = ListPresence::read(pages.parts, names).await.map_err(|error| unavailable(&error))?;
    let of_each = ports.chunk_by(|a, b| a.workspace == b.workspace);
    let items: String = of_each.map(|ports| item(pages, ports, &presence)).collect();
    Ok(format!("<h2>Shared with you</h2><ul class=\"workspaces\">{items}</ul>"))
}

/// Writes one workspace of another owner: names and owners are plain by their types.
fn item(pages: Pages<'_>, ports: &[SharedPort], presence: &ListPresence<'_>) -> String {
    let Some(SharedPort { workspace, owner, .. }) = ports.first() else { return String::new() };
    let state = match presence.has(workspace) {
        true => "<p class=\"present\">Connected</p>",
        false => "<p class=\"absent\">Not connected</p>",
    };
    let links: String = ports
        .iter()
        .map(|shared| {
            let address = pages.site.workspace(&pages.rules.format(workspace, Some(shared.port)), "/");
            format!("<a href=\"{address}\">port {}</a>", shared.port)
        })
        .collect();
    let owner = gateway_types::markup::escape(owner.as_str());
    format!(
        "<li data-name=\"{workspace}\"><h3>{workspace}</h3><p>of {owner}</p>{state}<p class=\"links\">{links}</p></li>"
    )
}
