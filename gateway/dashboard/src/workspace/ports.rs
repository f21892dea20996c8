//! Ports of a workspace with those who may reach them.

use std::collections::BTreeSet;

use gateway_agents::registry::{AgentReport, LiveSession};
use gateway_api::ApiShared;
use gateway_api::ports::label;
use gateway_store::Workspace;
use gateway_types::{Audience, Port, UnixSeconds};

/// Most ports that are shown.
const PORTS_MAX: usize = 100;

/// A port.
pub(super) struct PortLine {
    pub(super) port: Port,
    pub(super) url: String,
    /// Address for those with a share, where the owner's own is another one.
    pub(super) others: Option<String>,
    pub(super) label: String,
    pub(super) protocol: &'static str,
    /// Whether something listens: `open`, `closed`, or nothing if that is not known.
    pub(super) reach: &'static str,
    pub(super) shares: Vec<ShareLine>,
}

/// Those who may reach a port.
pub(super) struct ShareLine {
    /// As the form sends it back.
    pub(super) audience: String,
    pub(super) words: String,
    /// When that ends; empty for not at all.
    pub(super) until: String,
}

/// A port that the devfile wants to be open.
pub(super) struct ProposalLine {
    pub(super) port: Port,
    pub(super) label: String,
    pub(super) words: String,
}

/// Returns the ports that something listens on, that were named, or that are shared.
pub(super) fn lines(
    api: &ApiShared,
    workspace: &Workspace,
    session: Option<&LiveSession>,
    report: Option<&AgentReport>,
    now: UnixSeconds,
) -> Vec<PortLine> {
    let mut ports: BTreeSet<Port> = workspace.ports.iter().map(|named| named.port).collect();
    ports.extend(workspace.shares.iter().filter(|share| share.is_live(now)).map(|share| share.port));
    ports.extend(session.into_iter().flat_map(|session| session.ports()).filter_map(|port| Port::new(port.number)));
    ports.extend(report.into_iter().flat_map(|report| report.listening.iter()));
    let line = |port: Port| {
        let shares = workspace.shares.iter().filter(|share| share.port == port && share.is_live(now));
        PortLine {
            port,
            url: api.address(&workspace.name, Some(port)),
            others: api.rules.paths_host().is_some().then(|| api.address_on_host(&workspace.name, Some(port))),
            label: label(workspace, port, report).unwrap_or_default(),
            protocol: session.map_or("", |session| session.mode(port).protocol_word()),
            reach: match report {
                Some(report) if report.listening.contains(&port) => "open",
                Some(_) => "closed",
                None => "",
            },
            shares: shares
                .map(|share| ShareLine {
                    audience: share.audience.to_string(),
                    words: people(&share.audience),
                    until: share.expires_at.map(|time| time.to_string()).unwrap_or_default(),
                })
                .collect(),
        }
    };
    ports.into_iter().filter(|port| !port.is_ssh()).take(PORTS_MAX).map(line).collect()
}

/// Returns the ports that the devfile wants to be open to others, and that are not.
pub(super) fn proposals(workspace: &Workspace, now: UnixSeconds) -> Vec<ProposalLine> {
    let line = |(named, audience): (&gateway_types::NamedPort, &Audience)| ProposalLine {
        port: named.port,
        label: named.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default(),
        words: people(audience),
    };
    workspace.proposals(now).map(line).collect()
}

/// Names an audience in a sentence.
fn people(audience: &Audience) -> String {
    match audience {
        Audience::Public => "everybody, without a sign-in".to_owned(),
        Audience::SignedIn => "every signed-in user".to_owned(),
        Audience::User(user) => format!("the user {user}"),
        Audience::Group(group) => format!("the group {group}"),
    }
}
