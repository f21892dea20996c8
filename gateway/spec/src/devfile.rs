//! The devfile of a workspace: the containers, volumes and commands that it is made from.
//!
//! A subset of devfile 2.2.0. Unsupported parts are refused by name, so that no file does less than it says; and all
//! problems of a file are reported at once, each with its place. The rules are in the parts: `variables` are put in
//! first, then `components`, `commands` and `events` are read, each knowing the ones before.

mod attributes;
mod commands;
mod components;
mod container;
mod endpoints;
mod events;
mod mounts;
mod names;
pub(crate) mod variables;

use std::fmt;

use gateway_types::{Audience, NamedPort, Port, PortHost, PortProtocol};

use self::components::Declared;
pub use super::document::Problem;
use super::document::{self, MapFields, Node, Problems, ValueAt, show};

/// The largest devfile, in bytes; also the most that its aliases may repeat and its variables may put in.
pub const DEVFILE_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The only version of the schema that is read.
pub const SCHEMA_VERSION: &str = "2.2.0";

/// The devfile of workspaces that bring none.
pub const DEFAULT_DEVFILE: &str = include_str!("devfile/default.yaml");

/// The port of the editor in the main component's container.
pub const EDITOR_PORT: u16 = tunnel_proto::terminal::EDITOR_PORT;

/// Mount path of the workspace's own volume in each container.
pub const PROJECTS_PATH: &str = "/projects";

/// Keys whose values are whole numbers. A parameter of a workspace template becomes one there, since no reference can.
pub(crate) const NUMBER_KEYS: [&str; 1] = ["targetPort"];

/// Keys whose values are `true` or `false`, likewise.
pub(crate) const BOOLEAN_KEYS: [&str; 6] =
    ["secure", "ephemeral", "hotReloadCapable", "overrideCommand", attributes::MAIN, attributes::MAIN_ELSEWHERE];

/// Longest name given by a person that is only shown, in characters.
const SHOWN_NAME_MAX: usize = 256;

/// A devfile that keeps every rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devfile {
    /// `metadata.name`, for people.
    pub name: Option<String>,
    /// The containers, in the order of the file. Exactly one is the main component.
    pub components: Vec<Component>,
    /// The volumes, in the order of the file.
    pub volumes: Vec<Volume>,
    /// The commands, in the order of the file.
    pub commands: Vec<Command>,
    /// Commands that run at events.
    pub events: LifecycleEvents,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// A DNS label, of all components the only one of this name.
    pub name: String,
    /// The reference to its image.
    pub image: String,
    /// Whether editor and agent run here.
    pub is_main: bool,
    /// Whether its entry point is replaced by something that only waits. If so, `command` and `args` are empty.
    pub override_command: bool,
    /// Replacement of the image's entry point; empty for the image's own.
    pub command: Vec<String>,
    /// Replacement of the image's arguments, byte for byte.
    pub args: Vec<String>,
    /// Environment, in the order of the file; no name is there twice, none is one of ours.
    pub env: Vec<(String, String)>,
    /// A Kubernetes quantity, not more than the limit if both are there.
    pub memory_request: Option<String>,
    /// A Kubernetes quantity.
    pub memory_limit: Option<String>,
    /// A Kubernetes quantity, not more than the limit if both are there.
    pub cpu_request: Option<String>,
    /// A Kubernetes quantity.
    pub cpu_limit: Option<String>,
    /// Its ports; no port and no name is in the file twice, since containers of a pod share their network.
    pub endpoints: Vec<Endpoint>,
    /// Its volumes, each one of [`Devfile::volumes`]; no path is there twice.
    pub volume_mounts: Vec<VolumeMount>,
}

/// A port of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A DNS label.
    pub name: String,
    /// The port, not one of ours.
    pub target_port: u16,
    /// Intended audience.
    pub exposure: Exposure,
    /// `http`, `https`, `ws`, `wss`, `tcp` or `udp`.
    pub protocol: String,
    /// Whether only signed-in people should reach it.
    pub secure: bool,
    /// How the gateway speaks to the app, by `protocol` and the attribute `gateway/protocol`.
    pub speaks: PortProtocol,
    /// The host that the app sees, by the attribute `gateway/host`.
    pub host: PortHost,
    /// The audience that the port is proposed to be open to: by `exposure: public`, or the attribute `gateway/share`.
    pub proposed: Option<Audience>,
}

impl Devfile {
    /// Returns the ports that its endpoints name, each once, in the order of the file; those that only their own pod reaches are
    /// none.
    #[must_use]
    pub fn named_ports(&self) -> Vec<NamedPort> {
        let endpoints = self.components.iter().flat_map(|component| &component.endpoints);
        let named = |endpoint: &Endpoint| {
            Some(NamedPort {
                port: Port::new(endpoint.target_port)?,
                name: endpoint.name.parse().ok(),
                protocol: endpoint.speaks,
                host: endpoint.host,
                proposed: endpoint.proposed.clone(),
            })
        };
        let open = endpoints.filter(|endpoint| endpoint.exposure != Exposure::None && endpoint.protocol != "udp");
        open.filter_map(named).collect()
    }

