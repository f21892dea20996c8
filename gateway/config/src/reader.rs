//! Hands out the raw values one by one and collects all their problems.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::keys::Key;
use super::problem::{BadConfig, ConfigProblem, ValueOrigin};
use super::source::{self, Layers, Raw, variable_of};
use super::{EffectiveRow, Origin};
use gateway_types::Secret;

/// Longest unknown key for which a near miss is searched, in characters; the search is quadratic.
const SUGGEST_CHARS_MAX: usize = 64;

/// A dotted key: most are fixed, those inside lists have the number of their entry in them.
pub(super) type DottedKey = Cow<'static, str>;

/// One of two keys that contradict each other.
#[derive(Clone, Copy)]
pub(super) struct ContradictedKey<'a> {
    pub(super) key: &'static str,
    /// Relation to the other key that it must not, or does, have.
    pub(super) wrong: &'a str,
}

/// The layers while they are being read.
///
/// Every `take` answers with a usable value, so that reading goes on; a bad one is replaced by the default and noted.
pub(super) struct Reader {
    layers: Layers,
    /// Place of every key that was asked for.
    places: BTreeMap<DottedKey, ValueOrigin>,
    /// Keys with a noted problem.
    unsound: BTreeSet<DottedKey>,
    /// Lists, and tables whose keys are free, that were asked for.
    lists: BTreeSet<DottedKey>,
    rows: Vec<EffectiveRow>,
}

impl Reader {
    pub(super) fn new(layers: Layers) -> Self {
        Self { layers, places: BTreeMap::new(), unsound: BTreeSet::new(), lists: BTreeSet::new(), rows: Vec::new() }
    }

    /// Reads a key as it is declared.
    pub(super) fn take<T, R>(&mut self, key: &Key<T, R>) -> R {
        (key.take)(self, key)
    }

    /// Reads a key that has this value while no layer sets it.
    pub(super) fn take_or<T, R>(&mut self, key: &Key<T, R>, default: T) -> T {
        let value = self.read(key).unwrap_or(default);
        let value = self.anchor(key, value);
        self.add_row(key, Some(&value));
        value
    }

    /// Reads a key that may have no value.
    pub(super) fn take_optional<T, R>(&mut self, key: &Key<T, R>) -> Option<T> {
        let value = self.read(key).map(|value| self.anchor(key, value));
        self.add_row(key, value.as_ref());
        value
    }

    /// Reads a key that has no default. `None` is a noted problem.
    pub(super) fn take_required<T, R>(&mut self, key: &Key<T, R>) -> Option<T> {
        let value = self.take_optional(key);
        if value.is_none() && self.is_sound(&[&key.name]) {
            let entry = key.name.rsplit_once('.').and_then(|(entry, _)| self.layers.entries.get(entry));
            let place = entry.cloned().unwrap_or(ValueOrigin::Default);
            self.refuse(key, place, "is missing".to_owned(), None);
        }
        value
    }

    /// Lets relative paths start at a folder: that of the file, for values in it and for defaults. Those of variables
    /// and flags start at the working directory, in which they were typed.
    fn anchor<T, R>(&self, key: &Key<T, R>, value: T) -> T {
        let is_of_file = matches!(self.places.get(&key.name), Some(ValueOrigin::Default | ValueOrigin::File { .. }));
        match (key.kind.anchor, self.folder()) {
            (Some(anchor), Some(folder)) if is_of_file => anchor(value, &folder),
            (_, _) => value,
        }
    }

