//! `gateway config`: check and show.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::json;

use super::{Cli, ConfigArgs, ConfigCommand, Console, Exit, Output};
use crate::config::EffectiveRow;

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
            console.hint("the configuration is good");
            Exit::Success
        }
        ConfigCommand::Show { output: Output::Text } => console.finish_with(show_text(config.effective())),
        ConfigCommand::Show { output: Output::Json } => console.finish_with(show_json(config.effective())),
    }
}

/// Writes the rows as a TOML file: what is shown can be kept and loaded again.
fn show_text(rows: &[EffectiveRow]) -> String {
    let lines: Vec<(String, &str)> = rows
        .iter()
        .map(|row| {
            let line = match &row.value {
                // A JSON string is a TOML basic string.
                Some(value) => format!("{} = {}", row.key, json!(value)),
                None => format!("# {} is not set", row.key),
            };
            (line, row.origin.as_str())
        })
        .collect();
    let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (line, origin) in lines {
        // Writing into a string cannot fail.
        writeln!(text, "{line:width$}  # {origin}").unwrap_or_default();
    }
    text.truncate(text.trim_end().len());
    text
}

fn show_json(rows: &[EffectiveRow]) -> String {
    let rows: Vec<_> =
        rows.iter().map(|row| json!({"key": row.key, "value": row.value, "origin": row.origin.as_str()})).collect();
    format!("{:#}", json!(rows))
}
