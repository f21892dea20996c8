//! The operator's program that sets and removes DNS records: `HOOK present NAME VALUE` and `HOOK cleanup NAME VALUE`.
//!
//! The program adds a `TXT` record to `NAME`, beside existing ones (a name and its wildcard are proven with two values
//! at once), and returns once all resolvers can see it. It takes its own settings, such as the password of a DNS
//! provider, from its environment; the gateway's own variables are not handed on.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use thiserror::Error;
use tokio::process::Command;
use tracing::warn;

/// Time limit of one call. Providers need minutes to show a new record everywhere.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// Longest part of a failed program's output that is reported.
const SAID_CHARS: usize = 300;

/// Failed call of the program.
#[derive(Debug, Error)]
pub enum HookError {
    /// The program cannot be started.
    #[error("{} cannot be run: {source}", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The program reported a failure.
    #[error("{} {verb} {record} failed ({status}){said}", path.display())]
    Failed {
        /// The program.
        path: PathBuf,
        /// Requested action.
        verb: &'static str,
        /// Record of the action.
        record: String,
        /// Exit status.
        status: std::process::ExitStatus,
        /// The end of its standard error, after a colon.
        said: String,
    },
    /// The program did not end in time.
    #[error("{} {verb} {record} did not end within {} s", path.display(), PATIENCE.as_secs())]
    Slow {
        /// The program.
        path: PathBuf,
        /// Requested action.
        verb: &'static str,
        /// Record of the action.
        record: String,
    },
}

/// Records that were set and have to be removed.
#[derive(Debug)]
pub(super) struct Published<'a> {
    hook: &'a Path,
    records: Vec<(String, String)>,
}

impl<'a> Published<'a> {
    pub(super) fn new(hook: &'a Path) -> Self {
        Self { hook, records: Vec::new() }
    }

    /// Sets a record.
    pub(super) async fn add(&mut self, name: String, value: String) -> Result<(), HookError> {
        // Recorded first: a program that fails halfway may have set it.
        self.records.push((name.clone(), value.clone()));
        call(self.hook, "present", &name, &value).await
    }

    /// Removes all records. A leftover record does no harm, so a failure is only logged.
    pub(super) async fn remove(self) {
        for (name, value) in &self.records {
            if let Err(error) = call(self.hook, "cleanup", name, value).await {
                warn!(%error, "a DNS record was not removed");
            }
        }
    }
}

async fn call(hook: &Path, verb: &'static str, name: &str, value: &str) -> Result<(), HookError> {
    let (path, record) = (hook.to_owned(), name.to_owned());
    let mut command = Command::new(hook);
    command.args([verb, name, value]).stdin(Stdio::null()).kill_on_drop(true);
    for (variable, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"GATEWAY_")) {
        command.env_remove(variable);
    }
    let output = match tokio::time::timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(source)) => return Err(HookError::Start { path, source }),
        Err(_elapsed) => return Err(HookError::Slow { path, verb, record }),
    };
    if output.status.success() {
        return Ok(());
    }
    Err(HookError::Failed { path, verb, record, status: output.status, said: last_words(&output) })
}

fn last_words(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let printable = |letter: char| if letter.is_control() { ' ' } else { letter };
    let line = text.trim_end().lines().next_back().unwrap_or_default();
    let line: String = line.chars().take(SAID_CHARS).map(printable).collect();
    if line.is_empty() { line } else { format!(": {line}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has another process write it: a child that another test forks meanwhile has open what this process has, until it runs
    /// its own program, and what is open for writing cannot be run.
    fn program(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("hook");
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 700 \"$0\"";
        let written = std::process::Command::new("sh").args(["-c", write]).arg(&path).arg(text).status().unwrap();
        assert!(written.success(), "{written}");
        path
    }

    #[tokio::test]
    async fn every_record_that_was_set_is_removed_also_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let text = format!("echo $* >> {}; case $3 in bad) echo no such zone >&2; exit 3;; esac", log.display());
        let hook = program(folder.path(), &text);
        let mut published = Published::new(&hook);
        published.add("_acme-challenge.a.example".to_owned(), "one".to_owned()).await.unwrap();
        let refused = published.add("_acme-challenge.a.example".to_owned(), "bad".to_owned()).await.unwrap_err();
        let told = refused.to_string();
        assert!(
            told.contains("present _acme-challenge.a.example failed") && told.ends_with(": no such zone"),
            "{told}"
        );
        published.remove().await;
        let lines = std::fs::read_to_string(log).unwrap();
        let expected = ["present _acme-challenge.a.example one", "present _acme-challenge.a.example bad"];
        let expected = expected.iter().map(|line| (*line).to_owned());
        let cleanup = expected.clone().map(|line| line.replace("present", "cleanup"));
        assert_eq!(lines.lines().collect::<Vec<_>>(), expected.chain(cleanup).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn program_that_is_not_there_is_named() {
        let mut published = Published::new(Path::new("/no/such/hook"));
        let told = published.add("a".to_owned(), "b".to_owned()).await.unwrap_err().to_string();
        assert!(told.starts_with("/no/such/hook cannot be run: "), "{told}");
    }
}
