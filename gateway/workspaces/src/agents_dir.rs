//! Shared parts of all readers of `agents_dir`: one folder per cluster agent, the [watch] for changes by polling, and
//! the report of files that are not in force. [`templates`] scans the folders of templates.

pub mod templates;

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gateway_store::StoreError;
use gateway_types::ClusterName;
use tokio_util::sync::CancellationToken;
use workspace_spec::document::Problem;

/// Interval at which files are checked for changes. One `stat` call for each.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// A reader of `agents_dir`, with what it keeps between two scans.
pub trait FolderReader: Send {
    /// Scans the folder once, and takes over changes.
    fn look(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Logs that changes cannot be stored now.
    fn log_failure(&self, error: &StoreError);
}

/// Scans the folder at intervals and takes over changes, until `stop`. A store that does not answer is logged once, until
/// it answers again.
pub async fn watch(mut reader: impl FolderReader, stop: CancellationToken) {
    let mut is_store_told = false;
    loop {
        match reader.look().await {
            Ok(()) => is_store_told = false,
            Err(error) if !is_store_told => {
                is_store_told = true;
                reader.log_failure(&error);
            }
            Err(_) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
}

/// Most folders that are read: far more clusters than any operator has.
const CLUSTERS_MAX: usize = 10_000;

/// Modification time and size, by which a changed file is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl Stamp {
    /// Returns the stamp of a file; `None` if there is none, or if it is not a regular file.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
        Some(Self { modified: metadata.modified().ok(), bytes: metadata.len() })
    }
}

/// Kind of reason for a file not to be in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCode {
    /// The file has mistakes, or cannot be read.
    BadFile,
    /// The file puts workspaces into other namespaces than those that the cluster's workspaces are in.
    NamespaceModeInUse,
}

impl RefusalCode {
    /// Returns the stable name of the code.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadFile => "bad_file",
            Self::NamespaceModeInUse => "namespace_mode_in_use",
        }
    }
}

/// Reason for a file not to be in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRefusal {
    /// Kind of reason.
    pub code: RefusalCode,
    /// The file.
    pub path: PathBuf,
    /// Name of the file's folder, which is the cluster's name if it is a valid one.
    pub cluster: String,
    /// All that is wrong with it; never empty.
    pub problems: Vec<Problem>,
}

impl FileRefusal {
    /// Refuses a file as a whole.
    pub fn whole(path: PathBuf, cluster: impl Into<String>, message: impl Into<String>) -> Self {
        let problem = Problem { path: String::new(), line: None, column: None, message: message.into() };
        Self::of_file(path, cluster, vec![problem])
    }

    /// Refuses a file for its mistakes.
    pub fn of_file(path: PathBuf, cluster: impl Into<String>, problems: Vec<Problem>) -> Self {
        Self { code: RefusalCode::BadFile, path, cluster: cluster.into(), problems }
    }
}

impl fmt::Display for FileRefusal {
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

/// Returns the entries of a folder of folders, sorted.
///
/// # Errors
/// The system's, when the folder cannot be read.
pub fn folders(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir)?;
    let mut folders: Vec<PathBuf> = entries.take(CLUSTERS_MAX).filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    Ok(folders)
}

/// Returns the last part of a path, in printable form.
pub fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Parses the name of a folder as the name of its cluster.
///
/// # Errors
/// Says why the name is not valid.
pub fn cluster_of(name: &str) -> Result<ClusterName, String> {
    name.parse().map_err(|bad| format!("the folder's name {name:?} is no name: {bad}"))
}

/// Reads at most one byte more than the bound: the caller refuses longer contents.
///
/// # Errors
/// Says why the file cannot be read.
pub fn read_bounded(path: &Path, bytes_max: usize) -> Result<Vec<u8>, String> {
    let most = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    read.map(|_| bytes).map_err(|error| format!("cannot be read: {error}"))
}
