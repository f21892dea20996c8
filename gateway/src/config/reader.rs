//! Hands out the raw values one by one and collects everything that is wrong with them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::problem::{BadConfig, Place, Problem};
use super::source::{Layers, Raw, variable_of};
use super::value::{Kind, Secret};
use super::{EffectiveRow, Origin};

/// Longest unknown key for which a near miss is searched, in characters; the search is quadratic.
const SUGGEST_CHARS_MAX: usize = 64;

/// Keys and sections that the design has and this version has not: a person who set one did not mistype.
const NOT_YET: [&str; 4] = ["agents_dir", "directory", "listen.peers", "tls.peers"];

/// The layers while they are being read.
///
/// Every `take` answers with a usable value, so that reading goes on; a bad one is replaced by the default and noted.
pub(super) struct Reader {
    layers: Layers,
    /// Place of every key that was asked for.
    places: BTreeMap<&'static str, Place>,
    /// Keys with a noted problem.
    unsound: BTreeSet<&'static str>,
    rows: Vec<EffectiveRow>,
}

impl Reader {
    pub(super) fn new(layers: Layers) -> Self {
        Self { layers, places: BTreeMap::new(), unsound: BTreeSet::new(), rows: Vec::new() }
    }

    /// Reads a key that always has a value.
    pub(super) fn take<T>(&mut self, key: &'static str, default: T, kind: &Kind<T>) -> T {
        let value = self.read(key, kind).unwrap_or(default);
        self.add_row(key, Some((kind.show)(&value)), kind.secret);
        value
    }

    /// Reads a key whose value must lie in a range.
    pub(super) fn take_within<T: PartialOrd>(
        &mut self,
        key: &'static str,
        default: T,
        range: RangeInclusive<T>,
        kind: &Kind<T>,
    ) -> T {
        let mut value = self.read(key, kind);
        if value.as_ref().is_some_and(|value| !range.contains(value)) {
            let (least, most) = ((kind.show)(range.start()), (kind.show)(range.end()));
            self.object(key, format!("must be from {least} to {most}"));
            value = None;
        }
        let value = value.unwrap_or(default);
        self.add_row(key, Some((kind.show)(&value)), kind.secret);
        value
    }

    /// Reads a key that may have no value.
    pub(super) fn take_optional<T>(&mut self, key: &'static str, kind: &Kind<T>) -> Option<T> {
        let value = self.read(key, kind);
        self.add_row(key, value.as_ref().map(kind.show), kind.secret);
        value
    }

    /// Returns whether somebody set a key that was read.
    pub(super) fn is_set(&self, key: &str) -> bool {
        self.places.get(key).is_some_and(|place| *place != Place::Default)
    }

    /// Returns whether a key that was read stands in the file.
    pub(super) fn is_in_file(&self, key: &str) -> bool {
        self.places.get(key).is_some_and(|place| place.origin() == Origin::File)
    }

    /// Notes a problem of a key whose text is well-formed.
    pub(super) fn object(&mut self, key: &'static str, wrong: impl Into<String>) {
        self.unsound.insert(key);
        let place = self.places.get(key).cloned().unwrap_or(Place::Default);
        let mut problem = Problem::of_key(place, key, wrong);
        let shown = self.rows.iter().find(|row| row.key == key).and_then(|row| row.value.as_deref());
        let raw = self.layers.values.get(key).map(|raw| raw.text.as_str());
        if let Some(value) = shown.or(raw) {
            problem = problem.showing(value);
        }
        self.layers.problems.push(problem);
    }

    /// Notes that two keys contradict each other, at the one that somebody set: nobody can look up a default's line.
    pub(super) fn object_to_pair(&mut self, one: (&'static str, &str), other: (&'static str, &str)) {
        let is_default = |key| self.places.get(key).is_none_or(|place| *place == Place::Default);
        let (at, against) = if is_default(one.0) && !is_default(other.0) { (other, one) } else { (one, other) };
        let shown = self.rows.iter().find(|row| row.key == against.0).and_then(|row| row.value.as_deref());
        let wrong = format!("{} {} = {:?}", at.1, against.0, shown.unwrap_or_default());
        self.object(at.0, wrong);
    }

