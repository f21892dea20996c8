//! The folder of configurations: which files there are, and what is wrong with them.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::model::ClusterName;
use crate::workspaces::cluster_config::{CONFIG_BYTES_MAX, ClusterConfig, parse};
use crate::workspaces::document::Problem;

/// The file of each cluster.
const FILE: &str = "config.yaml";

/// Most folders that are looked at: far more than anybody has clusters.
const CLUSTERS_MAX: usize = 10_000;

/// What tells that a file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

/// A file that is new or has changed.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) stamp: Stamp,
    pub(super) read: Result<(ClusterName, ClusterConfig), Refusal>,
}

/// What kind of reason there is for a file not to be in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCode {
    /// It has mistakes, or is none that can be read.
    BadFile,
    /// It puts workspaces into other namespaces than those that the cluster's workspaces are in.
    NamespaceModeInUse,
}

impl RefusalCode {
    /// Returns its name, which stays.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadFile => "bad_file",
            Self::NamespaceModeInUse => "namespace_mode_in_use",
        }
    }
}

/// Why a file is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of reason.
    pub code: RefusalCode,
    /// The file.
    pub path: PathBuf,
    /// The name of its folder, which is the cluster's if it can be.
    pub cluster: String,
    /// All that is wrong with it; never empty.
    pub problems: Vec<Problem>,
}

impl fmt::Display for Refusal {
    /// Writes one line for each problem: file, place, what is wrong.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(formatter, "{separator}{}", self.path.display())?;
            for number in [problem.line, problem.column].into_iter().flatten() {
                write!(formatter, ":{number}")?;
            }
            let colon = if problem.path.is_empty() { "" } else { ": " };
            write!(formatter, ": {}{colon}{}", problem.path, problem.message)?;
        }
        Ok(())
    }
}

/// Reads every file of a folder, and returns what is wrong with each that cannot be in force. A folder that cannot be read
/// is one of them.
#[must_use]
pub fn check(dir: &Path) -> Vec<Refusal> {
    if let Err(error) = std::fs::read_dir(dir) {
        return vec![refusal(dir.to_owned(), String::new(), format!("the folder cannot be read: {error}"))];
    }
    scan(dir, &HashMap::new()).into_iter().filter_map(|found| found.read.err()).collect()
}

/// Reads the files that are not as they were. One that is gone, or that was never there, is none of them.
pub(super) fn scan(dir: &Path, seen: &HashMap<PathBuf, Stamp>) -> Vec<Found> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut folders: Vec<PathBuf> = entries.take(CLUSTERS_MAX).filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    folders.iter().filter_map(|folder| look(folder, seen)).collect()
}

/// Returns the files that were there and are not any more.
pub(super) fn gone(seen: &HashMap<PathBuf, Stamp>) -> Vec<PathBuf> {
    seen.keys().filter(|path| !path.exists()).cloned().collect()
}

fn look(folder: &Path, seen: &HashMap<PathBuf, Stamp>) -> Option<Found> {
    let path = folder.join(FILE);
    let metadata = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
    let stamp = Stamp { modified: metadata.modified().ok(), bytes: metadata.len() };
    if seen.get(&path) == Some(&stamp) {
        return None;
    }
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let read = read(&path, &name);
    Some(Found { path, stamp, read })
}

fn read(path: &Path, name: &str) -> Result<(ClusterName, ClusterConfig), Refusal> {
    let refuse = |message: String| refusal(path.to_owned(), name.to_owned(), message);
    let cluster: ClusterName =
        name.parse().map_err(|bad| refuse(format!("the folder's name {name:?} is no name: {bad}")))?;
    let bytes = read_bounded(path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let config = parse(&bytes).map_err(|problems| Refusal {
        code: RefusalCode::BadFile,
        path: path.to_owned(),
        cluster: name.to_owned(),
        problems,
    })?;
    Ok((cluster, config))
}

/// Reads no more than a little above the bound: what is longer is refused by whoever reads it.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(CONFIG_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn refusal(path: PathBuf, cluster: String, message: String) -> Refusal {
    let problems = vec![Problem { path: String::new(), line: None, column: None, message }];
    Refusal { code: RefusalCode::BadFile, path, cluster, problems }
}

/// Refuses a file with which the workspaces of its cluster could neither be kept nor ended: the cluster's agent answers for other
/// namespaces then.
pub(super) fn mode_in_use(path: PathBuf, cluster: &ClusterName, before: &ClusterConfig) -> Refusal {
    let place = match &before.shared_namespace {
        Some(namespace) => format!("in the namespace {namespace}"),
        None => "each in a namespace of its own".to_owned(),
    };
    let message = format!(
        "cannot be changed while the cluster has workspaces: they are {place}, and would neither be kept running nor be \
         terminated. Terminate them first, or configure another cluster"
    );
    let problems = vec![Problem { path: "workspaces.shared_namespace".to_owned(), line: None, column: None, message }];
    Refusal { code: RefusalCode::NamespaceModeInUse, path, cluster: cluster.to_string(), problems }
}
