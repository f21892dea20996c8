//! `gateway config`: check and show.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::json;

use super::preflight::{self, PreflightFindings};
use super::{Cli, ConfigArgs, ConfigCommand, Console, Exit, Output};
use gateway_config::{Config, DEFAULT_FILE, EffectiveRow, Origin};
use gateway_environments::files;
use gateway_workspaces::{cluster_configs, workspace_templates};

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
        ConfigCommand::Check { output } => check(&config, output, console),
        ConfigCommand::Show { output: Output::Text } => console.finish_with(show_text(config.effective())),
        ConfigCommand::Show { output: Output::Json } => console.finish_with(show_json(config.effective())),
    }
}

/// Checks the files of the clusters, if a configuration names a folder of them; returns what is wrong with each.
#[must_use]
pub fn check_agents_dir(config: &Config) -> Vec<String> {
    let Some(folder) = config.agents_dir.as_deref().filter(|folder| folder.is_dir()) else { return Vec::new() };
    let mut wrong: Vec<String> = cluster_configs::check(folder).iter().map(ToString::to_string).collect();
    wrong.extend(files::check(folder).iter().map(ToString::to_string));
    wrong.extend(workspace_templates::check(folder).iter().map(ToString::to_string));
    wrong
}

/// Opens the files that the configuration names, and reports what was read.
fn check(config: &Config, output: Output, console: &mut Console) -> Exit {
    let PreflightFindings { mut problems, later, warnings, opened } = preflight::look(config);
    problems.extend(later);
    let mut wrong: Vec<String> = problems.iter().map(ToString::to_string).collect();
    wrong.extend(check_agents_dir(config));
    let mut warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    warnings.extend(gateway_config::advice(config));
    let count = |origin| config.effective().iter().filter(|row| row.origin == origin).count();
    let (of_file, of_environment) = (count(Origin::File), count(Origin::Environment));
    for line in &wrong {
        console.complain(line);
    }
    let read = match config.file() {
        Some(file) => format!("{}: {of_file} keys", file.display()),
        None => format!("there is no {DEFAULT_FILE} here, and none was named with --config: only defaults"),
    };
    match output {
        Output::Json if wrong.is_empty() => {
            let found = json!({
                "file": config.file(), "keys_of_file": of_file, "keys_of_environment": of_environment,
                "opened": opened, "warnings": warnings,
            });
            return console.finish_with(format_args!("{found:#}"));
        }
        Output::Json => return Exit::BadConfig,
        Output::Text => {}
    }
    for line in &warnings {
        console.complain(format_args!("warning: {line}"));
    }
    if !wrong.is_empty() {
        console.complain(format_args!("{read}, {of_environment} of GATEWAY_ variables: {} problems", wrong.len()));
        return Exit::BadConfig;
    }
    console.finish_with(format_args!(
        "{read}, {of_environment} of GATEWAY_ variables, {opened} files and folders opened: the configuration is good"
    ))
}

/// Writes the rows as a TOML file: the output can be kept and loaded again.
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