    /// Returns the folder of the file that was read; `None` if that is the working directory, or no file was read.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        let folder = self.layers.file.as_deref()?.parent()?;
        (!folder.as_os_str().is_empty()).then(|| folder.to_owned())
    }

    /// Reads a list of tables (`[[key]]` in the file): `read` gets the key of each one, a prefix of its own keys.
    pub(super) fn tables<T>(
        &mut self,
        key: impl Into<DottedKey>,
        mut read: impl FnMut(&mut Self, &str) -> Option<T>,
    ) -> Vec<T> {
        let key = key.into();
        let count = self.layers.lists.get(&*key).map_or(0, |list| list.tables);
        self.lists.insert(key.clone());
        (0..count).filter_map(|index| read(self, &format!("{key}[{index}]"))).collect()
    }

    /// Tells whether the file has no entry in a list.
    pub(super) fn is_empty_list(&self, key: &str) -> bool {
        self.layers.lists.get(key).is_none_or(|list| list.tables == 0)
    }

    /// Reads the table with free names in an entry of a list, of which a key stands for each. Returns them with their
    /// values, in the order of their names.
    pub(super) fn table<R>(&mut self, each: &Key<String, R>, entry: &str) -> Vec<(String, String)> {
        let key = each.collection_at(entry);
        let inside = |name: &String| name.strip_prefix(&key).is_some_and(|rest| rest.starts_with('.'));
        let found: Vec<(String, Raw)> =
            self.layers.values.iter().filter(|(name, _)| inside(name)).map(|(k, v)| (k.clone(), v.clone())).collect();
        self.lists.insert(key.clone().into());
        let mut read = Vec::new();
        for (full, raw) in found {
            let name = source::unquoted(full.get(key.len() + 1..).unwrap_or_default());
            self.places.insert(full.clone().into(), raw.place);
            self.push_row(full.clone().into(), Some(raw.text.clone()), each.kind.accepted);
            match name {
                Some(name) => read.push((name, raw.text)),
                None => self.object(full, "is more than one name; put quotes around a name with dots"),
            }
        }
        read
    }

    /// Returns the names of the sections that are set inside a section, in their order.
    pub(super) fn sections(&self, key: &str) -> Vec<String> {
        let inside = |full: &str| Some(full.strip_prefix(key)?.strip_prefix('.')?.to_owned());
        let given = self.layers.values.keys().chain(self.layers.lists.keys());
        // Up to the next dot that is not inside quotes.
        let with_keys = given.filter_map(|full| inside(full)).filter_map(|rest| {
            let end = if rest.starts_with('"') { rest.find("\".")? + 1 } else { rest.find('.')? };
            rest.get(..end).map(str::to_owned)
        });
        let empty = self.layers.empty_sections.iter().filter_map(|(full, _)| inside(full));
        let names: BTreeSet<String> = with_keys.chain(empty).collect();
        names.into_iter().collect()
    }

    /// Returns whether a layer has a value of a key, read or not.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.layers.values.contains_key(key)
    }

    /// Returns whether a layer set a key that was read.
    fn is_set(&self, key: &str) -> bool {
        self.places.get(key).is_some_and(|place| *place != ValueOrigin::Default)
    }

    /// Returns whether a key that was read stands in the file.
    pub(super) fn is_in_file(&self, key: &str) -> bool {
        self.places.get(key).is_some_and(|place| place.origin() == Origin::File)
    }

    /// Notes a problem of a key whose text is well-formed.
    pub(super) fn object(&mut self, key: impl Into<DottedKey>, wrong: impl Into<String>) {
        let key = key.into();
        self.unsound.insert(key.clone());
        let of_list = || self.layers.lists.get(&*key).map(|list| &list.place);
        let place = self.places.get(&*key).or_else(|| self.layers.entries.get(&*key)).or_else(of_list).cloned();
        let mut problem = ConfigProblem::of_key(place.unwrap_or(ValueOrigin::Default), key.clone(), wrong);
        let shown = self.rows.iter().find(|row| row.key == key).and_then(|row| row.value.as_deref());
        let raw = self.layers.values.get(&*key).map(|raw| raw.text.as_str());
        if let Some(value) = shown.or(raw) {
            problem = problem.showing(value);
        }
        self.layers.problems.push(problem);
    }

    /// Notes the same problem of each of some keys that has a value.
    pub(super) fn object_to_set(&mut self, keys: &[&DottedKey], wrong: &str) {
        for key in keys {
            if self.is_set(key) && self.is_sound(&[key]) {
                self.object((*key).clone(), wrong);
            }
        }
    }

    /// Notes that two keys contradict each other, at the one that was set: a default has no line to look up.
    pub(super) fn object_to_pair(&mut self, one: ContradictedKey<'_>, other: ContradictedKey<'_>) {
        let is_default = |key: &str| self.places.get(key).is_none_or(|place| *place == ValueOrigin::Default);
        let (at, against) = if is_default(one.key) && !is_default(other.key) { (other, one) } else { (one, other) };
        let shown = self.rows.iter().find(|row| row.key == against.key).and_then(|row| row.value.as_deref());
        let wrong = format!("{} {} = {:?}", at.wrong, against.key, shown.unwrap_or_default());
        self.object(at.key, wrong);
    }

    /// Tells whether none of the keys has a problem, so that comparing them makes sense.
    pub(super) fn is_sound(&self, keys: &[&str]) -> bool {
        !keys.iter().any(|key| self.unsound.contains(*key))
    }

    /// Ends the reading: keys that were never asked for are unknown.
    pub(super) fn finish(mut self) -> Result<Vec<EffectiveRow>, BadConfig> {
        let mut problems = std::mem::take(&mut self.layers.problems);
        let known: Vec<&str> = self.places.keys().map(|key| &**key).collect();
        let is_unknown_list = |key: &str| self.layers.lists.contains_key(key) && !self.lists.contains(key);
        for (key, raw) in &self.layers.values {
            // One message is enough for an unknown list; it comes below.
            if !known.contains(&key.as_str()) && !is_in_list(key, is_unknown_list) {
                problems.push(match self.lists.contains(key.as_str()) {
                    true => {
                        ConfigProblem::of_key(raw.place.clone(), show_key(key), format!("is a list: write [[{key}]]"))
                    }
                    false => unknown(key, &raw.place, &known),
                });
            }
        }
        for (key, list) in &self.layers.lists {
            if known.contains(&key.as_str()) {
                problems.push(ConfigProblem::of_key(
                    list.place.clone(),
                    show_key(key),
                    "is a list, and takes one value",
                ));
            } else if is_unknown_list(key) && !is_in_list(key, is_unknown_list) {
                problems.push(unknown(key, &list.place, &known));
            }
        }
        for (section, place) in &self.layers.empty_sections {
            if !is_section(section, &known) && !self.lists.contains(section.as_str()) {
                problems.push(unknown(section, place, &known));
            }
        }
        if !problems.is_empty() {
            return Err(BadConfig { problems });
        }
        // As a TOML file has them: single keys, then sections, then lists, each list after what is beside it.
        self.rows.sort_by_key(|row| (row.key.contains('['), row.key.contains('.')));
        Ok(self.rows)
    }

    /// Reads a value, and checks its bounds.
    fn read<T, R>(&mut self, key: &Key<T, R>) -> Option<T> {
        let Some(Raw { text, place }) = self.layers.values.get(&*key.name).cloned() else {
            self.places.insert(key.name.clone(), ValueOrigin::Default);
            return None;
        };
        self.places.insert(key.name.clone(), place.clone());
        match (key.kind.parse)(&text) {
            Ok(value) => match (key.outside)(&value) {
                None => Some(value),
                Some(bounds) => {
                    let [least, most] = [bounds.start(), bounds.end()].map(key.kind.show);
                    self.object(key, format!("must be from {least} to {most}"));
                    None
                }
            },
            Err(wrong) => {
                self.refuse(key, place, wrong, (!key.kind.secret).then_some(&*text));
                None
            }
        }
    }

    /// Notes a problem of a value that has no meaning, or is not there.
    fn refuse<T, R>(&mut self, key: &Key<T, R>, place: ValueOrigin, wrong: String, shown: Option<&str>) {
        let mut problem = ConfigProblem::of_key(place, key.name.clone(), wrong);
        problem.accepted = Some(key.kind.accepted);
        self.layers.problems.push(match shown {
            Some(value) => problem.showing(value),
            None => problem,
        });
        self.unsound.insert(key.name.clone());
    }

    fn add_row<T, R>(&mut self, key: &Key<T, R>, value: Option<&T>) {
        let shown = |value| if key.kind.secret { Secret::MASK.to_owned() } else { (key.kind.show)(value) };
        self.push_row(key.name.clone(), value.map(shown), key.kind.accepted);
    }

    fn push_row(&mut self, key: DottedKey, value: Option<String>, accepted: &'static str) {
        let place = self.places.get(&key).cloned().unwrap_or(ValueOrigin::Default);
        self.rows.push(EffectiveRow { key, value, origin: place.origin(), place, accepted });
    }
}

