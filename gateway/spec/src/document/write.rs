//! Writes a tree as YAML that is read as the same tree.

use std::fmt::Write as _;

use super::{Node, Value};

/// Writes a tree on one line, in YAML's flow style. Each text is quoted, and what it is made of is escaped unless it is ASCII, a letter
/// or a digit: so nothing in it can end it.
#[must_use]
pub fn write(node: &Node) -> String {
    let mut out = String::new();
    put(node, &mut out);
    out.push('\n');
    out
}

/// Descends; a tree that was read is at most [`super::DEPTH_MAX`] deep.
fn put(node: &Node, out: &mut String) {
    match &node.value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        // As it was written, and without quotes as it was.
        Value::Number(text) => out.push_str(text),
        Value::Text(text) => quote(text, out),
        Value::List(nodes) => {
            out.push('[');
            for (index, node) in nodes.iter().enumerate() {
                separate(index, out);
                put(node, out);
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (index, entry) in entries.iter().enumerate() {
                separate(index, out);
                quote(&entry.key, out);
                out.push_str(": ");
                put(&entry.node, out);
            }
            out.push('}');
        }
    }
}

fn separate(index: usize, out: &mut String) {
    if index > 0 {
        out.push_str(", ");
    }
}

/// Writes a text in double quotes (YAML 1.2.2, section 7.3.1).
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            ' '..='~' => out.push(letter),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            letter if letter.is_alphanumeric() => out.push(letter),
            // Writing into a string cannot fail.
            letter => write!(out, "\\U{:08x}", u32::from(letter)).unwrap_or_default(),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Location, MapEntry, Problems, parse};
    use super::*;

    fn node(value: Value) -> Node {
        Node { place: Location::START, value }
    }

    /// Returns a tree without its places.
    fn bare(tree: &Node) -> Node {
        node(match &tree.value {
            Value::List(nodes) => Value::List(nodes.iter().map(bare).collect()),
            Value::Map(entries) => Value::Map(
                entries
                    .iter()
                    .map(|entry| MapEntry { key: entry.key.clone(), place: Location::START, node: bare(&entry.node) })
                    .collect(),
            ),
            scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_)) => scalar.clone(),
        })
    }

    fn any_text() -> impl Strategy<Value = String> {
        let pieces = prop::sample::select(vec![
            "\"", "\\", "'", "\n", "\r\n", "\t", ": ", "- ", "#", "&a", "*a", "{{", "}}", "---\n", "...", "\u{85}",
            "\u{2028}", "\u{feff}", "\u{ffff}", "\u{1b}", "\u{7f}", "ä", "<<", "!!int ", "1", "null", " ",
        ]);
        prop_oneof![
            prop::collection::vec(pieces, 0..8).prop_map(|pieces| pieces.concat()),
            any::<String>().prop_map(|text| text.replace('\0', "")),
        ]
    }

    fn any_tree() -> impl Strategy<Value = Node> {
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            prop::sample::select(vec!["1", "-0.5e+3", "0755", "0x1F", "0o17", ".inf", ".nan", "+1"])
                .prop_map(|text| Value::Number(text.to_owned())),
            any_text().prop_map(Value::Text),
        ];
        scalar.prop_map(node).prop_recursive(4, 24, 4, |inner| {
            let map = prop::collection::btree_map(any_text(), inner.clone(), 0..4).prop_map(|map| {
                let entry = |(key, node)| MapEntry { key, place: Location::START, node };
                node(Value::Map(map.into_iter().map(entry).collect()))
            });
            prop_oneof![prop::collection::vec(inner, 0..4).prop_map(|nodes| node(Value::List(nodes))), map]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same(tree in any_tree()) {
            let text = write(&tree);
            let mut problems = Problems::default();
            let read = parse(text.as_bytes(), 1024 * 1024, &mut problems);
            prop_assert_eq!(problems.finish(), vec![], "{}", text);
            prop_assert_eq!(read.as_ref().map(bare), Some(bare(&tree)), "{}", text);
        }
    }
}
