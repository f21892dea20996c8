//! Scans the folder of configurations: which files exist, and what is wrong with them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::agents_dir::{FileRefusal, RefusalCode, Stamp, cluster_of, folders, name_of, read_bounded};
use gateway_types::ClusterName;
use workspace_spec::cluster_config::{CONFIG_BYTES_MAX, ClusterConfig, parse};
use workspace_spec::document::Problem;

/// The file of each cluster.
const FILE: &str = "config.yaml";

/// A file that is new or has changed.
#[derive(Debug)]
pub(super) struct ChangedConfig {
    pub(super) path: PathBuf,
    pub(super) stamp: Stamp,
    pub(super) read: Result<(ClusterName, ClusterConfig), FileRefusal>,
}

/// Reads every file of a folder, and returns the problems of each that cannot be in force. A folder that cannot be read
/// is one of them.
#[must_use]
pub fn check(dir: &Path) -> Vec<FileRefusal> {
    if let Err(error) = std::fs::read_dir(dir) {
        return vec![FileRefusal::whole(dir.to_owned(), "", format!("the folder cannot be read: {error}"))];
    }
    scan(dir, &HashMap::new()).into_iter().filter_map(|found| found.read.err()).collect()
}

/// Reads the files that have changed. Missing files are left out.
pub(super) fn scan(dir: &Path, seen: &HashMap<PathBuf, Stamp>) -> Vec<ChangedConfig> {
    folders(dir).unwrap_or_default().iter().filter_map(|folder| look(folder, seen)).collect()
}

/// Returns the files that were there at the last scan and are gone.
pub(super) fn gone(seen: &HashMap<PathBuf, Stamp>) -> Vec<PathBuf> {
    seen.keys().filter(|path| !path.exists()).cloned().collect()
}

fn look(folder: &Path, seen: &HashMap<PathBuf, Stamp>) -> Option<ChangedConfig> {
    let path = folder.join(FILE);
    let stamp = Stamp::of(&path)?;
    if seen.get(&path) == Some(&stamp) {
        return None;
    }
    let read = read(&path, &name_of(folder));
    Some(ChangedConfig { path, stamp, read })
}

fn read(path: &Path, name: &str) -> Result<(ClusterName, ClusterConfig), FileRefusal> {
    let refuse = |message: String| FileRefusal::whole(path.to_owned(), name, message);
    let cluster = cluster_of(name).map_err(refuse)?;
    let bytes = read_bounded(path, CONFIG_BYTES_MAX).map_err(refuse)?;
    let config = parse(&bytes).map_err(|problems| FileRefusal::of_file(path.to_owned(), name, problems))?;
    Ok((cluster, config))
}

/// Refuses a file with which the workspaces of its cluster could neither be kept nor ended: the cluster's agent would
/// manage other namespaces.
pub(super) fn mode_in_use(path: PathBuf, cluster: &ClusterName, before: &ClusterConfig) -> FileRefusal {
    let place = match &before.shared_namespace {
        Some(namespace) => format!("in the namespace {namespace}"),
        None => "each in a namespace of its own".to_owned(),
    };
    let message = format!(
        "cannot be changed while the cluster has workspaces: they are {place}, and would neither be kept running nor be \
         terminated. Terminate them first, or configure another cluster"
    );
    let problems = vec![Problem { path: "workspaces.shared_namespace".to_owned(), line: None, column: None, message }];
    FileRefusal { code: RefusalCode::NamespaceModeInUse, path, cluster: cluster.to_string(), problems }
}
