//! The source: where it is, of which commit and time, and what it is called in labels.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::programs::cargo;

/// Version of everything in this repository.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// License of everything in this repository.
const LICENSE: &str = env!("CARGO_PKG_LICENSE");

/// Folders of a checkout.
#[derive(Debug)]
pub(crate) struct Repository {
    pub(crate) root: PathBuf,
    pub(crate) target_folder: PathBuf,
    /// Folder with the sources of libraries.
    pub(crate) cargo_home: Option<PathBuf>,
}

/// Answer of Cargo, as far as it is read.
#[derive(Debug, Deserialize)]
struct Places {
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

impl Repository {
    /// Asks Cargo where everything is.
    ///
    /// # Errors
    /// Output of Cargo, if it fails.
    pub(crate) fn open() -> Result<Self> {
        let mut metadata = Command::new(cargo());
        metadata.args(["metadata", "--locked", "--no-deps", "--format-version", "1"]);
        let places: Places = serde_json::from_str(&run(&mut metadata)?)?;
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
        Ok(Self { root: places.workspace_root, target_folder: places.target_directory, cargo_home: home })
    }

    /// Returns places of this machine, and what a program shall say instead.
    pub(crate) fn remapped(&self) -> Vec<(String, &'static str)> {
        let home = self.cargo_home.as_ref().map(|home| (home.display().to_string(), "/cargo"));
        let own = [(self.root.display().to_string(), "/source"), (self.target_folder.display().to_string(), "/target")];
        own.into_iter().chain(home).collect()
    }

    /// Returns the time of the source in seconds since 1970: `SOURCE_DATE_EPOCH`, or that of the commit.
    ///
    /// # Errors
    /// Says how to name a time where there is none.
    pub(crate) fn time(&self) -> Result<u64> {
        if let Ok(named) = std::env::var("SOURCE_DATE_EPOCH") {
            return named.parse().with_context(|| format!("SOURCE_DATE_EPOCH is no number of seconds: {named}"));
        }
        let time = self.git(&["show", "--no-patch", "--format=%ct", "HEAD"]);
        let time = time.context("the time of the source is not known: set SOURCE_DATE_EPOCH, in seconds since 1970")?;
        Ok(time.parse()?)
    }

    /// Returns the commit, marked where files differ from it; nothing outside of a checkout.
    fn revision(&self) -> Option<String> {
        let commit = self.git(&["rev-parse", "HEAD"]).ok()?;
        let is_changed = !self.git(&["status", "--porcelain", "--untracked-files=no"]).ok()?.is_empty();
        Some(if is_changed { format!("{commit}-changed") } else { commit })
    }

    fn git(&self, arguments: &[&str]) -> Result<String> {
        let said = run(Command::new("git").args(arguments).current_dir(&self.root))?;
        Ok(said.trim().to_owned())
    }

    /// Returns the labels of an image.
    ///
    /// # Errors
    /// As [`Self::time`].
    pub(crate) fn labels(&self, title: &str, description: &str, source: Option<&str>) -> Result<Map<String, Value>> {
        let created = written(self.time()?)?;
        let known = [
            ("title", Some(title.to_owned())),
            ("description", Some(description.to_owned())),
            ("version", Some(VERSION.to_owned())),
            ("licenses", Some(LICENSE.to_owned())),
            ("created", Some(created)),
            ("revision", self.revision()),
            ("source", source.map(str::to_owned)),
        ];
        let label =
            |(name, value): (&str, Option<String>)| Some((format!("org.opencontainers.image.{name}"), json!(value?)));
        Ok(known.into_iter().filter_map(label).collect())
    }
}

/// Returns seconds since 1970 as in RFC 3339.
///
/// # Errors
/// Says that no calendar has the time.
pub(crate) fn written(seconds: u64) -> Result<String> {
    let time = Timestamp::from_second(i64::try_from(seconds)?).context("the time of the source is in no calendar")?;
    Ok(time.to_string())
}

/// Runs a program and returns what it prints.
///
/// # Errors
/// What it says, if it fails.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{} does not start", command.get_program().display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed: {}", command.get_program().display(), said.trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// Says how far the work is.
pub(crate) fn say(text: &str) {
    // Progress without a reader is no reason to fail.
    writeln!(std::io::stderr().lock(), "xtask: {text}").unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_written_as_in_rfc_3339() {
        assert_eq!(written(1).unwrap(), "1970-01-01T00:00:01Z");
        assert!(written(u64::MAX).is_err());
    }
}
