//! Merges the layers into one map from dotted key to raw text; knows no meaning of keys.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::problem::{ConfigProblem, ValueOrigin};

/// Prefix of every environment variable of the gateway.
const ENVIRONMENT_PREFIX: &str = "GATEWAY_";

/// Variables that are not keys: the file's path, the log filter, and those of the client commands.
const NOT_KEYS: [&str; 7] = [
    "GATEWAY_CA_FILE",
    "GATEWAY_CONFIG",
    "GATEWAY_CREDENTIALS_FILE",
    "GATEWAY_LOG",
    "GATEWAY_TOKEN",
    "GATEWAY_TOKEN_FILE",
    "GATEWAY_URL",
];

/// A command-line flag that sets a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The flag with its dashes, for messages.
    pub name: &'static str,
    /// The dotted key that it sets.
    pub key: &'static str,
    /// The value as text.
    pub value: String,
}

/// One raw value and its place.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    pub(super) text: String,
    pub(super) place: ValueOrigin,
}

/// A list, and how many tables there are in it.
#[derive(Clone, Debug)]
pub(super) struct SourceList {
    pub(super) tables: usize,
    pub(super) place: ValueOrigin,
}

/// The merged layers, and the problems of merging.
#[derive(Debug, Default)]
pub(super) struct Layers {
    /// By dotted key; only the highest layer's value is kept.
    pub(super) values: BTreeMap<String, Raw>,
    /// Sections without any key in them, which would otherwise go unnoticed when misspelt.
    pub(super) empty_sections: Vec<(String, ValueOrigin)>,
    /// Lists of tables, by dotted key. What is inside an entry has a key such as `list[0].name`.
    pub(super) lists: BTreeMap<String, SourceList>,
    /// Place of each entry of a list, by its key.
    pub(super) entries: BTreeMap<String, ValueOrigin>,
    pub(super) problems: Vec<ConfigProblem>,
    /// The file that was read.
    pub(super) file: Option<PathBuf>,
}

/// Returns this process's `GATEWAY_…` variables; bytes that are not UTF-8 become U+FFFD, which no key accepts.
#[must_use]
pub fn process_environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX))
        .collect()
}

/// Reads the layers, lowest first, so that a later one replaces an earlier one.
pub(super) fn collect(file: Option<&Path>, env: &BTreeMap<String, String>, flags: &[Flag]) -> Layers {
    let mut layers = Layers::default();
    if let Some(path) = file {
        layers.file = Some(path.to_owned());
        add_file(&mut layers, path);
    }
    for (name, value) in env {
        let Some(rest) = name.strip_prefix(ENVIRONMENT_PREFIX) else { continue };
        if NOT_KEYS.contains(&name.as_str()) || is_service_link(rest, value) {
            continue;
        }
        let place = ValueOrigin::Environment { name: name.clone() };
        let key = key_of(rest);
        if key.contains('[') {
            layers.problems.push(ConfigProblem::of_place(place, "lists are set in the file only"));
            continue;
        }
        layers.values.insert(key, Raw { text: value.clone(), place });
    }
    for flag in flags {
        let place = ValueOrigin::Flag { name: flag.name };
        layers.values.insert(flag.key.to_owned(), Raw { text: flag.value.clone(), place });
    }
    layers
}

/// Returns the dotted key of a variable's name without its prefix. A name with lower-case letters keeps them, and so
/// matches no key: two spellings of one variable must not compete.
fn key_of(rest: &str) -> String {
    if rest.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return rest.replace("__", ".");
    }
    rest.to_ascii_lowercase().replace("__", ".")
}

/// Returns the name of the variable that sets `key`.
pub(super) fn variable_of(key: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{}", key.replace('.', "__").to_ascii_uppercase())
}

/// Tells whether a variable was put there by Kubernetes for a Service whose name begins with `gateway`
/// (`GATEWAY_SERVICE_HOST`, `GATEWAY_PORT=tcp://…`, `GATEWAY_AGENTS_PORT_8081_TCP_ADDR`). No operator wrote these, so
/// they must not stop the program; no key of ours has such a name.
fn is_service_link(rest: &str, value: &str) -> bool {
    const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
    let words: Vec<&str> = rest.split('_').collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let has_scheme = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let service = words.windows(2).any(|pair| pair == ["SERVICE", "HOST"] || pair == ["SERVICE", "PORT"]);
    let port = words.windows(3).any(|three| match three {
        [word, number, protocol] => *word == "PORT" && is_number(number) && PROTOCOLS.contains(protocol),
        _ => false,
    });
    !rest.contains("__") && (service || port || (words.last() == Some(&"PORT") && has_scheme))
}

