//! `endpoints` of containers, which share one network: a port or name counts for the whole file.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use gateway_types::{Audience, PortHost, PortProtocol};
use tunnel_proto::inspector::INSPECTOR_PORT;
use tunnel_proto::ssh::SSH_PORT;
use tunnel_proto::terminal::TERMINAL_PORT;

use super::{EDITOR_PORT, Endpoint, Exposure, names};
use crate::document::{MapFields, Problems, ValueAt, show};

/// Ports of our own programs, and the names of these.
const RESERVED: [(u16, &str); 4] = [
    (EDITOR_PORT, "the editor"),
    (TERMINAL_PORT, "the terminal"),
    (INSPECTOR_PORT, "the request inspector"),
    (SSH_PORT, "the SSH server"),
];

const PROTOCOLS: [&str; 6] = ["http", "https", "ws", "wss", "tcp", "udp"];

/// Ports and names that the endpoints so far took.
#[derive(Default)]
pub(super) struct Ports {
    /// By port: endpoint and component.
    ports: BTreeMap<u16, (String, String)>,
    /// By name: the component.
    names: BTreeMap<String, String>,
}

/// Reads the endpoints of a component.
pub(super) fn read(at: &ValueAt<'_>, component: &str, ports: &mut Ports, problems: &mut Problems) -> Vec<Endpoint> {
    at.items(problems).iter().filter_map(|item| read_one(item, component, ports, problems)).collect()
}

fn read_one(at: &ValueAt<'_>, component: &str, ports: &mut Ports, problems: &mut Problems) -> Option<Endpoint> {
    let mut fields = at.fields(problems)?;
    let name = read_name(&mut fields, component, ports, problems);
    let target_port = read_port(&mut fields, name.as_deref().unwrap_or_default(), component, ports, problems);
    let (exposure, mut proposed) = read_exposure(&mut fields, problems);
    let protocol = read_protocol(&mut fields, problems);
    let mut app = AppAttributes { speaks: default_of(&protocol), ..AppAttributes::default() };
    let secure = fields.take("secure").and_then(|at| at.boolean(problems)).unwrap_or(false);
    // For programs that show links; nothing here depends on them.
    if let Some(at) = fields.take("path") {
        names::shown(&at, problems);
    }
    if let Some(at) = fields.take("attributes") {
        read_attributes(&at, exposure, &mut app, problems);
    }
    if app.share.is_some() {
        proposed = app.share;
    }
    let AppAttributes { speaks, host, .. } = app;
    fields.refuse(&[("annotation", "is not supported: annotations come from the cluster's configuration")], problems);
    fields.finish(problems);
    Some(Endpoint { name: name?, target_port: target_port?, exposure, protocol, secure, speaks, host, proposed })
}

/// How the gateway speaks to the app of an endpoint, and for which audience it asks.
#[derive(Default)]
struct AppAttributes {
    speaks: PortProtocol,
    host: PortHost,
    share: Option<Audience>,
}

/// Returns the protocol of an app by the devfile's word for it.
fn default_of(protocol: &str) -> PortProtocol {
    match protocol {
        "https" | "wss" => PortProtocol::Https,
        "tcp" => PortProtocol::Tcp,
        _ => PortProtocol::Http1,
    }
}

/// Reads those attributes that mean something here; the others are for other programs.
fn read_attributes(at: &ValueAt<'_>, exposure: Exposure, app: &mut AppAttributes, problems: &mut Problems) {
    for (key, _, at) in at.entries(problems).unwrap_or_default() {
        match key {
            "gateway/protocol" => app.speaks = word(&at, problems).unwrap_or_default(),
            "gateway/host" => app.host = word(&at, problems).unwrap_or_default(),
            "gateway/share" => {
                app.share = word(&at, problems);
                if exposure == Exposure::None {
                    at.object(problems, "is for an endpoint that others may reach, and this one has `exposure: none`");
                }
            }
            _ => {}
        }
    }
}

/// Reads a text with a parser of the domain, whose errors say what there may be.
fn word<T>(at: &ValueAt<'_>, problems: &mut Problems) -> Option<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    let text = at.text(problems)?;
    match text.parse() {
        Ok(word) => Some(word),
        Err(wrong) => {
            at.object(problems, format!("is {}: {wrong}", show(text)));
            None
        }
    }
}

fn read_name(
    fields: &mut MapFields<'_>,
    component: &str,
    ports: &mut Ports,
    problems: &mut Problems,
) -> Option<String> {
    let at = fields.require("name", problems)?;
    let name = names::label(&at, problems)?;
    match ports.names.get(name) {
        Some(other) => at.object(problems, format!("is the name of another endpoint, of component {}", show(other))),
        None => {
            ports.names.insert(name.to_owned(), component.to_owned());
        }
    }
    Some(name.to_owned())
}

fn read_port(
    fields: &mut MapFields<'_>,
    name: &str,
    component: &str,
    ports: &mut Ports,
    problems: &mut Problems,
) -> Option<u16> {
    let at = fields.require("targetPort", problems)?;
    let port = u16::try_from(at.whole(1..=i64::from(u16::MAX), problems)?).ok()?;
    if let Some((_, owner)) = RESERVED.iter().find(|(reserved, _)| *reserved == port) {
        at.object(problems, format!("{port} is the port of {owner}"));
    }
    match ports.ports.get(&port) {
        Some((other, other_component)) => {
            let message =
                format!("{port} is the port of endpoint {} of component {}", show(other), show(other_component));
            at.object(problems, format!("{message}: all containers of a workspace share one network"));
        }
        None => {
            ports.ports.insert(port, (name.to_owned(), component.to_owned()));
        }
    }
    Some(port)
}

/// Reads the exposure. `public` that is written is a proposal; the same by default is none.
fn read_exposure(fields: &mut MapFields<'_>, problems: &mut Problems) -> (Exposure, Option<Audience>) {
    let Some((at, text)) = fields.take("exposure").and_then(|at| at.text(problems).map(|text| (at, text))) else {
        return (Exposure::Public, None);
    };
    match text {
        "public" => (Exposure::Public, Some(Audience::Public)),
        "internal" => (Exposure::Internal, None),
        "none" => (Exposure::None, None),
        other => {
            at.object(problems, format!("must be public, internal or none, not {}", show(other)));
            (Exposure::None, None)
        }
    }
}

fn read_protocol(fields: &mut MapFields<'_>, problems: &mut Problems) -> String {
    let Some((at, text)) = fields.take("protocol").and_then(|at| at.text(problems).map(|text| (at, text))) else {
        return "http".to_owned();
    };
    if !PROTOCOLS.contains(&text) {
        at.object(problems, format!("must be one of {}, not {}", PROTOCOLS.join(", "), show(text)));
    }
    text.to_owned()
}
