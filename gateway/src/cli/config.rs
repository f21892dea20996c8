//! `gateway config`: check and show.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::json;

use super::{Cli, ConfigArgs, ConfigCommand, Console, Exit, Output};
use crate::config::EffectiveRow;
use crate::environments::files;
use crate::executors::cluster_configs;

/// Runs `gateway config`.
pub fn run_config(cli: &Cli, args: &ConfigArgs, env: &BTreeMap<String, String>, console: &mut Console) -> Exit {
    let config = match cli.load_config(env) {
        Ok(config) => config,
        Err(bad) => {
            console.complain(bad);
            return Exit::BadConfig;
        }
    };
    match args.command {
        ConfigCommand::Check => {
            let dir = config.agents_dir.as_deref();
            let mut refusals = dir.map(cluster_configs::check).unwrap_or_default();
            refusals.extend(dir.map(files::check).unwrap_or_default());
            for refusal in &refusals {
                console.complain(refusal);
            }
            if !refusals.is_empty() {
                return Exit::BadConfig;
            }
            console.hint("the configuration is good");
            Exit::Success
        }
        ConfigCommand::Show { output: Output::Text } => console.finish_with(show_text(config.effective())),
        ConfigCommand::Show { output: Output::Json } => console.finish_with(show_json(config.effective())),
    }
}

/// Writes the rows as a TOML file: what is shown can be kept and loaded again.
fn show_text(rows: &[EffectiveRow]) -> String {
    let mut entry = "";
    let mut lines: Vec<(String, &str)> = Vec::with_capacity(rows.len());
    for row in rows {
        let (list, key) = in_entry(&row.key);
        if list != entry {
            entry = list;
            lines.push((String::new(), ""));
            lines.push((format!("[[{}]]", without_numbers(entry)), ""));
        }
        let line = match &row.value {
            // A JSON string is a TOML basic string.
            Some(value) => format!("{key} = {}", json!(value)),
            None => format!("# {key} is not set"),
        };
        lines.push((line, row.origin.as_str()));
    }
    let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (line, origin) in lines {
        if origin.is_empty() {
            writeln!(text, "{line}").unwrap_or_default();
            continue;
        }
        // Writing into a string cannot fail.
        writeln!(text, "{line:width$}  # {origin}").unwrap_or_default();
    }
    text.truncate(text.trim_end().len());
    text
}

/// Splits a key into the entry of a list that it is in, if any, and its name there.
fn in_entry(key: &str) -> (&str, &str) {
    // A bracket inside quotes belongs to a name.
    let plain = key.split('"').next().unwrap_or_default();
    match plain.rfind(']').and_then(|end| Some((key.get(..=end)?, key.get(end + 2..)?))) {
        Some(split) => split,
        None => ("", key),
    }
}

/// Writes an entry's key as a TOML header has it: `list[0].inner[1]` is in `[[list.inner]]`.
fn without_numbers(entry: &str) -> String {
    entry.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest)).collect()
}

fn show_json(rows: &[EffectiveRow]) -> String {
    let rows: Vec<_> =
        rows.iter().map(|row| json!({"key": row.key, "value": row.value, "origin": row.origin.as_str()})).collect();
    format!("{:#}", json!(rows))
}
