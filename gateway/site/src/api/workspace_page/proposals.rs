//! Ports that the devfile wants to be open to others, each with a button for the owner's word.

use gateway_store::Workspace;
use gateway_types::markup::escape;
use gateway_types::{Audience, UnixSeconds};

/// Writes the proposals; nothing without any.
pub(super) fn text(workspace: &Workspace, now: UnixSeconds) -> String {
    let name = &workspace.name;
    let rows: String = workspace
        .proposals(now)
        .map(|(named, audience)| {
            let label = named.name.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
            let port = named.port;
            format!(
                "<li>port {port}{label} wants to be open to {} <button name=\"share\" value=\"{port}\">Open it</button></li>",
                escape(&people(audience))
            )
        })
        .collect();
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<form method=\"post\" action=\"/workspaces/{name}\"><p>The devfile proposes, and nothing is open before you say so:</p>\
         <ul>{rows}</ul></form>"
    )
}

/// Names an audience in a sentence.
pub(super) fn people(audience: &Audience) -> String {
    match audience {
        Audience::Public => "everybody, without a sign-in".to_owned(),
        Audience::SignedIn => "every signed-in user".to_owned(),
        Audience::User(user) => format!("the user {user}"),
        Audience::Group(group) => format!("the group {group}"),
    }
}