    /// Tells whether none of the keys has a problem, so that comparing them makes sense.
    pub(super) fn is_sound(&self, keys: &[&'static str]) -> bool {
        !keys.iter().any(|key| self.unsound.contains(key))
    }

    /// Ends the reading: what nobody asked for is unknown.
    pub(super) fn finish(mut self) -> Result<Vec<EffectiveRow>, BadConfig> {
        let known: Vec<&'static str> = self.places.keys().copied().collect();
        let mut problems = std::mem::take(&mut self.layers.problems);
        for (key, raw) in &self.layers.values {
            if !known.contains(&key.as_str()) {
                problems.push(unknown(key, &raw.place, &known));
            }
        }
        for (section, place) in &self.layers.empty_sections {
            if !is_section(section, &known) {
                problems.push(unknown(section, place, &known));
            }
        }
        if !problems.is_empty() {
            return Err(BadConfig { problems });
        }
        self.rows.sort_by_key(|row| row.key.contains('.'));
        Ok(self.rows)
    }

    fn read<T>(&mut self, key: &'static str, kind: &Kind<T>) -> Option<T> {
        let Some(Raw { text, place }) = self.layers.values.get(key) else {
            self.places.insert(key, Place::Default);
            return None;
        };
        self.places.insert(key, place.clone());
        match (kind.parse)(text) {
            Ok(value) => Some(value),
            Err(wrong) => {
                let mut problem = Problem::of_key(place.clone(), key, wrong);
                problem.accepted = Some(kind.accepted);
                if !kind.secret {
                    problem = problem.showing(text);
                }
                self.layers.problems.push(problem);
                self.unsound.insert(key);
                None
            }
        }
    }

    fn add_row(&mut self, key: &'static str, value: Option<String>, secret: bool) {
        let value = value.map(|value| if secret { Secret::MASK.to_owned() } else { value });
        let origin = self.places.get(key).map_or(Origin::Default, Place::origin);
        self.rows.push(EffectiveRow { key, value, origin });
    }
}

/// Tells whether keys are known below `section`.
fn is_section(section: &str, known: &[&'static str]) -> bool {
    known.iter().any(|key| is_below(key, section))
}

fn is_below(key: &str, section: &str) -> bool {
    key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
}

/// Describes a key that nobody asked for; its value is not shown, since it may be a secret of another program.
fn unknown(key: &str, place: &Place, known: &[&'static str]) -> Problem {
    let spelt = |key: &str| match place {
        Place::Environment { .. } => variable_of(key),
        Place::Default | Place::File { .. } | Place::Flag { .. } => key.to_owned(),
    };
    let not_yet = NOT_YET.iter().any(|prefix| key == *prefix || is_below(key, prefix));
    let wrong = if not_yet {
        "is not available in this version".to_owned()
    } else if is_section(key, known) {
        let inside: Vec<String> = known.iter().filter(|name| is_below(name, key)).map(|name| spelt(name)).collect();
        format!("is a section, not a key; it has {}", inside.join(", "))
    } else {
        match nearest(key, known) {
            Some(near) => format!("unknown key; did you mean {}?", spelt(near)),
            None => "unknown key".to_owned(),
        }
    };
    Problem::of_key(place.clone(), show_key(key), wrong)
}

/// Makes a key that somebody typed fit for one line.
fn show_key(key: &str) -> String {
    let printable = |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    key.chars().take(SUGGEST_CHARS_MAX).map(printable).collect()
}

/// Returns the known key that is a few typing slips away, or has the same last word.
fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
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
    use super::*;

    const TOKEN: Kind<Secret> = Kind {
        accepted: "a token",
        parse: |text| if text.len() > 3 { Ok(Secret::new(text.to_owned())) } else { Err("too short".to_owned()) },
        show: |secret| secret.reveal().to_owned(),
        secret: true,
    };

    fn reader_with(key: &str, text: &str) -> Reader {
        let mut layers = Layers::default();
        layers.values.insert(key.to_owned(), Raw { text: text.to_owned(), place: Place::Default });
        Reader::new(layers)
    }

    #[test]
    fn secret_is_masked_in_rows() {
        let mut reader = reader_with("token", "hunter2");
        assert_eq!(reader.take_optional("token", &TOKEN).unwrap().reveal(), "hunter2");
        assert_eq!(reader.finish().unwrap()[0].value.as_deref(), Some(Secret::MASK));
    }

    #[test]
    fn secret_is_absent_from_problems() {
        let mut reader = reader_with("token", "abc");
        assert_eq!(reader.take_optional("token", &TOKEN), None);
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
