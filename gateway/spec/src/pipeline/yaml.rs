//! Writes YAML that every reader reads alike (YAML 1.1 and 1.2): texts are quoted, or blocks of lines where nothing in them could
//! be anything else, and keys are plain only where they mean nothing else.

/// A value in a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Yaml {
    /// Nothing.
    Null,
    /// A text, whatever it looks like.
    Text(String),
    /// A whole number.
    Whole(u64),
    /// Any number that JSON has.
    Number(serde_json::Number),
    /// `true` or `false`.
    Bool(bool),
    /// A list.
    List(Vec<Self>),
    /// A map, in this order. No key is there twice.
    Map(Vec<(String, Self)>),
}

/// Spaces that each level is further in.
const STEP: usize = 2;

/// Keys that some readers do not read as text.
const NOT_PLAIN: [&str; 8] = ["true", "false", "null", "yes", "no", "on", "off", "y"];

impl Yaml {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    pub(crate) fn map<K: Into<String>>(entries: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    /// Returns whether there is nothing in it.
    fn is_empty(&self) -> bool {
        match self {
            Self::List(items) => items.is_empty(),
            Self::Map(entries) => entries.is_empty(),
            Self::Null | Self::Text(_) | Self::Whole(_) | Self::Number(_) | Self::Bool(_) => false,
        }
    }

    /// Writes a file.
    pub(crate) fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out
    }

    /// Writes lines that begin at a level.
    fn write(&self, out: &mut String, indent: usize) {
        match self {
            Self::Map(entries) => {
                for (key, value) in entries {
                    push_indent(out, indent);
                    out.push_str(&write_key(key));
                    out.push(':');
                    value.write_after(out, indent);
                }
            }
            Self::List(items) => {
                for item in items {
                    push_indent(out, indent);
                    out.push('-');
                    item.write_after(out, indent);
                }
            }
            Self::Null | Self::Text(_) | Self::Whole(_) | Self::Number(_) | Self::Bool(_) => {
                push_indent(out, indent);
                self.write_scalar(out, indent);
            }
        }
    }

    /// Writes what follows a key or a dash that begins at a level.
    fn write_after(&self, out: &mut String, indent: usize) {
        match self {
            Self::Null | Self::Text(_) | Self::Whole(_) | Self::Number(_) | Self::Bool(_) => {
                out.push(' ');
                self.write_scalar(out, indent + STEP);
            }
            Self::List(_) if self.is_empty() => out.push_str(" []\n"),
            Self::Map(_) if self.is_empty() => out.push_str(" {}\n"),
            Self::List(_) | Self::Map(_) => {
                out.push('\n');
                self.write(out, indent + STEP);
            }
        }
    }

    /// Writes a scalar, whose further lines begin at a level.
    fn write_scalar(&self, out: &mut String, indent: usize) {
        match self {
            Self::Text(text) if is_block(text) => {
                out.push_str(if text.ends_with('\n') { "|\n" } else { "|-\n" });
                for line in text.lines() {
                    if !line.is_empty() {
                        push_indent(out, indent);
                        out.push_str(line);
                    }
                    out.push('\n');
                }
            }
            Self::Text(text) => {
                out.push_str(&quote(text));
                out.push('\n');
            }
            Self::Null => out.push_str("null\n"),
            Self::Whole(number) => out.push_str(&format!("{number}\n")),
            Self::Number(number) => out.push_str(&format!("{number}\n")),
            Self::Bool(value) => out.push_str(&format!("{value}\n")),
            Self::List(_) | Self::Map(_) => {}
        }
    }
}

