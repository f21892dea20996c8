//! `components`: containers and volumes.

use std::collections::BTreeMap;

use super::endpoints::Ports;
use super::mounts::Mounts;
use super::{Component, Volume, attributes, container, names};
use crate::document::{Location, Problems, Value, ValueAt, show};
use crate::syntax::{BadQuantity, Quantity};

/// Longest name of a volume, in characters: with the workspace's name before it, it must still be a valid name.
const VOLUME_NAME_MAX: usize = 27;

/// Types of components that the schema has and workspaces have not.
const OTHER_TYPES: [&str; 5] = ["kubernetes", "openshift", "image", "plugin", "custom"];

const OTHER_TYPE: &str = "is not supported: a component is a container or a volume";

/// Kind of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComponentKind {
    Container,
    Volume,
    /// It does not say, or says too much; the problem is noted.
    Unclear,
}

/// The components of a file, as others refer to them.
#[derive(Debug, Default)]
pub(super) struct Declared {
    pub(super) containers: Vec<Component>,
    pub(super) volumes: Vec<Volume>,
    /// Kind of the component with each name, also of components with problems.
    pub(super) kinds: BTreeMap<String, ComponentKind>,
    /// The main component's name.
    pub(super) main: Option<String>,
}

/// State gathered while the list is read, and compared at its end.
#[derive(Default)]
struct ComponentNames {
    declared: Declared,
    /// Place at which each name was met first.
    names: BTreeMap<String, Location>,
    ports: Ports,
    mounts: Mounts,
    /// Components that say they are the main one: name, path and place of the attribute.
    mains: Vec<(String, String, Location)>,
}

/// Reads the list.
pub(super) fn read(at: &ValueAt<'_>, problems: &mut Problems) -> Declared {
    let items = at.items(problems);
    let is_list = !items.is_empty();
    let mut seen = ComponentNames::default();
    for item in items {
        read_one(&item, &mut seen, problems);
    }
    let ComponentNames { mut declared, mounts, mains, .. } = seen;
    mounts.check(&declared.kinds, problems);
    match mains.split_first() {
        // A missing component is the only problem to report.
        None if is_list => at.object(
            problems,
            "exactly one container must have the attribute gateway/inject-editor: true, and none has; editor and \
             agent run there",
        ),
        None if matches!(at.node.value, Value::List(_)) => {
            at.object(problems, "must have at least one component");
        }
        None => {}
        Some(((name, _, first), others)) => {
            for (_, path, place) in others {
                let message = format!(
                    "only one container can be the main one, and {} is, on \
                     line {}",
                    show(name),
                    first.line
                );
                problems.add(path.clone(), Some(*place), message);
            }
            declared.main = Some(name.clone());
        }
    }
    declared
}

fn read_one(at: &ValueAt<'_>, seen: &mut ComponentNames, problems: &mut Problems) {
    let Some(mut fields) = at.fields(problems) else {
        return;
    };
    let name_at = fields.require("name", problems);
    let name = name_at.as_ref().and_then(|at| names::label(at, problems));
    let attributes = fields.take("attributes").map(|at| attributes::read(&at, problems)).unwrap_or_default();
    let container = fields.take("container");
    let volume = fields.take("volume");
    let refused = fields.refuse(&OTHER_TYPES.map(|name| (name, OTHER_TYPE)), problems);
    let kind = match (&container, &volume) {
        (Some(_), None) => ComponentKind::Container,
        (None, Some(_)) => ComponentKind::Volume,
        (Some(_), Some(_)) => {
            at.object(problems, "is a container and a volume: it can be one of them");
            ComponentKind::Unclear
        }
        (None, None) => {
            if refused == 0 {
                at.object(problems, "has no type: it must have a container or a volume");
            }
            ComponentKind::Unclear
        }
    };
    if let (Some(name), Some(name_at)) = (name, &name_at) {
        declare(name, kind, name_at, seen, problems);
    }
    let shown_name = name.unwrap_or_default();
    if let Some((path, place)) = &attributes.main {
        match kind {
            ComponentKind::Container | ComponentKind::Unclear => {
                seen.mains.push((shown_name.to_owned(), path.clone(), *place))
            }
            ComponentKind::Volume => {
                problems.add(path.clone(), Some(*place), "only a container can be the main component")
            }
        }
    }
    if let Some(at) = container {
        let told = container::ContainerHeader { name: shown_name, attributes: &attributes };
        let read = container::read(&at, &told, &mut seen.ports, &mut seen.mounts, problems);
        seen.declared.containers.extend(read);
    }
    if let Some(at) = volume {
        if let Some(name_at) = &name_at
            && shown_name.len() > VOLUME_NAME_MAX
        {
            name_at.object(problems, format!("a volume's name has at most {VOLUME_NAME_MAX} characters"));
        }
        seen.declared.volumes.extend(read_volume(&at, shown_name, problems));
    }
    fields.finish(problems);
}

fn declare(name: &str, kind: ComponentKind, at: &ValueAt<'_>, seen: &mut ComponentNames, problems: &mut Problems) {
    if let Some(first) = seen.names.get(name) {
        at.object(problems, format!("is the name of another component, on line {}", first.line));
        return;
    }
    seen.names.insert(name.to_owned(), at.node.place);
    seen.declared.kinds.insert(name.to_owned(), kind);
}

fn read_volume(at: &ValueAt<'_>, name: &str, problems: &mut Problems) -> Option<Volume> {
    let mut fields = at.fields(problems)?;
    let size = fields.take("size").and_then(|at| quantity(&at, problems)).map(|(text, amount, at)| {
        if amount < Quantity::ONE {
            at.object(problems, "must be at least one byte");
        }
        text
    });
    let ephemeral = fields.take("ephemeral").and_then(|at| at.boolean(problems)).unwrap_or(false);
    fields.finish(problems);
    Some(Volume { name: name.to_owned(), size, ephemeral })
}

/// Reads an amount: its text, its size, and its place.
pub(super) fn quantity<'n>(at: &ValueAt<'n>, problems: &mut Problems) -> Option<(String, Quantity, ValueAt<'n>)> {
    let text = at.text(problems)?;
    match text.parse() {
        Ok(amount) => Some((text.to_owned(), amount, at.clone())),
        Err(bad) => {
            let bad: BadQuantity = bad;
            at.object(problems, format!("{bad}; it is {}", show(text)));
            None
        }
    }
}
