//! Builds a tree from the parser's events: one loop, no recursion, and a budget for the copies of anchors and aliases.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, StrInput, Tag, options};

use super::read::{push_index, push_key, show};
use super::{DEPTH_MAX, Dialect, Location, MapEntry, Node, Problems, VALUES_MAX, Value, show_size};

/// A key of this name, without quotes, puts the keys of other maps into its own (the YAML 1.1 type "merge").
const MERGE: &str = "<<";

/// Reads a text. Anchors and aliases may copy `copied_max` bytes of it.
pub(super) fn build(text: &str, copied_max: usize, dialect: &dyn Dialect, problems: &mut Problems) -> Option<Node> {
    let mut builder = Builder {
        problems,
        dialect,
        stack: Vec::new(),
        anchors: BTreeMap::new(),
        root: None,
        documents: 0,
        values: 0,
        copied_bytes: 0,
        copied_max,
    };
    let parser =
        Parser::with_options(StrInput::new(text), options! { emit_comments: false, emit_unresolved_aliases: true });
    for item in parser {
        let step = match item {
            Ok((event, span)) => builder.take(&event, dialect.place(place_of(&span.start))),
            Err(error) => builder.give_up(&error),
        };
        match step {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(Stop::Bad) => return None,
            ControlFlow::Break(Stop::Enough) => break,
        }
    }
    Some(builder.root.unwrap_or(Node { place: Location::START, value: Value::Null }))
}

fn place_of(marker: &Marker) -> Location {
    Location::new(marker.line(), marker.col() + 1)
}

/// Reason why no more events are taken.
enum Stop {
    /// There is no tree.
    Bad,
    /// The tree is complete.
    Enough,
}

type BuildStep = ControlFlow<Stop>;

/// Size of a value, with all that is in it.
#[derive(Clone, Copy, Default)]
struct Weight {
    values: usize,
    bytes: usize,
    /// Levels of lists and maps.
    height: usize,
}

/// A list or map whose end has not come.
struct OpenCollection {
    place: Location,
    anchor: usize,
    weight: Weight,
    inside: Inside,
}

enum Inside {
    List(Vec<Node>),
    Map {
        entries: Vec<MapEntry>,
        /// Place at which each key was met first.
        seen: BTreeMap<String, Location>,
        /// The key whose value comes next.
        key: Option<MapKey>,
        /// Values of `<<`.
        merged: Vec<Node>,
    },
}

enum MapKey {
    Named(String, Location),
    Merge,
    /// One that cannot be a key, or was there before; the problem is noted.
    Dropped,
}

struct Builder<'p> {
    problems: &'p mut Problems,
    dialect: &'p dyn Dialect,
    stack: Vec<OpenCollection>,
    /// By the parser's number; `None` until the value's end.
    anchors: BTreeMap<usize, Option<(Node, Weight)>>,
    root: Option<Node>,
    documents: usize,
    values: usize,
    copied_bytes: usize,
    copied_max: usize,
}

