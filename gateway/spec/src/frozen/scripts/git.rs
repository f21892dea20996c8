//! The configuration of git in a workspace: where credentials come from, and who commits.

use crate::frozen::generate::ObjectPlan;
use crate::frozen::names::{AGENT_TOKEN_FILE, FILES_DIR, TOOLS_DIR};
use crate::shell;

/// Writes it. It stands in the place of the image's own, which it therefore includes. No secret is in it: the helper asks the gateway
/// each time.
pub(super) fn config(plan: &ObjectPlan<'_>) -> String {
    let helper = format!(
        "!{TOOLS_DIR}/bin/workspace-agent git-credential --gateway {} --token-file {FILES_DIR}/{AGENT_TOKEN_FILE}",
        shell::word(plan.gateway_url()),
    );
    let owner = plan.facts.owner.as_str();
    format!(
        "# Before the user's own configuration, which has the last word.\n\
         [include]\n\tpath = /etc/gitconfig\n\
         [credential]\n\thelper = {}\n\
         [user]\n\tname = {}\n\temail = {}\n",
        value(&helper),
        value(owner),
        value(&email(owner, plan.facts.public_url)),
    )
}

/// Returns the user's name if it is an address, else one that is none anywhere, and tells users of this gateway apart.
fn email(owner: &str, public_url: &str) -> String {
    if owner.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.')) {
        return owner.to_owned();
    }
    let host = url::Url::parse(public_url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let plain: String =
        owner.chars().map(|one| if one.is_ascii_alphanumeric() || ".-_+".contains(one) { one } else { '-' }).collect();
    format!("{plain}@noreply.{}", host.unwrap_or_default())
}

/// Writes a value (git-config(1), "Syntax").
fn value(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn author_has_an_address_that_is_theirs_or_nobodys() {
        assert_eq!(email("ann@example.org", "https://gw.example.com"), "ann@example.org");
        assert_eq!(email("ann", "https://gw.example.com:8443"), "ann@noreply.gw.example.com");
        assert_eq!(email("EXAMPLE\\ann <x>", "http://localhost:8080"), "EXAMPLE-ann--x-@noreply.localhost");
    }

    #[test]
    fn value_ends_where_it_should() {
        assert_eq!(value("a \"b\" \\ # ; '"), "\"a \\\"b\\\" \\\\ # ; '\"");
    }
}