fn push_indent(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn write_key(key: &str) -> String {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let is_plain = key.bytes().all(inner)
        && key.starts_with(|first: char| first.is_ascii_alphabetic())
        && !NOT_PLAIN.contains(&key.to_ascii_lowercase().as_str())
        && key.len() > 1;
    if is_plain { key.to_owned() } else { quote(key) }
}

/// Returns whether a text can stand as a block of lines (YAML 1.2.2, section 8.1.2): more than one line, each of which begins
/// and ends with something to see, or is empty, and at most one line break at the end.
fn is_block(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let is_line = |line: &str| {
        line.is_empty() || (!line.starts_with('\t') && !line.trim().is_empty() && line.chars().all(is_printable_inside))
    };
    body.contains('\n') && !body.starts_with([' ', '\n']) && !body.ends_with('\n') && body.split('\n').all(is_line)
}

fn is_printable_inside(letter: char) -> bool {
    letter == '\t' || is_printable(letter)
}

/// Returns whether a character may stand as itself everywhere (YAML 1.2.2, section 5.1), and no reader takes it for a
/// line break.
fn is_printable(letter: char) -> bool {
    match letter {
        ' '..='~' => true,
        '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => false,
        _ => letter >= '\u{a0}',
    }
}

/// Writes a text in double quotes (YAML 1.2.2, section 7.3.1), on one line.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            letter if is_printable(letter) => quoted.push(letter),
            letter => {
                let code = u32::from(letter);
                quoted.push_str(&if code <= 0xff { format!("\\x{code:02x}") } else { format!("\\u{code:04x}") });
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::document::{self, Node, Problems, Value};

    /// Reads what was written, with the reader of devfiles.
    fn read(text: &str) -> Yaml {
        let mut problems = Problems::default();
        let node = document::parse(text.as_bytes(), usize::MAX, &mut problems);
        let told = problems.finish();
        of_node(node.unwrap_or_else(|| panic!("{told:?}\n{text}")))
    }

    fn of_node(node: Node) -> Yaml {
        match node.value {
            Value::Text(text) => Yaml::Text(text),
            Value::Number(text) => Yaml::Whole(text.parse().unwrap()),
            Value::Bool(value) => Yaml::Bool(value),
            Value::List(items) => Yaml::List(items.into_iter().map(of_node).collect()),
            Value::Map(entries) => Yaml::map(entries.into_iter().map(|entry| (entry.key, of_node(entry.node)))),
            Value::Null => panic!("a null"),
        }
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "[ -~\n\t]{0,60}",
            "([a-z#:' -]{0,8}\n){1,6}",
            "[\r\n\t \u{85}\u{2028}\u{2029}\u{feff}\u{0}\u{7f}\u{fffe}a]{0,12}",
            prop::sample::select(vec![
                "yes",
                "null",
                "~",
                "1",
                "1.0",
                "0x1",
                "- a",
                "a: b",
                "",
                "!reference",
                "*a",
                "---"
            ])
            .prop_map(str::to_owned),
        ]
    }

    fn any_yaml() -> impl Strategy<Value = Yaml> {
        let leaf = prop_oneof![
            4 => any_text().prop_map(Yaml::Text),
            1 => (0..u64::from(u32::MAX)).prop_map(Yaml::Whole),
            1 => any::<bool>().prop_map(Yaml::Bool),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let key = prop_oneof!["[a-zA-Z_0-9-]{1,8}", any_text()];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Yaml::List),
                prop::collection::btree_map(key, inner, 0..4).prop_map(Yaml::map),
            ]
        })
    }

    #[test]
    fn lines_are_a_block_and_everything_else_is_quoted() {
        let yaml = Yaml::map([
            ("script", Yaml::texts(["# a\n\n  b 'c'\n", "one"])),
            ("on", Yaml::Bool(true)),
            ("none", Yaml::List(Vec::new())),
            ("image", Yaml::map([("name", Yaml::text("a:1")), ("ports", Yaml::List(vec![Yaml::Whole(1)]))])),
        ]);
        let text = "script:\n  - |\n    # a\n\n      b 'c'\n  - \"one\"\n\"on\": true\nnone: []\nimage:\n  name: \"a:1\"\n  \
                    ports:\n    - 1\n";
        assert_eq!(yaml.to_text(), text);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn whatever_is_written_reads_back(value in any_yaml()) {
            let file = Yaml::map([("key", value)]);
            prop_assert_eq!(read(&file.to_text()), file);
        }
    }
}