impl Builder<'_> {
    #[allow(clippy::wildcard_enum_match_arm, reason = "comments are there only if another caller turns them on")]
    fn take(&mut self, event: &Event<'_>, place: Location) -> BuildStep {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    self.problems.add("", Some(place), "the file holds more than one YAML document");
                    return BuildStep::Break(Stop::Enough);
                }
                BuildStep::Continue(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = matches!(style, ScalarStyle::Plain) && tag.is_none();
                let value = self.scalar(text, matches!(style, ScalarStyle::Plain), tag.as_deref(), place);
                self.count(1, place)?;
                let weight = Weight { values: 1, bytes: text.len(), height: 0 };
                self.close(Node { place, value }, weight, *anchor, plain)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), "seq", place);
                self.open(place, *anchor, Inside::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), "map", place);
                let (entries, seen) = (Vec::new(), BTreeMap::new());
                self.open(place, *anchor, Inside::Map { entries, seen, key: None, merged: Vec::new() })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.repeat(*anchor, place),
            Event::UnresolvedAlias(name) => {
                self.object(place, format!("repeats the anchor {}, which is not there before it", show(name)));
                self.put(Node { place, value: Value::Null }, Weight::default(), false)
            }
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Anchor(..) => BuildStep::Continue(()),
            // Comments, and other events of later parsers.
            _ => BuildStep::Continue(()),
        }
    }

    fn give_up(&mut self, error: &ScanError) -> BuildStep {
        let place = self.dialect.place(place_of(error.marker()));
        if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
            return self.too_deep(place);
        }
        self.object(place, format!("is not YAML: {}", error.info()));
        BuildStep::Break(Stop::Bad)
    }

    fn too_deep(&mut self, place: Location) -> BuildStep {
        self.problems.add("", Some(place), format!("lists and maps nest deeper than {DEPTH_MAX} levels"));
        BuildStep::Break(Stop::Bad)
    }

    /// Adds to the number of values.
    fn count(&mut self, values: usize, place: Location) -> BuildStep {
        self.values = self.values.saturating_add(values);
        if self.values <= VALUES_MAX {
            return BuildStep::Continue(());
        }
        let message = format!("the file has more than {VALUES_MAX} values, counting what its aliases repeat");
        self.problems.add("", Some(place), message);
        BuildStep::Break(Stop::Bad)
    }

    /// Adds to the bytes that were copied for anchors and aliases.
    fn count_copied(&mut self, bytes: usize, place: Location) -> BuildStep {
        self.copied_bytes = self.copied_bytes.saturating_add(bytes);
        if self.copied_bytes <= self.copied_max {
            return BuildStep::Continue(());
        }
        let message = format!("the file's anchors and aliases repeat more than {}", show_size(self.copied_max));
        self.problems.add("", Some(place), message);
        BuildStep::Break(Stop::Bad)
    }

    fn open(&mut self, place: Location, anchor: usize, inside: Inside) -> BuildStep {
        if self.stack.len() >= DEPTH_MAX {
            return self.too_deep(place);
        }
        self.count(1, place)?;
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
        let weight = Weight { values: 1, bytes: 0, height: 1 };
        self.stack.push(OpenCollection { place, anchor, weight, inside });
        BuildStep::Continue(())
    }

    fn end(&mut self) -> BuildStep {
        let Some(open) = self.stack.pop() else {
            return BuildStep::Continue(());
        };
        let value = match open.inside {
            Inside::List(nodes) => Value::List(nodes),
            Inside::Map { mut entries, mut seen, merged, .. } => {
                for node in merged {
                    self.merge(node, &mut entries, &mut seen);
                }
                Value::Map(entries)
            }
        };
        self.close(Node { place: open.place, value }, open.weight, open.anchor, false)
    }

    fn repeat(&mut self, anchor: usize, place: Location) -> BuildStep {
        let Some(Some((node, weight))) = self.anchors.get(&anchor) else {
            self.object(place, "an alias stands inside of what it repeats");
            return self.put(Node { place, value: Value::Null }, Weight::default(), false);
        };
        let (node, weight) = (node.clone(), *weight);
        if self.stack.len() + weight.height > DEPTH_MAX {
            return self.too_deep(place);
        }
        self.count(weight.values, place)?;
        self.count_copied(weight.bytes, place)?;
        self.put(node, weight, false)
    }

    /// Puts a complete value into its parent, and keeps a copy if it has an anchor.
    fn close(&mut self, node: Node, weight: Weight, anchor: usize, plain: bool) -> BuildStep {
        if anchor != 0 {
            self.count(weight.values, node.place)?;
            self.count_copied(weight.bytes, node.place)?;
            self.anchors.insert(anchor, Some((node.clone(), weight)));
        }
        self.put(node, weight, plain)
    }

    fn put(&mut self, node: Node, weight: Weight, plain: bool) -> BuildStep {
        let Some(open) = self.stack.last_mut() else {
            self.root = Some(node);
            return BuildStep::Continue(());
        };
        open.weight.values = open.weight.values.saturating_add(weight.values);
        open.weight.bytes = open.weight.bytes.saturating_add(weight.bytes);
        open.weight.height = open.weight.height.max(weight.height + 1);
        match &mut open.inside {
            Inside::List(nodes) => nodes.push(node),
            Inside::Map { entries, merged, key, .. } => match key.take() {
                None => self.take_key(node, plain),
                Some(MapKey::Named(key, place)) => entries.push(MapEntry { key, place, node }),
                Some(MapKey::Merge) => merged.push(node),
                Some(MapKey::Dropped) => {}
            },
        }
        BuildStep::Continue(())
    }

    fn take_key(&mut self, node: Node, plain: bool) {
        let text = match node.value {
            Value::Text(text) | Value::Number(text) => Some(text),
            Value::Bool(value) => Some(value.to_string()),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        };
        let path = self.path();
        let Some(OpenCollection { inside: Inside::Map { seen, key, .. }, .. }) = self.stack.last_mut() else {
            return;
        };
        let Some(text) = text else {
            self.problems.add(path, Some(node.place), "a key must be text");
            *key = Some(MapKey::Dropped);
            return;
        };
        if plain && text == MERGE {
            *key = Some(MapKey::Merge);
            return;
        }
        if let Some(first) = seen.get(&text) {
            let message = format!("is there twice; the first is on line {}", first.line);
            self.problems.add(push_key(&path, &text), Some(node.place), message);
            *key = Some(MapKey::Dropped);
            return;
        }
        seen.insert(text.clone(), node.place);
        *key = Some(MapKey::Named(text, node.place));
    }

    /// Adds the keys of another map that are not there; of several, the first counts.
    fn merge(&mut self, node: Node, entries: &mut Vec<MapEntry>, seen: &mut BTreeMap<String, Location>) {
        let place = node.place;
        match node.value {
            Value::Map(others) => {
                for other in others {
                    if !seen.contains_key(&other.key) {
                        seen.insert(other.key.clone(), other.place);
                        entries.push(other);
                    }
                }
            }
            Value::List(nodes) if nodes.iter().all(|node| matches!(node.value, Value::Map(_))) => {
                for node in nodes {
                    self.merge(node, entries, seen);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => {
                let path = push_key(&self.path(), MERGE);
                self.problems.add(path, Some(place), "takes a map or a list of maps");
            }
        }
    }

    /// Returns the value of a scalar, by its tag if it has one.
    fn scalar(&mut self, text: &str, plain: bool, tag: Option<&Tag>, place: Location) -> Value {
        if text.contains('\0') {
            self.object(place, "holds U+0000, which no argument, file name or variable can hold");
        }
        let as_text = || Value::Text(text.to_owned());
        let Some(tag) = tag else {
            return if plain { self.dialect.plain(text) } else { as_text() };
        };
        if is_unspecific(tag) {
            return as_text();
        }
        let value = self.dialect.plain(text);
        match (tag.core_suffix(), &value) {
            (Some("str"), _) => as_text(),
            (Some("null"), Value::Null) | (Some("bool"), Value::Bool(_)) => value,
            (Some("int" | "float"), Value::Number(_)) => value,
            (Some(_), _) => {
                self.object(place, format!("is not what its tag {} says", show(&tag.to_string())));
                as_text()
            }
            (None, _) => {
                self.refuse_tag(tag, place);
                as_text()
            }
        }
    }

    fn check_tag(&mut self, tag: Option<&Tag>, expected: &str, place: Location) {
        match tag {
            Some(tag) if !is_unspecific(tag) && tag.core_suffix() != Some(expected) => self.refuse_tag(tag, place),
            Some(_) | None => {}
        }
    }

    fn refuse_tag(&mut self, tag: &Tag, place: Location) {
        self.object(place, format!("has the tag {}, which is not known", show(&tag.to_string())));
    }

    /// Notes a problem of the value that comes next.
    fn object(&mut self, place: Location, message: impl Into<String>) {
        let path = self.path();
        self.problems.add(path, Some(place), message);
    }

    /// Returns the path of the value that comes next.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.stack {
            path = match &open.inside {
                Inside::List(nodes) => push_index(&path, nodes.len()),
                Inside::Map { key: Some(MapKey::Named(key, _)), .. } => push_key(&path, key),
                Inside::Map { key: Some(MapKey::Merge), .. } => push_key(&path, MERGE),
                Inside::Map { key: Some(MapKey::Dropped) | None, .. } => path,
            };
        }
        path
    }
}

/// Returns whether a tag is `!`, which says "text" of a scalar and nothing of anything else.
fn is_unspecific(tag: &Tag) -> bool {
    let (handle, suffix) = tag.parts();
    matches!((handle, suffix), ("!", "") | ("", "!"))
}