fn add_file(layers: &mut Layers, path: &Path) {
    let path_text = path.display().to_string();
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            let place = ValueOrigin::File { path: path_text, line: None };
            layers.problems.push(ConfigProblem::of_place(place, format!("cannot be read: {error}")));
            return;
        }
    };
    let file = File { path: path_text, text: &text };
    let (document, errors) = DeTable::parse_recoverable(&text);
    if errors.is_empty() {
        file.add_table(layers, "", document.get_ref());
        return;
    }
    // Values beside a syntax error may be misread, so only the syntax errors are reported.
    for error in errors {
        let place = file.place(error.span().map_or(0, |span| span.start));
        let message = error.message().replace('\n', ", ");
        layers.problems.push(ConfigProblem::of_place(place, format!("not valid TOML: {message}")));
    }
}

/// The TOML file being flattened.
struct File<'t> {
    path: String,
    text: &'t str,
}

impl File<'_> {
    fn place(&self, offset: usize) -> ValueOrigin {
        let before = self.text.as_bytes().iter().take(offset);
        let line = before.filter(|byte| **byte == b'\n').count() + 1;
        ValueOrigin::File { path: self.path.clone(), line: Some(line) }
    }

    fn add_table(&self, layers: &mut Layers, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let part = name.get_ref();
            let part = quoted(part);
            let key = if prefix.is_empty() { part } else { format!("{prefix}.{part}") };
            self.add_value(layers, key, self.place(name.span().start), value);
        }
    }

    fn add_value(&self, layers: &mut Layers, key: String, place: ValueOrigin, value: &Spanned<DeValue<'_>>) {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => number.to_string(),
                Err(_) => number.as_str().to_owned(),
            },
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Boolean(truth) => truth.to_string(),
            DeValue::Datetime(time) => time.to_string(),
            DeValue::Array(entries) => return self.add_list(layers, key, place, entries),
            DeValue::Table(table) if table.is_empty() => {
                layers.empty_sections.push((key, place));
                return;
            }
            DeValue::Table(table) => {
                self.add_table(layers, &key, table);
                return;
            }
        };
        layers.values.insert(key, Raw { text, place });
    }

    fn add_list(&self, layers: &mut Layers, key: String, place: ValueOrigin, entries: &DeArray<'_>) {
        for (index, entry) in entries.iter().enumerate() {
            let (inside, place) = (format!("{key}[{index}]"), self.place(entry.span().start));
            match entry.get_ref() {
                DeValue::Table(table) => {
                    layers.entries.insert(inside.clone(), place);
                    self.add_table(layers, &inside, table);
                }
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_) => {
                    layers.problems.push(ConfigProblem::of_key(
                        place,
                        inside,
                        "is no table, and lists have tables only",
                    ));
                }
            }
        }
        layers.lists.insert(key, SourceList { tables: entries.len(), place });
    }
}

/// Spells one part of a key. A quoted one with a dot inside is another key than the dotted one, and one with a bracket no
/// entry of a list; the quotes keep them apart.
fn quoted(part: &str) -> String {
    let is_plain = !part.is_empty() && !part.contains(['.', '[', '"']);
    if is_plain { part.to_owned() } else { format!("{part:?}") }
}

/// Returns the one name that a part of a key spells; `None` for several.
pub(super) fn unquoted(part: &str) -> Option<String> {
    match part.strip_prefix('"').map(|rest| rest.strip_suffix('"')) {
        None => (!part.contains(['.', '['])).then(|| part.to_owned()),
        // Other escapes stand for characters that no name of ours has.
        Some(inside) => inside.filter(|inside| !inside.contains("\".")).map(|inside| inside.replace("\\\"", "\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_kubernetes_services_are_not_keys() {
        for (name, value) in [
            ("SERVICE_HOST", "10.0.0.1"),
            ("SERVICE_PORT", "80"),
            ("SERVICE_PORT_HTTP", "80"),
            ("PORT", "tcp://10.0.0.1:80"),
            ("PORT_80_TCP", "tcp://10.0.0.1:80"),
            ("PORT_80_TCP_ADDR", "10.0.0.1"),
            ("AGENTS_SERVICE_HOST", "10.0.0.1"),
            ("AGENTS_PORT_8081_TCP_PORT", "8081"),
        ] {
            assert!(is_service_link(name, value), "{name}");
        }
        for (name, value) in [
            ("PORT", "8080"),
            ("LISTEN__PORT", "tcp://10.0.0.1:80"),
            ("LISTEN__PUBLIC", "127.0.0.1:80"),
            ("SERVICE", "x"),
            ("PORT_X_TCP", "x"),
            ("", ""),
        ] {
            assert!(!is_service_link(name, value), "{name}");
        }
    }

    #[test]
    fn variable_name_and_key_are_inverse() {
        for key in ["zone", "listen.public", "timeouts.tls_handshake"] {
            let name = variable_of(key);
            assert_eq!(key_of(name.strip_prefix(ENVIRONMENT_PREFIX).unwrap()), key);
        }
    }
}