    /// Returns whether an endpoint says that only its own pod reaches a port.
    #[must_use]
    pub fn closes(&self, port: Port) -> bool {
        let mut endpoints = self.components.iter().flat_map(|component| &component.endpoints);
        endpoints.any(|endpoint| endpoint.target_port == port.get() && endpoint.exposure == Exposure::None)
    }
}

/// Intended audience of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// Every user that the gateway lets in.
    Public,
    /// Processes in the workspace's pod and beside it.
    Internal,
    /// Processes in the workspace's pod.
    None,
}

/// A volume in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMount {
    /// The volume.
    pub name: String,
    /// Absolute, without `..`; `None` for `/NAME`.
    pub path: Option<String>,
}

impl VolumeMount {
    /// Returns the mount path of the volume.
    #[must_use]
    pub fn mount_path(&self) -> String {
        self.path.clone().unwrap_or_else(|| format!("/{}", self.name))
    }
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// A DNS label of at most 27 characters.
    pub name: String,
    /// A Kubernetes quantity.
    pub size: Option<String>,
    /// Whether it may be lost when the workspace stops.
    pub ephemeral: bool,
}

/// Something that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// A DNS label, of all commands the only one of this id.
    pub id: String,
    /// Its action.
    pub kind: CommandKind,
}

/// Action of a command. Each `component` is one of [`Devfile::components`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// Runs a line in a container.
    Exec {
        /// The container.
        component: String,
        /// The line for a shell, byte for byte.
        command_line: String,
        /// For people.
        label: Option<String>,
        /// Working directory; may name variables of the environment.
        working_dir: Option<String>,
    },
    /// Runs a container to its end.
    Apply {
        /// The container.
        component: String,
        /// For people.
        label: Option<String>,
    },
}

impl CommandKind {
    /// Returns the container of the command.
    #[must_use]
    pub fn component(&self) -> &str {
        match self {
            Self::Exec { component, .. } | Self::Apply { component, .. } => component,
        }
    }
}

/// Commands that run at events, by their ids, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifecycleEvents {
    /// Before the containers start: `apply` commands, and never the main component.
    pub pre_start: Vec<String>,
    /// Once the containers have started: `exec` commands.
    pub post_start: Vec<String>,
}

/// Every problem of a devfile, from the first line to the last. Never empty; displays one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevfileProblems(pub Vec<Problem>);

impl std::error::Error for DevfileProblems {}

impl fmt::Display for DevfileProblems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(formatter, "{separator}{problem}")?;
        }
        Ok(())
    }
}

/// Reads a devfile.
///
/// # Errors
/// All problems of the file.
pub fn parse(text: &[u8]) -> Result<Devfile, DevfileProblems> {
    let mut problems = Problems::default();
    let devfile = document::parse(text, DEVFILE_BYTES_MAX, &mut problems).and_then(|root| read(root, &mut problems));
    let problems = problems.finish();
    match devfile {
        Some(devfile) if problems.is_empty() => Ok(devfile),
        Some(_) | None => Err(DevfileProblems(problems)),
    }
}

/// Reads the tree. `None` only with a problem noted; with problems, the result is incomplete.
pub(crate) fn read(mut root: Node, problems: &mut Problems) -> Option<Devfile> {
    let variables = variables::read(&root, problems);
    variables::put_in(&mut root, &variables, problems);
    let mut fields = ValueAt::root(&root).fields(problems)?;
    read_schema_version(&mut fields, problems);
    let name = read_name(&mut fields, problems);
    fields.take("variables");
    if let Some(at) = fields.take("attributes") {
        attributes::check_root(&at, problems);
    }
    let declared = match fields.require("components", problems) {
        Some(at) => components::read(&at, problems),
        None => Declared::default(),
    };
    let commands = fields.take("commands").map(|at| commands::read(&at, &declared, problems)).unwrap_or_default();
    let events = fields.take("events").map(|at| events::read(&at, &commands, problems)).unwrap_or_default();
    fields.refuse(
        &[
            ("parent", "is not supported: a devfile has to say everything itself"),
            ("projects", "is not supported: a workspace is made for one project"),
            ("starterProjects", "is not supported: a workspace is made for one project"),
            ("dependentProjects", "is not supported: a workspace is made for one project"),
        ],
        problems,
    );
    fields.finish(problems);
    let commands = commands.found;
    Some(Devfile { name, components: declared.containers, volumes: declared.volumes, commands, events })
}

fn read_schema_version(fields: &mut MapFields<'_>, problems: &mut Problems) {
    let Some(at) = fields.require("schemaVersion", problems) else {
        return;
    };
    if let Some(version) = at.text(problems)
        && version != SCHEMA_VERSION
    {
        at.object(problems, format!("must be {SCHEMA_VERSION}, the version that is supported, not {}", show(version)));
    }
}

/// Reads the name out of the metadata; the rest of them is for other programs.
fn read_name(fields: &mut MapFields<'_>, problems: &mut Problems) -> Option<String> {
    let entries = fields.take("metadata")?.entries(problems)?;
    let (_, _, at) = entries.into_iter().find(|(key, ..)| *key == "name")?;
    names::shown(&at, problems)
}

#[cfg(test)]
mod tests;
