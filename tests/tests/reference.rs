//! Pages of `docs/reference` that are generated: the commands of both programs, and the metrics of a live gateway.
//!
//! `UPDATE_REFERENCE=1 cargo test -p e2e --test reference` writes them anew.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed expectation is how a test fails"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use e2e::TestGateway;
use e2e::raw::Raw;
use gateway_config::TlsFiles;
use workspace_agent::cli::{AgentCli, AgentCommand};

/// Set to write the pages anew.
const UPDATE: &str = "UPDATE_REFERENCE";

/// Width of the help texts, in columns.
const WIDTH: usize = 120;

fn check(page: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference").join(page);
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, expected).unwrap();
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    assert!(present == expected, "docs/reference/{page} is not current: {UPDATE}=1 writes it anew");
}

/// Writes the help of a command and of all below it, as the programs print it.
fn write_help(page: &mut String, command: &Command, path: &str) {
    // Variables that are set where the test runs are no part of the page.
    let hidden = command.clone().mut_args(|argument| argument.hide_env_values(true));
    let mut shown = hidden.bin_name(path).term_width(WIDTH);
    let help = shown.render_long_help().to_string();
    let lines: Vec<&str> = help.trim().lines().map(str::trim_end).collect();
    write!(page, "\n## `{path}`\n\n```text\n{}\n```\n", lines.join("\n")).unwrap();
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
        write_help(page, inner, &format!("{path} {}", inner.get_name()));
    }
}

#[test]
fn page_of_the_commands_is_current() {
    let mut page = "# Commands\n\nThe help of both programs, as `--help` prints it. This page is generated \
                    (`UPDATE_REFERENCE=1 cargo test -p e2e --test reference`).\n"
        .to_owned();
    write_help(&mut page, &gateway_cli::Cli::command(), "gateway");
    write_help(&mut page, &AgentCli::<AgentCommand>::command(), "workspace-agent");
    check("commands.md", &page);
}

#[tokio::test]
async fn page_of_the_metrics_is_current() {
    // With a certificate, whose end is one of them.
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let files = TlsFiles { cert, key, certs_dir: None, client_ca: None };
    let gateway = TestGateway::start_with(|config| config.tls.public = Some(files)).await;
    let mut raw = Raw::connect(gateway.addresses.admin.expect("bound")).await;
    raw.send("GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").await;
    let text = raw.message().await.expect("an answer").text();
    let help = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    let kind_of = |name: &str| {
        let kind = text.lines().find_map(|line| line.strip_prefix("# TYPE ")?.strip_prefix(name)?.strip_prefix(' '));
        kind.expect("each has a type")
    };
    let mut rows: Vec<String> = help.map(|(name, help)| format!("| `{name}` | {} | {help} |", kind_of(name))).collect();
    assert!(rows.len() > 40, "the metrics were not found: {rows:?}");
    rows.sort();
    let page = format!(
        "# Metrics\n\nFamilies of `GET /metrics` at `listen.admin`, in the text format of Prometheus. This page is generated \
         (`UPDATE_REFERENCE=1 cargo test -p e2e --test reference`).\n\n| name | type | meaning |\n| --- | --- | --- |\n{}\n",
        rows.join("\n")
    );
    check("metrics.md", &page);
}