/// Tells whether keys are known below `section`.
fn is_section(section: &str, known: &[&str]) -> bool {
    known.iter().any(|key| is_below(key, section))
}

/// Tells whether a key is inside an entry of a list for which `is_meant` holds.
fn is_in_list(key: &str, is_meant: impl Fn(&str) -> bool) -> bool {
    key.match_indices('[').any(|(at, _)| key.get(..at).is_some_and(&is_meant))
}

fn is_below(key: &str, section: &str) -> bool {
    key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
}

/// Describes an unknown key; its value is not shown, since it may be a secret of another program.
fn unknown(key: &str, place: &ValueOrigin, known: &[&str]) -> ConfigProblem {
    let spelt = |key: &str| match place {
        ValueOrigin::Environment { .. } => variable_of(key),
        ValueOrigin::Default | ValueOrigin::File { .. } | ValueOrigin::Flag { .. } => key.to_owned(),
    };
    let wrong = if is_section(key, known) {
        let inside: Vec<String> = known.iter().filter(|name| is_below(name, key)).map(|name| spelt(name)).collect();
        format!("is a section, not a key; it has {}", inside.join(", "))
    } else {
        match nearest(key, known) {
            Some(near) => format!("unknown key; did you mean {}?", spelt(near)),
            None => "unknown key".to_owned(),
        }
    };
    ConfigProblem::of_key(place.clone(), show_key(key), wrong)
}

