//! `variables`, and their values in place of `{{name}}` (devfile 2.2.0, "Defining variables").
//!
//! One pass: the value of a variable is not searched for references. A name that no variable can have stays as it is,
//! so that `{{.State}}` reaches the program that it is for.

use std::collections::{BTreeMap, BTreeSet};

use super::{DEVFILE_BYTES_MAX, names};
use crate::document::{Node, Problems, Value, ValueAt, push_index, push_key, show};

/// Fields of the file in which variables are not put in.
pub(crate) const VERBATIM: [&str; 3] = ["schemaVersion", "metadata", "variables"];

/// Longest name of a variable, in characters.
const NAME_MAX: usize = 128;

/// Values by their names.
pub(crate) type Variables = BTreeMap<String, String>;

/// Reads the definitions.
pub(crate) fn read(root: &Node, problems: &mut Problems) -> Variables {
    let mut variables = Variables::new();
    let Value::Map(entries) = &root.value else {
        return variables;
    };
    let Some(found) = entries.iter().find(|entry| entry.key == "variables" && entry.node.value != Value::Null) else {
        return variables;
    };
    let at = ValueAt { path: "variables".to_owned(), node: &found.node };
    for (name, place, at) in at.entries(problems).unwrap_or_default() {
        if names::is_reserved(name) {
            problems.add(at.path.clone(), Some(place), "must not begin with gw- or gw_, which are reserved");
        } else if !is_name(name) {
            let message =
                "must be a name of letters, digits, dots, dashes and underscores that begins with a letter or digit";
            problems.add(at.path.clone(), Some(place), format!("{message}; it is {}", show(name)));
        }
        // Known even if its value is bad: its references are not.
        variables.insert(name.to_owned(), at.text(problems).unwrap_or_default().to_owned());
    }
    variables
}

/// Puts the values into the references of the file.
pub(crate) fn put_in(root: &mut Node, variables: &Variables, problems: &mut Problems) {
    let Value::Map(entries) = &mut root.value else {
        return;
    };
    let mut pass = Pass { variables, left: DEVFILE_BYTES_MAX, exhausted: false, path: Vec::new(), problems };
    for entry in entries.iter_mut().filter(|entry| !VERBATIM.contains(&entry.key.as_str())) {
        pass.inside(Segment::Key(entry.key.clone()), &mut entry.node);
    }
}

enum Segment {
    Key(String),
    Index(usize),
}

struct Pass<'p> {
    variables: &'p Variables,
    /// Bytes that may still be put in.
    left: usize,
    /// Whether they were not enough, which is reported once.
    exhausted: bool,
    path: Vec<Segment>,
    problems: &'p mut Problems,
}

impl Pass<'_> {
    /// Descends; the tree is at most [`crate::document::DEPTH_MAX`] deep.
    fn inside(&mut self, segment: Segment, node: &mut Node) {
        self.path.push(segment);
        match &mut node.value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::Text(text) if text.contains("{{") => {
                let mut undefined = BTreeSet::new();
                if let Some(new) = self.replaced(text, &mut undefined) {
                    *text = new;
                } else if !self.exhausted {
                    self.exhausted = true;
                    let message = "the file is larger than 3 MiB with its variables put in";
                    self.problems.add(self.show_path(), Some(node.place), message);
                }
                for name in undefined {
                    let message = format!("refers to the variable {}, which is not defined", show(&name));
                    self.problems.add(self.show_path(), Some(node.place), message);
                }
            }
            Value::Text(_) => {}
            Value::List(nodes) => {
                for (index, node) in nodes.iter_mut().enumerate() {
                    self.inside(Segment::Index(index), node);
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    self.inside(Segment::Key(entry.key.clone()), &mut entry.node);
                }
            }
        }
        self.path.pop();
    }

    /// Returns the text with values in it; `None` if they are longer than the budget that is left.
    fn replaced(&mut self, text: &str, undefined: &mut BTreeSet<String>) -> Option<String> {
        let mut out = String::with_capacity(text.len());
        for piece in pieces(text) {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Reference { name, written } => match self.variables.get(name) {
                    Some(value) => {
                        self.left = self.left.checked_sub(value.len())?;
                        out.push_str(value);
                    }
                    // The reference stays, so that other problems of the value are reported with the text of the file.
                    None => {
                        undefined.insert(name.to_owned());
                        out.push_str(written);
                    }
                },
            }
        }
        Some(out)
    }

    fn show_path(&self) -> String {
        let mut path = String::new();
        for segment in &self.path {
            path = match segment {
                Segment::Key(key) => push_key(&path, key),
                Segment::Index(index) => push_index(&path, *index),
            };
        }
        path
    }
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'t> {
    /// What stands for itself.
    Text(&'t str),
    /// `{{name}}`.
    Reference {
        /// The name.
        name: &'t str,
        /// The reference as it is written.
        written: &'t str,
    },
}

