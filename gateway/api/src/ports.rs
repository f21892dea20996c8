//! Ports of a workspace: as a request names them, and as they are shown.

use serde::Serialize;
use utoipa::ToSchema;

use super::ApiShared;
use super::body::{JsonFields, text};
use super::openapi::values;
use gateway_agents::registry::{AgentReport, LiveSession};
use gateway_store::Workspace;
use gateway_types::{NAMED_PORTS_MAX, NamedPort, Port, UnixSeconds};
use gateway_workspaces::service::check_ports;

#[derive(Serialize, ToSchema)]
#[schema(as = PortLink)]
pub(super) struct PortRow {
    port: u16,
    url: String,
    /// The name that the port was given, or that of the program there.
    #[schema(required)]
    label: Option<String>,
    /// How the gateway speaks to the app.
    #[schema(schema_with = values::port_mode)]
    protocol: &'static str,
    /// Its audiences beside the owner; for the owner only.
    open_to: Vec<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = NamedPort)]
pub(super) struct NamedPortRow {
    port: u16,
    url: String,
    #[schema(required)]
    name: Option<String>,
    #[schema(schema_with = values::port_protocol)]
    protocol: &'static str,
    #[schema(schema_with = values::port_host)]
    host: &'static str,
    /// The audience that the devfile wants the port to be open to, until you share it with that audience: nothing is open by it.
    #[schema(required)]
    proposed: Option<String>,
}

/// What is known of the ports of a workspace beside its session.
pub(super) struct PortFacts<'a> {
    pub(super) api: &'a ApiShared,
    pub(super) workspace: &'a Workspace,
    pub(super) is_owner: bool,
    pub(super) now: UnixSeconds,
}

impl PortFacts<'_> {
    fn url(&self, port: Port) -> String {
        let (name, port) = (&self.workspace.name, Some(port));
        if self.is_owner { self.api.address(name, port) } else { self.api.address_on_host(name, port) }
    }

    /// Describes a port of a connected workspace.
    pub(super) fn row(&self, port: Port, session: &LiveSession, report: Option<&AgentReport>) -> PortRow {
        let shares = self.workspace.shares.iter().filter(|_| self.is_owner);
        let open = shares.filter(|share| share.port == port && share.is_live(self.now));
        PortRow {
            port: port.get(),
            url: self.url(port),
            label: label(self.workspace, port, report),
            protocol: session.mode(port).protocol_word(),
            open_to: open.map(|share| share.audience.to_string()).collect(),
        }
    }

    /// Describes the named ports, for the owner.
    pub(super) fn named(&self) -> Vec<NamedPortRow> {
        let pending = |port: Port| self.workspace.proposals(self.now).find(|(named, _)| named.port == port);
        let row = |named: &NamedPort| NamedPortRow {
            port: named.port.get(),
            url: self.url(named.port),
            name: named.name.as_ref().map(ToString::to_string),
            protocol: named.protocol.as_str(),
            host: named.host.as_str(),
            proposed: pending(named.port).map(|(_, audience)| audience.to_string()),
        };
        self.workspace.ports.iter().filter(|_| self.is_owner).map(row).collect()
    }
}

/// Returns the label of a port: this product's own, the name that it was given, or what the agent calls it.
pub fn label(workspace: &Workspace, port: Port, report: Option<&AgentReport>) -> Option<String> {
    let given = || workspace.named_port(port)?.name.as_ref().map(ToString::to_string);
    let said = || report?.labels.get(&port.get()).cloned();
    port.label().map(str::to_owned).or_else(given).or_else(said)
}

/// Reads the ports that a request for a workspace names.
pub(super) fn read(fields: &mut JsonFields<'_>) -> Option<Vec<NamedPort>> {
    if !fields.has("ports") {
        return fields.optional("ports", |_| Ok(Vec::new())).or_else(|| Some(Vec::new()));
    }
    let ports = fields.objects("ports", NAMED_PORTS_MAX, read_one)?;
    if let Err(wrong) = check_ports(&ports) {
        fields.object("ports", wrong.to_string());
        return None;
    }
    Some(ports)
}

fn read_one(fields: &mut JsonFields<'_>) -> Option<NamedPort> {
    let port = fields.required("port", |value| {
        let number = value.as_u64().and_then(|number| u16::try_from(number).ok());
        number.and_then(Port::new).ok_or_else(|| "has to be a number from 1 to 65535".to_owned())
    });
    let name = fields.optional("name", text);
    let protocol = fields.optional("protocol", text).unwrap_or_default();
    let host = fields.optional("host", text).unwrap_or_default();
    Some(NamedPort { port: port?, name, protocol, host, proposed: None })
}
