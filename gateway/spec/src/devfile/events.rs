//! `events`: the commands that run at each event.

use std::collections::{BTreeMap, BTreeSet};

use super::commands::Commands;
use super::{CommandKind, LifecycleEvents, names};
use crate::document::{Location, Problems, Value, ValueAt, show};

/// Events that the schema has and workspaces have not: nothing runs while a workspace goes away.
const REFUSED: [&str; 2] = ["preStop", "postStop"];

/// Reads the events.
pub(super) fn read(at: &ValueAt<'_>, commands: &Commands, problems: &mut Problems) -> LifecycleEvents {
    let Some(mut fields) = at.fields(problems) else {
        return LifecycleEvents::default();
    };
    let before = fields.take("preStart").map(|at| read_list(&at, commands, problems)).unwrap_or_default();
    let after = fields.take("postStart").map(|at| read_list(&at, commands, problems)).unwrap_or_default();
    for key in REFUSED {
        if let Some(at) = fields.take(key)
            && at.node.value != Value::List(Vec::new())
        {
            at.object(problems, "is not supported: only preStart and postStart are");
        }
    }
    fields.finish(problems);
    let mut applied = BTreeSet::new();
    for entry in &before {
        match &entry.kind {
            CommandKind::Exec { .. } => {
                entry.object(problems, "is an exec: only apply commands can run before the start")
            }
            CommandKind::Apply { component, .. } if commands.main.as_ref() == Some(component) => {
                entry.object(problems, "applies the main component, which cannot end before the start");
            }
            CommandKind::Apply { component, .. } => {
                applied.insert(component.as_str());
            }
        }
    }
    for entry in &after {
        match &entry.kind {
            CommandKind::Apply { .. } => {
                entry.object(problems, "is an apply: only exec commands can run after the start")
            }
            CommandKind::Exec { component, .. } if applied.contains(component.as_str()) => {
                entry.object(problems, "runs in a container that preStart applies, which has ended by then");
            }
            CommandKind::Exec { .. } => {}
        }
    }
    let ids = |entries: Vec<EventCommand<'_>>| entries.into_iter().map(|entry| entry.id.to_owned()).collect();
    LifecycleEvents { pre_start: ids(before), post_start: ids(after) }
}

/// A command that an event names.
struct EventCommand<'n> {
    at: ValueAt<'n>,
    id: &'n str,
    kind: CommandKind,
}

impl EventCommand<'_> {
    fn object(&self, problems: &mut Problems, message: &str) {
        self.at.object(problems, format!("{} {message}", show(self.id)));
    }
}

/// Reads the commands of one event, without those that have problems.
fn read_list<'n>(at: &ValueAt<'n>, commands: &Commands, problems: &mut Problems) -> Vec<EventCommand<'n>> {
    let mut seen: BTreeMap<&str, Location> = BTreeMap::new();
    let mut entries = Vec::new();
    for item in at.items(problems) {
        let Some(id) = item.text(problems) else {
            continue;
        };
        if names::refuse_reserved(id, &item, problems) {
            continue;
        }
        if let Some(first) = seen.get(id) {
            item.object(problems, format!("{} is there twice; the first is on line {}", show(id), first.line));
            continue;
        }
        seen.insert(id, item.node.place);
        match commands.ids.get(id) {
            Some(Some(kind)) => entries.push(EventCommand { at: item, id, kind: kind.clone() }),
            // Its problem is reported at its definition.
            Some(None) => {}
            None => item.object(problems, format!("no command has the id {}", show(id))),
        }
    }
    entries
}
