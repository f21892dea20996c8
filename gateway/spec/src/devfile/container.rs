//! A component's `container`.

use std::collections::BTreeMap;

use super::attributes::Attributes;
use super::components::quantity;
use super::endpoints::{self, Ports};
use super::mounts::Mounts;
use super::{Component, names};
use crate::document::{Location, MapFields, Problems, ValueAt, show};
use crate::syntax::{Quantity, is_image, is_variable};

/// Fields that the schema has and workspaces have not.
const REFUSED: [(&str, &str); 4] = [
    ("dedicatedPod", "is not supported: all containers of a workspace are in one pod"),
    ("sourceMapping", "is not supported: the project is in /projects"),
    ("mountSources", "is not supported: the project is in each container"),
    ("annotation", "is not supported: annotations come from the cluster's configuration"),
];

/// Variables that each container gets.
const OWN_VARIABLES: [&str; 2] = ["PROJECTS_ROOT", "PROJECT_SOURCE"];

/// Name and attributes of the component.
pub(super) struct ContainerHeader<'t> {
    pub(super) name: &'t str,
    pub(super) attributes: &'t Attributes,
}

/// Request and limit of one resource.
struct Amounts {
    request: Option<String>,
    limit: Option<String>,
}

/// Reads a container. The result is complete only if no problem was noted.
pub(super) fn read(
    at: &ValueAt<'_>,
    told: &ContainerHeader<'_>,
    ports: &mut Ports,
    mounts: &mut Mounts,
    problems: &mut Problems,
) -> Option<Component> {
    let mut fields = at.fields(problems)?;
    let image = read_image(&mut fields, problems);
    let memory = read_amounts(&mut fields, ["memoryRequest", "memoryLimit"], true, problems);
    let cpu = read_amounts(&mut fields, ["cpuRequest", "cpuLimit"], false, problems);
    let env = fields.take("env").map(|at| read_env(&at, problems)).unwrap_or_default();
    let endpoints = fields.take("endpoints").map(|at| endpoints::read(&at, told.name, ports, problems));
    let volume_mounts = fields.take("volumeMounts").map(|at| mounts.read(&at, problems)).unwrap_or_default();
    let is_main = told.attributes.main.is_some();
    let override_command = told.attributes.override_command.unwrap_or(is_main);
    let command = read_words(&mut fields, "command", override_command, problems);
    let args = read_words(&mut fields, "args", override_command, problems);
    fields.refuse(&REFUSED, problems);
    fields.finish(problems);
    Some(Component {
        name: told.name.to_owned(),
        image,
        is_main,
        override_command,
        command,
        args,
        env,
        memory_request: memory.request,
        memory_limit: memory.limit,
        cpu_request: cpu.request,
        cpu_limit: cpu.limit,
        endpoints: endpoints.unwrap_or_default(),
        volume_mounts,
    })
}

fn read_image(fields: &mut MapFields<'_>, problems: &mut Problems) -> String {
    let Some(at) = fields.require("image", problems) else {
        return String::new();
    };
    let Some(image) = at.text(problems) else {
        return String::new();
    };
    if !is_image(image) {
        let message = "must be a reference to an image, such as registry.example.com/team/image:1.0";
        at.object(problems, format!("{message}; it is {}", show(image)));
    }
    image.to_owned()
}

/// Reads the request and the limit of one resource.
fn read_amounts(
    fields: &mut MapFields<'_>,
    keys: [&'static str; 2],
    is_memory: bool,
    problems: &mut Problems,
) -> Amounts {
    let mut read = |key: &'static str| {
        let (text, amount, at) = fields.take(key).and_then(|at| quantity(&at, problems))?;
        if is_memory && !amount.is_whole() {
            let message = "is not a whole number of bytes: m is a thousandth of one, M and Mi are millions";
            at.object(problems, format!("{message}; it is {}", show(&text)));
            return None;
        }
        Some((text, amount, at))
    };
    let [request_key, limit_key] = keys;
    let (request, limit) = (read(request_key), read(limit_key));
    if let (Some((_, request, at)), Some((text, limit, _))) = (&request, &limit)
        && request > limit
    {
        at.object(problems, format!("is more than {limit_key}, {text}"));
    }
    let text = |read: Option<(String, Quantity, ValueAt<'_>)>| read.map(|(text, ..)| text);
    Amounts { request: text(request), limit: text(limit) }
}

fn read_env(at: &ValueAt<'_>, problems: &mut Problems) -> Vec<(String, String)> {
    let mut seen: BTreeMap<&str, Location> = BTreeMap::new();
    let mut env = Vec::new();
    for item in at.items(problems) {
        let Some(mut fields) = item.fields(problems) else {
            continue;
        };
        let name_at = fields.require("name", problems);
        let value = fields.require("value", problems).and_then(|at| at.text(problems));
        fields.finish(problems);
        let Some((at, name)) = name_at.and_then(|at| at.text(problems).map(|name| (at, name))) else {
            continue;
        };
        if !names::refuse_reserved(name, &at, problems) {
            check_variable(name, &at, problems);
        }
        if let Some(first) = seen.get(name) {
            at.object(problems, format!("is set twice in this container; the first is on line {}", first.line));
            continue;
        }
        seen.insert(name, at.node.place);
        env.push((name.to_owned(), value.unwrap_or_default().to_owned()));
    }
    env
}

fn check_variable(name: &str, at: &ValueAt<'_>, problems: &mut Problems) {
    if OWN_VARIABLES.contains(&name) {
        at.object(problems, "is set by the gateway");
    } else if !is_variable(name) {
        let message = "must be the name of an environment variable: letters, digits and underscores, no digit first";
        at.object(problems, format!("{message}; it is {}", show(name)));
    }
}

/// Reads `command` or `args`, which only count if the entry point is not replaced.
fn read_words(fields: &mut MapFields<'_>, key: &'static str, overridden: bool, problems: &mut Problems) -> Vec<String> {
    let Some(at) = fields.take(key) else {
        return Vec::new();
    };
    let words = at.texts(problems);
    if overridden && !words.is_empty() {
        at.object(
            problems,
            "has no effect while overrideCommand is true, which it is for the main component unless set to false",
        );
    }
    words
}
