//! Takes values of the expected types out of a tree, and notes those of other types.

use std::ops::RangeInclusive;

use super::{Location, Node, Problems, Value};

/// Longest part of a value or key that a problem repeats, in characters; more would bury the message.
const SHOWN_CHARS_MAX: usize = 60;

/// A value and its path.
#[derive(Clone, Debug)]
pub struct ValueAt<'n> {
    /// As `components[2].container`; empty for the whole file.
    pub path: String,
    /// The value.
    pub node: &'n Node,
}

impl<'n> ValueAt<'n> {
    /// Begins at the top of a file.
    #[must_use]
    pub fn root(node: &'n Node) -> Self {
        Self { path: String::new(), node }
    }

    /// Notes a problem of this value.
    pub fn object(&self, problems: &mut Problems, message: impl Into<String>) {
        problems.add(self.path.clone(), Some(self.node.place), message);
    }

    /// Reads a map with fixed keys.
    pub fn fields(&self, problems: &mut Problems) -> Option<MapFields<'n>> {
        let entries = self.entries(problems)?;
        let untaken = entries.into_iter().map(Some).collect();
        Some(MapFields { path: self.path.clone(), place: self.node.place, untaken, known: Vec::new() })
    }

    /// Reads a map with free keys: each key with its place and its value.
    pub fn entries(&self, problems: &mut Problems) -> Option<Vec<(&'n str, Location, Self)>> {
        let Value::Map(entries) = &self.node.value else {
            self.object(problems, format!("must be a map, not {}", self.node.value.kind()));
            return None;
        };
        let entry = |entry: &'n super::MapEntry| {
            (entry.key.as_str(), entry.place, ValueAt { path: push_key(&self.path, &entry.key), node: &entry.node })
        };
        Some(entries.iter().map(entry).collect())
    }

    /// Reads a list; anything else has no items.
    pub fn items(&self, problems: &mut Problems) -> Vec<Self> {
        let Value::List(nodes) = &self.node.value else {
            self.object(problems, format!("must be a list, not {}", self.node.value.kind()));
            return Vec::new();
        };
        let item = |(index, node)| ValueAt { path: push_index(&self.path, index), node };
        nodes.iter().enumerate().map(item).collect()
    }

    /// Reads text. Numbers and the like are refused: the author of `1.10` would get `1.1`.
    pub fn text(&self, problems: &mut Problems) -> Option<&'n str> {
        let message = match &self.node.value {
            Value::Text(text) => return Some(text),
            Value::Number(text) => format!("must be text, and {} is a number: put it in quotes", shorten(text)),
            Value::Bool(value) => format!("must be text, and {value} is none: put it in quotes"),
            Value::Null => "must be text; write \"\" for an empty one".to_owned(),
            Value::List(_) | Value::Map(_) => format!("must be text, not {}", self.node.value.kind()),
        };
        self.object(problems, message);
        None
    }

    /// Reads a list of texts.
    pub fn texts(&self, problems: &mut Problems) -> Vec<String> {
        let items = self.items(problems);
        items.iter().filter_map(|item| item.text(problems)).map(str::to_owned).collect()
    }

    /// Reads `true` or `false`.
    pub fn boolean(&self, problems: &mut Problems) -> Option<bool> {
        match &self.node.value {
            Value::Bool(value) => Some(*value),
            other @ (Value::Null | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Map(_)) => {
                self.object(problems, format!("must be true or false, not {}", other.kind()));
                None
            }
        }
    }

    /// Reads a whole number of a range.
    pub fn whole(&self, range: RangeInclusive<i64>, problems: &mut Problems) -> Option<i64> {
        let message = match &self.node.value {
            Value::Number(text) => match text.parse::<i64>() {
                Ok(number) if range.contains(&number) => return Some(number),
                Ok(_) | Err(_) => format!(", and is {}", shorten(text)),
            },
            other @ (Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_)) => {
                format!(", not {}", other.kind())
            }
        };
        let message = format!("must be a whole number from {} to {}{message}", range.start(), range.end());
        self.object(problems, message);
        None
    }
}

/// The fields of a map, taken one by one. Fields that are never taken are unknown.
#[derive(Debug)]
pub struct MapFields<'n> {
    /// The map's path.
    pub path: String,
    /// Place at which the map begins.
    pub place: Location,
    untaken: Vec<Option<(&'n str, Location, ValueAt<'n>)>>,
    known: Vec<&'static str>,
}

impl<'n> MapFields<'n> {
    /// Takes a field; one without a value counts as missing.
    pub fn take(&mut self, key: &'static str) -> Option<ValueAt<'n>> {
        self.known.push(key);
        let slot = self.untaken.iter_mut().find(|slot| slot.as_ref().is_some_and(|(name, ..)| *name == key))?;
        slot.take().map(|(_, _, at)| at).filter(|at| !matches!(at.node.value, Value::Null))
    }

    /// Takes a field that has to be there.
    pub fn require(&mut self, key: &'static str, problems: &mut Problems) -> Option<ValueAt<'n>> {
        let found = self.take(key);
        if found.is_none() {
            problems.add(push_key(&self.path, key), Some(self.place), "is missing");
        }
        found
    }

    /// Notes fields that have no place here but are there, with the reason. Returns their number.
    pub fn refuse(&mut self, keys: &[(&'static str, &str)], problems: &mut Problems) -> usize {
        let mut refused = 0;
        for (key, why) in keys {
            let is_it =
                |slot: &&mut Option<(&str, Location, ValueAt<'_>)>| slot.as_ref().is_some_and(|(name, ..)| name == key);
            if let Some((_, place, at)) = self.untaken.iter_mut().find(is_it).and_then(Option::take)
                && !matches!(at.node.value, Value::Null)
            {
                problems.add(at.path, Some(place), *why);
                refused += 1;
            }
        }
        refused
    }

    /// Ends the reading: notes the unknown fields.
    pub fn finish(self, problems: &mut Problems) {
        let known = self.known.join(", ");
        for (_, place, at) in self.untaken.into_iter().flatten() {
            problems.add(at.path, Some(place), format!("unknown key; known here: {known}"));
        }
    }
}

/// Returns the path of a key below `path`.
#[must_use]
pub fn push_key(path: &str, key: &str) -> String {
    let is_simple = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'/');
    let simple = !key.is_empty() && key.len() <= SHOWN_CHARS_MAX && key.bytes().all(is_simple);
    let key = if simple { key.to_owned() } else { show(key) };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// Returns the path of an item of `path`.
#[must_use]
pub fn push_index(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// Makes a text of the file fit for a message: in quotes, escaped, shortened.
#[must_use]
pub fn show(text: &str) -> String {
    format!("{:?}", shorten(text))
}

fn shorten(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