/// Splits a text into its references and what is between them. Written one after the other, they are the text.
pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut begin, mut from) = (0, 0);
    while let Some(at) = text.get(from..).and_then(|rest| rest.find("{{")).map(|at| from + at) {
        let Some((name, behind)) = text.get(at + 2..).and_then(reference) else {
            // The second brace may be the first of a reference.
            from = at + 1;
            continue;
        };
        let end = text.len() - behind.len();
        pieces.extend(text.get(begin..at).filter(|text| !text.is_empty()).map(Piece::Text));
        pieces.extend(text.get(at..end).map(|written| Piece::Reference { name, written }));
        (begin, from) = (end, end);
    }
    pieces.extend(text.get(begin..).filter(|text| !text.is_empty()).map(Piece::Text));
    pieces
}

/// Splits what follows `{{` into the name and what follows `}}`, if it is a reference.
fn reference(after: &str) -> Option<(&str, &str)> {
    let inside = after.trim_start_matches([' ', '\t']);
    let (name, rest) = inside.split_at_checked(inside.find(|letter| !is_name_letter(letter))?)?;
    let rest = rest.trim_start_matches([' ', '\t']).strip_prefix("}}")?;
    is_name(name).then_some((name, rest))
}

fn is_name(text: &str) -> bool {
    (1..=NAME_MAX).contains(&text.len())
        && text.chars().all(is_name_letter)
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
}

fn is_name_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str, undefined: &[&str]) {
        let variables = Variables::from([("a".to_owned(), "1".to_owned()), ("b-b".to_owned(), "{{a}}".to_owned())]);
        let mut problems = Problems::default();
        let mut found = BTreeSet::new();
        let mut pass =
            Pass { variables: &variables, left: 100, exhausted: false, path: Vec::new(), problems: &mut problems };
        assert_eq!(pass.replaced(text, &mut found).as_deref(), Some(expected), "{text}");
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), undefined, "{text}");
    }

    #[test]
    fn references_are_replaced_once_and_only_references() {
        check("{{a}}", "1", &[]);
        check("x{{ a\t}}y{{b-b}}z", "x1y{{a}}z", &[]);
        check("{{{a}}}", "{1}", &[]);
        check("{{ {{a}} }}", "{{ 1 }}", &[]);
        check("{{.State}} {{}} {{ }} {{a b}} {{a} }} {{", "{{.State}} {{}} {{ }} {{a b}} {{a} }} {{", &[]);
        check("{{A}}{{c}}{{ A}}", "{{A}}{{c}}{{ A}}", &["A", "c"]);
        check("ä{{a}}ö", "ä1ö", &[]);
        check("{{{{{{{{", "{{{{{{{{", &[]);
        let written = |piece| match piece {
            Piece::Text(text) | Piece::Reference { written: text, .. } => text,
        };
        for text in ["", "a", "{{a}}", "{{{a}}}{{ b }}", "{{ {{a}} }}{", "ä{{a}}ö{{"] {
            assert_eq!(pieces(text).into_iter().map(written).collect::<String>(), text);
        }
    }
}
