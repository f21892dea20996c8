//! `loadlab list`.

use std::io::Write as _;

use clap::{Args, ValueEnum as _};

use super::Exit;
use super::run::RunOutput;
use crate::profile::ProfileName;

/// Flags of `loadlab list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  loadlab list\n  loadlab list --output json")]
pub(super) struct ListArgs {
    /// Format of the output
    #[arg(long, value_enum, default_value_t = RunOutput::Text)]
    output: RunOutput,
}

/// Prints profiles and peers.
pub(super) fn run(arguments: &ListArgs) -> anyhow::Result<Exit> {
    let mut out = std::io::stdout().lock();
    let peers = crate::results::peers();
    if arguments.output == RunOutput::Json {
        let profiles: Vec<_> = ProfileName::value_variants()
            .iter()
            .map(|name| serde_json::json!({"name": name.as_str(), "about": name.about(), "needs_self": name.needs_lab()}))
            .collect();
        let peers: Vec<_> = peers
            .into_iter()
            .map(|(name, (about, missing))| serde_json::json!({"name": name, "about": about, "missing": missing}))
            .collect();
        writeln!(out, "{:#}", serde_json::json!({"profiles": profiles, "peers": peers}))?;
        return Ok(Exit::Passed);
    }
    writeln!(out, "Profiles")?;
    for name in ProfileName::value_variants() {
        let needs = if name.needs_lab() { " (needs --self)" } else { "" };
        writeln!(out, "  {:<18} {}{needs}", name.as_str(), name.about())?;
    }
    writeln!(out, "\nPeers")?;
    for (name, (about, missing)) in peers {
        match missing {
            None => writeln!(out, "  {name:<18} {about}")?,
            Some(why) => writeln!(out, "  {name:<18} not here: {why}")?,
        }
    }
    Ok(Exit::Passed)
}