/// Makes a key that a user typed fit for one line.
fn show_key(key: &str) -> String {
    let printable = |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    key.chars().take(SUGGEST_CHARS_MAX).map(printable).collect()
}

/// Returns the known key that is a few typing slips away, or has the same last word.
fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    if key.chars().count() > SUGGEST_CHARS_MAX {
        return None;
    }
    let folded = key.to_ascii_lowercase().replace('-', "_");
    let close = known.iter().map(|name| (slips(&folded, name), *name)).min()?;
    if close.0 <= 2.max(folded.len() / 6) {
        return Some(close.1);
    }
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let mut same = known.iter().filter(|name| last(name) == last(&folded));
    match (same.next(), same.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// Counts the insertions, deletions and replacements from one text to the other (Levenshtein distance).
fn slips(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, from_char) in from.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        let mut left = index + 1;
        next.push(left);
        for (to_char, above) in to.iter().zip(row.windows(2)) {
            let [diagonal, up] = above else { continue };
            left = (left + 1).min(up + 1).min(diagonal + usize::from(from_char != *to_char));
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::value::ValueKind;
    use super::*;

    const TOKEN: ValueKind<Secret> = ValueKind::new(
        "a token",
        |text| if text.len() > 3 { Ok(Secret::new(text.to_owned())) } else { Err("too short".to_owned()) },
        |secret| secret.reveal().to_owned(),
    )
    .secret();

    fn key() -> Key<Secret, Option<Secret>> {
        Key { name: "token".into(), kind: &TOKEN, outside: |_| None, take: Reader::take_optional }
    }

    fn reader_with(key: &str, text: &str) -> Reader {
        let mut layers = Layers::default();
        layers.values.insert(key.to_owned(), Raw { text: text.to_owned(), place: ValueOrigin::Default });
        Reader::new(layers)
    }

    #[test]
    fn secret_is_masked_in_rows() {
        let mut reader = reader_with("token", "hunter2");
        assert_eq!(reader.take(&key()).unwrap().reveal(), "hunter2");
        assert_eq!(reader.finish().unwrap()[0].value.as_deref(), Some(Secret::MASK));
    }

    #[test]
    fn secret_is_absent_from_problems() {
        let mut reader = reader_with("token", "abc");
        assert_eq!(reader.take(&key()), None);
        assert_eq!(reader.finish().unwrap_err().to_string(), "default: token: too short; accepted: a token");
    }

    #[test]
    fn slips_counts_edits() {
        for (from, to, count) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("zone", "zone", 0)]
        {
            assert_eq!(slips(from, to), count, "{from} {to}");
        }
    }
}
