//! Scans the folders of templates: which files exist, and what is wrong with them.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use gateway_types::ClusterName;
use gateway_workspaces::agents_dir::{FileRefusal, Stamp, cluster_of, folders, name_of, read_bounded};
use workspace_spec::environment::template::{TEMPLATE_BYTES_MAX, Template, TemplateName};

/// The folder of each cluster agent's templates.
pub(super) const FOLDER: &str = "environment_templates";

/// Ending of template files.
const ENDING: &str = "yaml";

/// Most templates of a cluster agent.
const TEMPLATES_MAX: usize = 200;

/// Result of one scan.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    /// Files that are new or have changed, and folders that cannot be read.
    pub(super) found: Vec<ChangedTemplate>,
    /// Cluster agents whose files are all known now.
    pub(super) listed: Vec<Listed>,
}

/// The files of a cluster agent.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) cluster: ClusterName,
    pub(super) folder: PathBuf,
    /// Each file, with the template that it is or would be.
    pub(super) files: BTreeMap<PathBuf, Option<TemplateName>>,
}

/// A file that is new or has changed.
#[derive(Debug)]
pub(super) struct ChangedTemplate {
    pub(super) path: PathBuf,
    /// `None` for folders, which are scanned each time.
    pub(super) stamp: Option<Stamp>,
    pub(super) read: Read,
}

/// Outcome of reading a file.
#[derive(Debug)]
pub(super) enum Read {
    Template(ClusterName, Template),
    Refused(About, FileRefusal),
}

/// Template that a refusal affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// The template that the file would be.
    Template(TemplateName),
    /// No template: the file's name is no template's name in any reading.
    Nothing,
    /// Any template: it is not known which files there are.
    Folder,
}

impl From<Option<TemplateName>> for About {
    fn from(meant: Option<TemplateName>) -> Self {
        meant.map_or(Self::Nothing, Self::Template)
    }
}

/// Reads every template below a folder, and returns the problems of each that cannot be in force. A folder that cannot
/// be read at all is reported by the readers of configurations there.
#[must_use]
pub fn check(dir: &Path) -> Vec<FileRefusal> {
    let refused = |found: ChangedTemplate| match found.read {
        Read::Template(..) => None,
        Read::Refused(_, refusal) => Some(refusal),
    };
    scan(dir, &HashMap::new()).found.into_iter().filter_map(refused).collect()
}

/// Reads the files that have changed.
pub(super) fn scan(dir: &Path, seen: &HashMap<PathBuf, Stamp>) -> Scanned {
    let mut scanned = Scanned::default();
    for folder in folders(dir).unwrap_or_default() {
        if folder.is_dir() {
            look(&folder, seen, &mut scanned);
        }
    }
    scanned
}

fn look(agent: &Path, seen: &HashMap<PathBuf, Stamp>, scanned: &mut Scanned) {
    let (folder, name) = (agent.join(FOLDER), name_of(agent));
    let refuse = |message: String| {
        let refusal = FileRefusal::whole(folder.clone(), name.as_str(), message);
        ChangedTemplate { path: folder.clone(), stamp: None, read: Read::Refused(About::Folder, refusal) }
    };
    let paths = match files(&folder) {
        Ok(paths) => paths,
        Err(message) => return scanned.found.push(refuse(message)),
    };
    let cluster = match cluster_of(&name) {
        Ok(cluster) => cluster,
        Err(_) if paths.is_empty() => return,
        Err(message) => return scanned.found.push(refuse(message)),
    };
    let mut listed = BTreeMap::new();
    for path in paths {
        // A file may be gone since it was listed.
        let Some(stamp) = Stamp::of(&path) else { continue };
        listed.insert(path.clone(), meant(&path));
        if seen.get(&path) != Some(&stamp) {
            let read = read(&cluster, &path);
            scanned.found.push(ChangedTemplate { path, stamp: Some(stamp), read });
        }
    }
    scanned.listed.push(Listed { cluster, folder, files: listed });
}

/// Returns the files of a folder that look like templates; none if there is no folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("the folder cannot be read: {error}")),
    };
    let mut paths = Vec::new();
    for entry in entries {
        // An entry that cannot be read would look like a deleted file.
        let path = entry.map_err(|error| format!("the folder cannot be read: {error}"))?.path();
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        // Editors and mounted volumes keep hidden files beside those that are meant.
        if !name_of(&path).starts_with('.') && matches!(ending.as_deref(), Some("yaml" | "yml")) {
            paths.push(path);
        }
        if paths.len() > TEMPLATES_MAX {
            return Err(format!("the folder has more than {TEMPLATES_MAX} templates"));
        }
    }
    paths.sort();
    Ok(paths)
}

/// Returns the template that a file's name was meant as, also if its ending or a capital letter is wrong.
fn meant(path: &Path) -> Option<TemplateName> {
    path.file_stem()?.to_str()?.to_ascii_lowercase().parse().ok()
}

/// Returns the template that a file is.
fn template_of(path: &Path) -> Result<TemplateName, String> {
    let name = name_of(path);
    let stem = name.strip_suffix(&format!(".{ENDING}"));
    let stem = stem.ok_or_else(|| format!("the file's name {name:?} must end in .{ENDING}"))?;
    stem.parse().map_err(|bad| format!("the file's name {name:?} is no template's: {bad}"))
}

fn read(cluster: &ClusterName, path: &Path) -> Read {
    let whole = |message| FileRefusal::whole(path.to_owned(), cluster.as_str(), message);
    let name = match template_of(path) {
        Ok(name) => name,
        Err(message) => return Read::Refused(meant(path).into(), whole(message)),
    };
    let bytes = match read_bounded(path, TEMPLATE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(message) => return Read::Refused(About::Template(name), whole(message)),
    };
    match Template::parse(&name, &bytes) {
        Ok(template) => Read::Template(cluster.clone(), template),
        Err(problems) => {
            let refusal = FileRefusal::of_file(path.to_owned(), cluster.as_str(), problems);
            Read::Refused(About::Template(name), refusal)
        }
    }
}
